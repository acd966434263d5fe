"""Flat JSON lines: scalars only, one object a line; and the same in the envelope of Splunk's HTTP Event Collector.

``time`` is seconds and milliseconds as text, as Splunk's own Java library sends it. ``sourcetype`` is that of the
add-on TA-mcp-jsonrpc 0.1.2 (Splunkbase 8377), whose field names for server and tool stand beside ours ("Field
extractions" of its README). Its searches over JSON-RPC messages do not match alerts, which are none.
"""

from __future__ import annotations

import json
from typing import Any

from assay_stream.alerts.view import AlertView, view_of
from assay_stream.plugins import Format
from assay_stream.text.times import time_ms_text

_PREFIX = "mcp_"


def to_jsonl(alert: dict[str, Any]) -> str:
    return json.dumps(flat_of(view_of(alert)), ensure_ascii=False, separators=(",", ":"))


def flat_of(view: AlertView) -> dict[str, Any]:
    """Return an alert's members as scalars.

    The flat facts follow without their ``mcp_``; a fact never replaces a member of ours.
    """
    flat: dict[str, Any] = {
        "uid": view.uid,
        "kind": view.kind,
        "activity": view.activity,
        "activity_id": view.activity_id,
        "severity": view.severity,
        "severity_id": view.severity_id,
        "status": view.status,
        "status_id": view.status_id,
        "count": view.count,
        "time": time_ms_text(view.time_ms),
        "first_seen": time_ms_text(view.first_seen_ms),
        "last_seen": time_ms_text(view.last_seen_ms),
        "message": view.message,
        "title": view.title,
        "explanation": view.explanation,
        "version": view.version,
    }
    for name in sorted(view.flat):
        flat.setdefault(name.removeprefix(_PREFIX), view.flat[name])
    return flat


HEC_SOURCETYPE = "mcp:jsonrpc"


def to_hec(alert: dict[str, Any], **metadata: str) -> str:
    """Return the alert as one event of HEC's ``/services/collector/event``, on one line.

    Args:
        alert: the alert.
        metadata: ``index``, ``host``, ``source`` or ``sourcetype`` of the receiver's choice.
    """
    view = view_of(alert)
    names = {"mcp.server_name": view.fact("mcp_server_id"), "mcp.tool_name": view.fact("mcp_tool_name")}
    event = flat_of(view) | {name: value for name, value in names.items() if value}
    envelope: dict[str, Any] = {
        "time": f"{view.time_ms // 1_000}.{view.time_ms % 1_000:03}",
        "source": "assay-stream",
        "sourcetype": HEC_SOURCETYPE,
        **metadata,
        "event": event,
    }
    return json.dumps(envelope, ensure_ascii=False, separators=(",", ":"))


JSONL = Format(media_type="application/json", write=to_jsonl)
HEC = Format(media_type="application/json", write=to_hec)
