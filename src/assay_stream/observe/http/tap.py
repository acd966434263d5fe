"""The HTTP tap: a reverse proxy in front of MCP servers that publishes observations until stopped."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import secrets
import ssl
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from assay_stream.limits.serving import HTTP_LIMITS, HttpLimits
from assay_stream.observe.http.client import Client
from assay_stream.observe.http.credentials import Contexts
from assay_stream.observe.http.headers import LOOPBACK, HeaderFields, is_loopback
from assay_stream.observe.http.inspecting import HttpEnforcer, HttpWatch
from assay_stream.observe.http.proxy import ExchangeObserver, Proxy
from assay_stream.observe.http.serving import serve
from assay_stream.observe.http.traffic import Traffic
from assay_stream.observe.http.upstreams import Upstream, routes
from assay_stream.observe.mcp_wire import WireObserver
from assay_stream.observe.session import Session
from assay_stream.observe.sinks import Sink

if TYPE_CHECKING:
    from assay_stream.observe.gate import Rule

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
    clock: Callable[[], datetime] | None = None,
    new_id: Callable[[], str] | None = None,
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
    session = Session if rule is None else _gates(rule, hide)
    traffic = {
        upstream.path: Traffic(
            upstream.vantage,
            Contexts(*keys, default=upstream.vantage.auth_context),
            new_id=new_id or functools.partial(next, _random_ids()),
            session=session,
            limits=limits,
        )
        for upstream in upstreams
    }
    clock = clock or functools.partial(datetime.now, UTC)
    inspector: HttpWatch | HttpEnforcer
    if rule is None:
        inspector = HttpWatch(traffic, publish=sink.publish, clock=clock, limits=limits)
        inspector.start()
    else:
        inspector = HttpEnforcer(traffic, publish=sink.publish, clock=clock, hides=hide)

    def observe(upstream: Upstream, method: str, fields: HeaderFields) -> ExchangeObserver:
        return inspector.opened(upstream.path, method, fields)

    client = Client(limits, listener.upstream_tls or ssl.create_default_context())
    proxy = Proxy(
        by_path,
        client,
        observe,
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
            await asyncio.to_thread(inspector.finish)
            _report(inspector, traffic, proxy)


def _random_ids() -> Iterator[str]:
    """Yield new ids, drawn in batches: each draw may release the GIL to another thread. For one thread."""
    while True:
        drawn = os.urandom(16 * _IDS_DRAWN)
        for start in range(0, len(drawn), 16):
            yield str(uuid.UUID(bytes=drawn[start : start + 16], version=4))


def _gates(rule: Rule, hide: bool) -> Callable[[WireObserver], Session]:
    # Imported here: a tap that does not enforce starts faster without the schemes.
    from assay_stream.observe.gate import fingerprints_kept, gate_class

    # Shared by all sessions with a server: most of them are given the same list.
    return functools.partial(gate_class(hide), rule=rule, over_http=True, digested=fingerprints_kept())


def _report(inspector: HttpWatch | HttpEnforcer, traffic: Mapping[str, Traffic], proxy: Proxy) -> None:
    for path, each in traffic.items():
        connections, stats = each.connections, each.connections.stats
        if stats.missed_lines or stats.refused_snapshots or stats.evicted_requests or connections.evicted:
            found = {name: count for name, count in stats.as_dict().items() if count}
            found |= {"evicted_connections": connections.evicted}
            _log.warning("not everything could be observed under %s: %s", path, found)
    if inspector.failures:
        _log.warning("inspecting failed %d times", inspector.failures)
    counts = {"requests failed in the tap": proxy.failures}
    if isinstance(inspector, HttpEnforcer):
        counts |= {"requests were not passed on": inspector.blocked}
        counts |= {"messages of servers were withheld": inspector.withheld}
    else:
        counts |= {"exchanges were not observed": inspector.missed_exchanges}
    for what, count in counts.items():
        if count:
            _log.warning("%d %s", count, what)
