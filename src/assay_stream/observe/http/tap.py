"""The HTTP tap: a reverse proxy in front of MCP servers that publishes observations until stopped.

When watching, exchanges are recorded as they pass, and no request waits. When enforcing, a thread per server inspects
in order. If it fails on a request, the request is held back; if it fails on a response, the failure is counted, the
bytes pass (not through a tap that hides tools), and the server's tools are in doubt until the next whole list.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import math
import secrets
import ssl
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import KW_ONLY, InitVar, dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from assay_stream.limits import HTTP_LIMITS, HttpLimits
from assay_stream.observe.http.connections import Contexts
from assay_stream.observe.http.listener import serve
from assay_stream.observe.http.messages import HeaderFields, is_event_stream
from assay_stream.observe.http.proxy import ExchangeObserver, Proxy, TapListener
from assay_stream.observe.http.traffic import READ_FIELDS, Answered, Asked, HttpEvent, Lost, Opened, Passed, Traffic
from assay_stream.observe.http.upstreams import Client, Upstream, routes
from assay_stream.observe.observation import Observation
from assay_stream.observe.session import Commands, session_maker
from assay_stream.observe.sinks import Sink
from assay_stream.observe.tap import STEP_BYTES, Backlog, Inspector, report_missed
from assay_stream.observe.wire import Direction

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
            losing: Direction | None = None
            match event:
                case Opened():
                    size_bytes = max(cost_bytes, _size_of(event.fields))
                case Answered():
                    # What an exchange counts for covers fields of ordinary length.
                    size_bytes = size if (size := _size_of(event.fields)) > cost_bytes else 0
                    losing, event = "server->client", Answered(event.status, _read(event.fields))
                case Passed():
                    size_bytes, losing = STEP_BYTES + len(event.data or b""), event.direction
            if self.watch.note(size_bytes, self.traffic, self.number, event):
                return
            if losing is None:
                self._is_unobserved = True
                self.watch.miss(self.traffic)
                return
            if isinstance(event, Answered):
                self.watch.note(0, self.traffic, self.number, Answered(event.status, ()))
            self._losing.add(losing)
            self.watch.note(0, self.traffic, self.number, Lost(losing))
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
        self._threads[traffic].submit(traffic.delivered, number)


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
        self.note(event)

    def note(self, event: HttpEvent) -> None:
        if isinstance(event, Answered):
            # A body that is one message must be read to its end before its end passes.
            self._holds_back = not is_event_stream(event.fields)
        if not isinstance(event, Passed):  # what was ruled on as a whole needs no look at its parts
            self.enforcer.inspect(self.traffic, self.number, event)

    async def inspect(self, event: HttpEvent) -> Commands | None:
        commands = await asyncio.wrap_future(self.enforcer.inspect(self.traffic, self.number, event))
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
        self.enforcer.delivered(self.traffic, self.number)


async def run_http_tap(
    upstreams: Sequence[Upstream],
    listener: TapListener,
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
    # Messages are bodies and events, which only gates have to know.
    options = {} if rule is None else {"over_http": True}
    session = session_maker(rule, hide=hide, **options)
    traffic = {
        upstream.path: Traffic(
            upstream.vantage,
            Contexts(*keys, default=upstream.vantage.auth_context),
            new_id=lambda: str(uuid.uuid4()),
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
        listener=listener,
        limits=limits,
    )
    try:
        await serve(proxy.application(), listener, limits, ready, stop)
    finally:
        try:
            await client.close()
        finally:
            await asyncio.to_thread(inspector.close)
            for path, each in traffic.items():
                evicted = each.connections.evicted
                report_missed(each.connections.stats, f" under {path}", evicted_connections=evicted)
            missed = inspector.missed_exchanges if isinstance(inspector, HttpWatch) else 0
            inspector.report(requests_failed_in_the_tap=proxy.failures, exchanges_not_observed=missed)
