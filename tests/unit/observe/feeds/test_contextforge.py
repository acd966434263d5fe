"""ContextForge's feed, fed as cpex 0.1.3 feeds plugins; tests/integration/test_gateways.py has the real one."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import mcp_types
import pytest

from assay_stream.errors import ConfigurationError
from assay_stream.observe import MemorySink
from assay_stream.observe.feeds.feed import Feed
from tests.unit.observe.feeds.stand_ins import standing_in

MODULE = "assay_stream.observe.feeds.contextforge"
RESULT = {"content": [{"type": "text", "text": "planted"}], "isError": False, "structuredContent": None}


class Plugin:
    """What cpex's class does of what the feed needs."""

    def __init__(self, config: object) -> None:
        """Take the configuration."""


@pytest.fixture
def module() -> Iterator[ModuleType]:
    """The module of the feed, with the names that it needs of ContextForge."""
    stand_ins: dict[str, dict[str, Any]] = {
        "cpex.framework": {"Plugin": Plugin, "ToolPreInvokeResult": dict, "ToolPostInvokeResult": dict},
        "cpex.framework.constants": {"TOOL_METADATA": "tool", "GATEWAY_METADATA": "gateway"},
        "mcpgateway.common.models": {"CallToolResult": mcp_types.CallToolResult},
    }
    with standing_in(stand_ins, MODULE) as loaded:
        yield loaded


def a_feed(module: ModuleType, **config: Any) -> tuple[Any, MemorySink]:
    """A plugin, and what it publishes."""
    stated = {"bootstrap_servers": "127.0.0.1:1", "server_id": "contextforge", "observer_id": "gateway", **config}
    plugin, sink = module.ContextForgeFeed(SimpleNamespace(config=stated)), MemorySink()
    plugin.feed = Feed("contextforge", "gateway", sink)
    return plugin, sink


def a_context(**metadata: Any) -> Any:
    """What cpex gives with a call: state of the plugin, and what is known of the tool."""
    return SimpleNamespace(state={}, global_context=SimpleNamespace(user="planted-user", metadata=metadata))


def data_of(sink: MemorySink) -> list[dict[str, Any]]:
    """The data of everything published."""
    return [json.loads(each.value)["data"] for each in sink.observations]


async def test_a_call_has_the_servers_own_name_and_the_one_that_was_shown(module: ModuleType) -> None:
    """And the operator's name for the server. Nothing is listed."""
    plugin, sink = a_feed(module, servers={"clock": "time"})
    context = a_context(tool=SimpleNamespace(original_name="get_time"), gateway=SimpleNamespace(name="clock"))
    await plugin.tool_pre_invoke(SimpleNamespace(name="clock-get-time", args={"zone": "planted"}), context)
    assert "planted" not in str(context.state["assay_stream"].message), "no arguments in the gateway's state"
    await plugin.tool_post_invoke(SimpleNamespace(name="clock-get-time", result=RESULT), context)
    [call] = data_of(sink)
    assert (call["server_id"], call["tool_name"], call["shown_tool_name"]) == ("time", "get_time", "clock-get-time")
    assert call["ok"] is True
    assert {"args_hash", "result_hash"} <= call.keys()
    assert "snapshot_id" not in call
    assert "planted" not in str(sink.observations)


async def test_a_call_without_the_hook_before_it_has_no_hash_of_arguments(module: ModuleType) -> None:
    """It is reported all the same, for the gateway's own server where no other is named."""
    plugin, sink = a_feed(module)
    await plugin.tool_post_invoke(SimpleNamespace(name="rest-tool", result=RESULT), a_context())
    [call] = data_of(sink)
    assert (call["server_id"], call["tool_name"], call.get("args_hash")) == ("contextforge", "rest-tool", None)
    assert "shown_tool_name" not in call


async def test_no_failure_reaches_the_gateway(module: ModuleType) -> None:
    """It would fail the call: objects that are other than they were are counted."""
    plugin, _ = a_feed(module)
    await plugin.tool_pre_invoke(object(), a_context())
    await plugin.tool_post_invoke(SimpleNamespace(name="t", result=object()), a_context())
    assert plugin.feed.failures == {"AttributeError": 1, "ValidationError": 1}


async def test_it_starts_and_ends_with_the_gateway(module: ModuleType) -> None:
    """Without a broker, too."""
    plugin = module.ContextForgeFeed(
        SimpleNamespace(config={"bootstrap_servers": "127.0.0.1:1", "server_id": "s", "observer_id": "o", "topics": {}})
    )
    await plugin.initialize()
    await plugin.shutdown()
    with pytest.raises(ConfigurationError, match="bad_identifier"):
        module.ContextForgeFeed(SimpleNamespace(config=None))


def test_the_extra_that_is_missing_is_named() -> None:
    """With the command that installs it."""
    sys.modules.pop(MODULE, None)
    with pytest.raises(ConfigurationError, match=r"extra_missing: .*pip install '\.\[contextforge\]'"):
        importlib.import_module(MODULE)
