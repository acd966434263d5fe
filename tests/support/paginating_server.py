"""A small real MCP server whose list of tools comes in pages. No released server does that.

Five tools, two a page. The cursor of the second page is the empty string, which is a cursor like any other.
"""

import asyncio

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

NAMES = ["alpha", "beta", "gamma", "delta", "epsilon"]
_PAGE_TOOLS = 2
_STARTS = {None: 0, "": 2, "last": 4}
_NEXT: dict[int, str | None] = {0: "", 2: "last", 4: None}


async def _list_tools(_context: object, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    start = _STARTS[params.cursor if params else None]
    tools = [
        types.Tool(name=name, description=f"Tool {name}", input_schema={"type": "object"})
        for name in NAMES[start : start + _PAGE_TOOLS]
    ]
    return types.ListToolsResult(tools=tools, next_cursor=_NEXT[start])


async def _call_tool(_context: object, params: types.CallToolRequestParams) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=f"called {params.name}")])


async def _main() -> None:
    server = Server("paginating", version="1", on_list_tools=_list_tools, on_call_tool=_call_tool)
    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(_main())
