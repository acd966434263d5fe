"""A call from its request to its record: what it is, and what became of it so far."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any

from assay_stream.canonical.redaction import redacted_digest
from assay_stream.errors import InputError
from assay_stream.observe.events import Decision
from assay_stream.observe.jsonrpc import RequestKey

_KINDS = {"sampling/createMessage": "sampling", "roots/list": "roots"}
_ELICITATION = "elicitation/create"

INPUT_METHODS = frozenset((*_KINDS, _ELICITATION))
"""What a server may ask of its client."""


class InputCounter:
    """Counts what the server asks of its client during a call, and what is answered; keeps no content.

    Args:
        count_max: requests that are counted and hashed.
    """

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._by_kind: dict[str, int] = {}
        self._asked = self._accepted = self._declined = 0
        self._has_more = False
        self._lines = sha256()
        self._names: set[bytes] = set()

    def ask(self, request: object, exact: bool) -> None:
        """Count a request.

        Args:
            request: with its method and parameters.
            exact: whether its JSON is sound, so that it may be hashed.
        """
        if self._asked >= self._count_max:
            self._has_more = True
            return
        content: Mapping[str, Any] = request if isinstance(request, dict) else {}
        method, params = content.get("method"), content.get("params")
        if not isinstance(method, str) or method not in INPUT_METHODS:
            method = kind = "other"
        elif method == _ELICITATION:
            is_url = isinstance(params, dict) and params.get("mode") == "url"
            kind = "elicitation_url" if is_url else "elicitation_form"
        else:
            kind = _KINDS[method]
        digest = digest_of(params) if exact and params is not None else None
        self._lines.update(f"{method} {digest or '-'}\n".encode())
        self._asked += 1
        self._by_kind[kind] = self._by_kind.get(kind, 0) + 1

    def ask_all(self, requests: object, exact: bool, *, once: bool = False) -> None:
        """Count named requests; with ``once``, those whose names were counted before are known already."""
        for name, request in requests.items() if isinstance(requests, dict) else ():
            if once:
                key = text_hash(name)
                if key in self._names:
                    continue
                if self._asked < self._count_max:
                    self._names.add(key)
            self.ask(request, exact)
            if self._has_more:
                return

    def answer(self, *answers: object) -> None:
        """Count the client's answers to what was counted; what is no object is an error."""
        for each in answers[: self._asked - self._accepted - self._declined]:
            if isinstance(each, dict) and each.get("action", "accept") == "accept":
                self._accepted += 1
            else:
                self._declined += 1

    def answer_all(self, answers: object) -> None:
        """Count named answers."""
        if isinstance(answers, dict):
            self.answer(*answers.values())

    def as_json(self) -> dict[str, Any] | None:
        """Return the counts as records carry them; ``None`` if nothing was asked."""
        if not self._asked:
            return None
        counts = self._by_kind | {"accepted": self._accepted, "declined": self._declined}
        found: dict[str, Any] = {name: count for name, count in counts.items() if count}
        found["requests_hash"] = f"sha256:{self._lines.hexdigest()}"
        return found | {"more": True} if self._has_more else found


@dataclass(slots=True)
class OpenTask:
    """The task that a call became.

    Args:
        is_inline: whether its state holds its result, as since MCP 2026-07-28, so that nobody asks for that.
        is_cancelled: whether the server agreed to cancel it.
    """

    id_hash: bytes
    is_inline: bool
    status: str = "unknown"
    is_cancelled: bool = False


@dataclass(slots=True)
class OpenCall:
    """A call whose outcome is not known yet.

    Args:
        since: when its latest request passed, or the latest answer that leaves it open.
        wants_task: whether its request asks for a task, as before MCP 2026-07-28.
        inputs_max: requests of the server that are counted and hashed.
        token: what reports of its progress name.
        shown_name: what the client called the tool, where a gateway says how the server calls it.
        earlier: what it was before its latest request, a retry that nobody accepted yet, and what that named.
        elsewhere: outcome, code and digest of the first answer that came in an exchange that is not the call's.
    """

    tool_name: str
    tool_call_id: str
    reason_code: str
    started_at: datetime
    since: datetime
    snapshot_id: str | None
    args_hash: str | None
    trace: tuple[str, str] | None
    inputs_max: int
    wants_task: bool = False
    token: RequestKey | None = None
    decision: Decision = "allow"
    rounds: int = 1
    is_unmatched: bool = False
    progress_count: int = 0
    task: OpenTask | None = None
    shown_name: str | None = None
    earlier: tuple[Hashable, OpenCall] | None = None
    elsewhere: tuple[bool | None, str | None, str | None] | None = None
    _inputs: InputCounter | None = None

    @property
    def inputs(self) -> InputCounter:
        """What the server asks of its client."""
        if self._inputs is None:  # most calls need none
            self._inputs = InputCounter(self.inputs_max)
        return self._inputs

    def course(self) -> dict[str, Any]:
        """Return what its record says of how it went: only what is out of the ordinary."""
        course: dict[str, Any] = {}
        if self.rounds > 1:
            course["rounds"] = self.rounds
        if self.is_unmatched:
            course["unmatched_retry"] = True
        if self.progress_count:
            course["progress_count"] = self.progress_count
        if self._inputs is not None and (inputs := self._inputs.as_json()) is not None:
            course["inputs"] = inputs
        if self.task is not None:
            course["task"] = {"id_hash": f"sha256:{self.task.id_hash.hex()}", "status": self.task.status}
        return course

    def unfinished(self) -> tuple[bool | None, str]:
        """Return the outcome of a call that nothing more is heard of, after an answer that left it open."""
        task = self.task
        if task is None:
            return None, "input_required"
        if task.is_cancelled:
            return None, "cancelled"
        if task.status == "failed":
            return False, "task_failed"
        return None, "task_result_not_read" if task.status == "completed" else "task_unfinished"


def digest_of(value: Any) -> str | None:
    """Return the digest of a value without its secrets; ``None`` if it cannot be hashed."""
    try:
        return str(redacted_digest(value))
    except InputError:
        return None


def text_hash(text: str) -> bytes:
    """Return the SHA-256 of a text that somebody else wrote, which may be long."""
    return sha256(text.encode("utf-8", "backslashreplace")).digest()
