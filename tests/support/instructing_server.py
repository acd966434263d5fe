"""A small real MCP server that gives the instructions of a file, as its clients' models read them.

python -m tests.support.instructing_server FILE
"""

import asyncio
import sys
from pathlib import Path

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server


async def _list_tools(_context: object, _params: object) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[types.Tool(name="read_page", input_schema={"type": "object"})])


async def _main() -> None:
    text = Path(sys.argv[1]).read_text(encoding="utf-8")
    server = Server("instructing", version="1", instructions=text or None, on_list_tools=_list_tools)
    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(_main())
