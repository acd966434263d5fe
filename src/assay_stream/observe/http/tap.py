"""The HTTP tap: a reverse proxy in front of MCP servers that publishes observations until stopped.

aiohttp waits forever for the rest of a request's header, and for an hour for the next request.

When watching, exchanges are recorded as they pass, and no request waits. When enforcing, a thread per server inspects
in order. If it fails on a request, the request is held back; if it fails on a response, the failure is counted, the
bytes pass (not through a tap that hides tools), and the server's tools are in doubt until the next whole list.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import logging
import math
import os
import secrets
import ssl
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import KW_ONLY, InitVar, dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from aiohttp import StreamReader, web

from assay_stream.errors import ConfigurationError
from assay_stream.limits import HTTP_LIMITS, HttpLimits
from assay_stream.observe.http.connections import Contexts
from assay_stream.observe.http.messages import LOOPBACK, HeaderFields, is_event_stream
from assay_stream.observe.http.proxy import ExchangeObserver, Proxy
from assay_stream.observe.http.traffic import READ_FIELDS, Answered, Asked, HttpEvent, Lost, Opened, Passed, Traffic
from assay_stream.observe.http.upstreams import Client, Upstream, routes
from assay_stream.observe.observation import Observation
from assay_stream.observe.session import Commands, Session
from assay_stream.observe.sinks import Sink
from assay_stream.observe.tap import STEP_BYTES, Backlog, Inspector
from assay_stream.observe.wire import Direction, said
from assay_stream.text.urls import is_loopback

if TYPE_CHECKING:
    from assay_stream.observe.gate import Rule


_FINISH_LIMIT_S = 30.0


@dataclass(eq=False, repr=False)
class HttpWatch(Backlog):
    """Inspect the exchanges of all servers of a tap in a thread; closes their traffic at the end."""

    traffic: Mapping[str, Traffic]
    _: KW_ONLY
    bytes_max: int = field(init=False)
    limits: HttpLimits = HTTP_LIMITS
    missed_exchanges: int = field(default=0, init=False)
    """Exchanges that began while the backlog was full."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.bytes_max = self.limits.backlog_bytes_max
        self.share_bytes_max = math.inf if len(self.traffic) == 1 else self.limits.server_backlog_bytes_max
        self.pause_s = self.limits.inspect_pause_s
        self._unreported: Counter[Traffic] = Counter()
        self._numbers = itertools.count(1)

    def opened(self, path: str, method: str, fields: HeaderFields) -> Watched:
        return Watched(self, self.traffic[path], next(self._numbers), Opened(method, _read(fields)))

    def note(self, size_bytes: int, traffic: Traffic, number: int, event: HttpEvent) -> bool:
        """Queue an event of an exchange, and return True if there was room; there always is for a size of 0."""
        at = self.clock()
        fits = self.add(size_bytes, lambda: self.execute(traffic.receive(number, event, at)), traffic)
        if fits and size_bytes:
            self._report_missed()
        return fits

    def miss(self, traffic: Traffic) -> None:
        self.missed_exchanges += 1
        self._unreported[traffic] += 1

    def close(self, limit_s: float = _FINISH_LIMIT_S) -> None:
        self._report_missed()
        super().close(limit_s)

    def _report_missed(self) -> None:
        missed, self._unreported = self._unreported, Counter()
        for traffic, count in missed.items():
            report = partial(traffic.missed, count, self.clock())
            self.add(0, partial(self._publish, report), traffic)

    def _last(self) -> Iterable[Callable[[], object]]:
        at = self.clock()
        return [partial(self._publish, partial(traffic.close, at)) for traffic in self.traffic.values()]

    def _publish(self, report: Callable[[], list[Observation]]) -> None:
        self.execute(Commands(observations=report()))


@dataclass(eq=False, repr=False)
class Watched(ExchangeObserver):
    """One exchange, recorded as it passes. Its methods return at once and never raise."""

    watch: HttpWatch
    traffic: Traffic
    number: int
    event: InitVar[Opened]

    def __post_init__(self, event: Opened) -> None:
        self._is_unobserved = False
        self._losing: set[Direction] = set()
        self.note(event)

    def note(self, event: HttpEvent) -> None:
        # The rest of a body says nothing without what was lost of it.
        if self._is_unobserved or (isinstance(event, Passed) and event.direction in self._losing):
            return
        try:
            size_bytes, cost_bytes = 0, self.watch.limits.exchange_cost_bytes
            if isinstance(event, Answered):
                event = Answered(event.status, _read(event.fields))
                # What an exchange counts for covers fields of ordinary length.
                size_bytes = size if (size := _size_of(event.fields)) > cost_bytes else 0
            elif isinstance(event, Opened):
                size_bytes = max(cost_bytes, _size_of(event.fields))
            elif isinstance(event, Passed):
                size_bytes = STEP_BYTES + len(event.data or b"")
            if self.watch.note(size_bytes, self.traffic, self.number, event):
                return
            if isinstance(event, Passed | Answered):
                direction: Direction = event.direction if isinstance(event, Passed) else "server->client"
                if isinstance(event, Answered):
                    self.watch.note(0, self.traffic, self.number, Answered(event.status, ()))
                self._losing.add(direction)
                self.watch.note(0, self.traffic, self.number, Lost(direction))
            else:
                self._is_unobserved = True
                self.watch.miss(self.traffic)
        except Exception:  # noqa: BLE001 - no failure of the observer may reach the connection
            self.watch.note_failure()


def _read(fields: HeaderFields) -> list[tuple[str, str]]:
    return [(lower, value) for name, value in fields if (lower := name.lower()) in READ_FIELDS]


def _size_of(fields: HeaderFields) -> int:
    return sum(len(value) for _, value in fields)


@dataclass(eq=False, repr=False)
class HttpEnforcer(Inspector):
    """Rule on the exchanges of all servers of a tap, each in a thread of its own."""

    traffic: Mapping[str, Traffic]
    _: KW_ONLY
    hides: bool = False

    def __post_init__(self) -> None:
        self._threads = {each: ThreadPoolExecutor(1, "assay-stream rule") for each in self.traffic.values()}
        self._numbers = itertools.count(1)

    def opened(self, path: str, method: str, fields: HeaderFields) -> Ruled:
        return Ruled(self, self.traffic[path], next(self._numbers), Opened(method, fields))

    def close(self) -> None:
        """Publish the calls that will never be answered, after all pending inspections."""
        for traffic, thread in self._threads.items():
            thread.submit(lambda: self.execute(Commands(observations=traffic.close(self.clock()))))  # noqa: B023 - done below
            thread.shutdown()

    def inspect(self, traffic: Traffic, number: int, event: HttpEvent) -> Future[Commands | None]:
        """Queue an event; ``None`` if its inspection failed."""

        def step() -> Commands | None:
            for receive in (traffic.receive, traffic.failed):
                try:
                    return self.execute(receive(number, event, self.clock()))
                except Exception:  # noqa: BLE001 - what the server says must reach its client all the same
                    if receive == traffic.receive:
                        self.note_failure()
            return None

        return self._threads[traffic].submit(step)

    def delivered(self, traffic: Traffic, number: int) -> None:
        def step() -> None:
            exchange = traffic.exchanges.get(number)
            if exchange is not None:
                exchange.session.offered.delivered(number)

        self._threads[traffic].submit(step)


@dataclass(eq=False, repr=False)
class Ruled(ExchangeObserver):
    enforces = True

    enforcer: HttpEnforcer
    traffic: Traffic
    number: int
    event: InitVar[Opened]

    def __post_init__(self, event: Opened) -> None:
        self.hides = self.enforcer.hides
        self._holds_back = False
        self._held = b""
        self._gives_list = False
        self.note(event)

    def note(self, event: HttpEvent) -> None:
        if isinstance(event, Answered):
            # A body that is one message must be read to its end before its end passes.
            self._holds_back = not is_event_stream(event.fields)
        if not isinstance(event, Passed):  # what was ruled on as a whole needs no look at its parts
            self.enforcer.inspect(self.traffic, self.number, event)

    async def inspect(self, event: HttpEvent) -> Commands | None:
        commands = await asyncio.wrap_future(self.enforcer.inspect(self.traffic, self.number, event))
        self._gives_list |= commands is not None and commands.gives_list
        if isinstance(event, Asked):
            self.enforcer.blocked += commands is None or commands.forward is None
            return commands
        commands = commands or Commands()
        if isinstance(event, Passed) and not self.hides:
            commands.forward = event.data or b""
        if isinstance(event, Passed) and self._holds_back:
            commands.forward, self._held = self._held, commands.forward or b""
        return commands

    def delivered(self) -> None:
        if self._gives_list:
            self._gives_list = False
            self.enforcer.delivered(self.traffic, self.number)


_silent = logging.getLogger(f"{__name__}.aiohttp")
"""aiohttp's own messages quote client input, including tokens; the proxy logs failures itself."""
_silent.propagate = False
_silent.addHandler(logging.NullHandler())

_LOOK_S = 1.0


@dataclass(eq=False, repr=False)
class Clients:
    """Track connections and their idle time, from the first byte of a handshake on."""

    make: Callable[[], asyncio.Protocol]
    limits: HttpLimits
    tls: ssl.SSLContext | None = None
    _: KW_ONLY
    clock_s: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self.open: dict[asyncio.BaseProtocol, _Client] = {}
        """Connections, by the protocol that serves each."""
        self._idle_since_s: dict[_Client, float] = {}
        """Those without a request in progress, the longest idle first."""
        self._early_bytes = 0

    def accept(self) -> asyncio.Protocol:
        """Return the protocol of a new connection; above the limit, the longest idle one is closed."""
        client = _Client(self, self.make())
        if len(self.open) >= self.limits.clients_max and self._idle_since_s:
            self._close(next(iter(self._idle_since_s)))
        if len(self.open) < self.limits.clients_max:
            self.open[client.handler] = client
            self._idle_since_s[client] = self.clock_s()
        return client

    @contextlib.contextmanager
    def at_work(self, request: web.Request) -> Iterator[None]:
        client = self.open.get(request.protocol)
        if client is not None:
            self._idle_since_s.pop(client, None)
            self._count_early(client, -client.early_bytes)
            client.body = request.content
        try:
            yield
        finally:
            if client is not None and client.handler in self.open:
                self._idle_since_s[client] = self.clock_s()

    def has_room(self, client: _Client, size_bytes: int) -> bool:
        """Return True if a connection may send that before its request, or its next one, is at work; or close it.

        aiohttp bounds each field of a head, and their number: together they are megabytes, held without any limit.
        """
        if client.early_bytes + size_bytes > self.limits.early_bytes_max:
            self._close(client)
        elif client.handler in self.open:
            self._count_early(client, size_bytes)
            while self._early_bytes > self.limits.all_early_bytes_max:
                self._close(max(self.open.values(), key=lambda each: each.early_bytes))
        return client.handler in self.open

    def _count_early(self, client: _Client, size_bytes: int) -> None:
        client.early_bytes += size_bytes
        self._early_bytes += size_bytes

    def sweep(self) -> None:
        """Close connections that exceed the idle limit."""
        before_s = self.clock_s() - self.limits.idle_client_s
        for client, since_s in list(self._idle_since_s.items()):
            if since_s > before_s:
                return
            self._close(client)

    def forget(self, client: _Client) -> None:
        self.open.pop(client.handler, None)
        self._idle_since_s.pop(client, None)
        self._count_early(client, -client.early_bytes)

    def close(self) -> None:
        """Close the connections that are in their handshake: aiohttp knows the others."""
        for client in [each for each in self.open.values() if not each.is_served]:
            self._close(client)

    def _close(self, client: _Client) -> None:
        self.forget(client)
        if client.transport is not None:
            client.transport.abort()


class _Client(asyncio.Protocol):
    """One connection. asyncio's own listener says nothing of one whose TLS handshake has not ended."""

    def __init__(self, clients: Clients, handler: asyncio.Protocol) -> None:
        self._clients = clients
        self.handler = handler
        self.transport: asyncio.WriteTransport | None = None
        self.body: StreamReader | None = None
        """Of the latest request."""
        self.early_bytes = 0
        """Received since then that is no part of it."""
        self.is_served = False
        self._early = bytearray()
        """What came with the end of the handshake."""
        self._handshake: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 -- of a TCP listener
        self.transport = transport
        if self.handler not in self._clients.open:
            transport.abort()
        elif self._clients.tls is None:
            self._serve(transport)
        else:
            transport.pause_reading()
            self._handshake = asyncio.create_task(self._secure(transport, self._clients.tls))

    async def _secure(self, transport: asyncio.Transport, tls: ssl.SSLContext) -> None:
        secured, limit_s = None, self._clients.limits.connect_limit_s
        with contextlib.suppress(OSError):
            loop = asyncio.get_running_loop()
            secured = await loop.start_tls(transport, self, tls, server_side=True, ssl_handshake_timeout=limit_s)
        if secured is None or self.handler not in self._clients.open:
            self._clients.forget(self)
            transport.abort()
        else:
            self._serve(secured)

    def _serve(self, transport: asyncio.Transport) -> None:
        self.transport, self.is_served = transport, True
        self.handler.connection_made(transport)
        if self._early:
            self.handler.data_received(bytes(self._early))
            self._early.clear()

    def data_received(self, data: bytes) -> None:
        is_body = self.body is not None and not self.body.is_eof()
        if not is_body and not self._clients.has_room(self, len(data)):
            return
        if self.is_served:
            self.handler.data_received(data)
        else:
            self._early += data

    def eof_received(self) -> bool | None:
        return self.handler.eof_received() if self.is_served else None

    def pause_writing(self) -> None:
        self.handler.pause_writing()

    def resume_writing(self) -> None:
        self.handler.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._clients.forget(self)
        if self.is_served:
            self.handler.connection_lost(exc)


async def serve(
    app: web.Application, listener: Listener, limits: HttpLimits, ready: Callable[[int], object], stop: asyncio.Event
) -> None:
    """Serve an application until ``stop`` is set; raises ``cannot_listen``."""

    @web.middleware
    async def note(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        with clients.at_work(request):
            return await handler(request)

    app.middlewares.append(note)
    runner = web.AppRunner(
        app,
        access_log=None,
        logger=_silent,
        handler_cancellation=True,
        auto_decompress=False,
        shutdown_timeout=limits.stop_limit_s,
        max_line_size=limits.header_bytes_max,
        max_field_size=limits.header_bytes_max,
    )
    await runner.setup()
    assert runner.server is not None  # noqa: S101 -- there is one after set-up
    clients = Clients(runner.server, limits, listener.tls)
    try:
        try:
            server = await asyncio.get_running_loop().create_server(clients.accept, listener.host, listener.port)
        except OSError as error:
            # asyncio's text names the address again.
            why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
            raise ConfigurationError(
                "cannot_listen",
                f"cannot listen on {listener.host}:{listener.port}: {why}. Give a free host:port with --listen",
            ) from None
        try:
            ready(server.sockets[0].getsockname()[1])
            while not stop.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_S):
                        await stop.wait()
                clients.sweep()
        finally:
            server.close()
            clients.close()
    finally:
        await runner.cleanup()


_IDS_DRAWN = 256

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """Listener settings of a tap.

    Args:
        port: 0 for any free one.
        tls: with a certificate; without it the tap speaks plain HTTP.
        hosts: further ``Host`` values to serve. On a loopback address only loopback names are, by default.
        origins: web origins that may use the tap, besides its own.
        upstream_tls: trust settings for servers.
        context_key: key of the hashes that name authorisation contexts; a random one if it is empty.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    tls: ssl.SSLContext | None = None
    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    upstream_tls: ssl.SSLContext | None = None
    context_key: bytes = b""

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.host)

    @property
    def hosts_served(self) -> frozenset[str]:
        return self.hosts | LOOPBACK | {self.host} if self.is_loopback else self.hosts


async def run_http_tap(
    upstreams: Sequence[Upstream],
    listener: Listener,
    *,
    sink: Sink,
    stop: asyncio.Event,
    ready: Callable[[int], object] = lambda _: None,
    rule: Rule | None = None,
    hide: bool = False,
    limits: HttpLimits = HTTP_LIMITS,
) -> None:
    """Run the tap until ``stop`` is set.

    Args:
        sink: called from other threads than the caller's.
        ready: called with the port once the tap listens.
        rule: what to do with a call (``VerdictClient.rule``); without it everything passes.
        hide: whether tools whose calls would be refused are dropped from lists.

    Raises:
        ConfigurationError: ``bad_upstream`` or ``cannot_listen``.
    """
    by_path = routes(upstreams)
    keys = listener.context_key or secrets.token_bytes(32), secrets.token_bytes(32)
    session: Callable[..., Session] = Session
    if rule is not None:
        # Imported here: a tap that does not enforce starts faster without the schemes.
        from assay_stream.observe.gate import fingerprints_kept, gate_class

        # Shared by all sessions with a server: most of them are given the same list.
        session = functools.partial(gate_class(hide), decide=rule, over_http=True, digested=fingerprints_kept())
    traffic = {
        upstream.path: Traffic(
            upstream.vantage,
            Contexts(*keys, default=upstream.vantage.auth_context),
            new_id=functools.partial(next, _random_ids()),
            session=session,
            limits=limits,
        )
        for upstream in upstreams
    }
    clock = functools.partial(datetime.now, UTC)
    inspector: HttpWatch | HttpEnforcer
    if rule is None:
        inspector = HttpWatch(traffic, publish=sink.publish, clock=clock, limits=limits)
        inspector.start()
    else:
        inspector = HttpEnforcer(traffic, publish=sink.publish, clock=clock, hides=hide)

    client = Client(limits, listener.upstream_tls or ssl.create_default_context())
    proxy = Proxy(
        by_path,
        client,
        lambda upstream, method, fields: inspector.opened(upstream.path, method, fields),
        hosts=listener.hosts_served,
        origins=frozenset(origin.lower() for origin in listener.origins),
        is_loopback=listener.is_loopback,
        limits=limits,
    )
    try:
        await serve(proxy.application(), listener, limits, ready, stop)
    finally:
        try:
            await client.close()
        finally:
            await asyncio.to_thread(inspector.close)
            _report(inspector, traffic, proxy)


def _random_ids() -> Iterator[str]:
    """Yield new ids, drawn in batches: each draw may release the GIL to another thread. For one thread."""
    while True:
        drawn = os.urandom(16 * _IDS_DRAWN)
        for start in range(0, len(drawn), 16):
            yield str(uuid.UUID(bytes=drawn[start : start + 16], version=4))


def _report(inspector: HttpWatch | HttpEnforcer, traffic: Mapping[str, Traffic], proxy: Proxy) -> None:
    for path, each in traffic.items():
        connections, stats = each.connections, each.connections.stats
        if stats.missed_lines or stats.refused_snapshots or stats.evicted_requests or connections.evicted:
            found = said(stats, evicted_connections=connections.evicted)
            _log.warning("not everything could be observed under %s (docs/tap.md): %s", path, found)
    if inspector.failures:
        _log.warning("inspecting failed %d times", inspector.failures)
    counts = {
        "requests failed in the tap": proxy.failures,
        "requests were not passed on": inspector.blocked,
        "messages of servers were withheld": inspector.withheld,
        "exchanges were not observed": inspector.missed_exchanges if isinstance(inspector, HttpWatch) else 0,
    }
    for what, count in counts.items():
        if count:
            _log.warning("%d %s", count, what)
