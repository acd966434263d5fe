"""List servers repeatedly: when the server announces a change, when its list expires, or after an interval.

1. Each server has its own task; no server can delay another for longer than its
   place among ``listings_max`` listings, which ``listing_limit_s`` bounds.
2. A listing opens a connection, and closes it unless the server announces changes. Announced changes are listed on the
   same connection until the list is due, at most every ``announced_gap_s``, backing off while they continue.
3. The next listing is due after the interval, or earlier by the list's ``ttlMs``; after failures sooner at first, then
   with pauses that double. Every pause is shortened by up to a tenth, so that servers drift apart.
4. No state outlives the process except what it published.

Rules:

1. Definitions reach the observer as the bytes received, without an intermediate model.
2. ``server/discover`` (2026-07-28) is tried first, then ``initialize`` if the server does not answer it.
3. Tools are requested last, so that one snapshot has everything. Of the pages of a list only the last state is
   published: whole, or as incomplete as it was when the server stopped, failed or reached a bound.
4. An announced change is published at once, after earlier observations.
5. Server requests are refused, except ``ping``.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import secrets
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any

from assay_stream import __version__
from assay_stream.limits import LISTING_LIMITS, ListingLimits
from assay_stream.model.record import SNAPSHOT_TYPE
from assay_stream.observe.http.upstreams import Client
from assay_stream.observe.list_transport import (
    LEGACY,
    MODERN,
    HttpTransport,
    ListedServer,
    ListingError,
    ServerRefusedError,
    StdioTransport,
)
from assay_stream.observe.observation import Observation
from assay_stream.observe.session import Session
from assay_stream.observe.wire import BLANKS, is_response

_THREAD_FROM_BYTES = 64 * 1024
"""Longer messages are parsed in a thread, so that one server's cannot delay the others."""
_COMPANIONS = {"prompts": "prompts/list", "resources": "resources/templates/list"}
_CHANGES = {f"notifications/{what}/list_changed" for what in ("tools", "prompts", "resources")}
_CLIENT = {"name": "assay-stream", "version": __version__}
_TTL_MS_MAX = 2**53
_SNAPSHOT, _TYPE_WITHIN = SNAPSHOT_TYPE.encode(), 128
_METHOD_UNKNOWN = {"code": -32601, "message": "this client only lists"}


@dataclass(eq=False, repr=False)
class Conversation:
    """A connection from handshake to close.

    Args:
        watched: the server, and what outlasts its connections.
    """

    watched: Watched
    _: KW_ONLY
    publish: Callable[[Observation], object]
    clock: Callable[[], datetime]
    limits: ListingLimits = LISTING_LIMITS

    def __post_init__(self) -> None:
        self.observer = self.watched.observer
        self.version: str | None = None
        self.changed = asyncio.Event()
        """Set when the server announces a change."""
        self.ttl_s: float | None = None
        """How long the server lets clients cache its tools."""
        self.transport: StdioTransport | HttpTransport | None = None
        self._capabilities: Mapping[str, Any] = {}
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._held: list[Observation] = []
        self._bytes = self._messages = 0

    @property
    def can_listen(self) -> bool:
        """Whether the server declares that it announces tool changes."""
        tools = self._capabilities.get("tools")
        return isinstance(tools, dict) and tools.get("listChanged") is True

    @property
    def is_probing(self) -> bool:
        """Whether the server's protocol era is still unknown."""
        return self.watched.is_modern and self.version is None

    async def list_all(self) -> None:
        """Greet the server, request all lists, and publish them, also where that ends with an error."""
        try:
            await self._greet()
            for capability, method in _COMPANIONS.items():
                if capability in self._capabilities:
                    try:
                        await self._pages(method)
                    except ServerRefusedError:
                        continue  # it has none after all
            try:
                await self._pages("tools/list")
            except ServerRefusedError:
                if "tools" in self._capabilities:
                    raise
        finally:
            self._flush()

    async def listen(self) -> None:
        """Set ``changed`` for each announcement until the connection ends; raises ``ListingError``."""
        if self.watched.is_modern:
            wanted = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}
            await self._ask("subscriptions/listen", {"notifications": wanted}, limit_s=None)
        elif self.transport is not None:
            await self.transport.listen(self.version or LEGACY)

    async def heard(self, raw: bytes | None) -> bool:
        self._note_size(1, 0 if raw is None else len(raw))
        at = self.clock()
        if raw is None or len(raw) > self.limits.message_bytes_max:
            self._hold(self.observer.missed("server->client", at))
            self._fail("unreadable")
            return True
        if not raw.strip(BLANKS):
            return False
        if len(raw) < _THREAD_FROM_BYTES:
            line = self.observer.read(raw)
        else:
            line = await asyncio.to_thread(self.observer.read, raw)
        # Each request of a batch would be answered by a request of ours.
        self._note_size(len(line.messages) - 1, 0)
        is_announced = any(str(message.get("method")) in _CHANGES for message in line.messages)
        if is_announced:
            self._flush()
        observations = self.observer.take("server->client", line, raw, at)
        if is_announced:
            for observation in observations:
                self.publish(observation)
            self.changed.set()
        else:
            self._hold(observations)
        answered = False
        for message in line.messages:
            if is_response(message):
                answered = self._resolve(message) or answered
            elif "id" in message:
                reply: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
                is_ping = message.get("method") == "ping"
                await self._send(reply | ({"result": {}} if is_ping else {"error": _METHOD_UNKNOWN}), None)
        return answered

    def _note_size(self, messages: int, size_bytes: int) -> None:
        self._messages += messages
        self._bytes += size_bytes
        if self._messages > self.limits.connection_messages_max or self._bytes > self.limits.connection_bytes_max:
            raise ListingError("too_much")

    def end(self, reason: str = "ended") -> None:
        for number in list(self._waiting):
            self.observer.unanswered((False, number), "upstream_failed", self.clock())
        self._fail(reason)
        self._flush()

    async def _greet(self) -> None:
        if self.watched.is_modern:
            try:
                found = await self._ask("server/discover", {}, limit_s=self.limits.probe_limit_s)
            except ServerRefusedError:
                found = {}
            except ListingError as error:
                if error.reason not in ("silent", "http_400", "http_404", "http_405", "http_406"):
                    raise
                found = {}
            versions = found.get("supportedVersions")
            if isinstance(versions, list) and MODERN in versions:
                self.version = MODERN
                self._note_capabilities(found)
                return
            self.watched.is_modern = False
        if self.version is not None:
            return
        greeting = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": _CLIENT}
        found = await self._ask("initialize", greeting)
        version = found.get("protocolVersion")
        if not isinstance(version, str) or len(version) > 64 or not version.isascii() or not version.isprintable():
            raise ListingError("not_mcp")
        self.version = version
        self._note_capabilities(found)
        await self._send({"jsonrpc": "2.0", "method": "notifications/initialized"}, "notifications/initialized")

    def _note_capabilities(self, result: Mapping[str, Any]) -> None:
        found = result.get("capabilities")
        self._capabilities = found if isinstance(found, dict) else {}

    async def _pages(self, method: str) -> None:
        params: dict[str, Any] = {}
        seen: set[str] = set()
        for _ in range(self.limits.pages_max):
            result = await self._ask(method, params)
            ttl_ms, cursor = result.get("ttlMs"), result.get("nextCursor")
            if method == "tools/list" and isinstance(ttl_ms, int) and not isinstance(ttl_ms, bool) and ttl_ms >= 0:
                self.ttl_s = min(ttl_ms, _TTL_MS_MAX) / 1_000
            if not isinstance(cursor, str) or cursor in seen:
                return
            seen.add(cursor)
            params = {"cursor": cursor}

    async def _ask(self, method: str, params: dict[str, Any], *, limit_s: float | None = -1.0) -> dict[str, Any]:
        """Send a request and return its result; ``limit_s=None`` waits forever."""
        number = next(self.watched.numbers)
        if self.watched.is_modern:
            prefix = "io.modelcontextprotocol/"
            meta = {"protocolVersion": MODERN, "clientInfo": _CLIENT, "clientCapabilities": {}}
            params = {**params, "_meta": {prefix + name: value for name, value in meta.items()}}
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            async with asyncio.timeout(self.limits.answer_limit_s if limit_s == -1.0 else limit_s):
                await self._send(message, method)
                response = await answer
        except TimeoutError:
            raise ListingError("silent") from None
        finally:
            self._waiting.pop(number, None)
            if not answer.done():
                self.observer.unanswered((False, number), "no_response", self.clock())
            elif not answer.cancelled():
                answer.exception()  # whoever asked may be gone
        if "error" in response:
            raise ServerRefusedError("refused")
        result = response.get("result")
        if not isinstance(result, dict):
            raise ListingError("not_mcp")
        return result

    async def _send(self, message: Mapping[str, Any], method: str | None) -> None:
        raw = json.dumps(message, separators=(",", ":")).encode()
        self.observer.feed("client->server", raw, self.clock())
        version = MODERN if self.watched.is_modern else self.version
        if self.transport is None:
            raise AssertionError("nothing to send with")
        expects_answer = method is not None and "id" in message
        await self.transport.send(raw, method=method, version=version, expects_answer=expects_answer)

    def _resolve(self, message: dict[str, Any]) -> bool:
        number = message.get("id")
        # A server may write the id of a request as a text.
        number = int(number) if isinstance(number, str) and number.isdecimal() and len(number) < 16 else number
        answer = self._waiting.get(number) if isinstance(number, int) and not isinstance(number, bool) else None
        if answer is None or answer.done():
            return False
        answer.set_result(message)
        return True

    def _fail(self, reason: str) -> None:
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(ListingError(reason))

    def _hold(self, observations: list[Observation]) -> None:
        """Hold everything until the list is complete; of its snapshots only the latest: earlier ones hold less."""
        for observation in observations:
            if _is_snapshot(observation):
                self._held = [each for each in self._held if not _is_snapshot(each)]
            self._held.append(observation)

    def _flush(self) -> None:
        held, self._held = self._held, []
        for observation in held:
            self.publish(observation)


def _is_snapshot(observation: Observation) -> bool:
    return _SNAPSHOT in observation.value[:_TYPE_WITHIN]


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
        observer: for all its connections: it remembers whether there were instructions.
        listed_s: time of its last listing, by the monotonic clock.
        is_modern: whether it speaks MCP 2026-07-28, as far as known; ``False`` skips ``server/discover``.
        numbers: of requests, unique over all connections of the observer.
    """

    server: ListedServer
    observer: Session
    failing: str | None = None
    failures: int = 0
    breaks: int = 0
    listed_s: float | None = None
    is_modern: bool = True
    numbers: Iterator[int] = field(default_factory=lambda: count(1))
    counts: Counter[str] = field(default_factory=Counter)


@dataclass(eq=False, repr=False)
class ListWatch:
    """List servers until stopped; ``client`` is for those with a URL."""

    servers: Sequence[ListedServer]
    _: KW_ONLY
    publish: Callable[[Observation], object]
    client: Client
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    limits: ListingLimits = LISTING_LIMITS

    def __post_init__(self) -> None:
        self._listings = asyncio.Semaphore(self.limits.listings_max)
        self._hosts: defaultdict[str, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(self.limits.listings_per_host_max)
        )
        self.watched = [
            Watched(server, Session(server.vantage, session_id=str(uuid.uuid4()), new_id=lambda: str(uuid.uuid4())))
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
        conversation = Conversation(watched, publish=self.publish, clock=self.clock, limits=self.limits)
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
                    due_s = max(due_s, time.monotonic() + min(limits.announced_gap_s, watched.server.interval_s))
                    if not stays or not conversation.can_listen:
                        break
                    if listening is None:
                        listening = asyncio.create_task(self._listen(watched, conversation))
                        stack.push_async_callback(_end, listening)
                    await asyncio.sleep(min(gap_s, max(due_s - time.monotonic(), 0.0)))
                    # Doubled while changes keep arriving within it.
                    is_restless = conversation.changed.is_set()
                    gap_s = min(2 * gap_s, limits.announced_gap_max_s) if is_restless else limits.announced_gap_s
                    # Once the list is due, a new visit lists the changes, too.
                    if time.monotonic() >= due_s or not await _changed(conversation, listening, due_s):
                        break
        except ListingError as error:
            return self._failed(watched, error.reason)
        except TimeoutError:
            return self._failed(watched, "silent")
        except Exception as error:  # noqa: BLE001 - whatever one server brings about, the others are listed
            return self._failed(watched, f"internal:{type(error).__name__}")
        finally:
            conversation.end()
        return min(due_s - time.monotonic(), self._broken_s(watched, listening))

    async def _listen(self, watched: Watched, conversation: Conversation) -> None:
        begun_s = time.monotonic()
        try:
            await conversation.listen()
        finally:
            if time.monotonic() - begun_s >= self.limits.stream_steady_s:
                watched.breaks = 0

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
                watched.is_modern = False
                await self._connect(watched.server, conversation, stack)
                await conversation.list_all()
        watched.listed_s, watched.failures = time.monotonic(), 0
        watched.counts["listed"] += 1
        if watched.failing is not None:
            _log.warning("%s: listed again", watched.server.vantage.server_id)
            watched.failing = None

    async def _connect(self, server: ListedServer, conversation: Conversation, stack: AsyncExitStack) -> None:
        if server.url is None:
            conversation.transport = await StdioTransport.open(server, conversation)
        else:
            conversation.transport = await HttpTransport.open(server, self.client, conversation)
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
        watched.is_modern = True
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


async def _closed(transport: StdioTransport | HttpTransport) -> None:
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
