"""The feed of ContextForge: a cpex plugin that reports calls, and calls only.

ContextForge does not expose tool lists to plugins, so this feed publishes none and no digest follows from it alone:
list the servers behind it by a tap or a listing client, and calls are bound to their snapshots. A call has the name
that the server itself gave the tool, and the one that the client called.

ContextForge builds a plugin for each tool, and builds it anew every 30 seconds, also in the middle of a call. So all
plugins of one configuration share a feed and its publisher, and a call that one began ends with another.
"""

from __future__ import annotations

import json
import os
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from assay_stream.canonical.digest import DigestKey
from assay_stream.errors import needing_extra
from assay_stream.limits import FEED_LIMITS
from assay_stream.observe.feeds.feed import CALL, Asked, ClientView, Feed
from assay_stream.observe.publisher import ObservationPublisher
from assay_stream.observe.wire import Held

with needing_extra("contextforge"):
    from cpex.framework import Plugin, ToolPostInvokeResult, ToolPreInvokeResult
    from cpex.framework.constants import GATEWAY_METADATA, TOOL_METADATA
    from mcpgateway.common.models import CallToolResult

if TYPE_CHECKING:
    from cpex.framework import PluginConfig, PluginContext, ToolPostInvokePayload, ToolPreInvokePayload

_STATE = "assay_stream"


_begun = Held[tuple[Feed, Asked]]()
"""Calls that began, for plugin instances that did not see them begin."""


class SharedFeed:
    """The feed and publisher shared by all hooks with one configuration; closed with the last of them."""

    _all: ClassVar[dict[str, SharedFeed]] = {}

    def __init__(self, key: str, config: Mapping[str, Any]) -> None:
        connection = {"server_id": "", "observer_id": "", **config}
        names = str(connection.pop("server_id")), str(connection.pop("observer_id"))
        further = {name: connection.pop(name) for name in ("topics", "digest_key") if name in connection}
        if "digest_key" in further:
            further["digest_key"] = DigestKey(further["digest_key"])
        self._publisher = ObservationPublisher(connection, **further)
        self.feed = Feed(*names, self._publisher)
        self._key = key
        self._users: set[object] = set()

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> SharedFeed:
        """Return the shared instance for a configuration, one per process: a forked child gets its own."""
        key = json.dumps([os.getpid(), config], sort_keys=True, default=repr)
        if key not in cls._all:
            cls._all[key] = cls(key, config)
        return cls._all[key]

    def enter(self, user: object) -> None:
        self._users.add(user)
        self._publisher.start()

    async def leave(self, user: object) -> None:
        self._users.discard(user)
        if not self._users and self._all.get(self._key) is self:
            del self._all[self._key]  # at once: who comes while it closes begins another
            self.feed.close()
            await self._publisher.aclose()


class ContextForgeFeed(Plugin):  # type: ignore[misc]  # the extra brings its types
    """Report the calls of one ContextForge gateway.

    Its ``config`` in the gateway's file of plugins:

    * ``server_id``: the server for tools that have no MCP server behind them, such as a REST API.
    * ``observer_id``: the gateway.
    * ``servers``: the operator's name of each server, by its name in ContextForge, where they differ.
    * every other member is an aiokafka connection argument: ``bootstrap_servers`` and security settings.

    Raises:
        ConfigurationError: ``bad_identifier``.
    """

    def __init__(self, config: PluginConfig) -> None:
        super().__init__(config)
        self._stated = dict(config.config or {})
        self._servers: Mapping[str, str] = self._stated.pop("servers", {})
        self._own = SharedFeed.of(self._stated)

    @property
    def feed(self) -> Feed:
        return self._own.feed

    async def initialize(self) -> None:
        self._own = SharedFeed.of(self._stated)
        self._own.enter(self)

    async def shutdown(self) -> None:
        """With the last plugin, report unanswered calls and deliver the queue."""
        await self._own.leave(self)

    async def tool_pre_invoke(self, payload: ToolPreInvokePayload, context: PluginContext) -> ToolPreInvokeResult:
        self.feed.guard(lambda: self._began(payload, context))
        return ToolPreInvokeResult()

    async def tool_post_invoke(self, payload: ToolPostInvokePayload, context: PluginContext) -> ToolPostInvokeResult:
        """Report the outcome of a call. Without a preceding pre-invoke hook, it has no arguments hash."""
        self.feed.guard(lambda: self._ended(payload, context))
        return ToolPostInvokeResult()

    def _began(self, payload: ToolPreInvokePayload, context: PluginContext) -> None:
        asked = self._ask(payload.name, lambda: {"arguments": payload.args or {}}, context)
        if asked is not None:
            name = _begun.put(_key(payload, context), (self.feed, asked))
            if len(_begun) > FEED_LIMITS.calls_max:
                _begun.take_oldest()  # only its own plugin can end it now
            context.state[_STATE] = name, self.feed, asked

    def _ended(self, payload: ToolPostInvokePayload, context: PluginContext) -> None:
        if _STATE in context.state:
            begun, context.state[_STATE] = context.state[_STATE], None
            if begun is None:
                return  # ended before: ContextForge runs this hook again where it fails after it
            name, feed, asked = begun
            _begun.take(name)
        else:
            # The latest: earlier ones may be cancelled, which no hook says.
            feed, asked = _begun.take_under(_key(payload, context), latest=True) or (
                self.feed,
                self._ask(payload.name, dict, context),
            )
            context.state[_STATE] = None
        # A feed that was closed has reported the call as one without an answer.
        if feed is self.feed:
            feed.answer(asked, lambda: {"result": _result(payload.result)})

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
    return dict(CallToolResult.model_validate(result).model_dump(by_alias=True, mode="json", exclude_none=True))


def _key(payload: ToolPreInvokePayload | ToolPostInvokePayload, context: PluginContext) -> Hashable:
    """Return the key shared by both ends of a call. Clients can choose the request id, so it does not suffice alone."""
    return context.global_context.request_id, str(context.global_context.user or ""), payload.name
