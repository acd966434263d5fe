"""HTTP serving for untrusted clients: bounds connections, and closes idle ones.

aiohttp waits forever for the rest of a request's header, and for an hour for the next request.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING

from aiohttp import web

from assay_stream.errors import ConfigurationError
from assay_stream.limits.serving import HttpLimits

if TYPE_CHECKING:
    from assay_stream.observe.http.tap import Listener

_silent = logging.getLogger(f"{__name__}.aiohttp")
"""aiohttp's own messages quote client input, including tokens; the proxy logs failures itself."""
_silent.propagate = False
_silent.addHandler(logging.NullHandler())

_LOOK_S = 1.0


class Clients:
    """Track connections and their idle time.

    Args:
        make: protocol factory.
        clock_s: monotonic clock, seconds.
    """

    def __init__(
        self, make: Callable[[], asyncio.Protocol], limits: HttpLimits, *, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._make = make
        self._limits = limits
        self._clock_s = clock_s
        self._idle_since_s: dict[asyncio.BaseProtocol, float] = {}
        """Connections without a request in progress, the longest idle first."""
        self._busy: dict[asyncio.BaseProtocol, None] = {}

    def accept(self) -> asyncio.Protocol:
        """Return the protocol of a new connection; above the limit, the longest idle one is closed."""
        if len(self._idle_since_s) + len(self._busy) >= self._limits.clients_max:
            self._forget_closed()
        if len(self._idle_since_s) + len(self._busy) >= self._limits.clients_max:
            if not self._idle_since_s:
                return _Refusal()
            self._close(next(iter(self._idle_since_s)))
        protocol = self._make()
        self._idle_since_s[protocol] = self._clock_s()
        return protocol

    @contextlib.contextmanager
    def at_work(self, protocol: asyncio.BaseProtocol) -> Iterator[None]:
        self._idle_since_s.pop(protocol, None)
        self._busy[protocol] = None
        try:
            yield
        finally:
            self._busy.pop(protocol, None)
            if _is_open(protocol):
                self._idle_since_s[protocol] = self._clock_s()

    def sweep(self) -> None:
        """Close connections that exceed the idle limit."""
        self._forget_closed()
        before_s = self._clock_s() - self._limits.idle_client_s
        for protocol, since_s in list(self._idle_since_s.items()):
            if since_s > before_s:
                return
            self._close(protocol)

    def _forget_closed(self) -> None:
        newest_s = self._clock_s() - _LOOK_S  # what was accepted a moment ago may have no transport yet
        for protocol, since_s in list(self._idle_since_s.items()):
            if since_s < newest_s and not _is_open(protocol):
                del self._idle_since_s[protocol]

    def _close(self, protocol: asyncio.BaseProtocol) -> None:
        del self._idle_since_s[protocol]
        transport = getattr(protocol, "transport", None)
        if transport is not None:
            transport.abort()


class _Refusal(asyncio.Protocol):
    """Close a connection as soon as it opens."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.abort()  # type: ignore[attr-defined]


def _is_open(protocol: asyncio.BaseProtocol) -> bool:
    return getattr(protocol, "transport", None) is not None


async def serve(
    app: web.Application, listener: Listener, limits: HttpLimits, ready: Callable[[int], object], stop: asyncio.Event
) -> None:
    """Serve an application until ``stop`` is set.

    Raises:
        ConfigurationError: ``cannot_listen``.
    """

    @web.middleware
    async def note(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        with clients.at_work(request.protocol):
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
    clients = Clients(runner.server, limits)
    try:
        try:
            server = await asyncio.get_running_loop().create_server(
                clients.accept, listener.host, listener.port, ssl=listener.tls
            )
        except OSError as error:
            raise ConfigurationError(
                "cannot_listen", f"cannot listen on {listener.host}:{listener.port}: {error.strerror}"
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
    finally:
        await runner.cleanup()
