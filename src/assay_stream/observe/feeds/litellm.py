"""The feed of LiteLLM's proxy: a callback that reports lists and calls after they have happened.

    handler = LiteLLMFeed("litellm", "gateway-1", publisher, prefixes=Prefixes({"time-": "time"}))

LiteLLM leaves out of a list what a key may not use, so its lists are partial. It reports a call when that has ended, so
a feed cannot refuse one. A client is the key that it uses; the hash of it that LiteLLM hands over is not published.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from assay_stream.errors import needing_extra
from assay_stream.observe.feeds.feed import CALL, ClientView, Feed
from assay_stream.observe.sinks import Sink

with needing_extra("litellm"):
    import mcp_types
    from litellm.integrations.custom_logger import CustomLogger
    from litellm.proxy.mcp_server.exceptions import MCPToolResultError

_SHOWN = "MCP: "
"""LiteLLM's marker of tool names, in a field that otherwise holds a model's name."""


class LiteLLMFeed(CustomLogger):  # type: ignore[misc]  # the extra brings its types
    """Report the lists and calls of one LiteLLM proxy; ``server_id`` has the tools that match no prefix.

    Args:
        options: of its ``Feed``: ``prefixes``, ``auth_context``, ``server_scoped``.
    """

    def __init__(self, server_id: str, observer_id: str, sink: Sink, **options: Any) -> None:
        super().__init__()
        self.feed = Feed(server_id, observer_id, sink, filtered=True, retrospective=True, **options)

    async def async_log_success_event(
        self, kwargs: Mapping[str, Any], response_obj: Any, start_time: datetime, end_time: datetime
    ) -> None:
        self.feed.guard(lambda: self._succeeded(kwargs, response_obj, start_time.astimezone(), end_time.astimezone()))

    async def async_log_failure_event(
        self,
        kwargs: Mapping[str, Any],
        response_obj: Any,  # noqa: ARG002 - LiteLLM's signature
        start_time: datetime,
        end_time: datetime,
    ) -> None:
        """Report a failed call. The client's response is unknown here, so nothing is hashed."""
        self.feed.guard(lambda: self._failed(kwargs, start_time.astimezone(), end_time.astimezone()))

    def _succeeded(self, kwargs: Mapping[str, Any], result: Any, began: datetime, ended: datetime) -> None:
        if kwargs.get("call_type") == "list_mcp_tools":
            asked = self.feed.ask("tools/list", dict, view=lambda: self._view(kwargs), at=began)
            self.feed.answer(asked, lambda: {"result": {"tools": [_on_wire(tool) for tool in result]}}, at=ended)
        elif kwargs.get("mcp_tool_call_metadata"):
            asked = self._call(kwargs, began)
            self.feed.answer(asked, lambda: {"result": _result(result)}, at=ended)

    def _failed(self, kwargs: Mapping[str, Any], began: datetime, ended: datetime) -> None:
        if kwargs.get("mcp_tool_call_metadata"):
            is_result = isinstance(kwargs.get("exception"), MCPToolResultError)
            code = "tool_error" if is_result else "gateway_error"
            self.feed.unanswered(self._call(kwargs, began), code, ok=False, at=ended)

    def _call(self, kwargs: Mapping[str, Any], began: datetime) -> Any:
        return self.feed.ask(
            CALL,
            lambda: _params(kwargs),
            view=lambda: self._view(kwargs),
            at=began,
            call_id=str(kwargs.get("litellm_call_id") or ""),
        )

    def _view(self, kwargs: Mapping[str, Any]) -> ClientView:
        metadata = (kwargs.get("litellm_params") or {}).get("metadata") or {}
        return self.feed.view(str(metadata.get("user_api_key_hash") or metadata.get("user_api_key") or ""))


def _params(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    call = kwargs["mcp_tool_call_metadata"]
    shown = str(kwargs.get("model") or "")
    return {
        "name": shown.removeprefix(_SHOWN) if shown.startswith(_SHOWN) else call["name"],
        "arguments": call.get("arguments") or {},
    }


def _on_wire(tool: Any) -> dict[str, Any]:
    """Return a tool in wire form: LiteLLM passes members under their Python names."""
    own = mcp_types.Tool.model_validate(tool, by_alias=True, by_name=True)
    return dict(own.model_dump(by_alias=True, mode="json", exclude_none=True))


def _result(result: Any) -> dict[str, Any]:
    dumped = dict(result.model_dump(by_alias=True, mode="json", exclude_none=True))
    if dumped.get("resultType") == "complete":
        del dumped["resultType"]  # which not every revision of MCP has
    return dumped
