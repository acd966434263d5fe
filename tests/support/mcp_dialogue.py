"""Dialogues for the wire observer: what client and server say, line by line, and what comes of it."""

import itertools
import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from assay_stream.observe import Observation, Vantage
from assay_stream.observe.session import Commands, Session
from assay_stream.observe.tap import LineSession
from assay_stream.observe.wire import Direction

START = datetime(2026, 11, 21, 2, 6, 7, 386_000, tzinfo=UTC)
THE_VANTAGE = Vantage(server_id="the-server", observer_id="the-observer", server_scoped=True)


def counted_ids() -> dict[str, Any]:
    """Names of a session under test: its ids are ``id-1``, ``id-2``."""
    ids = itertools.count(1)
    return {"session_id": "session", "new_id": lambda: f"id-{next(ids)}"}


class InPieces:
    """The same session at the end of a pipe that hands over byte by byte, or long lines in some thousand pieces."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._lines = LineSession(session, lambda: pytest.fail("inspecting failed"))

    def passes(self, direction: Direction, line: bytes, at: datetime) -> Commands:
        size = len(line) // 4_000 + 1
        pieces = [line[start : start + size] for start in range(0, len(line), size)]
        [commands] = [each for piece in [*pieces, b"\n"] for each in self._lines.receive(direction, piece, lambda: at)]
        return commands


class Dialogue:
    """A connection whose clock moves one millisecond a line and whose ids count up: ``id-1``, ``id-2``.

    Every line is observed whole, and again in pieces, unless ``cut`` says otherwise.
    """

    def __init__(self, *, cut: bool = True, **options: Any) -> None:
        self.observer = Session(THE_VANTAGE, **counted_ids(), **options)
        self._pieces = InPieces(Session(THE_VANTAGE, **counted_ids(), **options)) if cut else None
        self.now = START

    def client(self, message: object) -> list[dict[str, Any]]:
        return self._say("client->server", message)

    def server(self, message: object) -> list[dict[str, Any]]:
        return self._say("server->client", message)

    def request(self, method: str, number: object, **params: Any) -> list[dict[str, Any]]:
        return self.client({"jsonrpc": "2.0", "id": number, "method": method, "params": params})

    def result(self, number: object, result: Any) -> list[dict[str, Any]]:
        return self.server({"jsonrpc": "2.0", "id": number, "result": result})

    def call(self, number: object, name: str = "echo", **params: Any) -> list[dict[str, Any]]:
        return self.request("tools/call", number, name=name, **params)

    def round(self, method: str, number: object, result: Any, **params: Any) -> list[dict[str, Any]]:
        """A request and its result, and what comes of the result."""
        self.request(method, number, **params)
        return self.result(number, result)

    def called(self, number: object, result: Any, **params: Any) -> list[dict[str, Any]]:
        """The same of a call."""
        self.call(number, **params)
        return self.result(number, result)

    def close(self) -> list[dict[str, Any]]:
        return [json.loads(observation.value) for observation in self.observer.close(self.tick())]

    def raw(self, direction: Direction, line: bytes) -> list[Observation]:
        at = self.tick()
        observations = self.observer.feed(direction, line, at)
        if self._pieces is not None:
            assert self._pieces.passes(direction, line, at).observations == observations
        return observations

    def _say(self, direction: Direction, message: object) -> list[dict[str, Any]]:
        line = message if isinstance(message, bytes) else json.dumps(message).encode()
        return [json.loads(observation.value) for observation in self.raw(direction, line)]

    def tick(self) -> datetime:
        now, self.now = self.now, self.now + timedelta(milliseconds=1)
        return now


def data_of(observations: Iterable[Observation]) -> list[dict[str, Any]]:
    return [json.loads(each.value)["data"] for each in observations]


def tool(name: str) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}}


def names(event: dict[str, Any]) -> list[str]:
    return [entry["name"] for entry in event["data"]["tools"]]
