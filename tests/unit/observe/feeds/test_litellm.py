"""LiteLLM's feed, fed as LiteLLM 1.109.1 feeds callbacks; tests/integration/test_gateways.py has the real one."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from types import ModuleType
from typing import Any

import mcp_types
import pytest

from assay_stream.observe import MemorySink, Prefixes
from tests.support.mcp_dialogue import data_of
from tests.unit.observe.feeds.stand_ins import standing_in

MODULE = "assay_stream.observe.feeds.litellm"
BEGAN = datetime(2026, 11, 22, 18, 9)  # noqa: DTZ001 - LiteLLM's times are local, without a zone
ENDED = BEGAN + timedelta(milliseconds=5)
KEYED = {"litellm_params": {"metadata": {"user_api_key_hash": "planted-hash"}}}
TOOL = {"name": "time-now", "title": None, "input_schema": {"type": "object"}, "annotations": {"read_only_hint": True}}
CALL = {
    **KEYED,
    "call_type": "call_mcp_tool",
    "model": "MCP: time-now",
    "litellm_call_id": "c-1",
    "mcp_tool_call_metadata": {"name": "now", "arguments": {"zone": "UTC"}, "mcp_server_name": "time"},
}


class ToolError(Exception):
    """The error of a call whose result is one."""


@pytest.fixture
def module() -> Iterator[ModuleType]:
    stand_ins: dict[str, dict[str, Any]] = {
        "litellm.integrations.custom_logger": {"CustomLogger": object},
        "litellm.proxy.mcp_server.exceptions": {"MCPToolResultError": ToolError},
    }
    with standing_in(stand_ins, MODULE) as loaded:
        yield loaded


def a_feed(module: ModuleType) -> tuple[Any, MemorySink]:
    sink = MemorySink()
    return module.LiteLLMFeed("litellm", "gateway", sink, prefixes=Prefixes({"time-": "time"})), sink


async def test_a_list_is_partial_and_has_the_servers_own_names(module: ModuleType) -> None:
    """Members stand as they do on the wire."""
    feed, sink = a_feed(module)
    await feed.async_log_success_event({**KEYED, "call_type": "list_mcp_tools"}, [TOOL], BEGAN, ENDED)
    [snapshot] = data_of(sink.observations)
    assert (snapshot["server_id"], snapshot["shown_prefix"], snapshot["completeness"]) == ("time", "time-", "partial")
    assert snapshot["tools"] == [
        {"name": "now", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
    ]


async def test_a_call_refers_to_the_list_that_its_key_was_shown_before(module: ModuleType) -> None:
    """It has LiteLLM's id, and the times at which LiteLLM saw it."""
    feed, sink = a_feed(module)
    await feed.async_log_success_event({**KEYED, "call_type": "list_mcp_tools"}, [TOOL], BEGAN, BEGAN)
    result = mcp_types.CallToolResult(content=[])
    await feed.async_log_success_event(CALL, result, BEGAN + timedelta(seconds=1), ENDED + timedelta(seconds=1))
    snapshot, call = data_of(sink.observations)
    assert (call["server_id"], call["tool_name"], call["shown_tool_name"]) == ("time", "now", "time-now")
    assert (call["snapshot_id"], call["ok"], call["timing"]["duration_ms"]) == (snapshot["snapshot_id"], True, 5.0)
    assert "c-1" in call["tool_call_id"]
    assert "planted" not in str(sink.observations)


@pytest.mark.parametrize(
    ("error", "code"), [(ToolError("planted"), "tool_error"), (OSError("planted"), "gateway_error")]
)
async def test_a_failed_call_has_no_hash_of_what_its_client_was_told(
    module: ModuleType, error: Exception, code: str
) -> None:
    feed, sink = a_feed(module)
    await feed.async_log_failure_event({**CALL, "exception": error}, None, BEGAN, ENDED)
    [call] = data_of(sink.observations)
    assert (call["ok"], call["error"], call.get("result_hash")) == (False, {"code": code}, None)
    assert "planted" not in str(sink.observations)


async def test_what_is_no_tool_call_is_passed_over_and_what_is_malformed_is_counted(module: ModuleType) -> None:
    """A completion of a model, and a list that is none."""
    feed, sink = a_feed(module)
    await feed.async_log_success_event({"call_type": "acompletion"}, None, BEGAN, ENDED)
    await feed.async_log_failure_event({"call_type": "acompletion"}, None, BEGAN, ENDED)
    await feed.async_log_success_event({**KEYED, "call_type": "list_mcp_tools"}, [{"nothing": 1}], BEGAN, ENDED)
    await feed.async_log_success_event(CALL, None, None, None)
    assert data_of(sink.observations) == []
    assert feed.feed.failures == {"ValidationError": 1, "AttributeError": 1}
