"""The open calls of a connection: those that wait for an answer, those that an answer left open, and their tasks.

Until 2025-11-25 a client asks for a task (``params.task``), gets ``{"task": ...}``, and fetches the result with
``tasks/result``. Since 2026-07-28 (extension ``io.modelcontextprotocol/tasks``) the server decides: its result has
``resultType: "task"``, and the state of the task holds the result (``tasks/get``, ``notifications/tasks``).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any, NamedTuple

from assay_stream.canonical.redaction import redacted_digest
from assay_stream.errors import InputError
from assay_stream.observe.jsonrpc import RequestKey, meta_of
from assay_stream.observe.observation import Decision

_KINDS = {"sampling/createMessage": "sampling", "roots/list": "roots"}
_ELICITATION = "elicitation/create"

INPUT_METHODS = frozenset((*_KINDS, _ELICITATION))
"""What a server may ask of its client."""

TASK_METHODS = frozenset(("tasks/get", "tasks/result", "tasks/cancel", "tasks/update"))
"""Requests about one task."""

TASK_NOTIFICATIONS = frozenset(("notifications/tasks", "notifications/tasks/status"))
INVALID_PARAMS = "jsonrpc_-32602"
"""What a server answers for a task that it does not know, or no more."""

_RELATED = "io.modelcontextprotocol/related-task"
_STATUSES = frozenset(("working", "input_required", "completed", "failed", "cancelled"))


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
        if isinstance(answers, dict):
            self.answer(*answers.values())

    def as_json(self) -> dict[str, Any] | None:
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


class HeldCalls:
    """Calls that an answer left open, by what the next request for them names; of equal ones the oldest comes first."""

    def __init__(self) -> None:
        self._calls: OrderedDict[int, tuple[Hashable, OpenCall]] = OrderedDict()
        self._numbers: dict[Hashable, deque[int]] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._calls)

    def put(self, key: Hashable, call: OpenCall) -> None:
        self._next += 1
        self._calls[self._next] = key, call
        self._numbers.setdefault(key, deque()).append(self._next)

    def get(self, key: Hashable) -> OpenCall | None:
        numbers = self._numbers.get(key)
        return None if numbers is None else self._calls[numbers[0]][1]

    def take(self, key: Hashable) -> OpenCall | None:
        numbers = self._numbers.get(key)
        return None if numbers is None else self._remove(key, numbers[0])

    def oldest(self) -> OpenCall | None:
        return next((call for _, call in self._calls.values()), None)

    def take_oldest(self) -> OpenCall:
        number, (key, _) = next(iter(self._calls.items()))
        return self._remove(key, number)

    def _remove(self, key: Hashable, number: int) -> OpenCall:
        numbers = self._numbers[key]
        numbers.popleft()  # the oldest of its key in either case
        if not numbers:
            del self._numbers[key]
        return self._calls.pop(number)[1]


class Outcome(NamedTuple):
    """Whether a call succeeded, ``None`` if that is not known, and an error code of our own."""

    ok: bool | None
    code: str | None


def task_hash(holder: Mapping[str, Any]) -> bytes | None:
    """Return the hash of the task id in a request, a state, or a reference; ``None`` if there is none."""
    task_id = holder.get("taskId")
    return text_hash(task_id) if isinstance(task_id, str) else None


def related_task(params: Mapping[str, Any]) -> bytes | None:
    """Return the hash of the id of the task that a message belongs to, if it says so."""
    related = meta_of(params).get(_RELATED)
    return task_hash(related) if isinstance(related, dict) else None


def task_of(result: Mapping[str, Any], *, wanted: bool) -> tuple[OpenTask, Mapping[str, Any]] | None:
    """Return the task that the result of a call is a handle of, with its state; ``None`` if it is a result.

    Args:
        wanted: whether the request asked for a task.
    """
    is_inline = result.get("resultType") == "task"
    state = result if is_inline else result.get("task") if wanted else None
    id_hash = task_hash(state) if isinstance(state, dict) else None
    return None if id_hash is None or not isinstance(state, dict) else (OpenTask(id_hash, is_inline), state)


def state_in(result: object) -> Mapping[str, Any] | None:
    """Return the state of a task that came in place of its result, by itself or in a handle; ``None`` if none did."""
    if not isinstance(result, dict):
        return None
    handle = task_of(result, wanted=True)
    if handle is not None:
        return handle[1]
    return result if task_hash(result) is not None and "status" in result else None


def final_in(state: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the answer to a call that the state of its task holds; ``None`` if it holds none."""
    member = {"completed": "result", "failed": "error"}.get(status_of(state))
    return {member: state[member]} if member is not None and member in state else None


def status_of(state: Mapping[str, Any]) -> str:
    """Return the status in a task's state: one of MCP's words, or ``unknown``."""
    status = state.get("status")
    return status if isinstance(status, str) and status in _STATUSES else "unknown"


def is_retry(params: Mapping[str, Any]) -> bool:
    """Tell whether a call goes on with another one that the server asked input for."""
    return params.get("requestState") is not None or params.get("inputResponses") is not None


def retry_key(tool_name: str, args_hash: str | None, state: object) -> Hashable:
    """Return what a call that waits for input and its retry have in common: tool, arguments, and the server's state."""
    return "retry", tool_name, args_hash, text_hash(state) if isinstance(state, str) else None


def outcome_of(message: Mapping[str, Any]) -> Outcome:
    """Return the outcome that a response means: never the server's words."""
    error = message.get("error")
    if "result" not in message or error is not None:
        code = error.get("code") if isinstance(error, dict) else None
        is_number = isinstance(code, int) and not isinstance(code, bool) and abs(code) < 2**53
        return Outcome(False, f"jsonrpc_{code}" if is_number else "jsonrpc_error")
    result = message["result"]
    if not isinstance(result, dict):
        return Outcome(False, "bad_result")
    kind = result.get("resultType", "complete")
    if kind != "complete":
        # Not final, in a way that is not known here.
        return Outcome(None, "interim_result")
    failed = result.get("isError")
    if failed is None or failed is False:
        return Outcome(True, None)
    # Some clients take other values for true, others refuse them.
    return Outcome(False, "tool_error" if failed is True else "bad_result")
