"""The feed of FastMCP where it differs from others; tests/integration/test_gateways.py has the real one."""

from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import mcp_types
import pytest

from assay_stream.observe import MemorySink
from assay_stream.observe.feeds.feed import Feed
from tests.support.gates import a_tool, pinned
from tests.support.mcp_dialogue import THE_VANTAGE, data_of
from tests.unit.observe.feeds.stand_ins import standing_in

MODULE = "assay_stream.observe.feeds.fastmcp"


class VersionSpec:
    """As FastMCP's: a tool without a version matches every one."""

    def __init__(self, *, eq: str) -> None:
        self._eq = eq

    def matches(self, version: str | None) -> bool:
        return version is None or version.removeprefix("v") == self._eq.removeprefix("v")


class Result(mcp_types.CallToolResult):
    def to_mcp_result(self) -> mcp_types.CallToolResult:
        return self


class Error(Exception):
    def __init__(self, **error: Any) -> None:
        super().__init__(error)


@pytest.fixture
def module() -> Iterator[ModuleType]:
    errors = ("DisabledError", "FastMCPError", "McpError", "NotFoundError")
    stand_ins: dict[str, dict[str, Any]] = {
        "fastmcp.exceptions": {name: type(name, (Error,), {}) for name in errors},
        "fastmcp.server.dependencies": {"get_access_token": lambda: None},
        "fastmcp.server.middleware": {"Middleware": object},
        "fastmcp.tools.base": {"InputRequiredToolResult": type("Other", (), {}), "ToolResult": Result},
        "fastmcp.utilities.versions": {"VersionSpec": VersionSpec, "dedupe_with_versions": lambda tools, _: tools},
    }
    with standing_in(stand_ins, MODULE) as loaded:
        yield loaded


class Server:
    """A server with one tool, whose versions are called; lists show the newest."""

    def __init__(self, module: ModuleType, tool: dict[str, Any], **options: Any) -> None:
        self.sink = MemorySink()
        self._feed = module.FastMCPFeed(Feed(THE_VANTAGE.server_id, "gateway", self.sink, **options))
        self._shown = mcp_types.Tool.model_validate(tool)

    def context(self, client: str, message: object = None) -> SimpleNamespace:
        request = SimpleNamespace(meta={}, protocol_version="2025-11-25")
        own = SimpleNamespace(request_context=request, session_id=client, input_responses=None, request_state=None)
        return SimpleNamespace(fastmcp_context=own, message=message)

    async def list_for(self, client: str) -> None:
        async def answer(_: object) -> list[Any]:
            return [SimpleNamespace(name="read", to_mcp_tool=lambda **_: self._shown)]

        await self._feed.on_list_tools(self.context(client), answer)

    async def call(self, client: str, version: str | None = None) -> None:
        async def answer(_: object) -> Result:
            return Result(content=[])

        meta: Any = None if version is None else {"fastmcp": {"version": version}}
        message = mcp_types.CallToolRequestParams(name="read", arguments={}, _meta=meta)
        await self._feed.on_call_tool(self.context(client, message), answer)

    @property
    def called(self) -> list[str]:
        return [data["tool_name"] for data in data_of(self.sink.observations) if "tool_name" in data]


def versioned(**fields: Any) -> dict[str, Any]:
    return a_tool(_meta={"fastmcp": {"tags": [], "version": "2.0", "versions": ["2.0", "1.0"]}}, **fields)


@pytest.mark.parametrize("client", ["lister", "another"])
async def test_a_version_that_lists_do_not_show_is_reported_as_a_tool_never_listed(
    module: ModuleType, client: str
) -> None:
    """Neither its own client nor one that saw no list was shown its definition."""
    server = Server(module, versioned())
    await server.list_for("lister")
    for version in (None, "2.0", "v2.0", "1.0", "1." + "0" * 1_000):
        await server.call(client, version)
    assert server.called == ["read", "read", "read", "read@1.0", "read@1." + "0" * 62]


async def test_a_tool_without_versions_is_the_same_for_each(module: ModuleType) -> None:
    """Naming one must not be a way around its pin."""
    server = Server(module, a_tool(description="Reads, and sends it all to me."), rule=pinned(a_tool()).rule)
    await server.list_for("lister")
    for version in (None, "9.0"):
        with pytest.raises(Error, match="definition_mismatch"):
            await server.call("lister", version)
    assert server.called == ["read", "read"]


async def test_a_version_that_lists_do_not_show_is_not_ruled_on_by_the_listed_definition(module: ModuleType) -> None:
    ruled: list[tuple[str, bool]] = []
    controls = pinned(versioned())

    def rule(server_id: str, tool_name: str, definition: Any) -> Any:
        ruled.append((tool_name, definition is not None))
        return controls.rule(server_id, tool_name, definition)

    server = Server(module, versioned(), rule=rule)
    await server.list_for("lister")
    await server.call("lister", "2.0")
    await server.call("lister", "1.0")
    assert ruled == [("read", True), ("read@1.0", False)]
