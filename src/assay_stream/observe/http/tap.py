"""The HTTP tap: a reverse proxy in front of MCP servers that publishes what passes, until it is told to stop."""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import logging
import secrets
import ssl
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from aiohttp import web

from assay_stream.errors import ConfigurationError
from assay_stream.limits import HTTP_LIMITS, HttpLimits
from assay_stream.observe.events import Observation
from assay_stream.observe.http.client import Client, Http1Client, Http2Client
from assay_stream.observe.http.credentials import Contexts
from assay_stream.observe.http.headers import LOOPBACK, Fields
from assay_stream.observe.http.proxy import Eyes, Proxy
from assay_stream.observe.http.traffic import Traffic
from assay_stream.observe.http.upstreams import Upstream, routes
from assay_stream.observe.http.watching import HttpWatch
from assay_stream.observe.sinks import Sink

_WATCH_LIMIT_S = 30.0

_log = logging.getLogger(__name__)

_silent = logging.getLogger(f"{__name__}.aiohttp")
"""aiohttp's own complaints quote what a client sent, tokens too; what fails here is logged by the proxy."""
_silent.propagate = False
_silent.addHandler(logging.NullHandler())


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """Where a tap listens, and for whom.

    Args:
        port: 0 for any free one.
        tls: with a certificate; without it the tap speaks plain HTTP.
        hosts: further names in ``Host`` that are served. On a loopback address only loopback names are, by default.
        origins: pages that may use the tap, beside its own origin.
        http2: whether to speak HTTP/2 to servers that offer it.
        upstream_tls: whom to trust as a server.
        context_key: key of the hashes that name authorisation contexts; a random one if it is empty.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    tls: ssl.SSLContext | None = None
    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    http2: bool = False
    upstream_tls: ssl.SSLContext | None = None
    context_key: bytes = b""

    @property
    def is_loopback(self) -> bool:
        """Whether only programs of this machine can connect."""
        try:
            return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def hosts_served(self) -> frozenset[str]:
        """What ``Host`` may name; everything if empty."""
        return self.hosts | LOOPBACK | {self.host} if self.is_loopback else self.hosts


async def run_http_tap(
    upstreams: Sequence[Upstream],
    listener: Listener,
    *,
    sink: Sink,
    stop: asyncio.Event,
    ready: Callable[[int], object] = lambda _: None,
    clock: Callable[[], datetime] | None = None,
    new_id: Callable[[], str] | None = None,
    limits: HttpLimits = HTTP_LIMITS,
) -> None:
    """Run the tap until ``stop`` is set.

    Args:
        ready: gets the port once the tap listens.

    Raises:
        ConfigurationError: ``bad_upstream``, ``cannot_listen``.
    """
    clock = clock or functools.partial(datetime.now, UTC)
    new_id = new_id or (lambda: str(uuid.uuid4()))
    loop = asyncio.get_running_loop()
    by_path = routes(upstreams)
    key, process_key = listener.context_key or secrets.token_bytes(32), secrets.token_bytes(32)
    traffic = {
        upstream.path: Traffic(
            upstream.vantage,
            Contexts(key, process_key, default=upstream.vantage.auth_context),
            new_id=new_id,
            limits=limits,
        )
        for upstream in upstreams
    }

    def publish(observation: Observation) -> None:
        loop.call_soon_threadsafe(sink.publish, observation)

    watch = HttpWatch(traffic.values(), publish=publish, clock=clock, limits=limits)

    def eyes(upstream: Upstream, method: str, fields: Fields) -> Eyes:
        return watch.opened(traffic[upstream.path], method, fields)

    client = _client(listener, limits)
    proxy = Proxy(
        by_path,
        client,
        eyes,
        hosts=listener.hosts_served,
        origins=frozenset(origin.lower() for origin in listener.origins),
        is_loopback=listener.is_loopback,
        limits=limits,
    )
    watch.start()
    try:
        await _serve(proxy, listener, limits, ready, stop)
    finally:
        await client.close()
        watch.finish()
        await asyncio.to_thread(watch.join, _WATCH_LIMIT_S)
        await asyncio.sleep(0)  # what the watch published last
        _report(watch, traffic, proxy)


def _client(listener: Listener, limits: HttpLimits) -> Client:
    tls = listener.upstream_tls or ssl.create_default_context()
    return Http2Client(limits, tls) if listener.http2 else Http1Client(limits, tls)


async def _serve(
    proxy: Proxy, listener: Listener, limits: HttpLimits, ready: Callable[[int], object], stop: asyncio.Event
) -> None:
    runner = web.AppRunner(
        proxy.application(),
        access_log=None,
        logger=_silent,
        handler_cancellation=True,
        shutdown_timeout=limits.stop_limit_s,
        max_line_size=limits.header_bytes_max,
        max_field_size=limits.header_bytes_max,
    )
    await runner.setup()
    try:
        site = web.TCPSite(runner, listener.host, listener.port, ssl_context=listener.tls)
        try:
            await site.start()
        except OSError as error:
            raise ConfigurationError(
                "cannot_listen", f"cannot listen on {listener.host}:{listener.port}: {error.strerror}"
            ) from None
        ready(runner.addresses[0][1])
        await stop.wait()
    finally:
        await runner.cleanup()


def _report(watch: HttpWatch, traffic: dict[str, Traffic], proxy: Proxy) -> None:
    if watch.is_alive():
        _log.warning("gave up inspecting what was still in the backlog")
    for path, each in traffic.items():
        stats = each.stats
        if stats.missed_lines or stats.refused_snapshots or stats.evicted_requests or each.evicted_connections:
            counts = {name: count for name, count in stats.as_dict().items() if count}
            counts |= {"evicted_connections": each.evicted_connections}
            _log.warning("not everything could be observed under %s: %s", path, counts)
    if watch.failures or watch.missed_exchanges:
        _log.warning("%d exchanges were not observed, %d failures", watch.missed_exchanges, watch.failures)
    if proxy.failures:
        _log.warning("%d requests failed in the tap", proxy.failures)
