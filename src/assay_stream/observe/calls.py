"""Tool calls and their outcomes: what becomes a call event. One call, one event, however many messages it takes.

Rules:

1. A call ends with its response, unless that is a task handle or asks for input.
2. The outcome of a task is the outcome of its call: its result, its error, or why there is neither.
3. A call that waits for input goes on with the retry that names the same tool, arguments and ``requestState``. Of
   identical calls, the oldest goes on. A retry that matches no known call is a new call.
4. Server requests and progress belong to the call that they name, that they share an
   HTTP exchange with, or that is the only one pending. Otherwise they belong to none, and are counted.
5. Open calls are bounded in number and time. However a call ends, it yields its event, with a reason.

Arguments, results and input requests are hashed after redaction and dropped at once; none of the server's text, no
task id and no ``requestState`` enters an event.

Until 2025-11-25 a client asks for a task (``params.task``), gets ``{"task": ...}``, and fetches the result with
``tasks/result``. Since 2026-07-28 (extension ``io.modelcontextprotocol/tasks``) the server decides: its result has
``resultType: "task"``, and the state of the task holds the result (``tasks/get``, ``notifications/tasks``).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, NamedTuple

from assay_stream.canonical.digest import redacted_digest
from assay_stream.errors import InputError
from assay_stream.observe.observation import Decision, call_event, timing_of
from assay_stream.observe.wire import (
    Held,
    Pending,
    RequestKey,
    WireConnection,
    meta_of,
    params_of,
    request_key,
    text_hash,
    trace_of,
)

CALL = "tools/call"

_KINDS = {"sampling/createMessage": "sampling", "roots/list": "roots"}
_ELICITATION = "elicitation/create"

INPUT_METHODS = frozenset((*_KINDS, _ELICITATION))
"""Requests that a server may send to its client."""

TASK_METHODS = frozenset(("tasks/get", "tasks/result", "tasks/cancel", "tasks/update"))
"""Requests about one task."""

TASK_NOTIFICATIONS = frozenset(("notifications/tasks", "notifications/tasks/status"))
PROGRESS = "notifications/progress"

_UNKNOWN_TASK = "jsonrpc_-32602"
_RELATED = "io.modelcontextprotocol/related-task"
_STATUSES = frozenset(("working", "input_required", "completed", "failed", "cancelled"))
_TOKEN_CHARS_MAX = 256
"""Longer progress tokens are not followed; clients use counters or UUIDs."""


class InputCounter:
    """Count the server's input requests during a call, up to a limit, and their answers; keep no content."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._by_kind: dict[str, int] = {}
        self._asked = self._accepted = self._declined = 0
        self._has_more = False
        self._lines = sha256()
        self._names: set[bytes] = set()

    def ask(self, request: object, exact: bool) -> None:
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
        """Count named requests; with ``once``, skip names that were counted before."""
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
        """Count the answers to counted requests; anything but an object is an error."""
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
        is_inline: whether its state holds its result (since MCP 2026-07-28), so that no ``tasks/result`` follows.
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
        since: time of its latest request, or of the latest answer that left it open.
        wants_task: whether its request asks for a task, as before MCP 2026-07-28.
        inputs_max: server requests that are counted and hashed.
        token: its progress token.
        shown_name: the client's name for the tool, where a gateway reports the server's own name.
        earlier: its state before its latest request (a retry not accepted yet), and the key that the retry named.
        elsewhere: outcome, code and digest of the first answer in another exchange than its own.
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

    def unfinished(self) -> tuple[bool | None, str]:
        """Return the outcome of a call that an answer left open for good."""
        task = self.task
        if task is None:
            return None, "input_required"
        if task.is_cancelled:
            return None, "cancelled"
        if task.status == "failed":
            return False, "task_failed"
        return None, "task_result_not_read" if task.status == "completed" else "task_unfinished"


def digest_of(value: Any) -> str | None:
    """Return the digest after redaction; ``None`` if the value cannot be hashed."""
    try:
        return str(redacted_digest(value))
    except InputError:
        return None


class Outcome(NamedTuple):
    """Whether a call succeeded (``None`` if unknown), and one of our own error codes."""

    ok: bool | None
    code: str | None


def task_hash(holder: Mapping[str, Any]) -> bytes | None:
    task_id = holder.get("taskId")
    return text_hash(task_id) if isinstance(task_id, str) else None


def task_of(result: Mapping[str, Any], *, wanted: bool) -> tuple[OpenTask, Mapping[str, Any]] | None:
    """Return the task, and its state, if a call's result is a handle; ``wanted``: if the client asked for a task."""
    is_inline = result.get("resultType") == "task"
    state = result if is_inline else result.get("task") if wanted else None
    id_hash = task_hash(state) if isinstance(state, dict) else None
    return None if id_hash is None or not isinstance(state, dict) else (OpenTask(id_hash, is_inline), state)


def state_in(result: object) -> Mapping[str, Any] | None:
    if not isinstance(result, dict):
        return None
    handle = task_of(result, wanted=True)
    if handle is not None:
        return handle[1]
    return result if task_hash(result) is not None and "status" in result else None


def final_in(state: Mapping[str, Any]) -> Mapping[str, Any] | None:
    member = {"completed": "result", "failed": "error"}.get(status_of(state))
    return {member: state[member]} if member is not None and member in state else None


def status_of(state: Mapping[str, Any]) -> str:
    """Return a task's status: one of MCP's values, or ``unknown``."""
    status = state.get("status")
    return status if isinstance(status, str) and status in _STATUSES else "unknown"


def retry_key(tool_name: str, args_hash: str | None, state: object) -> Hashable:
    """Return the key that a call waiting for input shares with its retry: tool, arguments, and ``requestState``."""
    return "retry", tool_name, args_hash, text_hash(state) if isinstance(state, str) else None


def outcome_of(message: Mapping[str, Any]) -> Outcome:
    """Return the outcome of a response, without any of the server's text."""
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


def _final_of(method: str, message: Mapping[str, Any]) -> Mapping[str, Any] | None:
    result = message.get("result")
    state = state_in(result)
    if state is None and method == "tasks/result":
        return message
    state = state if state is not None or not isinstance(result, dict) else result
    return None if state is None else final_in(state)


class CallObserver:
    def __init__(self, wire: WireConnection) -> None:
        self._wire = wire
        self._open_limit = timedelta(seconds=wire.limits.open_call_limit_s)
        self._pending = Pending[OpenCall](wire.pending_max)
        self._task_requests = Pending[tuple[str, bytes]](wire.pending_max)
        """Requests about tasks: their method, and the task."""
        self._held = Held[OpenCall]()
        """Calls that an answer left open, by the key of the next request for them."""
        self._asked: OrderedDict[RequestKey, OpenCall] = OrderedDict()
        """Server requests that the client has not answered."""
        self._tokens: dict[RequestKey, OpenCall] = {}
        """Calls by progress token."""
        self._highest_id: float | None = None
        self._is_closed = False

    @property
    def open_calls(self) -> int:
        return len(self._pending) + len(self._held)

    def request(
        self, key: RequestKey | None, params: Mapping[str, Any], snapshot_id: str | None, shown_name: str | None
    ) -> None:
        call = self._begin(key, params, snapshot_id)
        call.shown_name = shown_name
        if key is None:
            self._end(call, None, "no_response")
            return
        evicted = self._pending.put(key, call)
        self._unfollow_progress(call)
        token = request_key(meta_of(params).get("progressToken"), self._wire.exchange)
        if token is not None and not isinstance(token[1], bytes) and len(str(token[1])) <= _TOKEN_CHARS_MAX:
            self._tokens[token], call.token = call, token
        if evicted is not None:
            self._wire.counts.evicted_requests += 1
            self._end(evicted[1], None, "no_response")

    def refuse(self, request: Mapping[str, Any], snapshot_id: str | None, reason_code: str) -> None:
        """Record a call that was not forwarded; ``reason_code`` says why."""
        call = self._begin(request_key(request.get("id")), params_of(request), snapshot_id)
        call.reason_code, call.decision = reason_code, "deny"
        self._end(call, None, "not_passed_on")

    def task_request(self, method: str, key: RequestKey, params: Mapping[str, Any]) -> None:
        id_hash = task_hash(params)
        if id_hash is None:
            return
        if method == "tasks/update" and (call := self._held.get(("task", id_hash))) is not None:
            call.inputs.answer_all(params.get("inputResponses"))
        if self._task_requests.put(key, (method, id_hash)) is not None:
            self._wire.counts.evicted_requests += 1

    def response(self, key: RequestKey, message: Mapping[str, Any]) -> bool:
        """Return False if it answers neither a call nor a request about a task."""
        asked = self._task_requests.take(key)
        if asked is not None:
            self._task_answered(*asked, message)
            return True
        call = self._pending.take(key)
        if call is None:
            return False
        result = message.get("result")
        handle = task_of(result, wanted=call.wants_task) if isinstance(result, dict) else None
        if isinstance(result, dict) and result.get("resultType") == "input_required":
            call.inputs.ask_all(result.get("inputRequests"), self._wire.exact)
            self._hold(retry_key(call.tool_name, call.args_hash, result.get("requestState")), call)
        elif handle is not None:
            call.task, state = handle
            if not self._advance(call, call.task, state):
                self._hold(("task", call.task.id_hash), call)
        else:
            self._result(call, message)
        return True

    def awaits(self, key: RequestKey) -> bool:
        return self._pending.get(key) is not None or self._task_requests.get(key) is not None

    def undo(self, key: RequestKey) -> None:
        """Restore the state that a task or waiting call had before a request."""
        self._task_requests.take(key)
        call = self._pending.get(key)
        if call is not None and call.earlier is not None:
            self._unfollow_progress(call)
            self._pending.take(key)
            self._hold(*call.earlier)

    def strayed(self, keys: Iterable[RequestKey], message: Mapping[str, Any]) -> None:
        """Record an answer in another exchange than its call's: clients that match by id alone accept it."""
        for key in keys:
            call = self._pending.get(self._pending.with_id(key))
            final: Mapping[str, Any] | None = message
            if call is None and (asked := self._task_requests.latest_with_id(key)) is not None:
                call, final = self._held.get(("task", asked[1])), _final_of(asked[0], message)
            if call is not None and call.elsewhere is None and final is not None:
                call.elsewhere = *outcome_of(final), self._result_hash(final)

    def task_changed(self, params: Mapping[str, Any]) -> None:
        self._task_state(task_hash(params), params)

    def progressed(self, params: Mapping[str, Any]) -> None:
        for scope in (self._wire.exchange, 0):
            token = request_key(params.get("progressToken"), scope)
            if token is not None and token in self._tokens:
                self._tokens[token].progress_count += 1
                return

    def client_asked(self, message: Mapping[str, Any]) -> None:
        related = meta_of(params_of(message)).get(_RELATED)
        id_hash = task_hash(related) if isinstance(related, dict) else None
        call = self._pending.only_one(self._wire.exchange) if id_hash is None else self._held.get(("task", id_hash))
        if call is None:
            self._wire.counts.unlinked_requests += 1
            return
        call.inputs.ask(message, self._wire.exact)
        key = request_key(message.get("id"))
        if key is not None:
            self._asked[key] = call
            if len(self._asked) > self._wire.pending_max:
                self._asked.popitem(last=False)

    def client_answered(self, message: Mapping[str, Any]) -> None:
        key = request_key(message.get("id"))
        call = None if key is None else self._asked.pop(key, None)
        if call is not None:
            call.inputs.answer(message.get("result"))

    def give_up(self, key: RequestKey, code: str, *, ok: bool | None = None) -> bool:
        """End the pending call with this id as unanswered, and return True if there is one; ``code`` says why."""
        self._task_requests.take(key)
        call = self._pending.take(key)
        if call is not None:
            self._end(call, ok, code)
        return call is not None

    def cancelled(self, key: RequestKey) -> None:
        """End the call that a client cancels. Over HTTP, the cancellation comes in another exchange."""
        self.give_up(self._pending.with_id(key), "cancelled")

    def orphan(self, key: RequestKey) -> None:
        """Allow another exchange to answer the request with this id."""
        asked = self._task_requests.take(key)
        if asked is not None:
            self._task_requests.take(key[:2])
            self._task_requests.put(key[:2], asked)
        if self._is_closed:
            self.give_up(key, "no_response")
        elif (call := self._pending.take(key)) is not None:
            self.give_up(key[:2], "id_reused")
            self._pending.put(key[:2], call)
            self._share_progress(call)

    def expire(self) -> None:
        at = self._wire.at
        while (pending := self._pending.oldest()) is not None and at - pending[1].since > self._open_limit:
            self.give_up(pending[0], "timed_out")
        while (held := self._held.oldest()) is not None and at - held[1].since > self._open_limit:
            self._held.take_oldest()
            self._end(held[1], *held[1].unfinished())

    def close(self) -> None:
        """End all open calls with the connection: those without an answer first, each group oldest first."""
        # Exchanges of HTTP may outlast their connection: what they still answer is final.
        self._is_closed = True
        self.expire()
        while (pending := self._pending.oldest()) is not None:
            self.give_up(pending[0], "no_response")
        while (held := self._held.take_oldest()) is not None:
            self._end(held[1], *held[1].unfinished())

    def _begin(self, key: RequestKey | None, params: Mapping[str, Any], snapshot_id: str | None) -> OpenCall:
        wire, name = self._wire, params.get("name")
        # A name over the limit is rejected downstream for its length; one character over suffices.
        tool_name = name[: wire.limits.identifier_chars_max + 1] if isinstance(name, str) else ""
        args_hash = digest_of(params["arguments"]) if wire.exact and "arguments" in params else None
        reason_code = "forwarded" if wire.exact else "forwarded_inexact_json"
        resumes = params.get("requestState") is not None or params.get("inputResponses") is not None
        waits_for = retry_key(tool_name, args_hash, params.get("requestState"))
        earlier = self._held.take_under(waits_for) if resumes else None
        if earlier is not None:
            self._unfollow_progress(earlier)
            call = replace(
                earlier, since=wire.at, reason_code=reason_code, rounds=earlier.rounds + 1, _inputs=copy(earlier.inputs)
            )
            call.earlier = waits_for, replace(earlier, earlier=None)
            call.inputs.answer_all(params.get("inputResponses"))
            return call
        wire.counts.calls += 1
        return OpenCall(
            tool_name=tool_name,
            tool_call_id=self._call_id(key),
            reason_code=reason_code,
            started_at=wire.at,
            since=wire.at,
            snapshot_id=snapshot_id,
            args_hash=args_hash,
            trace=trace_of(meta_of(params).get("traceparent")),
            inputs_max=wire.limits.call_inputs_max,
            wants_task=isinstance(params.get("task"), dict),
            is_unmatched=resumes,
        )

    def _call_id(self, key: RequestKey | None) -> str:
        """Return the id of a new call, already counted; unique across connections."""
        session_id, number = self._wire.session_id, self._wire.counts.calls
        if key is None:
            return f"{session_id}:#{number}"
        is_text, value = key[:2]
        if isinstance(value, bytes):
            return f"{session_id}:sha256:{value.hex()}#{number}"
        text = f'"{value}"' if is_text else str(value)
        if len(text) > self._wire.limits.identifier_chars_max // 2 or not text.isprintable():
            text = "sha256:" + text_hash(text).hex()
        # Ids that count up are new, which needs no memory of them all. Any other id may have been used before, so
        # the call's number is appended.
        if isinstance(value, int | float) and (self._highest_id is None or value > self._highest_id):
            self._highest_id = value
            return f"{session_id}:{text}"
        return f"{session_id}:{text}#{number}"

    def _share_progress(self, call: OpenCall) -> None:
        """Accept progress of a call in another exchange than its own."""
        token = call.token
        if token is not None and len(token) == 3:
            self._unfollow_progress(call)
            if token[:2] not in self._tokens:
                self._tokens[token[:2]], call.token = call, token[:2]

    def _unfollow_progress(self, call: OpenCall) -> None:
        if call.token is not None and self._tokens.get(call.token) is call:
            del self._tokens[call.token]
        call.token = None

    def _hold(self, key: Hashable, call: OpenCall) -> None:
        if self._is_closed or self._wire.at - call.started_at > self._open_limit:
            self._end(call, *call.unfinished())
            return
        displaced = self._held.take_under(key) if call.task is not None else None
        if displaced is not None:
            self._end(displaced, None, "task_id_reused")
        call.since = self._wire.at
        self._share_progress(call)
        self._held.put(key, call)
        if len(self._held) > self._wire.limits.held_calls_max and (oldest := self._held.take_oldest()) is not None:
            self._wire.counts.evicted_requests += 1
            self._end(oldest[1], *oldest[1].unfinished())

    def _task_answered(self, method: str, id_hash: bytes, message: Mapping[str, Any]) -> None:
        call, result = self._held.get(("task", id_hash)), message.get("result")
        if call is None or call.task is None:
            return
        if method == "tasks/result":
            # The call's own error, unless the server says that it does not know the task.
            is_own = outcome_of(message).code != _UNKNOWN_TASK or call.task.status == "failed"
            if call.task.is_inline or not ("result" in message or is_own):
                return
            state = state_in(result)
            if state is None:
                self._held.take_under(("task", id_hash))
                self._result(call, message)
            else:
                self._task_state(id_hash, state, is_answer=True)
        elif method != "tasks/update" and isinstance(result, dict):
            call.task.is_cancelled |= method == "tasks/cancel"
            if "status" in result:
                self._task_state(id_hash, result, is_answer=True)

    def _task_state(self, id_hash: bytes | None, state: Mapping[str, Any], *, is_answer: bool = False) -> None:
        call = self._held.get(("task", id_hash))
        if call is None or call.task is None:
            return
        if is_answer and task_hash(state) not in (None, id_hash):
            self._held.take_under(("task", id_hash))
            self._end(call, None, "task_id_mismatch")
        elif self._advance(call, call.task, state):
            self._held.take_under(("task", id_hash))

    def _advance(self, call: OpenCall, task: OpenTask, state: Mapping[str, Any]) -> bool:
        """Return True if the call ended with its task."""
        task.status = status_of(state)
        if task.status == "cancelled":
            self._end(call, None, "cancelled")
            return True
        if not task.is_inline:
            return False
        if task.status == "input_required":
            call.inputs.ask_all(state.get("inputRequests"), self._wire.exact, once=True)
        final = final_in(state)
        if final is not None:
            self._result(call, final)
        return final is not None

    def _result_hash(self, message: Mapping[str, Any]) -> str | None:
        return digest_of(message["result"]) if self._wire.exact and "result" in message else None

    def _result(self, call: OpenCall, message: Mapping[str, Any]) -> None:
        outcome = outcome_of(message)
        if call.task is not None and call.task.is_cancelled:
            outcome = Outcome(None, "cancelled")
        elif call.task is not None and call.task.status == "failed" and outcome.ok:
            outcome = Outcome(False, "task_failed")
        result_hash = self._result_hash(message)
        if outcome.ok and call.elsewhere not in (None, (*outcome, result_hash)):
            outcome = Outcome(None, "answers_differ")
        self._end(call, *outcome, result_hash)

    def _end(self, call: OpenCall, ok: bool | None, code: str | None, result_hash: str | None = None) -> None:
        self._unfollow_progress(call)
        wire, task = self._wire, call.task
        duration_us = max(0, round((wire.at - call.started_at).total_seconds() * 1_000_000))
        traceparent, trace_id = call.trace or (None, None)
        unusual: dict[str, Any] = {
            "rounds": call.rounds if call.rounds > 1 else None,
            "unmatched_retry": call.is_unmatched or None,
            "progress_count": call.progress_count or None,
            "inputs": None if call._inputs is None else call._inputs.as_json(),
            "task": None if task is None else {"id_hash": f"sha256:{task.id_hash.hex()}", "status": task.status},
        }
        event = call_event(
            wire.vantage,
            event_id=wire.new_id(),
            observed_at=call.started_at,
            tool_name=call.tool_name,
            tool_call_id=call.tool_call_id,
            decision=call.decision,
            reason_code=call.reason_code,
            traceparent=traceparent,
            shown_tool_name=call.shown_name,
            trace_id=trace_id,
            snapshot_id=call.snapshot_id,
            args_hash=call.args_hash,
            result_hash=result_hash,
            ok=ok,
            error=None if code is None else {"code": code},
            timing=timing_of(call.started_at, wire.at, duration_us / 1_000),
            **unusual,
        )
        wire.found.append(event)
