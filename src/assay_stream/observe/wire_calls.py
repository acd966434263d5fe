"""Tool calls and their outcomes: what becomes a call event.

Arguments and results are hashed after redaction and dropped at once; none of the server's text enters an event.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any

from assay_stream.canonical.redaction import redacted_digest
from assay_stream.errors import InputError
from assay_stream.observe.events import Decision, Observation, call_event, rfc3339
from assay_stream.observe.jsonrpc import RequestKey, meta_of, trace_of
from assay_stream.observe.wire import WireConnection


@dataclass(frozen=True, slots=True)
class _Call:
    tool_name: str
    tool_call_id: str
    reason_code: str
    started_at: datetime
    snapshot_id: str | None
    args_hash: str | None
    trace: tuple[str, str] | None
    decision: Decision = "allow"


class CallObserver:
    """Follows the tool calls of one connection."""

    def __init__(self, wire: WireConnection) -> None:
        self._wire = wire
        self._pending: OrderedDict[RequestKey, _Call] = OrderedDict()
        self._highest_id: float | None = None

    def request(
        self, key: RequestKey | None, params: Mapping[str, Any], *, snapshot_id: str | None, exact: bool, at: datetime
    ) -> list[Observation]:
        """Note a call and return what it evicted."""
        reason_code = "forwarded" if exact else "forwarded_inexact_json"
        call = self._call(key, params, reason_code, "allow", snapshot_id=snapshot_id, exact=exact, at=at)
        if key is None:
            return [self._event(call, at, None, "no_response")]
        self._pending[key] = call
        if len(self._pending) <= self._wire.pending_max:
            return []
        self._wire.stats.evicted_requests += 1
        _, oldest = self._pending.popitem(last=False)
        return [self._event(oldest, at, None, "no_response")]

    def refused(
        self,
        key: RequestKey | None,
        params: Mapping[str, Any],
        reason_code: str,
        *,
        snapshot_id: str | None,
        exact: bool,
        at: datetime,
    ) -> Observation:
        """Return the event of a call that was not passed on; ``reason_code`` says why, the rest as in ``request``."""
        call = self._call(key, params, reason_code, "deny", snapshot_id=snapshot_id, exact=exact, at=at)
        return self._event(call, at, None, "not_passed_on")

    def _call(
        self,
        key: RequestKey | None,
        params: Mapping[str, Any],
        reason_code: str,
        decision: Decision,
        *,
        snapshot_id: str | None,
        exact: bool,
        at: datetime,
    ) -> _Call:
        self._wire.stats.calls += 1
        name = params.get("name")
        return _Call(
            # A name over the limit is rejected downstream for its length; one character over suffices.
            tool_name=name[: self._wire.limits.identifier_chars_max + 1] if isinstance(name, str) else "",
            tool_call_id=self._tool_call_id(key),
            reason_code=reason_code,
            started_at=at,
            snapshot_id=snapshot_id,
            args_hash=_digest(params["arguments"]) if exact and "arguments" in params else None,
            trace=trace_of(meta_of(params).get("traceparent")),
            decision=decision,
        )

    def response(
        self, key: RequestKey, message: Mapping[str, Any], exact: bool, at: datetime
    ) -> list[Observation] | None:
        """Return what a response yields; ``None`` if it does not answer a call."""
        call = self._pending.pop(key, None)
        if call is None:
            return None
        ok, code = _outcome(message)
        result_hash = _digest(message["result"]) if exact and "result" in message else None
        return [self._event(call, at, ok, code, result_hash)]

    def give_up(self, key: RequestKey, code: str, at: datetime, *, ok: bool | None = None) -> list[Observation]:
        """Return the pending call with this id, if any, as unanswered; ``code`` says why."""
        call = self._pending.pop(key, None)
        return [] if call is None else [self._event(call, at, ok, code)]

    def cancelled(self, key: RequestKey, at: datetime) -> list[Observation]:
        """Return the call that a client cancels. Over HTTP it does so in another exchange than that of the call."""
        if key not in self._pending:
            same_id = [pending for pending in self._pending if pending[:2] == key]
            key = same_id[0] if len(same_id) == 1 else key
        return self.give_up(key, "cancelled", at)

    def orphan(self, key: RequestKey, at: datetime) -> list[Observation]:
        """Let another exchange answer the call with this id, and return the call that it displaces."""
        call = self._pending.pop(key, None)
        if call is None:
            return []
        displaced = self.give_up(key[:2], "id_reused", at)
        self._pending[key[:2]] = call
        return displaced

    def close(self, at: datetime) -> list[Observation]:
        """Return the unanswered calls, oldest first, when the connection ends."""
        calls = list(self._pending.values())
        self._pending.clear()
        return [self._event(call, at, None, "no_response") for call in calls]

    def _tool_call_id(self, key: RequestKey | None) -> str:
        if key is None:
            return f"{self._wire.session_id}:#{self._wire.stats.calls}"
        is_text, value = key[:2]
        text = f'"{value}"' if is_text else str(value)
        if len(text) > self._wire.limits.identifier_chars_max // 2 or not text.isprintable():
            text = "sha256:" + sha256(text.encode("utf-8", "backslashreplace")).hexdigest()
        call_id = f"{self._wire.session_id}:{text}"
        # Ids that count up are new, which needs no memory of them all. Any other id may have been used before, so
        # the call's number is appended.
        if not isinstance(value, str) and (self._highest_id is None or value > self._highest_id):
            self._highest_id = value
            return call_id
        return f"{call_id}#{self._wire.stats.calls}"

    def _event(
        self, call: _Call, at: datetime, ok: bool | None, code: str | None, result_hash: str | None = None
    ) -> Observation:
        duration_us = max(0, round((at - call.started_at).total_seconds() * 1_000_000))
        return call_event(
            self._wire.vantage,
            event_id=self._wire.new_id(),
            observed_at=call.started_at,
            tool_name=call.tool_name,
            tool_call_id=call.tool_call_id,
            decision=call.decision,
            reason_code=call.reason_code,
            traceparent=None if call.trace is None else call.trace[0],
            trace_id=None if call.trace is None else call.trace[1],
            snapshot_id=call.snapshot_id,
            args_hash=call.args_hash,
            result_hash=result_hash,
            ok=ok,
            error=None if code is None else {"code": code},
            timing={
                "started_at": rfc3339(call.started_at),
                "ended_at": rfc3339(at),
                "duration_ms": duration_us / 1_000,
            },
        )


def _outcome(message: Mapping[str, Any]) -> tuple[bool | None, str | None]:
    """Return whether a response means success, and an error code of our own: never the server's words."""
    if "result" not in message:
        error = message.get("error")
        code = error.get("code") if isinstance(error, dict) else None
        is_number = isinstance(code, int) and not isinstance(code, bool) and abs(code) < 2**53
        return False, f"jsonrpc_{code}" if is_number else "jsonrpc_error"
    result = message["result"]
    if not isinstance(result, dict):
        return False, "bad_result"
    kind = result.get("resultType", "complete")
    if kind != "complete":
        # Not final: the client sends another request with the input that the server wants.
        return None, "input_required" if kind == "input_required" else "interim_result"
    return (False, "tool_error") if result.get("isError") is True else (True, None)


def _digest(value: Any) -> str | None:
    try:
        return str(redacted_digest(value))
    except InputError:
        return None
