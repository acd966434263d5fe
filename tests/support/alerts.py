"""Alerts as the alert stage writes them."""

from typing import Any

import orjson

from assay_stream.alerts.life_cycle import apply_finding
from assay_stream.alerts.rules import AlertRules
from assay_stream.model.alert_state import AlertState
from assay_stream.model.finding import Finding
from assay_stream.model.kinds import Kind
from assay_stream.model.record import Origin, Output

A = "sha256:" + "a" * 64
B = "sha256:" + "b" * 64
RULES = AlertRules(version="1.2.3")
TIME_US = 1_772_323_200_123_456


def finding_of(tool_name: str | None = "tool", *, offset: int = 0, **fields: Any) -> Finding:
    given: dict[str, Any] = {
        "kind": Kind.TOOL_CHANGED,
        "server_id": "server",
        "observer_id": "proxy-1",
        "time_us": TIME_US,
        "origin": Origin(topic="mcp.tools.list", partition=0, offset=offset),
        "snapshot_id": "snapshot-1",
        "before": A,
        "after": B,
        "changed_fields": ("description",),
    }
    return Finding(tool_name=tool_name, **(given | fields))


def alert_records(*findings: Finding) -> list[Output]:
    states: dict[str, AlertState] = {}
    written = []
    for finding in findings:
        states[finding.uid()], alerts = apply_finding(states.get(finding.uid()), finding, RULES)
        written += alerts
    return written


def alert_of(tool_name: str | None = "tool", **fields: Any) -> dict[str, Any]:
    (record,) = alert_records(finding_of(tool_name, **fields))
    decoded: dict[str, Any] = orjson.loads(record.value or b"")
    return decoded
