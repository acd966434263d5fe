"""What an observing tap notes of each exchange: inspected by a thread of its own, which no request waits for."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable
from datetime import datetime

from assay_stream.limits import HTTP_LIMITS, HttpLimits
from assay_stream.observe.backlog import Backlog
from assay_stream.observe.events import Observation
from assay_stream.observe.http.headers import Fields
from assay_stream.observe.http.traffic import Ending, Exchange, Traffic
from assay_stream.observe.jsonrpc import Direction


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
        self._cost_bytes = limits.exchange_cost_bytes
        self._numbers = itertools.count(1)

    def opened(self, traffic: Traffic, method: str, fields: Fields) -> Watched:
        """Note a request; never raises."""
        return Watched(self, traffic, next(self._numbers), method, fields)

    def note(self, size_bytes: int, step: Callable[[datetime], Iterable[Observation]]) -> bool:
        """Have something inspected as of now, and return whether there was room."""
        return self.add(size_bytes, functools.partial(self._look, step, self._clock()))

    def begin(self, step: Callable[[datetime], Iterable[Observation]]) -> bool:
        """Do as ``note`` with an exchange."""
        fits = self.note(self._cost_bytes, step)
        self.missed_exchanges += not fits
        return fits

    def _look(self, step: Callable[[datetime], Iterable[Observation]], at: datetime) -> None:
        for observation in step(at):
            self._publish(observation)

    def _end(self) -> None:
        for traffic in self._traffic:
            self.guard(functools.partial(self._look, traffic.close, self._clock()))


class Watched:
    """One exchange, noted as it passes. Its methods return at once and never raise."""

    def __init__(self, watch: HttpWatch, traffic: Traffic, number: int, method: str, fields: Fields) -> None:
        self._watch = watch
        self._traffic = traffic
        self._exchange: Exchange | None = None
        self._losing: dict[Direction, bool] = {"client->server": False, "server->client": False}
        self._noted = False
        self._watch.guard(lambda: self._begin(number, method, fields))

    rules = False

    async def ruled(self, body: bytes) -> None:
        """Let every request pass."""

    def from_client(self, data: bytes | None) -> None:
        """Note bytes of the request's body, ``None`` for its end."""
        self._bytes("client->server", data)

    def answered(self, status: int, fields: Fields) -> None:
        """Note the head of the response."""
        self._note(lambda exchange, at: self._traffic.answered(exchange, status, fields, at))

    async def from_server(self, data: bytes | None) -> None:
        """Note bytes of the response's body, ``None`` for its end."""
        self._bytes("server->client", data)

    def closed(self, ending: Ending) -> None:
        """Note the end of the exchange."""
        self._note(lambda exchange, at: self._traffic.closed(exchange, ending, at))

    def _begin(self, number: int, method: str, fields: Fields) -> None:
        def step(at: datetime) -> list[Observation]:
            self._exchange, observations = self._traffic.open(number, method, fields, at)
            return observations

        self._noted = self._watch.begin(step)

    def _bytes(self, direction: Direction, data: bytes | None) -> None:
        if not self._noted:
            return
        read = self._traffic.from_client if direction == "client->server" else self._traffic.from_server
        size_bytes = 0 if data is None else len(data)
        if self._losing[direction]:
            return  # the rest of a body says nothing without what was lost of it
        if not self._note(lambda exchange, at: read(exchange, data, at), size_bytes):
            self._losing[direction] = True
            self._note(lambda exchange, at: self._traffic.lost(exchange, direction, at))

    def _note(self, step: Callable[[Exchange, datetime], list[Observation]], size_bytes: int = 0) -> bool:
        fits = True

        def add() -> None:
            nonlocal fits
            fits = self._watch.note(size_bytes, look)

        def look(at: datetime) -> list[Observation]:
            return [] if self._exchange is None else step(self._exchange, at)

        if self._noted:
            self._watch.guard(add)
        return fits
