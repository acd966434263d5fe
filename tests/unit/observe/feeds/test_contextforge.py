"""ContextForge's feed, fed as cpex 0.1.3 feeds plugins; tests/integration/test_gateways.py has the real one."""

from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import mcp_types
import pytest

from assay_stream.errors import ConfigurationError
from assay_stream.observe import MemorySink
from tests.support.mcp_dialogue import data_of
from tests.unit.observe.feeds.stand_ins import standing_in

MODULE = "assay_stream.observe.feeds.contextforge"
RESULT = {"content": [{"type": "text", "text": "planted"}], "isError": False, "structuredContent": None}


class Publisher(MemorySink):
    def __init__(self, connection: object, **options: object) -> None:
        super().__init__()
        self.stated = connection, options
        self.starts = self.closes = 0

    def start(self) -> None:
        self.starts += 1

    async def aclose(self, timeout_s: float = 10.0) -> None:  # noqa: ARG002 - the name of the real one
        self.closes += 1


class Plugin:
    def __init__(self, config: Any) -> None:
        self._config = config

    @property
    def name(self) -> Any:
        return self._config.name


@pytest.fixture
def module() -> Iterator[ModuleType]:
    stand_ins: dict[str, dict[str, Any]] = {
        "cpex.framework": {"Plugin": Plugin, "ToolPreInvokeResult": dict, "ToolPostInvokeResult": dict},
        "cpex.framework.constants": {"TOOL_METADATA": "tool", "GATEWAY_METADATA": "gateway"},
        "mcpgateway.common.models": {"CallToolResult": mcp_types.CallToolResult},
    }
    with standing_in(stand_ins, MODULE) as loaded:
        yield loaded


def a_plugin(module: ModuleType, **config: Any) -> Any:
    stated = {"bootstrap_servers": "127.0.0.1:1", "server_id": "contextforge", "observer_id": "gateway", **config}
    return module.ContextForgeFeed(SimpleNamespace(name="assay-stream", config=stated))


@pytest.fixture
def published(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[Publisher]:
    made: list[Publisher] = []

    def publisher(connection: object, **options: object) -> Publisher:
        made.append(Publisher(connection, **options))
        return made[-1]

    monkeypatch.setattr(module, "ObservationPublisher", publisher)
    monkeypatch.setattr(module.SharedFeed, "_all", {})
    return made


def a_context(request_id: str = "r", **metadata: Any) -> Any:
    """What cpex gives with a call: state of the plugin, and what is known of the tool."""
    known = SimpleNamespace(request_id=request_id, user="planted-user", metadata=metadata)
    return SimpleNamespace(state={}, global_context=known)


def data_by(published: list[Publisher]) -> list[dict[str, Any]]:
    return data_of(each for sink in published for each in sink.observations)


def before(number: int = 0) -> Any:
    return SimpleNamespace(name="t", args={"number": number})


def after() -> Any:
    return SimpleNamespace(name="t", result=RESULT)


async def test_a_call_has_the_servers_own_name_and_the_one_that_was_shown(
    module: ModuleType, published: list[Publisher]
) -> None:
    """And the operator's name for the server. Nothing is listed."""
    plugin = a_plugin(module, servers={"clock": "time"})
    context = a_context(tool=SimpleNamespace(original_name="get_time"), gateway=SimpleNamespace(name="clock"))
    await plugin.tool_pre_invoke(SimpleNamespace(name="clock-get-time", args={"zone": "planted-zone"}), context)
    assert "zone" not in str(context.state), "no arguments in the gateway's state"
    await plugin.tool_post_invoke(SimpleNamespace(name="clock-get-time", result=RESULT), context)
    [call] = data_by(published)
    assert plugin.name == "assay-stream"
    assert (call["server_id"], call["tool_name"], call["shown_tool_name"]) == ("time", "get_time", "clock-get-time")
    assert call["ok"] is True
    assert {"args_hash", "result_hash"} <= call.keys()
    assert "snapshot_id" not in call
    assert "planted" not in str(published[0].observations)


async def test_a_call_without_the_hook_before_it_has_no_hash_of_arguments(
    module: ModuleType, published: list[Publisher]
) -> None:
    """It is reported all the same, for the gateway's own server where no other is named."""
    plugin = a_plugin(module)
    await plugin.tool_post_invoke(SimpleNamespace(name="rest-tool", result=RESULT), a_context())
    [call] = data_by(published)
    assert (call["server_id"], call["tool_name"], call.get("args_hash")) == ("contextforge", "rest-tool", None)
    assert "shown_tool_name" not in call


async def test_a_call_that_a_rebuilt_plugin_ends_is_one_record(module: ModuleType, published: list[Publisher]) -> None:
    """ContextForge builds its plugins anew while calls are under way, and gives the new one none of the old state."""
    for_all, old = a_plugin(module), a_plugin(module)
    await for_all.initialize()
    await old.initialize()
    await old.tool_pre_invoke(before(), a_context())
    await old.shutdown()
    new = a_plugin(module)
    await new.initialize()
    await new.tool_post_invoke(after(), a_context())
    await new.shutdown()
    assert [publisher.closes for publisher in published] == [0], "one publisher, open as long as any plugin"
    await for_all.shutdown()
    assert [publisher.closes for publisher in published] == [1]
    [call] = data_by(published)
    assert call["ok"] is True
    assert "args_hash" in call


async def test_a_rebuilt_plugin_goes_on_with_the_latest_call_of_the_same_request(
    module: ModuleType, published: list[Publisher]
) -> None:
    """A client can give two requests one id, and of a call that it cancels ContextForge says nothing."""
    old, new = a_plugin(module), a_plugin(module)
    await old.initialize()
    await new.initialize()
    for number in range(2):
        await old.tool_pre_invoke(before(number), a_context())
    await new.tool_post_invoke(after(), a_context())
    await old.shutdown()
    await new.shutdown()
    ended, cancelled = data_by(published)
    assert (ended["ok"], cancelled["error"]) == (True, {"code": "no_response"})
    assert ended["tool_call_id"] > cancelled["tool_call_id"]


async def test_a_call_that_was_reported_without_an_answer_is_not_reported_again(
    module: ModuleType, published: list[Publisher]
) -> None:
    """Where all plugins were closed before it ended, by an operator's reload."""
    old = a_plugin(module)
    await old.initialize()
    await old.tool_pre_invoke(before(), a_context())
    await old.shutdown()
    new = a_plugin(module)
    await new.initialize()
    await new.tool_post_invoke(after(), a_context())
    await new.shutdown()
    [call] = data_by(published)
    assert call["error"] == {"code": "no_response"}
    assert [(publisher.starts, publisher.closes) for publisher in published] == [(1, 1), (1, 1)]


@pytest.mark.parametrize("has_begun", [True, False])
async def test_a_call_that_ends_twice_is_one_record(
    module: ModuleType, published: list[Publisher], has_begun: bool
) -> None:
    """ContextForge runs its hooks again where it fails after them."""
    plugin, context = a_plugin(module), a_context()
    if has_begun:
        await plugin.tool_pre_invoke(before(), context)
    for _ in range(2):
        await plugin.tool_post_invoke(after(), context)
    assert len(data_by(published)) == 1


async def test_what_is_kept_of_calls_is_bounded(
    module: ModuleType, published: list[Publisher], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plugin that saw a call begin can end it all the same."""
    monkeypatch.setattr(module, "FEED_LIMITS", replace(module.FEED_LIMITS, calls_max=2))
    plugin, contexts = a_plugin(module), [a_context(str(number)) for number in range(3)]
    for number, context in enumerate(contexts):
        await plugin.tool_pre_invoke(before(number), context)
    assert len(module._begun) == 2
    for context in contexts:
        await plugin.tool_post_invoke(after(), context)
    assert [call["ok"] for call in data_by(published)] == [True] * 3
    assert not module._begun


async def test_other_configurations_have_publishers_of_their_own(
    module: ModuleType, published: list[Publisher]
) -> None:
    """An operator can configure a plugin for each tool."""
    a_plugin(module), a_plugin(module, servers={"a": "b"}), a_plugin(module, observer_id="other")
    assert [publisher.stated for publisher in published] == [({"bootstrap_servers": "127.0.0.1:1"}, {})] * 2


async def test_no_failure_reaches_the_gateway(module: ModuleType) -> None:
    """It would fail the call: objects that are other than they were are counted."""
    plugin = a_plugin(module)
    await plugin.tool_pre_invoke(object(), a_context())
    await plugin.tool_post_invoke(SimpleNamespace(name="t", result=object()), a_context())
    assert plugin.feed.failures == {"AttributeError": 1, "ValidationError": 1}


async def test_it_starts_and_ends_with_the_gateway(module: ModuleType) -> None:
    plugin = module.ContextForgeFeed(
        SimpleNamespace(config={"bootstrap_servers": "127.0.0.1:1", "server_id": "s", "observer_id": "o", "topics": {}})
    )
    await plugin.initialize()
    await plugin.shutdown()
    with pytest.raises(ConfigurationError, match="bad_identifier"):
        module.ContextForgeFeed(SimpleNamespace(config=None))
