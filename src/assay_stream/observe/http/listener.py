"""Where HTTP requests come in: the address that is listened on, and bounds for what a peer holds before it is known.

aiohttp waits forever for the rest of a request's header, and for an hour for the next request.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import ssl
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import KW_ONLY, dataclass

from aiohttp import StreamReader, web

from assay_stream.errors import ConfigurationError
from assay_stream.limits import HttpLimits
from assay_stream.observe.http.messages import LOOPBACK
from assay_stream.text.urls import is_loopback


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """Where a process listens.

    Args:
        port: 0 for any free one.
        tls: with a certificate; without it, plain HTTP is spoken.
        hosts: further ``Host`` values to serve. On a loopback address only loopback names are, by default.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    tls: ssl.SSLContext | None = None
    hosts: frozenset[str] = frozenset()

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.host)

    @property
    def hosts_served(self) -> frozenset[str]:
        return self.hosts | LOOPBACK | {self.host} if self.is_loopback else self.hosts


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
            # aiohttp bounds each field of a head, not their sum, and holds them while the request is at work.
            if sum(len(name) + len(value) for name, value in request.raw_headers) > limits.header_bytes_max:
                return web.Response(status=431, text=f"the header has over {limits.header_bytes_max:,} bytes")
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
