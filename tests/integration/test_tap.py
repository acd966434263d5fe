"""Real MCP servers behind the tap, driven by a real MCP client, in both eras of the protocol."""

from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from deploy.local.servers import python_server
from tests.support.mcp_session import data_of, read_events, tapped_client

ERAS = {"legacy": "2025-11-25", "2026-07-28": "2026-07-28"}
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

pytestmark = pytest.mark.servers


@pytest.mark.parametrize(
    ("version", "mode"), [("0.6.2", "legacy"), ("2026.10.19", "legacy"), ("2026.10.19", "2026-07-28")]
)
async def test_a_time_server_is_observed_while_a_client_lists_and_calls(
    tmp_path: Path, version: str, mode: str
) -> None:
    """One snapshot, one record a call with its outcome, the client none the wiser."""
    command = [*python_server("mcp-server-time", version), "--local-timezone", "UTC"]
    output = tmp_path / "observations.ndjson"
    async with tapped_client(command, output, mode=mode) as client:
        listed = await client.list_tools()
        meta: Any = {"traceparent": TRACE}
        good = await client.call_tool("get_current_time", {"timezone": "UTC"}, meta=meta)
        bad = await client.call_tool("get_current_time", {"timezone": "Mars/Olympus"})
    assert (bool(good.is_error), bad.is_error) == (False, True)
    events = read_events(output)
    [snapshot] = data_of(events, "list")
    first, second = data_of(events, "call")
    assert [tool["name"] for tool in snapshot["tools"]] == [tool.name for tool in listed.tools]
    assert snapshot["completeness"] == "complete"
    assert snapshot["protocol_version"] == ERAS[mode]
    assert (first["ok"], first["trace_id"]) == (True, TRACE[3:35])
    assert (second["ok"], second["error"]) == (False, {"code": "tool_error"})
    assert {call["snapshot_id"] for call in (first, second)} == {snapshot["snapshot_id"]}
    assert first["args_hash"] != second["args_hash"]
    assert b"Olympus" not in output.read_bytes()


@pytest.mark.parametrize("mode", ERAS)
async def test_a_refused_tool_is_hidden_from_the_client(tmp_path: Path, mode: str) -> None:
    """The client gets a sound list without it and calls the other one; evidence has both."""
    command = [*python_server("mcp-server-time", "2026.10.19"), "--local-timezone", "UTC"]
    output = tmp_path / "observations.ndjson"
    async with tapped_client(command, output, mode=mode, hidden="convert_time") as client:
        shown = [tool.name for tool in (await client.list_tools()).tools]
        assert not (await client.call_tool("get_current_time", {"timezone": "UTC"})).is_error
        with pytest.raises(MCPError, match="blocks this call"):
            await client.call_tool("convert_time", {})
    events = read_events(output)
    [snapshot] = data_of(events, "list")
    assert shown == ["get_current_time"]
    assert {tool["name"] for tool in snapshot["tools"]} == {"get_current_time", "convert_time"}
    assert [each["name"] for each in snapshot["hidden"]] == ["convert_time"]
    assert [call["decision"] for call in data_of(events, "call")] == ["allow", "deny"]
