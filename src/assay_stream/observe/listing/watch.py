"""List servers repeatedly: when the server announces a change, when its list expires, or after an interval.

1. Each server has its own task; no server can delay another for longer than its
   place among ``listings_max`` listings, which ``listing_limit_s`` bounds.
2. A listing opens a connection, and closes it unless the server announces changes. Announced changes are listed on the
   same connection, at most every ``announced_gap_s``, backing off while they continue.
3. The next listing is due after the interval, or earlier by the list's ``ttlMs``; after failures sooner at first, then
   with pauses that double. Every pause is shortened by up to a tenth, so that servers drift apart.
4. No state outlives the process except what it published.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime

from assay_stream.limits.serving import LISTING_LIMITS, ListingLimits
from assay_stream.observe.http.upstreams import Client
from assay_stream.observe.listing.conversation import Conversation
from assay_stream.observe.listing.transport import HttpTransport, ListedServer, ListingError, StdioTransport, Transport
from assay_stream.observe.mcp_wire import WireObserver
from assay_stream.observe.observation import Observation

_log = logging.getLogger(__name__)

_PARTS = 1_000
_PAUSE_MIN_S = 0.5
_NOT_OFFERED = frozenset({"refused", "not_mcp", "redirects"})
"""Failure reasons that mean the server offers no announcement stream."""


@dataclass(slots=True)
class Watched:
    """State of one server.

    Args:
        failing: why its latest listing failed; ``None`` after a success or before the first.
        listed_s: time of its last listing, by the monotonic clock.
        modern: whether it may speak MCP 2026-07-28.
    """

    server: ListedServer
    observer: WireObserver
    failing: str | None = None
    failures: int = 0
    breaks: int = 0
    listed_s: float | None = None
    modern: bool = True
    number: int = 1
    counts: Counter[str] = field(default_factory=Counter)


@dataclass(eq=False, repr=False)
class ListWatch:
    """List servers until stopped; ``client`` is for those with a URL."""

    servers: Sequence[ListedServer]
    _: KW_ONLY
    publish: Callable[[Observation], object]
    client: Client | None
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    limits: ListingLimits = LISTING_LIMITS

    def __post_init__(self) -> None:
        self._listings = asyncio.Semaphore(self.limits.listings_max)
        self._hosts: defaultdict[str, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(self.limits.listings_per_host_max)
        )
        self.watched = [
            Watched(
                server, WireObserver(server.vantage, session_id=str(uuid.uuid4()), new_id=lambda: str(uuid.uuid4()))
            )
            for server in self.servers
        ]

    @property
    def ready(self) -> bool:
        return all(each.failures or each.listed_s is not None for each in self.watched)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for each in self.watched:
                tasks.create_task(self._follow(each))

    async def once(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for each in self.watched:
                tasks.create_task(self._visit(each, stays=False))

    async def _follow(self, watched: Watched) -> None:
        # All at once would only wait for one another.
        await asyncio.sleep(len(self.watched) / 100 * secrets.randbelow(_PARTS) / _PARTS)
        while True:
            pause_s = await self._visit(watched, stays=watched.server.listen)
            await asyncio.sleep(max(pause_s, _PAUSE_MIN_S) * (1 - secrets.randbelow(_PARTS) / _PARTS / 10))

    async def _visit(self, watched: Watched, *, stays: bool) -> float:
        """List a server, again per announced change while connected; return the pause until the next listing is due."""
        conversation = Conversation(
            watched.observer,
            publish=self.publish,
            clock=self.clock,
            number=watched.number,
            is_modern=watched.modern,
            limits=self.limits,
        )
        due_s, limits = time.monotonic() + watched.server.interval_s, self.limits
        gap_s = limits.announced_gap_s
        listening: asyncio.Task[None] | None = None
        try:
            async with AsyncExitStack() as stack:
                while True:
                    conversation.changed.clear()
                    await self._list(watched, conversation, stack)
                    if conversation.ttl_s is not None:
                        due_s = min(due_s, time.monotonic() + max(conversation.ttl_s, limits.ttl_min_s))
                    if not stays or not conversation.can_listen:
                        break
                    if listening is None:
                        listening = asyncio.create_task(conversation.listen())
                        stack.push_async_callback(_end, listening)
                    await asyncio.sleep(min(gap_s, max(due_s - time.monotonic(), 0.0)))
                    # Doubled while changes keep arriving within it.
                    is_restless = conversation.changed.is_set()
                    gap_s = min(2 * gap_s, limits.announced_gap_max_s) if is_restless else limits.announced_gap_s
                    if not await _changed(conversation, listening, due_s):
                        break
        except ListingError as error:
            return self._failed(watched, error.reason)
        except TimeoutError:
            return self._failed(watched, "silent")
        except Exception as error:  # noqa: BLE001 - whatever one server brings about, the others are listed
            return self._failed(watched, f"internal:{type(error).__name__}")
        finally:
            watched.number = conversation.number
            conversation.end()
        return min(due_s - time.monotonic(), self._broken_s(watched, listening))

    async def _list(self, watched: Watched, conversation: Conversation, stack: AsyncExitStack) -> None:
        async with self._hosts[watched.server.host], self._listings, asyncio.timeout(self.limits.listing_limit_s):
            if conversation.transport is None:
                await self._connect(watched.server, conversation, stack)
            try:
                await conversation.list_all()
            except ListingError as error:
                if error.reason != "ended" or watched.server.url is not None or not conversation.is_probing:
                    raise
                # Some servers of earlier revisions end at a question that they do not know.
                conversation.is_modern = False
                await self._connect(watched.server, conversation, stack)
                await conversation.list_all()
        watched.modern, watched.listed_s, watched.failures = conversation.is_modern, time.monotonic(), 0
        watched.counts["listed"] += 1
        if watched.failing is not None:
            _log.warning("%s: listed again", watched.server.vantage.server_id)
            watched.failing = None

    async def _connect(self, server: ListedServer, conversation: Conversation, stack: AsyncExitStack) -> None:
        if server.url is None:
            conversation.transport = await StdioTransport.open(server, conversation)
        elif self.client is not None:
            conversation.transport = await HttpTransport.open(server, self.client, conversation)
        else:
            raise AssertionError("a server with a URL needs a client")
        stack.push_async_callback(_closed, conversation.transport)

    def _broken_s(self, watched: Watched, listening: asyncio.Task[None] | None) -> float:
        """Return the pause after a broken announcement stream; infinite if it did not break."""
        if listening is None or not listening.done() or listening.cancelled():
            watched.breaks = 0
            return math.inf
        error = listening.exception()
        if isinstance(error, ListingError) and (error.reason in _NOT_OFFERED or error.reason.startswith("http_4")):
            return math.inf
        watched.breaks += 1
        return self.limits.retry_first_s * 2.0 ** min(watched.breaks, 32)

    def _failed(self, watched: Watched, reason: str) -> float:
        watched.failures += 1
        watched.modern = True
        watched.counts[f"failed:{reason}"] += 1
        if watched.failing != reason:
            _log.warning("%s: cannot be listed: %s", watched.server.vantage.server_id, reason)
            watched.failing = reason
        return min(self.limits.retry_first_s * 2.0 ** min(watched.failures - 1, 32), watched.server.interval_s)


async def _changed(conversation: Conversation, listening: asyncio.Task[None], until_s: float) -> bool:
    """Wait for an announced change; ``False`` if the list is due first, or the stream ends."""
    waiting = asyncio.create_task(conversation.changed.wait())
    try:
        limit_s = max(until_s - time.monotonic(), 0.0)
        await asyncio.wait({waiting, listening}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        return conversation.changed.is_set()
    finally:
        waiting.cancel()


async def _closed(transport: Transport) -> None:
    """Close a connection completely, even if cancelled: a half-closed process would live on."""
    closing = asyncio.create_task(transport.close())
    try:
        await asyncio.shield(closing)
    except asyncio.CancelledError:
        await asyncio.wait([closing])
        raise


async def _end(listening: asyncio.Task[None]) -> None:
    listening.cancel()
    await asyncio.wait([listening])
    if not listening.cancelled():
        listening.exception()  # seen in ``_broken_s``
