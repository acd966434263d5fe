"""What an observing tap notes of each exchange, and the thread that inspects the notes: no request waits for it."""

from __future__ import annotations

import functools
import itertools
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from assay_stream.limits.serving import HTTP_LIMITS, HttpLimits
from assay_stream.observe.backlog import Backlog
from assay_stream.observe.http.connections import Ending, Exchange
from assay_stream.observe.http.headers import HeaderFields
from assay_stream.observe.http.proxy import Eyes
from assay_stream.observe.http.traffic import READ_FIELDS, Traffic
from assay_stream.observe.jsonrpc import Direction
from assay_stream.observe.observation import Observation

_NOTED_BYTES_MAX = 64 * 1_024
"""What an exchange notes before it passes it on."""

_NOTE_BYTES = 512
"""What a note of bytes counts for beside them: a server may send its answer byte by byte."""

_FINISH_LIMIT_S = 30.0

_log = logging.getLogger(__name__)


class Note(NamedTuple):
    """Something that passed.

    Args:
        step: takes the exchange, what passed, and when.
        direction: of the bytes, if it is any.
    """

    step: Callable[..., Iterable[Observation]]
    what: tuple[Any, ...]
    at: datetime
    direction: Direction | None = None


class HttpWatch:
    """Inspects the exchanges of all servers of a tap in a thread, and publishes what they yield.

    Args:
        traffic: of every server, by its path; closed at the end.
        publish: gets every observation, in the thread.
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
        """Those that began while the backlog was full."""
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
        """Inspect what waits, within a limit."""
        self._report_missed()
        self._backlog.finish()
        self._backlog.join(_FINISH_LIMIT_S)
        if self._backlog.is_alive():
            _log.warning("gave up inspecting what was still in the backlog")

    def opened(self, path: str, method: str, fields: HeaderFields) -> Watched:
        return Watched(self, self._traffic[path], next(self._numbers), method, fields)

    def add(self, size_bytes: int, traffic: Traffic, inspect: Callable[[], None]) -> bool:
        """Have a server's exchange inspected, and return whether there was room; for notes of no size there is."""
        fits = self._backlog.add(size_bytes, inspect, owner=traffic)
        if fits and size_bytes:
            self._report_missed()
        return fits

    def miss(self, traffic: Traffic) -> None:
        self.missed_exchanges += 1
        self._unreported[traffic] += 1

    def hand_on(self, step: Callable[[], Iterable[Observation]]) -> None:
        try:
            for observation in step():
                self._publish(observation)
        except Exception:  # noqa: BLE001 - what else passed is still to be published
            self.note_failure()

    def _report_missed(self) -> None:
        missed, self._unreported = self._unreported, Counter()
        for traffic, count in missed.items():
            step = functools.partial(traffic.missed, count, self.clock())
            self._backlog.add(0, functools.partial(self.hand_on, step), owner=traffic)

    def _end(self) -> None:
        at = self.clock()
        for traffic in self._traffic.values():
            self.hand_on(functools.partial(traffic.close, at))


class Watched(Eyes):
    """One exchange, noted as it passes. Its methods return at once and never raise.

    Notes are handed over together where a request ends, where a part of a response passes, and at the end: each time
    costs more than inspecting what is small.
    """

    def __init__(self, watch: HttpWatch, traffic: Traffic, number: int, method: str, fields: HeaderFields) -> None:
        self._watch = watch
        self._traffic = traffic
        self._exchange: Exchange | None = None
        """Known to the thread once it is opened there."""
        self._notes: list[Note] = []
        self._noted_bytes = 0
        self._begun = False
        self._unobserved = False
        self._losing: set[Direction] = set()
        self._note(self._open, (number, method, _read(fields)))

    def from_client(self, data: bytes | None) -> None:
        self._note(self._traffic.from_client, (data,), "client->server", is_last=data is None)

    def answered(self, status: int, fields: HeaderFields) -> None:
        self._note(self._traffic.answered, (status, _read(fields)))

    async def from_server(self, data: bytes | None) -> bytes:
        self._note(self._traffic.from_server, (data,), "server->client", is_last=data is not None)
        return data or b""

    def closed(self, ending: Ending) -> None:
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
                self._notes.append(Note(step, what, self._watch.clock(), direction))
                if direction is not None:
                    self._noted_bytes += _NOTE_BYTES + len(what[0] or b"")
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
        lost = dict.fromkeys(note.direction for note in notes if note.direction is not None)
        self._losing |= lost.keys()
        at = self._watch.clock()
        kept = [note for note in notes if note.direction is None]
        # The exchange is opened before anything of it can be lost.
        place = 0 if self._begun else 1
        kept[place:place] = [Note(self._traffic.lost, (each,), at) for each in lost]
        if not self._add(cost_bytes, kept):
            self._unobserved = True
            self._watch.miss(self._traffic)

    def _add(self, size_bytes: int, notes: list[Note]) -> bool:
        fits = self._watch.add(size_bytes, self._traffic, functools.partial(self._inspect, notes))
        self._begun = self._begun or fits
        return fits

    # In the thread

    def _inspect(self, notes: Iterable[Note]) -> None:
        for note in notes:
            if self._exchange is not None or note.step == self._open:
                self._watch.hand_on(functools.partial(note.step, self._exchange, *note.what, note.at))

    def _open(self, _: None, number: int, method: str, fields: HeaderFields, at: datetime) -> list[Observation]:
        self._exchange, observations = self._traffic.open(number, method, fields, at)
        return observations


def _read(fields: HeaderFields) -> list[tuple[str, str]]:
    """Return the fields that are read: the others need not be kept."""
    return [(lower, value) for name, value in fields if (lower := name.lower()) in READ_FIELDS]
