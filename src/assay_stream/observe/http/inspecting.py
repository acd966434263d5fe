"""Inspection of exchanges by an HTTP tap: out of band in a thread, or, when enforcing, before anything passes.

When watching, exchanges are recorded as they pass, and no request waits. When enforcing, a thread per server inspects
in order. If it fails on a request, the request is held back; if it fails on a response, the failure is counted, the
bytes pass (not through a tap that hides tools), and the server's tools are in doubt until the next whole list.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime

from assay_stream.limits.serving import HTTP_LIMITS, HttpLimits
from assay_stream.observe.http.headers import HeaderFields, is_event_stream
from assay_stream.observe.http.proxy import ExchangeObserver
from assay_stream.observe.http.traffic import (
    READ_FIELDS,
    Answered,
    Asked,
    Closed,
    HttpEvent,
    Lost,
    Opened,
    Passed,
    Traffic,
)
from assay_stream.observe.inspection import Backlog, Guard
from assay_stream.observe.jsonrpc import Direction
from assay_stream.observe.observation import Observation
from assay_stream.observe.session import Commands

_NOTED_BYTES_MAX = 64 * 1_024
"""Buffered notes per exchange before they are handed over."""

_NOTE_BYTES = 512
"""Overhead counted per note of bytes: a server may send its answer byte by byte."""

_FINISH_LIMIT_S = 30.0

_log = logging.getLogger(__name__)

Note = tuple[HttpEvent, datetime]


class HttpWatch:
    """Inspect the exchanges of all servers of a tap in a thread, and publish their observations.

    Args:
        traffic: by server path; closed at the end.
        publish: called in the thread.
    """

    def __init__(
        self,
        traffic: Mapping[str, Traffic],
        *,
        publish: Callable[[Observation], object],
        clock: Callable[[], datetime],
        limits: HttpLimits = HTTP_LIMITS,
    ) -> None:
        self.missed_exchanges = 0
        """Exchanges that began while the backlog was full."""
        self.clock = clock
        self.limits = limits
        self._traffic = traffic
        self._publish = publish
        self._unreported: Counter[Traffic] = Counter()
        self._numbers = itertools.count(1)
        self._backlog = Backlog(
            "assay-stream watch",
            bytes_max=limits.backlog_bytes_max,
            share_bytes_max=limits.backlog_bytes_max if len(traffic) == 1 else limits.server_backlog_bytes_max,
            last=self._end,
            pause_s=limits.inspect_pause_s,
        )
        self.note_failure = self._backlog.note_failure

    @property
    def failures(self) -> int:
        return self._backlog.failures

    def start(self) -> None:
        self._backlog.start()

    def finish(self) -> None:
        """Inspect what waits, within a time limit."""
        self._report_missed()
        self._backlog.finish()
        self._backlog.join(_FINISH_LIMIT_S)
        if self._backlog.is_alive():
            _log.warning("gave up inspecting what was still in the backlog")

    def opened(self, path: str, method: str, fields: HeaderFields) -> Watched:
        return Watched(self, self._traffic[path], next(self._numbers), Opened(method, _read(fields)))

    def add(self, size_bytes: int, traffic: Traffic, number: int, notes: list[Note]) -> bool:
        """Queue notes of an exchange, and return True if there was room; there always is for notes of size 0."""
        fits = self._backlog.add(size_bytes, functools.partial(self._inspect, traffic, number, notes), owner=traffic)
        if fits and size_bytes:
            self._report_missed()
        return fits

    def miss(self, traffic: Traffic) -> None:
        self.missed_exchanges += 1
        self._unreported[traffic] += 1

    def _inspect(self, traffic: Traffic, number: int, notes: list[Note]) -> None:
        for event, at in notes:
            # What else passed is still to be published where one of them fails.
            self._backlog.guard(lambda: self._publish_all(traffic.receive(number, event, at).observations))  # noqa: B023 - runs at once

    def _publish_all(self, observations: Iterable[Observation]) -> None:
        for observation in observations:
            self._publish(observation)

    def _report_missed(self) -> None:
        if not self._unreported:
            return
        missed, self._unreported = self._unreported, Counter()
        at = self.clock()
        for traffic, count in missed.items():

            def report(traffic: Traffic = traffic, count: int = count) -> None:
                self._publish_all(traffic.missed(count, at))

            self._backlog.add(0, report, owner=traffic)

    def _end(self) -> None:
        at = self.clock()
        for traffic in self._traffic.values():
            self._backlog.guard(lambda: self._publish_all(traffic.close(at)))  # noqa: B023 - runs at once


class Watched(ExchangeObserver):
    """One exchange, recorded as it passes. Its methods return at once and never raise.

    Notes are handed over in batches, when a request ends, when part of a response passes, and at the end: a handover
    costs more than inspecting a small message.
    """

    def __init__(self, watch: HttpWatch, traffic: Traffic, number: int, event: Opened) -> None:
        self._watch = watch
        self._traffic = traffic
        self._number = number
        self._notes: list[Note] = []
        self._noted_bytes = 0
        self._begun = False
        self._unobserved = False
        self._losing: set[Direction] = set()
        self.note(event)

    async def inspect(self, event: HttpEvent) -> Commands:
        self.note(event)
        return Commands(event.data if isinstance(event, Passed) else None)

    def note(self, event: HttpEvent) -> None:
        if self._unobserved:
            return
        try:
            is_last = isinstance(event, Closed)
            if isinstance(event, Answered):
                event = Answered(event.status, _read(event.fields))
            if isinstance(event, Passed):
                is_last = (event.data is None) is (event.direction == "client->server")
                if event.direction not in self._losing:  # the rest of a body says nothing without what was lost of it
                    self._notes.append((event, self._watch.clock()))
                    self._noted_bytes += _NOTE_BYTES + len(event.data or b"")
            else:
                self._notes.append((event, self._watch.clock()))
            if self._notes and (is_last or self._noted_bytes > _NOTED_BYTES_MAX):
                self._pass_on()
        except Exception:  # noqa: BLE001 - no failure of the observer may reach the connection
            self._watch.note_failure()

    def _pass_on(self) -> None:
        notes, self._notes = self._notes, []
        noted_bytes, self._noted_bytes = self._noted_bytes, 0
        cost_bytes = 0 if self._begun else self._watch.limits.exchange_cost_bytes
        if self._add(cost_bytes + noted_bytes, notes):
            return
        lost = dict.fromkeys(event.direction for event, _ in notes if isinstance(event, Passed))
        self._losing |= lost.keys()
        at = self._watch.clock()
        kept = [note for note in notes if not isinstance(note[0], Passed)]
        # The exchange is opened before anything of it can be lost.
        place = 0 if self._begun else 1
        kept[place:place] = [(Lost(each), at) for each in lost]
        if not self._add(cost_bytes, kept):
            self._unobserved = True
            self._watch.miss(self._traffic)

    def _add(self, size_bytes: int, notes: list[Note]) -> bool:
        fits = self._watch.add(size_bytes, self._traffic, self._number, notes)
        self._begun = self._begun or fits
        return fits


def _read(fields: HeaderFields) -> list[tuple[str, str]]:
    return [(lower, value) for name, value in fields if (lower := name.lower()) in READ_FIELDS]


class HttpEnforcer(Guard):
    """Rule on the exchanges of all servers of a tap, and publish their observations.

    Args:
        traffic: by server path; its sessions must rule.
        publish: called in the inspecting thread.
        hides: whether the sessions hide tools.
    """

    def __init__(
        self,
        traffic: Mapping[str, Traffic],
        *,
        publish: Callable[[Observation], object],
        clock: Callable[[], datetime],
        hides: bool = False,
    ) -> None:
        self.blocked = 0
        self.withheld = 0
        self.hides = hides
        self._threads: Mapping[Traffic, ThreadPoolExecutor] = {
            each: ThreadPoolExecutor(1, "assay-stream rule") for each in traffic.values()
        }
        self._traffic = traffic
        self._publish = publish
        self._clock = clock
        self._numbers = itertools.count(1)

    def opened(self, path: str, method: str, fields: HeaderFields) -> Ruled:
        return Ruled(self, self._traffic[path], next(self._numbers), Opened(method, fields))

    def finish(self) -> None:
        """Publish the calls that will never be answered, after all pending inspections."""
        for traffic, thread in self._threads.items():
            thread.submit(self._close, traffic)
            thread.shutdown()

    def inspect(self, traffic: Traffic, number: int, event: HttpEvent) -> Future[Commands | None]:
        """Queue an event for inspection; ``None`` if inspection failed without a usable result."""

        def step() -> Commands | None:
            for receive in (traffic.receive, traffic.failed):
                try:
                    return self._hand_on(receive(number, event, self._clock()))
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

    def _close(self, traffic: Traffic) -> None:
        self._hand_on(Commands(observations=traffic.close(self._clock())))

    def _hand_on(self, commands: Commands) -> Commands:
        for observation in commands.observations:
            self._publish(observation)
        return commands


class Ruled(ExchangeObserver):
    rules = True

    def __init__(self, enforcer: HttpEnforcer, traffic: Traffic, number: int, event: Opened) -> None:
        self.hides = enforcer.hides
        self._holds_back = False
        self._held = b""
        self._gives_list = False
        self._enforcer = enforcer
        self._traffic = traffic
        self._number = number
        self.note(event)

    def note(self, event: HttpEvent) -> None:
        if isinstance(event, Answered):
            # A body that is one message must be read to its end before its end passes.
            self._holds_back = not is_event_stream(event.fields)
        if not isinstance(event, Passed):  # what was ruled on as a whole needs no look at its parts
            self._enforcer.inspect(self._traffic, self._number, event)

    async def inspect(self, event: HttpEvent) -> Commands | None:
        commands = await asyncio.wrap_future(self._enforcer.inspect(self._traffic, self._number, event))
        if commands is not None:
            self._gives_list |= commands.gives_list
            self._enforcer.withheld += commands.withheld
            for notice in commands.notices:
                _log.warning("%s", notice)
        if isinstance(event, Asked):
            self._enforcer.blocked += commands is None or commands.forward is None
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
            self._enforcer.delivered(self._traffic, self._number)
