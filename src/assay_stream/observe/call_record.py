"""The event of a call, and the id that tells the call from all others."""

from __future__ import annotations

from datetime import datetime
from hashlib import sha256

from assay_stream.observe.events import call_event, rfc3339
from assay_stream.observe.jsonrpc import RequestKey
from assay_stream.observe.observation import Observation
from assay_stream.observe.open_call import OpenCall
from assay_stream.observe.wire import WireConnection


class CallIds:
    """Makes the ids of the calls of one connection."""

    def __init__(self, wire: WireConnection) -> None:
        self._wire = wire
        self._highest: float | None = None

    def of(self, key: RequestKey | None) -> str:
        """Return the id of a new call, which was counted already, by that of its request."""
        if key is None:
            return f"{self._wire.session_id}:#{self._wire.stats.calls}"
        is_text, value = key[:2]
        text = f'"{value}"' if is_text else str(value)
        if len(text) > self._wire.limits.identifier_chars_max // 2 or not text.isprintable():
            text = "sha256:" + sha256(text.encode("utf-8", "backslashreplace")).hexdigest()
        call_id = f"{self._wire.session_id}:{text}"
        # Ids that count up are new, which needs no memory of them all. Any other id may have been used before, so
        # the call's number is appended.
        if not isinstance(value, str) and (self._highest is None or value > self._highest):
            self._highest = value
            return call_id
        return f"{call_id}#{self._wire.stats.calls}"


def record_of(
    call: OpenCall, wire: WireConnection, at: datetime, *, ok: bool | None, code: str | None, result_hash: str | None
) -> Observation:
    """Return the event of a call that has ended; ``ok``, ``code`` and ``result_hash`` are its outcome."""
    duration_us = max(0, round((at - call.started_at).total_seconds() * 1_000_000))
    return call_event(
        wire.vantage,
        event_id=wire.new_id(),
        observed_at=call.started_at,
        tool_name=call.tool_name,
        tool_call_id=call.tool_call_id,
        decision=call.decision,
        reason_code=call.reason_code,
        traceparent=None if call.trace is None else call.trace[0],
        shown_tool_name=call.shown_name,
        trace_id=None if call.trace is None else call.trace[1],
        snapshot_id=call.snapshot_id,
        args_hash=call.args_hash,
        result_hash=result_hash,
        ok=ok,
        error=None if code is None else {"code": code},
        timing={"started_at": rfc3339(call.started_at), "ended_at": rfc3339(at), "duration_ms": duration_us / 1_000},
        **call.course(),
    )
