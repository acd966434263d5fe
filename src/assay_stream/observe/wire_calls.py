"""Tool calls and their outcomes: what becomes a call event. One call, one event, however many messages it takes.

Rules:

1. A call ends with its answer, unless that is the handle of a task, or asks for input.
2. The outcome of a task is the call's: its result, its error, or why there is neither.
3. A call that waits for input goes on with the retry that names the same tool, arguments and ``requestState``. Of
   calls that do not differ, the one that waits for longest goes on. A retry of no call known here is a call of its own.
4. What the server asks of the client meanwhile, and progress, belong to the call that they name, that they share an
   HTTP exchange with, or that is the only one without an answer. Otherwise they belong to none, and are counted.
5. Calls are open within bounds of number and time. Whatever ends first, each yields its event, with a reason.

Arguments, results and what is asked are hashed after redaction and dropped at once; none of the server's text, no
task id and no ``requestState`` enters an event.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping
from copy import copy
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from assay_stream.observe.jsonrpc import RequestKey, meta_of, params_of, request_key, trace_of
from assay_stream.observe.observation import Observation, call_event, rfc3339
from assay_stream.observe.open_calls import (
    INPUT_METHODS,
    INVALID_PARAMS,
    TASK_NOTIFICATIONS,
    HeldCalls,
    OpenCall,
    Outcome,
    digest_of,
    final_in,
    is_retry,
    outcome_of,
    related_task,
    retry_key,
    state_in,
    status_of,
    task_hash,
    task_of,
    text_hash,
)
from assay_stream.observe.wire import Pending, WireConnection

_TOKEN_CHARS_MAX = 256
"""Longer progress tokens are not followed; clients count, or take UUIDs."""

_PROGRESS = "notifications/progress"


class InputObserver:
    """Follows what the server asks and reports during the calls of one connection."""

    def __init__(self, wire: WireConnection, pending: Pending[OpenCall], held: HeldCalls) -> None:
        self._wire = wire
        self._pending = pending
        self._held = held
        self._asked: OrderedDict[RequestKey, OpenCall] = OrderedDict()
        """Requests that the client has not answered."""
        self._tokens: dict[RequestKey, OpenCall] = {}

    def begin(self, call: OpenCall, params: Mapping[str, Any], exchange: int) -> None:
        self.end(call)
        token = request_key(meta_of(params).get("progressToken"), exchange)
        if token is not None and len(str(token[1])) <= _TOKEN_CHARS_MAX:
            self._tokens[token], call.token = call, token

    def share(self, call: OpenCall) -> None:
        """Let progress of a call come in another exchange than its own."""
        token = call.token
        if token is not None and len(token) == 3:
            self.end(call)
            if token[:2] not in self._tokens:
                self._tokens[token[:2]], call.token = call, token[:2]

    def end(self, call: OpenCall) -> None:
        if call.token is not None and self._tokens.get(call.token) is call:
            del self._tokens[call.token]
        call.token = None

    def progress(self, params: Mapping[str, Any], exchange: int) -> None:
        for scope in (exchange, 0):
            token = request_key(params.get("progressToken"), scope)
            if token is not None and token in self._tokens:
                self._tokens[token].progress_count += 1
                return

    def ask(self, message: Mapping[str, Any], exact: bool, exchange: int) -> None:
        id_hash = related_task(params_of(message))
        call = self._pending.only_one(exchange) if id_hash is None else self._held.get(("task", id_hash))
        if call is None:
            self._wire.stats.unlinked_requests += 1
            return
        call.inputs.ask(message, exact)
        key = request_key(message.get("id"))
        if key is not None:
            self._asked[key] = call
            if len(self._asked) > self._wire.pending_max:
                self._asked.popitem(last=False)

    def answer(self, message: Mapping[str, Any]) -> None:
        key = request_key(message.get("id"))
        call = None if key is None else self._asked.pop(key, None)
        if call is not None:
            call.inputs.answer(message.get("result"))


def _result_hash(message: Mapping[str, Any], exact: bool) -> str | None:
    return digest_of(message["result"]) if exact and "result" in message else None


def _final_of(method: str, message: Mapping[str, Any]) -> Mapping[str, Any] | None:
    result = message.get("result")
    state = state_in(result)
    if state is None and method == "tasks/result":
        return message
    state = state if state is not None or not isinstance(result, dict) else result
    return None if state is None else final_in(state)


class CallObserver:
    """Follows the tool calls of one connection."""

    def __init__(self, wire: WireConnection) -> None:
        self._wire = wire
        self._open_limit = timedelta(seconds=wire.limits.open_call_limit_s)
        self._pending = Pending[OpenCall]()
        self._held = HeldCalls()
        self._inputs = InputObserver(wire, self._pending, self._held)
        self._task_requests: OrderedDict[RequestKey, tuple[str, bytes]] = OrderedDict()
        self._task_keys: OrderedDict[RequestKey, RequestKey] = OrderedDict()
        """The latest of them by its id, in whatever exchange; it may have been answered since."""
        self._highest_id: float | None = None
        self._is_closed = False

    @property
    def open_calls(self) -> int:
        return len(self._pending) + len(self._held)

    def request(
        self,
        key: RequestKey | None,
        params: Mapping[str, Any],
        snapshot_id: str | None,
        exact: bool,
        at: datetime,
        shown_name: str | None,
    ) -> list[Observation]:
        """Note a call, or that one goes on, and return what it evicted."""
        call = self._begun(key, params, snapshot_id, exact, at)
        call.shown_name = shown_name
        if key is None:
            return [self._event(call, at, Outcome(None, "no_response"))]
        self._pending.put(key, call)
        self._inputs.begin(call, params, key[2] if len(key) == 3 else 0)
        if len(self._pending) <= self._wire.pending_max or (oldest := self._pending.oldest()) is None:
            return []
        self._wire.stats.evicted_requests += 1
        return self.give_up(oldest[0], "no_response", at)

    def refused(
        self, request: Mapping[str, Any], snapshot_id: str | None, exact: bool, at: datetime, reason_code: str
    ) -> Observation:
        """Return the event of a call that was not passed on; ``reason_code`` says why, the rest as in ``request``."""
        call = self._begun(request_key(request.get("id")), params_of(request), snapshot_id, exact, at)
        call.reason_code, call.decision = reason_code, "deny"
        return self._event(call, at, Outcome(None, "not_passed_on"))

    def task_request(self, method: str, key: RequestKey, params: Mapping[str, Any]) -> None:
        id_hash = task_hash(params)
        if id_hash is None:
            return
        if method == "tasks/update" and (call := self._held.get(("task", id_hash))) is not None:
            call.inputs.answer_all(params.get("inputResponses"))
        self._task_requests[key] = method, id_hash
        self._task_keys[key[:2]] = key
        if len(self._task_keys) > self._wire.pending_max:
            self._task_keys.popitem(last=False)
        if len(self._task_requests) > self._wire.pending_max:
            self._task_requests.popitem(last=False)
            self._wire.stats.evicted_requests += 1

    def response(
        self, key: RequestKey, message: Mapping[str, Any], exact: bool, at: datetime
    ) -> list[Observation] | None:
        """Return what a response yields; ``None`` if it answers neither a call nor a request about a task."""
        asked = self._task_requests.pop(key, None)
        if asked is not None:
            return self._task_answered(*asked, message, exact, at)
        call = self._pending.take(key)
        if call is None:
            return None
        result = message.get("result")
        if isinstance(result, dict):
            if result.get("resultType") == "input_required":
                call.inputs.ask_all(result.get("inputRequests"), exact)
                return self._hold(retry_key(call.tool_name, call.args_hash, result.get("requestState")), call, at)
            handle = task_of(result, wanted=call.wants_task)
            if handle is not None:
                call.task, state = handle
                ended = self._advance(call, state, exact, at)
                return ended or self._hold(("task", call.task.id_hash), call, at)
        return [self._result(call, message, exact, at)]

    def awaits(self, key: RequestKey) -> bool:
        """Tell whether a call, or a request about a task, waits for the answer to this request."""
        return self._pending.get(key) is not None or key in self._task_requests

    def undo(self, key: RequestKey, at: datetime) -> list[Observation]:
        """Let a task or a call that waits be as it was before a request, and return what that ends."""
        self._task_requests.pop(key, None)
        call = self._pending.get(key)
        if call is None or call.earlier is None:
            return []
        self._inputs.end(call)
        self._pending.take(key)
        return self._hold(*call.earlier, at)

    def strayed(self, keys: Iterable[RequestKey], message: Mapping[str, Any], exact: bool) -> None:
        """Note an answer in another exchange than its call: a client that goes by the id takes it."""
        for key in keys:
            call = self._pending.get(self._pending.with_id(key))
            final: Mapping[str, Any] | None = message
            if call is None and (asked := self._task_requests.get(self._task_keys.get(key, key))) is not None:
                call, final = self._held.get(("task", asked[1])), _final_of(asked[0], message)
            if call is not None and call.elsewhere is None and final is not None:
                call.elsewhere = *outcome_of(final), _result_hash(final, exact)

    def said(self, message: Mapping[str, Any], exact: bool, at: datetime, exchange: int) -> list[Observation]:
        method, params = message["method"], params_of(message)
        if not isinstance(method, str):
            return []
        if method in TASK_NOTIFICATIONS:
            id_hash = task_hash(params)
            return [] if id_hash is None else self._task_state(id_hash, params, exact, at)
        if method == _PROGRESS:
            self._inputs.progress(params, exchange)
        elif method in INPUT_METHODS:
            self._inputs.ask(message, exact, exchange)
        return []

    def answered_by_client(self, message: Mapping[str, Any]) -> None:
        self._inputs.answer(message)

    def give_up(self, key: RequestKey, code: str, at: datetime, *, ok: bool | None = None) -> list[Observation]:
        """Return the pending call with this id, if any, as unanswered; ``code`` says why."""
        self._task_requests.pop(key, None)
        call = self._pending.take(key)
        return [] if call is None else [self._event(call, at, Outcome(ok, code))]

    def cancelled(self, key: RequestKey, at: datetime) -> list[Observation]:
        """Return the call that a client cancels. Over HTTP it does so in another exchange than that of the call."""
        return self.give_up(self._pending.with_id(key), "cancelled", at)

    def orphan(self, key: RequestKey, at: datetime) -> list[Observation]:
        """Let another exchange answer the request with this id, and return the call that it displaces."""
        asked = self._task_requests.pop(key, None)
        if asked is not None:
            self._task_requests[key[:2]] = asked
        if self._is_closed:
            return self.give_up(key, "no_response", at)
        call = self._pending.take(key)
        if call is None:
            return []
        displaced = self.give_up(key[:2], "id_reused", at)
        self._pending.put(key[:2], call)
        self._inputs.share(call)
        return displaced

    def expire(self, at: datetime) -> list[Observation]:
        expired = []
        while (pending := self._pending.oldest()) is not None and at - pending[1].since > self._open_limit:
            expired += self.give_up(pending[0], "timed_out", at)
        while (held := self._held.oldest()) is not None and at - held.since > self._open_limit:
            expired.append(self._unfinished(self._held.take_oldest(), at))
        return expired

    def close(self, at: datetime) -> list[Observation]:
        """Return all open calls when the connection ends: those without an answer first, each oldest first."""
        # Exchanges of HTTP may outlast their connection: what they still answer is final.
        self._is_closed = True
        ended = self.expire(at)
        while (pending := self._pending.oldest()) is not None:
            ended += self.give_up(pending[0], "no_response", at)
        while len(self._held):
            ended.append(self._unfinished(self._held.take_oldest(), at))
        return ended

    def _begun(
        self, key: RequestKey | None, params: Mapping[str, Any], snapshot_id: str | None, exact: bool, at: datetime
    ) -> OpenCall:
        """Return the call that a request begins, or goes on with."""
        name = params.get("name")
        # A name over the limit is rejected downstream for its length; one character over suffices.
        tool_name = name[: self._wire.limits.identifier_chars_max + 1] if isinstance(name, str) else ""
        args_hash = digest_of(params["arguments"]) if exact and "arguments" in params else None
        reason_code = "forwarded" if exact else "forwarded_inexact_json"
        resumes = is_retry(params)
        waits_for = retry_key(tool_name, args_hash, params.get("requestState"))
        earlier = self._held.take(waits_for) if resumes else None
        if earlier is not None:
            self._inputs.end(earlier)
            call = replace(
                earlier, since=at, reason_code=reason_code, rounds=earlier.rounds + 1, _inputs=copy(earlier.inputs)
            )
            call.earlier = waits_for, replace(earlier, earlier=None)
            call.inputs.answer_all(params.get("inputResponses"))
            return call
        self._wire.stats.calls += 1
        return OpenCall(
            tool_name=tool_name,
            tool_call_id=self._call_id(key),
            reason_code=reason_code,
            started_at=at,
            since=at,
            snapshot_id=snapshot_id,
            args_hash=args_hash,
            trace=trace_of(meta_of(params).get("traceparent")),
            inputs_max=self._wire.limits.call_inputs_max,
            wants_task=isinstance(params.get("task"), dict),
            is_unmatched=resumes,
        )

    def _call_id(self, key: RequestKey | None) -> str:
        """Return the id of a new call, which was counted already: no other call of any connection has it."""
        session_id, number = self._wire.session_id, self._wire.stats.calls
        if key is None:
            return f"{session_id}:#{number}"
        is_text, value = key[:2]
        text = f'"{value}"' if is_text else str(value)
        if len(text) > self._wire.limits.identifier_chars_max // 2 or not text.isprintable():
            text = "sha256:" + text_hash(text).hex()
        # Ids that count up are new, which needs no memory of them all. Any other id may have been used before, so
        # the call's number is appended.
        if not isinstance(value, str) and (self._highest_id is None or value > self._highest_id):
            self._highest_id = value
            return f"{session_id}:{text}"
        return f"{session_id}:{text}#{number}"

    def _hold(self, key: Hashable, call: OpenCall, at: datetime) -> list[Observation]:
        """Keep a call open after an answer, and return what that ends."""
        if self._is_closed or at - call.started_at > self._open_limit:
            return [self._unfinished(call, at)]
        ended = []
        displaced = self._held.take(key) if call.task is not None else None
        if displaced is not None:
            ended.append(self._event(displaced, at, Outcome(None, "task_id_reused")))
        call.since = at
        self._inputs.share(call)
        self._held.put(key, call)
        if len(self._held) > self._wire.limits.held_calls_max:
            self._wire.stats.evicted_requests += 1
            ended.append(self._unfinished(self._held.take_oldest(), at))
        return ended

    def _task_answered(
        self, method: str, id_hash: bytes, message: Mapping[str, Any], exact: bool, at: datetime
    ) -> list[Observation]:
        call = self._held.get(("task", id_hash))
        if call is None or call.task is None:
            return []
        result = message.get("result")
        if method == "tasks/result":
            outcome = outcome_of(message)
            # The call's own error, unless the server says that it does not know the task.
            is_final = "result" in message or outcome.code != INVALID_PARAMS or call.task.status == "failed"
            if call.task.is_inline or not is_final:
                return []
            state = state_in(result)
            if state is not None:
                return self._task_state(id_hash, state, exact, at, is_answer=True)
            self._held.take(("task", id_hash))
            return [self._result(call, message, exact, at)]
        if method == "tasks/update" or not isinstance(result, dict):
            return []
        call.task.is_cancelled |= method == "tasks/cancel"
        return self._task_state(id_hash, result, exact, at, is_answer=True) if "status" in result else []

    def _task_state(
        self, id_hash: bytes, state: Mapping[str, Any], exact: bool, at: datetime, *, is_answer: bool = False
    ) -> list[Observation]:
        call = self._held.get(("task", id_hash))
        if call is None:
            return []
        if is_answer and task_hash(state) not in (None, id_hash):
            self._held.take(("task", id_hash))
            return [self._event(call, at, Outcome(None, "task_id_mismatch"))]
        ended = self._advance(call, state, exact, at)
        if ended:
            self._held.take(("task", id_hash))
        return ended

    def _advance(self, call: OpenCall, state: Mapping[str, Any], exact: bool, at: datetime) -> list[Observation]:
        """Note the state of a call's task, and return what it yields if that is its end."""
        task = call.task
        if task is None:
            return []
        task.status = status_of(state)
        if task.status == "cancelled":
            return [self._event(call, at, Outcome(None, "cancelled"))]
        if task.is_inline:
            if task.status == "input_required":
                call.inputs.ask_all(state.get("inputRequests"), exact, once=True)
            final = final_in(state)
            if final is not None:
                return [self._result(call, final, exact, at)]
        return []

    def _unfinished(self, call: OpenCall, at: datetime) -> Observation:
        return self._event(call, at, Outcome(*call.unfinished()))

    def _result(self, call: OpenCall, message: Mapping[str, Any], exact: bool, at: datetime) -> Observation:
        """Return the event of a call with its result; a task that was cancelled or failed may have one, too."""
        outcome = outcome_of(message)
        if call.task is not None and call.task.is_cancelled:
            outcome = Outcome(None, "cancelled")
        elif call.task is not None and call.task.status == "failed" and outcome.ok:
            outcome = Outcome(False, "task_failed")
        result_hash = _result_hash(message, exact)
        if outcome.ok and call.elsewhere not in (None, (*outcome, result_hash)):
            outcome = Outcome(None, "answers_differ")
        return self._event(call, at, outcome, result_hash)

    def _event(self, call: OpenCall, at: datetime, outcome: Outcome, result_hash: str | None = None) -> Observation:
        self._inputs.end(call)
        duration_us = max(0, round((at - call.started_at).total_seconds() * 1_000_000))
        traceparent, trace_id = call.trace or (None, None)
        return call_event(
            self._wire.vantage,
            event_id=self._wire.new_id(),
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
            ok=outcome.ok,
            error=None if outcome.code is None else {"code": outcome.code},
            timing={
                "started_at": rfc3339(call.started_at),
                "ended_at": rfc3339(at),
                "duration_ms": duration_us / 1_000,
            },
            **call.course(),
        )
