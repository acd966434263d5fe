"""The feed of ContextForge: a cpex plugin that reports calls, and calls only.

ContextForge shows its plugins no list of tools, so this feed publishes none and no digest follows from it alone: list
the servers behind it by a tap or a listing client, and calls are bound to what those saw. A call has the name that
the server itself gave the tool, and the one that the client called.

ContextForge builds a plugin for each tool, and builds it anew every 30 seconds, also in the middle of a call. So all
plugins of one configuration share a feed and its publisher, and a call that one began ends with another.
"""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from assay_stream.errors import needing_extra
from assay_stream.limits.serving import FEED_LIMITS
from assay_stream.observe.feeds.feed import CALL, Asked, ClientView, Feed
from assay_stream.observe.publisher import ObservationPublisher

with needing_extra("contextforge"):
    from cpex.framework import Plugin, ToolPostInvokeResult, ToolPreInvokeResult
    from cpex.framework.constants import GATEWAY_METADATA, TOOL_METADATA
    from mcpgateway.common.models import CallToolResult

if TYPE_CHECKING:
    from cpex.framework import PluginConfig, PluginContext, ToolPostInvokePayload, ToolPreInvokePayload

_STATE = "assay_stream"


class _Shared:
    """The feed and the publisher of all plugins with one configuration; closed with the last of them."""

    _all: ClassVar[dict[str, _Shared]] = {}

    def __init__(self, key: str, config: Mapping[str, Any]) -> None:
        connection = {"server_id": "", "observer_id": "", **config}
        names = str(connection.pop("server_id")), str(connection.pop("observer_id"))
        topics = {"topics": connection.pop("topics")} if "topics" in connection else {}
        self._publisher = ObservationPublisher(connection, **topics)
        self.feed = Feed(*names, self._publisher)
        self._key = key
        self._plugins: set[ContextForgeFeed] = set()

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> _Shared:
        """Return what a configuration has in this process: a forked one has its own."""
        key = json.dumps([os.getpid(), config], sort_keys=True, default=repr)
        if key not in cls._all:
            cls._all[key] = cls(key, config)
        return cls._all[key]

    def enter(self, plugin: ContextForgeFeed) -> None:
        self._plugins.add(plugin)
        self._publisher.start()

    async def leave(self, plugin: ContextForgeFeed) -> None:
        self._plugins.discard(plugin)
        if not self._plugins and self._all.get(self._key) is self:
            del self._all[self._key]  # at once: who comes while it closes begins another
            self.feed.close()
            await self._publisher.aclose()


class _Begun:
    """Calls that began, for plugins that did not see them begin."""

    def __init__(self, calls_max: int) -> None:
        self._calls_max = calls_max
        self._calls: OrderedDict[int, tuple[Hashable, Feed, Asked]] = OrderedDict()
        self._by_key: dict[Hashable, dict[int, None]] = {}
        self._next = 0

    def put(self, key: Hashable, feed: Feed, asked: Asked) -> int:
        """Keep a call and return its number. Without room the oldest is forgotten: only its own plugin can end it."""
        self._next += 1
        self._calls[self._next] = key, feed, asked
        self._by_key.setdefault(key, {})[self._next] = None
        if len(self._calls) > self._calls_max:
            self.take(next(iter(self._calls)))
        return self._next

    def take(self, number: int) -> None:
        if number in self._calls:
            key = self._calls.pop(number)[0]
            del self._by_key[key][number]
            if not self._by_key[key]:
                del self._by_key[key]

    def take_latest(self, key: Hashable) -> tuple[Feed, Asked] | None:
        """Return the latest call with this key, and forget it. Earlier ones may be cancelled, which no hook says."""
        if key not in self._by_key:
            return None
        number = next(reversed(self._by_key[key]))
        _, feed, asked = self._calls[number]
        self.take(number)
        return feed, asked


_begun = _Begun(FEED_LIMITS.calls_max)


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
        self._stated = dict(config.config or {})
        self._servers: Mapping[str, str] = self._stated.pop("servers", {})
        self._own = _Shared.of(self._stated)

    @property
    def feed(self) -> Feed:
        return self._own.feed

    async def initialize(self) -> None:
        """Start to deliver; does not wait for a broker."""
        self._own = _Shared.of(self._stated)
        self._own.enter(self)

    async def shutdown(self) -> None:
        """With the last plugin, report the calls that are not answered, and deliver what is queued."""
        await self._own.leave(self)

    async def tool_pre_invoke(self, payload: ToolPreInvokePayload, context: PluginContext) -> ToolPreInvokeResult:
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
            asked = replace(asked, message={**asked.message, "params": {}})
            number = _begun.put(_key(payload, context), self.feed, asked)
            context.state[_STATE] = number, self.feed, asked

    def _ended(self, payload: ToolPostInvokePayload, context: PluginContext) -> None:
        if _STATE in context.state:
            begun, context.state[_STATE] = context.state[_STATE], None
            if begun is None:
                return  # ended before: ContextForge runs this hook again where it fails after it
            number, feed, asked = begun
            _begun.take(number)
        else:
            feed, asked = _begun.take_latest(_key(payload, context)) or (
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
    """Return a result without the members that ContextForge adds as null."""
    return dict(CallToolResult.model_validate(result).model_dump(by_alias=True, mode="json", exclude_none=True))


def _key(payload: ToolPreInvokePayload | ToolPostInvokePayload, context: PluginContext) -> Hashable:
    """Return what both ends of a call have in common. Clients can choose the id of a request, so it is not alone."""
    return context.global_context.request_id, str(context.global_context.user or ""), payload.name
