"""One connection to a server: requests its lists like a client, under the same observer as the taps use.

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
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from typing import Any

from assay_stream import __version__
from assay_stream.limits.serving import LISTING_LIMITS, ListingLimits
from assay_stream.observe.jsonrpc import BLANKS, request_key
from assay_stream.observe.listing.transport import LEGACY, MODERN, ListingError, ServerRefusedError, Transport
from assay_stream.observe.mcp_wire import WireObserver
from assay_stream.observe.observation import Observation

_THREAD_FROM_BYTES = 64 * 1024
"""Longer messages are parsed in a thread, so that one server's cannot delay the others."""
_COMPANIONS = {"prompts": "prompts/list", "resources": "resources/templates/list"}
_CHANGES = {f"notifications/{what}/list_changed" for what in ("tools", "prompts", "resources")}
_CLIENT = {"name": "assay-stream", "version": __version__}
_TTL_MS_MAX = 2**53
_METHOD_UNKNOWN = {"code": -32601, "message": "this client only lists"}


@dataclass(eq=False, repr=False)
class Conversation:
    """A connection from handshake to close.

    Args:
        observer: one per server, for all its connections: it remembers whether there were instructions.
        number: the first id of a request; ids are unique over all connections of the observer.
        is_modern: whether the server speaks MCP 2026-07-28, as far as known; ``False`` skips ``server/discover``.
    """

    observer: WireObserver
    _: KW_ONLY
    publish: Callable[[Observation], object]
    clock: Callable[[], datetime]
    number: int = 1
    is_modern: bool = True
    limits: ListingLimits = LISTING_LIMITS

    def __post_init__(self) -> None:
        self.version: str | None = None
        self.changed = asyncio.Event()
        """Set when the server announces a change."""
        self.ttl_s: float | None = None
        """How long the server lets clients cache its tools."""
        self.transport: Transport | None = None
        self._capabilities: Mapping[str, Any] = {}
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._held: Observation | None = None
        self._bytes = self._messages = 0

    @property
    def can_listen(self) -> bool:
        """Whether the server declares that it announces tool changes."""
        tools = self._capabilities.get("tools")
        return isinstance(tools, dict) and tools.get("listChanged") is True

    @property
    def is_probing(self) -> bool:
        """Whether the server's protocol era is still unknown."""
        return self.is_modern and self.version is None

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
        if self.is_modern:
            wanted = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}
            await self._ask("subscriptions/listen", {"notifications": wanted}, limit_s=None)
        elif self.transport is not None:
            await self.transport.listen(self.version or LEGACY)

    async def heard(self, raw: bytes | None) -> bool:
        """Handle a message, ``None`` for an unreadable one; return True if it was a response."""
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
            if "method" not in message:
                answered = self._resolve(message) or answered
            elif "id" in message:
                await self._answer(message)
        return answered

    def _note_size(self, messages: int, size_bytes: int) -> None:
        self._messages += messages
        self._bytes += size_bytes
        if self._messages > self.limits.connection_messages_max or self._bytes > self.limits.connection_bytes_max:
            raise ListingError("too_much")

    def end(self, reason: str = "ended") -> None:
        """Fail pending requests with ``reason``: the connection is closed."""
        for number in list(self._waiting):
            key = request_key(number)
            if key is not None:
                self.observer.unanswered(key, "upstream_failed", self.clock())
        self._fail(reason)
        self._flush()

    async def _greet(self) -> None:
        if self.is_modern:
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
            self.is_modern = False
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
        number, self.number = self.number, self.number + 1
        if self.is_modern:
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
            key = request_key(number)
            if not answer.done() and key is not None:
                self.observer.unanswered(key, "no_response", self.clock())
            elif answer.done() and not answer.cancelled():
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
        version = MODERN if self.is_modern else self.version
        if self.transport is None:
            raise AssertionError("nothing to send with")
        expects_answer = method is not None and "id" in message
        await self.transport.send(raw, method=method, version=version, expects_answer=expects_answer)

    async def _answer(self, request: Mapping[str, Any]) -> None:
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
        reply |= {"result": {}} if request.get("method") == "ping" else {"error": _METHOD_UNKNOWN}
        await self._send(reply, None)

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
        """Hold the latest snapshot until the list is complete: earlier states hold less."""
        if observations:
            self._held = observations[-1]

    def _flush(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            self.publish(held)
