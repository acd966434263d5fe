"""What an observing tap notes of each exchange, and what follows from the notes: no request waits for either.

Notes are plain values, so that they can be inspected in a thread (here) or in a process of its own
(``observe.http.inspecting``).
"""

from __future__ import annotations

import functools
import itertools
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

from assay_stream.limits.serving import HTTP_LIMITS, HttpLimits
from assay_stream.observe.backlog import Backlog
from assay_stream.observe.http.exchange import Ending, Exchange
from assay_stream.observe.http.headers import HeaderFields
from assay_stream.observe.http.traffic import READ_FIELDS, Traffic
from assay_stream.observe.jsonrpc import Direction
from assay_stream.observe.observation import Observation

_NOTED_BYTES_MAX = 64 * 1_024
"""What an exchange notes before it passes it on."""

Note = tuple[str, tuple[Any, ...], float, Direction | None]
"""Something that passed: the method of ``Traffic`` that takes it, what passed, when (seconds since the epoch), and the
direction of the bytes, if it is any."""

_OPEN, _CLOSED, _MISSED = "open", "closed", "missed"
_FINISH_LIMIT_S = 30.0

_log = logging.getLogger(__name__)


class Inspection:
    """From the notes of all servers of a tap to observations. For one thread.

    Args:
        traffic: of every server, by its path.
        failed: called while an exception is handled that ``Traffic`` never should have raised.
    """

    def __init__(
        self, traffic: Mapping[str, Traffic], *, publish: Callable[[Observation], object], failed: Callable[[], object]
    ) -> None:
        self._traffic = traffic
        self._publish = publish
        self._failed = failed
        self._exchanges: dict[int, Exchange] = {}

    def look(self, path: str, number: int, notes: Iterable[Note]) -> None:
        """Inspect notes of an exchange with a server, and publish what they yield; never raises."""
        traffic = self._traffic[path]
        for step, what, at_s, _ in notes:
            try:
                self._hand_on(self._step(traffic, number, step, what, datetime.fromtimestamp(at_s, UTC)))
            except Exception:  # noqa: BLE001 - no failure of the observer may reach the connection
                self._failed()

    def close(self, at: datetime) -> None:
        """Publish the calls that will never be answered."""
        for traffic in self._traffic.values():
            try:
                self._hand_on(traffic.close(at))
            except Exception:  # noqa: BLE001 - the other servers' calls are still to be published
                self._failed()

    def _step(
        self, traffic: Traffic, number: int, step: str, what: tuple[Any, ...], at: datetime
    ) -> Iterable[Observation]:
        if step == _MISSED:
            return traffic.missed(what[0], at)
        if step == _OPEN:
            method, fields = what
            self._exchanges[number], observations = traffic.open(number, method, fields, at)
            return observations
        exchange = self._exchanges.pop(number, None) if step == _CLOSED else self._exchanges.get(number)
        found: Iterable[Observation] = () if exchange is None else getattr(traffic, step)(exchange, *what, at)
        return found

    def _hand_on(self, observations: Iterable[Observation]) -> None:
        for observation in observations:
            self._publish(observation)


class Carrier(Protocol):
    """Takes notes to where they are inspected."""

    cost_bytes: int

    def now(self) -> float:
        """Return the time of what passes now, in seconds since the epoch."""

    def add(self, size_bytes: int, path: str, number: int, notes: list[Note]) -> bool:
        """Take notes of an exchange with a server, and return whether there was room; for none of a size there is."""

    def miss(self, path: str) -> None:
        """Count an exchange with a server that is not observed."""

    def note_failure(self) -> None:
        """Count the failure that is being handled."""


class Missed:
    """Exchanges that are not observed, by the path of their server, until that is published."""

    def __init__(self) -> None:
        self.exchanges = 0
        """All, published or not."""
        self._counts: Counter[str] = Counter()

    def note(self, path: str) -> None:
        """Count one."""
        self.exchanges += 1
        self._counts[path] += 1

    def take(self, at_s: float) -> Iterator[tuple[str, int, list[Note]]]:
        """Yield what ``Inspection.look`` takes to publish the counts, and begin anew."""
        counts, self._counts = self._counts, Counter()
        for path, count in counts.items():
            yield path, 0, [(_MISSED, (count,), at_s, None)]


class HttpWatch:
    """Inspects the exchanges of all servers of a tap in a thread, and publishes what they yield.

    Args:
        traffic: of every server, by its path; closed at the end.
    """

    def __init__(
        self,
        traffic: Mapping[str, Traffic],
        *,
        publish: Callable[[Observation], object],
        clock: Callable[[], datetime],
        limits: HttpLimits = HTTP_LIMITS,
    ) -> None:
        self._backlog = Backlog(
            "assay-stream watch", bytes_max=limits.backlog_bytes_max, last=self._end, pause_s=limits.inspect_pause_s
        )
        self._missed = Missed()
        """Those that began while the backlog was full."""
        self._inspection = Inspection(traffic, publish=publish, failed=self._backlog.note_failure)
        self._clock = clock
        self.cost_bytes = limits.exchange_cost_bytes
        self._numbers = itertools.count(1)

    @property
    def failures(self) -> int:
        return self._backlog.failures

    @property
    def missed_exchanges(self) -> int:
        return self._missed.exchanges

    def start(self) -> None:
        """Start to inspect."""
        self._backlog.start()

    def finish(self) -> None:
        """Inspect what waits, within a limit."""
        self._report_missed()
        self._backlog.finish()
        self._backlog.join(_FINISH_LIMIT_S)
        if self._backlog.is_alive():
            _log.warning("gave up inspecting what was still in the backlog")

    def opened(self, path: str, method: str, fields: HeaderFields) -> Watched:
        """Note a request; never raises."""
        return Watched(self, path, next(self._numbers), method, fields)

    def now(self) -> float:
        return self._clock().timestamp()

    def add(self, size_bytes: int, path: str, number: int, notes: list[Note]) -> bool:
        fits = self._backlog.add(size_bytes, functools.partial(self._inspection.look, path, number, notes))
        if fits and size_bytes:
            self._report_missed()
        return fits

    def miss(self, path: str) -> None:
        self._missed.note(path)

    def note_failure(self) -> None:
        self._backlog.note_failure()

    def _report_missed(self) -> None:
        for what in self._missed.take(self.now()):
            self._backlog.add(0, functools.partial(self._inspection.look, *what))

    def _end(self) -> None:
        self._inspection.close(self._clock())


class Watched:
    """One exchange, noted as it passes. Its methods return at once and never raise.

    Notes are handed over together where a request ends, where a part of a response passes, and at the end: each time
    costs more than inspecting what is small.
    """

    rules = False
    hides = False

    def __init__(self, carrier: Carrier, path: str, number: int, method: str, fields: HeaderFields) -> None:
        self._carrier = carrier
        self._path = path
        self._number = number
        self._notes: list[Note] = []
        self._noted_bytes = 0
        self._begun = False
        self._unobserved = False
        self._losing: set[Direction] = set()
        self._note(_OPEN, (method, _read(fields)))

    async def ruled(self, body: bytes) -> None:
        """Let every request pass."""

    def from_client(self, data: bytes | None) -> None:
        """Note bytes of the request's body, ``None`` for its end."""
        self._note("from_client", (data,), "client->server", is_last=data is None)

    def answered(self, status: int, fields: HeaderFields) -> None:
        """Note the head of the response."""
        self._note("answered", (status, _read(fields)))

    async def from_server(self, data: bytes | None) -> bytes:
        """Note bytes of the response's body, ``None`` for its end; all of them pass."""
        self._note("from_server", (data,), "server->client", is_last=data is not None)
        return data or b""

    async def whole(self, body: bytes) -> bytes:
        """Let every body pass."""
        return body

    def passed(self) -> None:
        """Do nothing: nobody is ruled on by what the client was given."""

    def closed(self, ending: Ending) -> None:
        """Note the end of the exchange."""
        self._note(_CLOSED, (ending,), is_last=True)

    def _note(
        self, step: str, what: tuple[Any, ...], direction: Direction | None = None, *, is_last: bool = False
    ) -> None:
        """Note something; the last of several is passed on with them."""
        if self._unobserved:
            return
        try:
            # The rest of a body says nothing without what was lost of it.
            if direction is None or direction not in self._losing:
                self._notes.append((step, what, self._carrier.now(), direction))
                if direction is not None:
                    self._noted_bytes += len(what[0] or b"")
            if is_last or self._noted_bytes > _NOTED_BYTES_MAX:
                self._pass_on()
        except Exception:  # noqa: BLE001 - no failure of the observer may reach the connection
            self._carrier.note_failure()

    def _pass_on(self) -> None:
        notes, self._notes = self._notes, []
        noted_bytes, self._noted_bytes = self._noted_bytes, 0
        cost_bytes = 0 if self._begun else self._carrier.cost_bytes
        if self._add(cost_bytes + noted_bytes, notes):
            return
        lost = dict.fromkeys(note[3] for note in notes if note[3] is not None)
        self._losing |= lost.keys()
        at_s = self._carrier.now()
        kept = [note for note in notes if note[3] is None]
        # The exchange is opened before anything of it can be lost.
        place = 0 if self._begun else 1
        kept[place:place] = [("lost", (each,), at_s, None) for each in lost]
        if not self._add(cost_bytes, kept):
            self._unobserved = True
            self._carrier.miss(self._path)

    def _add(self, size_bytes: int, notes: list[Note]) -> bool:
        fits = self._carrier.add(size_bytes, self._path, self._number, notes)
        self._begun = self._begun or fits
        return fits


def _read(fields: HeaderFields) -> list[tuple[str, str]]:
    """Return the fields that are read, as plain values: aiohttp's names are of a type of their own."""
    return [(lower, value) for name, value in fields if (lower := name.lower()) in READ_FIELDS]
