"""Splunk HTTP Event Collector: the event envelope, with the flat alert as its event.

``time`` is seconds and milliseconds as text, as Splunk's own Java library sends it. ``sourcetype`` is that of the
add-on TA-mcp-jsonrpc 0.1.2 (Splunkbase 8377), whose field names for server and tool stand beside ours ("Field
extractions" of its README). Its searches over JSON-RPC messages do not match alerts, which are none.
"""

from __future__ import annotations

import json
from typing import Any

from assay_stream.alerts.formats.jsonl import flat_of
from assay_stream.alerts.formats.view import view_of

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
