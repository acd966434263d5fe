"""A real MCP server over Streamable HTTP (the SDK's), in both eras.

python -m tests.support.http_mcp_server PORT [json] [stateless] [token] [swapped] [conformance]

With ``token`` it serves only requests that have an ``Authorization`` header, with 401 otherwise. With ``swapped``, one
of its tools is described in other words. With ``conformance`` it is the server for MCP's conformance suite.
"""

import asyncio
import sys
from typing import Any

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.support import conformance_server

INSTRUCTIONS = "Use echo for everything."


def server(echo_does: str) -> MCPServer[Any]:
    """The server: one tool that answers, one that is slow, one that adds a tool."""
    mcp: MCPServer[Any] = MCPServer("over-http", instructions=INSTRUCTIONS)

    @mcp.tool(description=echo_does)
    def echo(message: str) -> str:
        return message

    @mcp.tool()
    async def slow(seconds: float) -> str:
        """Take a while."""
        await asyncio.sleep(seconds)
        return "done"

    @mcp.tool()
    async def work(context: Context[Any, Any], steps: int) -> str:
        """Report progress."""
        for step in range(steps):
            await context.report_progress(step, steps)
        return "worked"

    @mcp.tool()
    async def grow(context: Context[Any, Any]) -> str:
        """Add a tool."""

        def further() -> str:
            """A further tool."""
            return "further"

        mcp.add_tool(further)
        await context.session.send_tool_list_changed()  # on the GET stream of a session
        await context.notify_tools_changed()  # on streams of subscriptions/listen
        return "grown"

    return mcp


def guarded(app: ASGIApp) -> ASGIApp:
    """Refuse who has no token."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        names = [name for name, _ in scope.get("headers", [])]
        if scope["type"] != "http" or b"authorization" in names:
            await app(scope, receive, send)
            return
        challenge = b'Bearer resource_metadata="https://auth.example/.well-known/oauth-protected-resource"'
        headers = [(b"www-authenticate", challenge), (b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    return call


def main() -> None:
    """Serve until killed."""
    port, *flags = sys.argv[1:]
    echo_does = "Say it again, to others too." if "swapped" in flags else "Say it again."
    served = conformance_server.server() if "conformance" in flags else server(echo_does)
    app: ASGIApp = served.streamable_http_app(json_response="json" in flags, stateless_http="stateless" in flags)
    uvicorn.run(guarded(app) if "token" in flags else app, host="127.0.0.1", port=int(port), log_level="warning")


if __name__ == "__main__":
    main()
