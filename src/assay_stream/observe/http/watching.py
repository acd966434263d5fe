"""What an observing tap notes of each exchange: inspected by a thread of its own, which no request waits for."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, NamedTuple

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
        super().__init__(
            "assay-stream watch", bytes_max=limits.backlog_bytes_max, last=self._end, pause_s=limits.inspect_pause_s
        )
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

    def inspect(self, step: Callable[..., Iterable[Observation]], *arguments: Any) -> None:
        """Run a step, and publish what it yields; if it fails, that is counted."""
        try:
            for observation in step(*arguments):
                self._publish(observation)
        except Exception:  # noqa: BLE001 - no failure of the observer may reach the connection
            self.note_failure()

    def _end(self) -> None:
        for traffic in self._traffic:
            self.inspect(traffic.close, self._clock())


class _Note(NamedTuple):
    """Something that passed.

    Args:
        step: what takes it: an exchange, what passed, and when.
        direction: of the bytes, if it is any.
    """

    step: Callable[..., Iterable[Observation]]
    what: tuple[Any, ...]
    at: datetime
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
        self._note(self._open, (number, method, fields))

    async def ruled(self, body: bytes) -> None:
        """Let every request pass."""

    def from_client(self, data: bytes | None) -> None:
        """Note bytes of the request's body, ``None`` for its end."""
        self._note(self._traffic.from_client, (data,), "client->server", is_last=data is None)

    def answered(self, status: int, fields: HeaderFields) -> None:
        """Note the head of the response."""
        self._note(self._traffic.answered, (status, fields))

    async def from_server(self, data: bytes | None) -> bytes:
        """Note bytes of the response's body, ``None`` for its end; all of them pass."""
        self._note(self._traffic.from_server, (data,), "server->client", is_last=data is not None)
        return data or b""

    async def whole(self, body: bytes) -> bytes:
        """Let every body pass."""
        return body

    def passed(self) -> None:
        """Do nothing: nobody is ruled on by what the client was given."""

    def closed(self, ending: Ending) -> None:
        """Note the end of the exchange."""
        self._note(self._traffic.closed, (ending,), is_last=True)

    def _note(
        self,
        step: Callable[..., Iterable[Observation]],
        what: tuple[Any, ...],
        direction: Direction | None = None,
        *,
        is_last: bool = False,
    ) -> None:
        """Note something; the last of several is passed on with them."""
        if self._unobserved:
            return
        try:
            # The rest of a body says nothing without what was lost of it.
            if direction is None or direction not in self._losing:
                self._notes.append(_Note(step, what, self._watch.now(), direction))
                if direction is not None:
                    self._noted_bytes += len(what[0] or b"")
            if is_last or self._noted_bytes > _NOTED_BYTES_MAX:
                self._pass_on()
        except Exception:  # noqa: BLE001 - no failure of the observer may reach the connection
            self._watch.note_failure()

    def _pass_on(self) -> None:
        notes, self._notes = self._notes, []
        noted_bytes, self._noted_bytes = self._noted_bytes, 0
        cost_bytes = 0 if self._begun else self._watch.cost_bytes
        if self._add(cost_bytes + noted_bytes, notes):
            return
        lost = dict.fromkeys(note.direction for note in notes if note.direction is not None)
        self._losing |= lost.keys()
        at = self._watch.now()
        kept = [note for note in notes if note.direction is None]
        # The exchange is opened before anything of it can be lost.
        place = 0 if self._begun else 1
        kept[place:place] = [_Note(self._traffic.lost, (each,), at) for each in lost]
        if not self._add(cost_bytes, kept):
            self._unobserved = True
            self._watch.missed_exchanges += 1

    def _add(self, size_bytes: int, notes: list[_Note]) -> bool:
        fits = self._watch.add(size_bytes, functools.partial(self._look, notes))
        self._begun = self._begun or fits
        return fits

    # In the other thread

    def _look(self, notes: list[_Note]) -> None:
        for note in notes:
            if self._exchange is not None or note.step == self._open:
                self._watch.inspect(note.step, self._exchange, *note.what, note.at)

    def _open(self, _: None, number: int, method: str, fields: HeaderFields, at: datetime) -> list[Observation]:
        self._exchange, observations = self._traffic.open(number, method, fields, at)
        return observations
