"""What an observing tap notes of each exchange: inspected by a thread of its own, which no request waits for."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from assay_stream.limits import HTTP_LIMITS, HttpLimits
from assay_stream.observe.backlog import Backlog
from assay_stream.observe.events import Observation
from assay_stream.observe.http.headers import HeaderFields
from assay_stream.observe.http.traffic import Ending, Exchange, Traffic
from assay_stream.observe.jsonrpc import Direction

_NOTED_BYTES_MAX = 64 * 1_024
"""What an exchange notes before it passes it on."""


class HttpWatch(Backlog):
    """Inspects the exchanges of all servers of a tap, and publishes what they yield.

    Args:
        traffic: of every server, closed at the end.
    """

    def __init__(
        self,
        traffic: Iterable[Traffic],
        *,
        publish: Callable[[Observation], object],
        clock: Callable[[], datetime],
        limits: HttpLimits = HTTP_LIMITS,
    ) -> None:
        super().__init__("assay-stream watch", bytes_max=limits.backlog_bytes_max, last=self._end)
        self.missed_exchanges = 0
        """Those that began while the backlog was full."""
        self._traffic = tuple(traffic)
        self._publish = publish
        self._clock = clock
        self.cost_bytes = limits.exchange_cost_bytes
        self._numbers = itertools.count(1)

    def opened(self, traffic: Traffic, method: str, fields: HeaderFields) -> Watched:
        """Note a request; never raises."""
        return Watched(self, traffic, next(self._numbers), method, fields)

    def now(self) -> datetime:
        """Return the time of what passes now."""
        return self._clock()

    def look(self, steps: Iterable[Callable[[], Iterable[Observation]]]) -> None:
        """Run steps, and publish what they yield; a step that fails is counted."""
        for step in steps:
            self.guard(functools.partial(self._hand_on, step))

    def _hand_on(self, step: Callable[[], Iterable[Observation]]) -> None:
        for observation in step():
            self._publish(observation)

    def _end(self) -> None:
        for traffic in self._traffic:
            self.look([functools.partial(traffic.close, self._clock())])


@dataclass(frozen=True, slots=True)
class _Note:
    """Something that passed.

    Args:
        direction: of the bytes, if it is any.
    """

    look: Callable[[Exchange], Iterable[Observation]]
    direction: Direction | None = None


class Watched:
    """One exchange, noted as it passes. Its methods return at once and never raise.

    Notes go to the other thread together where a request ends, where a part of a response passes, and at the end: each
    time costs more than inspecting what is small.
    """

    rules = False
    hides = False

    def __init__(self, watch: HttpWatch, traffic: Traffic, number: int, method: str, fields: HeaderFields) -> None:
        self._watch = watch
        self._traffic = traffic
        self._notes: list[_Note] = []
        self._noted_bytes = 0
        self._exchange: Exchange | None = None
        self._begun = False
        self._unobserved = False
        self._losing: set[Direction] = set()
        self._guard(lambda: self._open(number, method, fields, watch.now()))

    async def ruled(self, body: bytes) -> None:
        """Let every request pass."""

    def from_client(self, data: bytes | None) -> None:
        """Note bytes of the request's body, ``None`` for its end."""
        self._guard(lambda: self._bytes("client->server", data))
        if data is None:
            self._guard(self._pass_on)

    def answered(self, status: int, fields: HeaderFields) -> None:
        """Note the head of the response."""
        self._guard(lambda: self._note(lambda exchange, at: self._traffic.answered(exchange, status, fields, at)))

    async def from_server(self, data: bytes | None) -> bytes:
        """Note bytes of the response's body, ``None`` for its end; all of them pass."""
        self._guard(lambda: self._bytes("server->client", data))
        if data is not None:
            self._guard(self._pass_on)
        return data or b""

    async def whole(self, body: bytes) -> bytes:
        """Let every body pass."""
        return body

    def passed(self) -> None:
        """Do nothing: nobody is ruled on by what the client was given."""

    def closed(self, ending: Ending) -> None:
        """Note the end of the exchange."""
        self._guard(lambda: self._note(lambda exchange, at: self._traffic.closed(exchange, ending, at)))
        self._guard(self._pass_on)

    def _guard(self, step: Callable[[], None]) -> None:
        if not self._unobserved:
            self._watch.guard(step)

    def _open(self, number: int, method: str, fields: HeaderFields, at: datetime) -> None:
        def step() -> list[Observation]:
            self._exchange, observations = self._traffic.open(number, method, fields, at)
            return observations

        self._first = step

    def _bytes(self, direction: Direction, data: bytes | None) -> None:
        if direction in self._losing:
            return  # the rest of a body says nothing without what was lost of it
        read = self._traffic.from_client if direction == "client->server" else self._traffic.from_server
        size_bytes = 0 if data is None else len(data)
        self._note(lambda exchange, at: read(exchange, data, at), direction)
        self._noted_bytes += size_bytes
        if self._noted_bytes > _NOTED_BYTES_MAX:
            self._pass_on()

    def _note(
        self, step: Callable[[Exchange, datetime], list[Observation]], direction: Direction | None = None
    ) -> None:
        at = self._watch.now()
        self._notes.append(_Note(lambda exchange: step(exchange, at), direction))

    def _pass_on(self) -> None:
        notes, self._notes = self._notes, []
        noted_bytes, self._noted_bytes = self._noted_bytes, 0
        cost_bytes = 0 if self._begun else self._watch.cost_bytes
        if self._add(cost_bytes + noted_bytes, notes):
            return
        lost = dict.fromkeys(note.direction for note in notes if note.direction is not None)
        self._losing |= lost.keys()
        at = self._watch.now()
        kept = [_Note(functools.partial(self._lost, each, at)) for each in lost]
        if not self._add(cost_bytes, [*kept, *(note for note in notes if note.direction is None)]):
            self._unobserved = True
            self._watch.missed_exchanges += 1

    def _add(self, size_bytes: int, notes: list[_Note]) -> bool:
        steps: list[Callable[[], Iterable[Observation]]] = [functools.partial(self._look, note) for note in notes]
        if not self._begun:
            steps.insert(0, self._first)
        fits = self._watch.add(size_bytes, lambda: self._watch.look(steps))
        self._begun = self._begun or fits
        return fits

    def _lost(self, direction: Direction, at: datetime, exchange: Exchange) -> list[Observation]:
        return self._traffic.lost(exchange, direction, at)

    def _look(self, note: _Note) -> Iterable[Observation]:
        return () if self._exchange is None else note.look(self._exchange)
