"""Logs of others under test: what wrote them, and what is read of them.

The logs in ``tests/data/logs`` were written by MCP Hangar 2.34.4, in front of a server of two tools, and by the MCP
SDK 2.3.0 with OpenTelemetry's SDK 1.45. ToolHive's lines are made by hand, after its code (``pkg/audit``).
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from assay_stream.observe import Vantage
from assay_stream.observe.logs.calls import Whose, from_log

LOGS = Path(__file__).parents[1] / "data" / "logs"
HANGAR = LOGS / "mcp-hangar-2.34.4.jsonl"
SPANS, PROTOBUF = LOGS / "mcp-2.3.0.otlp.json", LOGS / "mcp-2.3.0.otlp.binpb"
SECRET = "sk-live-4f9d1c7be2a84d5f"
TOOL = {"name": "read", "description": "Reads.", "inputSchema": {"type": "object"}}


def whose(server_id: str | None = "the-server", **options: Any) -> Whose:
    vantage = Vantage(server_id=server_id or "-", observer_id="o", server_scoped=True)
    return Whose(vantage=vantage, has_default=server_id is not None, **options)


def read(source: str, *lines: Any, log: Whose | None = None, **options: Any) -> tuple[list[dict[str, Any]], Any]:
    counts: Counter[str] = Counter()
    raw = (line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines)
    found = from_log(source, raw, log or whose(), counts, **options)
    return [json.loads(observation.value)["data"] for observation in found], counts


def toolhive(kind: str = "mcp_tool_call", **fields: Any) -> dict[str, Any]:
    extra = {"duration_ms": 12, "transport": "http", **fields.pop("extra", {})}
    line = {
        "time": "2026-11-22T10:00:00.012Z",
        "level": "AUDIT",
        "msg": "audit_event",
        "audit_id": "0b9c3f60-5a6c-4f0e-9a51-0c9f6a3c0b11",
        "type": kind,
        "logged_at": "2026-11-22T10:00:00.012Z",
        "outcome": "success",
        "component": "vmcp",
        "source": {"type": "network", "value": "127.0.0.1", "extra": {}},
        "subjects": {"user": "anonymous"},
        "target": {"endpoint": "/mcp", "method": "tools/call", "name": "read", "type": "tool"},
        "metadata": {"extra": extra},
    }
    return line | fields


def answered(result: object, arguments: object = None) -> dict[str, Any]:
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "read", "arguments": arguments}}
    return {"request": request, "response": {"jsonrpc": "2.0", "id": 1, "result": result}}


def spans() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(SPANS.read_bytes())
    return content


def one_span(**changes: Any) -> dict[str, Any]:
    content = spans()
    scope = content["resourceSpans"][0]["scopeSpans"][0]
    [span] = [span for span in scope["spans"] if span["name"] == "tools/call add"]
    scope["spans"] = [span | changes]
    return content


def texts(**attributes: str) -> list[dict[str, Any]]:
    given = {"mcp.method.name": "tools/call", "gen_ai.tool.name": "add", **attributes}
    return [{"key": name.replace("__", "."), "value": {"stringValue": text}} for name, text in given.items()]
