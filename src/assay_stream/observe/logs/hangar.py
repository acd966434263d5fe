"""MCP Hangar's audit log as JSON lines (``MCP_COMPLIANCE_FORMAT=jsonlines``): calls, never lists, without arguments,
results or ids. Its server names are the operator's own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from assay_stream.observe.logs.calls import Logged, Whose, duration_of, required_text, safe_error_code
from assay_stream.observe.observation import Observation
from assay_stream.observe.recorded import parse_rfc3339
from assay_stream.plugins import LogReader

_CALLS = {"ToolInvocationCompleted": True, "ToolInvocationFailed": False, "ToolInvocationDenied": None}
_REASON = re.compile(r"[a-z_]{1,64}")


def read(line: Mapping[str, Any], identity: str, whose: Whose, counts: Counter[str]) -> Iterator[Observation]:
    """Yield the call of a line, if it holds one."""
    kind = line.get("event_type")
    if not isinstance(kind, str) or kind not in _CALLS:
        return
    ok, reason = _CALLS[kind], line.get("gate_reason")
    denied = ok is None
    yield Logged(
        name=required_text(line, "tool_name"),
        # For a group, the server that was chosen.
        server_id=whose.server(line.get("route_backend")) or whose.server(required_text(line, "provider_id")),
        identity=("hangar", identity),
        ended_at=parse_rfc3339(line.get("timestamp"), path="$.timestamp"),
        duration_ms=duration_of(line.get("duration_ms")),
        ok=ok,
        error_code="not_passed_on" if denied else None if ok else safe_error_code(line.get("error_type")),
        decision="deny" if denied else "allow",
        reason_code=(reason if isinstance(reason, str) and _REASON.fullmatch(reason) else "denied")
        if denied
        else "forwarded",
    ).event(whose, counts)


HANGAR = LogReader(read=read)
