"""Inspection of exchanges by an HTTP tap: out of band in a thread, or, when enforcing, before anything passes.

When watching, exchanges are recorded as they pass, and no request waits. When enforcing, a thread per server inspects
in order. If it fails on a request, the request is held back; if it fails on a response, the failure is counted, the
bytes pass (not through a tap that hides tools), and the server's tools are in doubt until the next whole list.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import KW_ONLY, InitVar, dataclass
from datetime import datetime
from functools import partial

from assay_stream.limits.serving import HTTP_LIMITS, HttpLimits
from assay_stream.observe.http.headers import HeaderFields, is_event_stream
from assay_stream.observe.http.proxy import ExchangeObserver
from assay_stream.observe.http.traffic import READ_FIELDS, Answered, Asked, HttpEvent, Lost, Opened, Passed, Traffic
from assay_stream.observe.inspection import Backlog, Inspector
from assay_stream.observe.jsonrpc import Direction
from assay_stream.observe.observation import Observation
from assay_stream.observe.session import Commands

_NOTE_BYTES = 512
"""Overhead counted per note of bytes: a server may send its answer byte by byte."""

_FINISH_LIMIT_S = 30.0


class HttpWatch(Backlog):
    """Inspect the exchanges of all servers of a tap in a thread; closes their traffic at the end."""

    def __init__(
        self,
        traffic: Mapping[str, Traffic],
        *,
        publish: Callable[[Observation], object],
        clock: Callable[[], datetime],
        limits: HttpLimits = HTTP_LIMITS,
    ) -> None:
        super().__init__(
            publish=publish,
            clock=clock,
            bytes_max=limits.backlog_bytes_max,
            share_bytes_max=math.inf if len(traffic) == 1 else limits.server_backlog_bytes_max,
            pause_s=limits.inspect_pause_s,
        )
        self.missed_exchanges = 0
        """Exchanges that began while the backlog was full."""
        self.exchange_cost_bytes = limits.exchange_cost_bytes
        self._traffic = traffic
        self._unreported: Counter[Traffic] = Counter()
        self._numbers = itertools.count(1)

    def opened(self, path: str, method: str, fields: HeaderFields) -> Watched:
        return Watched(self, self._traffic[path], next(self._numbers), Opened(method, _read(fields)))

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
        return [partial(self._publish, partial(traffic.close, at)) for traffic in self._traffic.values()]

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
            size_bytes = self.watch.exchange_cost_bytes if isinstance(event, Opened) else 0
            if isinstance(event, Answered):
                event = Answered(event.status, _read(event.fields))
            elif isinstance(event, Passed):
                size_bytes = _NOTE_BYTES + len(event.data or b"")
            if self.watch.note(size_bytes, self.traffic, self.number, event):
                return
            if isinstance(event, Passed):
                self._losing.add(event.direction)
                self.watch.note(0, self.traffic, self.number, Lost(event.direction))
            else:
                self._is_unobserved = True
                self.watch.miss(self.traffic)
        except Exception:  # noqa: BLE001 - no failure of the observer may reach the connection
            self.watch.note_failure()


def _read(fields: HeaderFields) -> list[tuple[str, str]]:
    return [(lower, value) for name, value in fields if (lower := name.lower()) in READ_FIELDS]


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
                exchange.session.delivered(number)

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
