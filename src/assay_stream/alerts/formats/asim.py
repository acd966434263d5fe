"""Microsoft Sentinel ASIM: one row of the Agent Event schema, version 1.0.0, table ``ASimAgentEventLogs``.

https://learn.microsoft.com/azure/sentinel/normalization-schema-agent. The schema has no column for a severity or a
result: those and the flat facts stand in ``AdditionalFields``. ``EventType`` is not enumerated there. The reference
still shows version 0.1.0; the list of schemas (16 September 2026) and Microsoft's parsers have 1.0.0, which adds
entity keys and changes none of the columns here.
"""

from __future__ import annotations

import json
from typing import Any

from assay_stream.alerts.view import view_of
from assay_stream.plugins import Format
from assay_stream.text.times import time_ms_text


def to_asim(alert: dict[str, Any]) -> str:
    view = view_of(alert)
    server, tool = view.fact("mcp_server_id"), view.fact("mcp_tool_name")
    row: dict[str, Any] = {
        "TimeGenerated": time_ms_text(view.time_ms),
        "EventCount": view.count,
        "EventStartTime": time_ms_text(view.first_seen_ms),
        "EventEndTime": time_ms_text(view.last_seen_ms),
        "EventType": view.kind,
        "EventOriginalType": view.kind,
        "EventUid": view.key(),
        "EventOriginalUid": view.uid,
        "EventProduct": "assay-stream",
        "EventVendor": "assay-stream",
        "EventSchema": "AgentEvent",
        "EventSchemaVersion": "1.0.0",
        **({"ToolName": tool, "ToolId": f"{server}/{tool}", "ToolOriginalType": "MCP"} if tool else {}),
        "AdditionalFields": {
            "severity": view.severity,
            "severity_id": view.severity_id,
            "status": view.status,
            "activity": view.activity,
            "message": view.message,
            **view.flat,
        },
    }
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"))


ASIM = Format(media_type="application/json", write=to_asim)
