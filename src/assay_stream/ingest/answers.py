"""What clients of ``ingest`` are answered: a status and JSON, for each event of a request or for all of it.

Requests take room as they are read, and get 429 where there is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import web

from assay_stream.errors import InputError
from assay_stream.ingest.events import NOT_YOURS
from assay_stream.limits.serving import INGEST_LIMITS
from assay_stream.model.ingest import OutcomeCode

ACCEPTED, SOME_ACCEPTED = 202, 207
"""Not 200: it is in the log, and what the stages make of it is not known yet (CloudEvents web hooks 1.0, 2.1)."""

_STATUS_OF = {NOT_YOURS: 403, "too_large": 413}
_REFUSED, _UNAVAILABLE = 422, 503
_PRECEDENCE = (_UNAVAILABLE, 403, 413, _REFUSED)
_RETRY = "Retry-After"


@dataclass(frozen=True, slots=True)
class IngestOutcome:
    code: OutcomeCode
    error: InputError | None = None
    recorded: bool = False

    @property
    def status(self) -> int:
        if self.code in ("accepted", "duplicate"):
            return ACCEPTED
        if self.code == "unavailable":
            return _UNAVAILABLE
        return _status_of(self.error)

    def as_json(self, index: int) -> dict[str, Any]:
        content: dict[str, Any] = {"index": index, "outcome": self.code}
        if self.recorded:
            content["recorded"] = True
        if self.error is not None:
            content["error"] = _problem(self.error.code, self.error.message, self.error.path)
        return content


def _status_of(error: InputError | None) -> int:
    return _STATUS_OF.get("" if error is None else error.code, _REFUSED)


def answer(outcomes: Sequence[IngestOutcome]) -> web.Response:
    """Return the answer to a request whose events were all looked at.

    Its status is 202 if all were accepted, 207 if some were, and otherwise that of the gravest refusal.
    """
    statuses = {outcome.status for outcome in outcomes}
    if statuses == {ACCEPTED}:
        status = ACCEPTED
    elif ACCEPTED in statuses:
        status = SOME_ACCEPTED
    else:
        status = next(each for each in _PRECEDENCE if each in statuses)
    body = orjson.dumps({"outcomes": [outcome.as_json(index) for index, outcome in enumerate(outcomes)]})
    response = web.Response(status=status, body=body, content_type="application/json")
    if _UNAVAILABLE in statuses:
        response.headers[_RETRY] = str(INGEST_LIMITS.away_retry_after_s)
    return response


def refusal(status: int, code: str, message: str, path: str = "") -> web.Response:
    body = orjson.dumps({"error": _problem(code, message, path)})
    response = web.Response(status=status, body=body, content_type="application/json")
    if status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    elif status == 429:
        response.headers[_RETRY] = str(INGEST_LIMITS.retry_after_s)
    elif status == _UNAVAILABLE:
        response.headers[_RETRY] = str(INGEST_LIMITS.away_retry_after_s)
    elif status == 405:
        response.headers["Allow"] = "POST"
    return response


def refusal_for(error: InputError) -> web.Response:
    return refusal(_status_of(error), error.code, error.message, error.path)


def _problem(code: str, message: str, path: str) -> dict[str, str]:
    return {"code": code, "message": message, **({"path": path} if path else {})}


class RequestRefused(Exception):  # noqa: N818 - an answer
    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(code)
        self.answer = refusal(status, code, message)
        self.code = code


@dataclass(slots=True)
class Room:
    left_bytes: int


class HeldRoom:
    def __init__(self, rooms: Sequence[Room]) -> None:
        self._rooms = rooms
        self._bytes = 0

    def take(self, size_bytes: int) -> None:
        """Make room.

        Raises:
            RequestRefused: 429 if there is none.
        """
        if any(size_bytes > room.left_bytes for room in self._rooms):
            raise RequestRefused(429, "too_many_requests", "too much is waiting for Kafka: try again")
        for room in self._rooms:
            room.left_bytes -= size_bytes
        self._bytes += size_bytes

    def release(self) -> None:
        for room in self._rooms:
            room.left_bytes += self._bytes
        self._bytes = 0
