"""Alerts as the alert stage writes them."""

from __future__ import annotations

from typing import Any

import orjson

from assay_stream.core.alert import AlertState, apply_finding
from assay_stream.core.finding import Finding, Kind
from assay_stream.core.record import Origin, Output

A = "sha256:" + "a" * 64
B = "sha256:" + "b" * 64
TIME_US = 1_772_323_200_123_456


def finding_of(tool_name: str | None = "tool", *, offset: int = 0, **fields: Any) -> Finding:
    """A finding, by default of a changed tool."""
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
    """The alerts that these findings raise, in order."""
    states: dict[str, AlertState] = {}
    written = []
    for finding in findings:
        states[finding.uid()], alert = apply_finding(states.get(finding.uid()), finding, version="1.2.3")
        written += [] if alert is None else [alert]
    return written


def alert_of(tool_name: str | None = "tool", **fields: Any) -> dict[str, Any]:
    """One alert, decoded."""
    (record,) = alert_records(finding_of(tool_name, **fields))
    decoded: dict[str, Any] = orjson.loads(record.value or b"")
    return decoded
