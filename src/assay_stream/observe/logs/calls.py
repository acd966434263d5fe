"""Shared by all log readers: attribution of logged calls, and their records.

A log's own text (messages, reasons, malformed exception names) is not copied: it may quote arguments.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from assay_stream.canonical.decode import decode_json
from assay_stream.errors import InputError
from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.model.fields import NotObserved
from assay_stream.observe.observation import Decision, Observation, Prefixes, Vantage, call_event
from assay_stream.observe.recorded import check_observation, stable_id
from assay_stream.text.times import rfc3339

SpanKind = Literal["server", "client"]

_DURATION_MAX_MS = 366 * 24 * 3_600 * 1_000
_JSONRPC_CODE = re.compile(r"-?[0-9]{1,9}")
_ERROR_CODE = re.compile(r"timeout|cancelled|tool_error|other|[A-Z][A-Za-z]{1,40}(Error|Exception|Timeout)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Whose:
    """Attribution of a log's calls.

    Args:
        vantage: the log's writer, and the server of calls that name none.
        has_default: whether calls may name none.
        servers: the operator's names of servers, by their names in the log, where they differ.
        span_kind: whose spans are calls, in logs where both sides report a call.
    """

    vantage: Vantage
    has_default: bool = True
    servers: Mapping[str, str] = field(default_factory=dict)
    prefixes: Prefixes = field(default_factory=lambda: Prefixes({}))
    span_kind: SpanKind = "server"

    def server(self, named: object) -> str | None:
        return self.servers.get(named, named) if isinstance(named, str) and named.strip() else None

    def of(self, shown: str, server_id: str | None) -> tuple[Vantage, str]:
        """Return the vantage and the server's own name of a tool; raises ``missing_field``."""
        own = self.prefixes.own(shown, server_id=server_id)
        if own.server_id is None and not self.has_default:
            raise InputError("missing_field", "the line names no server: give --server-id or --prefix", path="$")
        server = own.server_id or self.vantage.server_id
        return replace(self.vantage, server_id=server, shown_prefix=own.prefix), own.tool_name


@dataclass(slots=True, kw_only=True)
class Logged:
    """One logged call.

    Args:
        name: the tool's name in the log.
        server_id: the server, if logged.
        identity: unique among calls, and stable across copies of the log.
        call_id: the log's own id of the call.
        ended_at: when it ended, or else when it was logged.
        duration_ms: how long it took.
        ok: whether it succeeded; ``None`` if not logged.
        lacks: facts missing from the log.
    """

    name: str
    identity: tuple[str, ...]
    ended_at: datetime
    server_id: str | None = None
    call_id: str | None = None
    duration_ms: float | None = None
    ok: bool | None = None
    error_code: str | None = None
    decision: Decision = "allow"
    reason_code: str = "forwarded"
    trace: tuple[str, str] | None = None
    args_hash: str | None = None
    result_hash: str | None = None
    lacks: set[NotObserved] = field(default_factory=set)

    def event(self, whose: Whose, counts: Counter[str]) -> Observation:
        """Return the record of the call, and count its missing facts."""
        vantage, tool_name = whose.of(self.name, self.server_id)
        event_id = stable_id(vantage.server_id, vantage.observer_id, *self.identity)
        absent: dict[NotObserved, bool] = {
            "arguments": self.args_hash is None,
            "result": self.result_hash is None and "result_over_limit" not in self.lacks,
            "outcome": self.ok is None,
            "call_id": self.call_id is None,
            "start_time": self.duration_ms is None,
        }
        if self.decision == "deny":
            # What did not happen cannot be lacking.
            self.lacks -= {"result_over_limit"}
            absent |= {"result": False, "outcome": False}
        lacks = sorted(self.lacks | {name for name, is_absent in absent.items() if is_absent})
        try:
            started_at = (self.ended_at - timedelta(milliseconds=self.duration_ms or 0)).astimezone(UTC)
        except OverflowError:
            raise InputError("bad_time", "the call began before the calendar does", path="$") from None
        observation = call_event(
            vantage,
            event_id=event_id,
            observed_at=started_at,
            # A name over the limit is rejected for its length; one character over suffices.
            tool_name=tool_name[: DEFAULT_LIMITS.identifier_chars_max + 1],
            tool_call_id=self.call_id or event_id,
            decision=self.decision,
            reason_code=self.reason_code,
            traceparent=None if self.trace is None else self.trace[0],
            trace_id=None if self.trace is None else self.trace[1],
            not_observed=lacks or None,
            args_hash=self.args_hash,
            result_hash=self.result_hash,
            ok=self.ok,
            error=None if self.error_code is None else {"code": self.error_code},
            timing=None
            if self.duration_ms is None
            else {
                "started_at": rfc3339(started_at),
                "ended_at": rfc3339(self.ended_at),
                "duration_ms": self.duration_ms,
            },
        )
        check_observation(observation)
        counts.update(lacks)
        return observation


def safe_error_code(stated: object) -> str:
    """Return an error code that cannot quote anything: a JSON-RPC code, a known word, or an exception name."""
    text = stated if isinstance(stated, str) else str(stated) if type(stated) is int else ""
    if _JSONRPC_CODE.fullmatch(text):
        return f"jsonrpc_{text}"
    return text if _ERROR_CODE.fullmatch(text) else "error"


def duration_of(stated: object) -> float | None:
    is_number = isinstance(stated, int | float) and not isinstance(stated, bool)
    return float(stated) if is_number and 0 <= stated <= _DURATION_MAX_MS else None  # type: ignore[operator, arg-type]


def required_text(content: Mapping[str, Any], name: str, path: str = "$") -> str:
    value = content.get(name)
    if not isinstance(value, str) or not value:
        raise InputError("missing_field", "the field is required, as text", path=f"{path}.{name}")
    return value


def object_of(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = content.get(name)
    return found if isinstance(found, dict) else {}


def objects_of(listed: object) -> list[dict[str, Any]]:
    return [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []


def response_of(logged: object) -> Mapping[str, Any] | None:
    """Return the JSON-RPC response, logged as JSON or as server-sent events; ``None`` if missing or incomplete."""
    if isinstance(logged, dict):
        return logged
    found: Mapping[str, Any] | None = None
    for line in logged.splitlines() if isinstance(logged, str) else ():
        if line.startswith("data:"):
            try:
                message = decode_json(line[5:].strip().encode())
            except InputError:
                return None
            if isinstance(message, dict) and ("result" in message or "error" in message):
                found = message
    return found
