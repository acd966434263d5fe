"""The feed of FastMCP: middleware for a proxy (``create_proxy``) or any other FastMCP server, and what it refuses.

    server.add_middleware(FastMCPFeed(Feed("docs", "gateway-1", publisher)))

Add it first: middleware added later is nearer to the tools, so this one sees what clients get. Lists and
results are read in the form in which they go on the wire under the revision of MCP that the client speaks.

A client is its session; where there are none (MCP 2026-07-28) it is whoever has its access token, and without tokens
all clients are one. A list that no client asked for is not reported.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from assay_stream.errors import needing_extra
from assay_stream.observe.feeds.feed import CALL, Asked, ClientView, Feed

with needing_extra("fastmcp"):
    import mcp_types
    from fastmcp.exceptions import DisabledError, FastMCPError, McpError, NotFoundError
    from fastmcp.server.dependencies import get_access_token
    from fastmcp.server.middleware import Middleware
    from fastmcp.tools.base import InputRequiredToolResult, ToolResult
    from fastmcp.utilities.versions import VersionSpec, dedupe_with_versions
    from mcp_types.methods import serialize_server_result
    from mcp_types.version import MODERN_PROTOCOL_VERSIONS

if TYPE_CHECKING:
    from fastmcp.server.middleware import CallNext, MiddlewareContext

_VERSION_CHARS_MAX = 64
_PROCESS_KEY = secrets.token_bytes(32)


class FastMCPFeed(Middleware):  # type: ignore[misc]  # the extra brings its types
    """Report lists, calls and instructions to a feed, and refuse the calls that its rule blocks."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed

    async def on_initialize(self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]) -> Any:
        return await self._greeted(context, call_next, "initialize")

    async def on_discover(self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]) -> Any:
        return await self._greeted(context, call_next, "server/discover")

    async def _greeted(self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any], method: str) -> Any:
        result = await call_next(context)
        if result is not None:
            asked = self._ask(context, method)
            self.feed.answer(asked, lambda: {"result": _dumped(result)})
        return result

    async def on_list_tools(self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]) -> Any:
        asked = None if _request(context) is None else self._ask(context, "tools/list")
        tools = await call_next(context)
        self.feed.answer(asked, lambda: {"result": _listed(context, tools)})
        return tools

    async def on_call_tool(self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]) -> Any:
        """Report a call and its outcome; a blocked one raises ``McpError``, as the tap answers it."""
        asked = self._ask(context, CALL)
        if asked is not None and asked.error is not None:
            error = asked.error
            raise McpError(code=error["code"], message=error["message"], data=error.get("data"))
        try:
            result = await call_next(context)
        except asyncio.CancelledError:
            self.feed.unanswered(asked, "cancelled")
            raise
        except McpError as error:
            code = error.error.code
            self.feed.answer(asked, lambda: {"error": {"code": code}})
            raise
        except Exception as error:
            # FastMCP makes a result of these. Its words are not known here, so nothing is hashed.
            is_result = isinstance(error, FastMCPError | NotFoundError | DisabledError)
            self.feed.unanswered(asked, "tool_error" if is_result else "jsonrpc_error", ok=False)
            raise
        self.feed.answer(asked, lambda: {"result": _called(context, result)})
        return result

    def _ask(self, context: MiddlewareContext[Any], method: str) -> Asked | None:
        view, renamed = partial(self._view, context), partial(_versioned, context)
        return self.feed.ask(method, lambda: _params(context, method), view=view, renamed=renamed)

    def _view(self, context: MiddlewareContext[Any]) -> ClientView:
        request = _request(context)
        if request is not None and request.protocol_version in MODERN_PROTOCOL_VERSIONS:
            token = get_access_token()
            return self.feed.view(
                "" if token is None else hmac.digest(_PROCESS_KEY, token.token.encode(), "sha256").hex()
            )
        return self.feed.view(getattr(context.fastmcp_context, "session_id", ""))


def _request(context: MiddlewareContext[Any]) -> Any:
    return None if context.fastmcp_context is None else context.fastmcp_context.request_context


def _params(context: MiddlewareContext[Any], method: str) -> dict[str, Any]:
    request = _request(context)
    meta = {} if request is None else dict(request.meta or {})
    if request is not None:
        meta.setdefault(mcp_types.PROTOCOL_VERSION_META_KEY, request.protocol_version)
    params: dict[str, Any] = {"_meta": meta}
    if method == CALL:
        params["name"] = context.message.name
        if context.message.arguments is not None:
            params["arguments"] = context.message.arguments
        # What a client sends again with the input that a server asked for (MCP 2026-07-28).
        if (answers := context.fastmcp_context.input_responses) is not None:
            params["inputResponses"] = {name: _dumped(answer) for name, answer in answers.items()}
        if (state := context.fastmcp_context.request_state) is not None:
            params["requestState"] = state
    return params


def _versioned(context: MiddlewareContext[Any], name: str, shown: Sequence[Mapping[str, Any]]) -> str:
    """Return a tool's name, with the version that is called if lists show another: like a tool never listed."""
    called = _version_in(context.message.meta)
    if called is None or all(VersionSpec(eq=called).matches(_version_in(tool.get("_meta"))) for tool in shown):
        return name
    return f"{name}@{called[:_VERSION_CHARS_MAX]}"


def _version_in(meta: Any) -> str | None:
    own = meta.get("fastmcp") if isinstance(meta, Mapping) else None
    version = own.get("version") if isinstance(own, Mapping) else None
    return version if isinstance(version, str) else None


def _listed(context: MiddlewareContext[Any], tools: Sequence[Any]) -> dict[str, Any]:
    shown = [tool.to_mcp_tool(name=tool.name) for tool in dedupe_with_versions(list(tools), lambda tool: tool.name)]
    return _on_wire(context, "tools/list", mcp_types.ListToolsResult(tools=shown))


def _called(context: MiddlewareContext[Any], result: Any) -> dict[str, Any]:
    if isinstance(result, InputRequiredToolResult):
        return _dumped(result.input_required)
    if not isinstance(result, ToolResult):
        return _dumped(result)  # an extension's, such as the handle of a task
    said = result.to_mcp_result()
    if not isinstance(said, mcp_types.CallToolResult):
        content, structured = said if isinstance(said, tuple) else (said, None)
        said = mcp_types.CallToolResult(content=content, structured_content=structured)
    return _on_wire(context, CALL, said)


def _on_wire(context: MiddlewareContext[Any], method: str, result: Any) -> dict[str, Any]:
    request = _request(context)
    dumped = _dumped(result)
    return dumped if request is None else dict(serialize_server_result(method, request.protocol_version, dumped))


def _dumped(result: Any) -> dict[str, Any]:
    if isinstance(result, Mapping):
        return dict(result)
    return dict(result.model_dump(by_alias=True, mode="json", exclude_none=True))
