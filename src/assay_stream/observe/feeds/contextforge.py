"""The feed of ContextForge: a cpex plugin that reports calls, and calls only.

ContextForge shows its plugins no list of tools, so this feed publishes none and no digest follows from it alone: list
the servers behind it by a tap or a listing client, and calls are bound to what those saw. A call has the name that
the server itself gave the tool, and the one that the client called.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from assay_stream.errors import needing_extra
from assay_stream.observe.feeds.feed import Feed
from assay_stream.observe.objects import CALL, Asked, ClientView
from assay_stream.observe.publisher import ObservationPublisher

with needing_extra("contextforge"):
    from cpex.framework import Plugin, ToolPostInvokeResult, ToolPreInvokeResult
    from cpex.framework.constants import GATEWAY_METADATA, TOOL_METADATA
    from mcpgateway.common.models import CallToolResult

if TYPE_CHECKING:
    from cpex.framework import PluginConfig, PluginContext, ToolPostInvokePayload, ToolPreInvokePayload

_STATE = "assay_stream"


class ContextForgeFeed(Plugin):  # type: ignore[misc]  # the extra brings its types
    """Reports the calls of one ContextForge gateway.

    Its ``config`` in the gateway's file of plugins:

    * ``server_id``: the server of tools that ContextForge does not have from another one, such as a REST API.
    * ``observer_id``: the gateway.
    * ``servers``: the operator's name of each server, by its name in ContextForge, where the two differ.
    * every other member is an argument of aiokafka's connection: ``bootstrap_servers``, and what security needs.

    Raises:
        ConfigurationError: ``bad_identifier``.
    """

    def __init__(self, config: PluginConfig) -> None:
        super().__init__(config)
        stated = dict(config.config or {})
        server_id, observer_id = str(stated.pop("server_id", "")), str(stated.pop("observer_id", ""))
        self._servers: Mapping[str, str] = stated.pop("servers", {})
        topics = stated.pop("topics", None)
        self._publisher = ObservationPublisher(stated, **({} if topics is None else {"topics": topics}))
        self.feed = Feed(server_id, observer_id, self._publisher)

    async def initialize(self) -> None:
        """Start to deliver; does not wait for a broker."""
        self._publisher.start()

    async def shutdown(self) -> None:
        """Report the calls that are not answered, and deliver what is queued."""
        self.feed.close()
        await self._publisher.aclose()

    async def tool_pre_invoke(self, payload: ToolPreInvokePayload, context: PluginContext) -> ToolPreInvokeResult:
        """Report a call before it is made."""
        self.feed.guard(lambda: self._began(payload, context))
        return ToolPreInvokeResult()

    async def tool_post_invoke(self, payload: ToolPostInvokePayload, context: PluginContext) -> ToolPostInvokeResult:
        """Report what became of a call. One that was made without the hook before it has no hash of arguments."""
        self.feed.guard(lambda: self._ended(payload, context))
        return ToolPostInvokeResult()

    def _began(self, payload: ToolPreInvokePayload, context: PluginContext) -> None:
        asked = self._ask(payload.name, lambda: {"arguments": payload.args or {}}, context)
        if asked is not None:
            # The gateway keeps the state, which needs no arguments.
            context.state[_STATE] = replace(asked, message={**asked.message, "params": {}}, observations=[])

    def _ended(self, payload: ToolPostInvokePayload, context: PluginContext) -> None:
        asked = context.state.pop(_STATE, None) or self._ask(payload.name, dict, context)
        self.feed.answer(asked, lambda: {"result": _result(payload.result)})

    def _ask(self, shown: str, params: Any, context: PluginContext) -> Asked | None:
        metadata = context.global_context.metadata
        own = getattr(metadata.get(TOOL_METADATA), "original_name", None) or shown
        return self.feed.ask(
            CALL,
            lambda: {"name": own, **params()},
            view=lambda: self._view(metadata, context),
            shown_name=None if shown == own else shown,
        )

    def _view(self, metadata: Mapping[str, Any], context: PluginContext) -> ClientView:
        server = getattr(metadata.get(GATEWAY_METADATA), "name", None) or ""
        user = context.global_context.user
        return self.feed.view(str(user or ""), server_id=self._servers.get(server, server))


def _result(result: Any) -> dict[str, Any]:
    """Return a result without the members that ContextForge adds as null."""
    return dict(CallToolResult.model_validate(result).model_dump(by_alias=True, mode="json", exclude_none=True))
