"""What one observer saw on one server, in the order of event time.

The as-of contract: ``as_of(t)`` is the latest observation at or before ``t`` (inclusive); of two at the same time the
later origin wins. Arrival order never matters.

The number of observations kept is bounded. Folding first removes the oldest one whose neighbours saw the same
catalogue: that changes no as-of answer, only which of several equal observations is named. Where there is none it
removes the oldest, and the horizon records that earlier history is gone. A list older than all kept observations may
therefore change answers.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from assay_stream.bindings.sightings import OrderedRows, Row, Sightings, row_of, seen_at, shared_part
from assay_stream.model.facts import Seen
from assay_stream.model.fields import ITEM_SUBJECTS
from assay_stream.model.finding import Finding
from assay_stream.model.kinds import Kind
from assay_stream.model.record import Origin, Position
from assay_stream.model.wire import FactKey

BEFORE_ALL_US, AFTER_ALL_US = -(2**63), 2**63 - 1


def position_of(fact: Seen) -> Position:
    return fact.position


def _key(run: Run) -> Origin:
    return run.key


class Run(NamedTuple):
    """The offsets of one run of the binding topic.

    Args:
        key: the origin in its key.
        first, last: those of its first and its last row.
        rows: number of rows it was written with.
    """

    key: Origin
    first: int
    last: int
    rows: int


_NO_CUTS: dict[Origin, tuple[int, ...]] = {}


class Timeline(OrderedRows):
    """The observations of one observer on one server.

    Args:
        table: holds them; ``None`` for one of its own.
    """

    __slots__ = ("_latest", "cuts", "horizon_us", "runs")

    def __init__(self, table: Sightings | None = None) -> None:
        super().__init__(Sightings() if table is None else table)
        self._latest: Seen | None = None
        """The latest, once computed: most queries of a registry are about it."""
        self.horizon_us: int | None = None
        """Event time before which observations may have been folded away."""
        self.runs: tuple[Run, ...] = ()
        """The runs of the binding topic that hold its observations, sorted; they don't overlap."""
        self.cuts: dict[Origin, tuple[int, ...]] = _NO_CUTS
        """Contents of the cuts of runs, by the origin in their keys. Never changed in place."""

    def __iter__(self) -> Iterator[Seen]:
        return map(self.table.seen, self.numbers)

    def keys(self, server_id: str, observer_id: str) -> Iterator[FactKey]:
        """Yield the keys of the facts that make it up."""
        if self.horizon_us is not None:
            yield "horizon", server_id, observer_id
        for origin in map(self.table.origin, self.numbers):
            if self.run_of(origin) is None:
                yield "seen", server_id, observer_id, *origin
        yield from (("seen_run", server_id, observer_id, *run.key) for run in self.runs)
        yield from (("run_cut", server_id, observer_id, *key) for key in self.cuts)

    def add(self, seen: Seen) -> int | None:
        """Add an observation, and return its row; ``None`` if it is already here."""
        index = same = self.count_until(seen.position)
        while same and self.table.position(self.numbers[same - 1]) == seen.position:
            same -= 1
            if self.table.seen(self.numbers[same]) == seen:
                return None
        (number,) = self.table.add(shared_part(seen), [row_of(seen)])
        self.numbers.insert(index, number)
        self._latest = None
        return number

    def extend(self, shared: Seen, rows: Sequence[Row]) -> Sequence[int]:
        """Add observations that come after all others, and return their rows."""
        added = self.table.add(shared, rows)
        self.numbers += added
        self._latest = None
        return added

    def ends_with(self, shared: Seen, rows: Sequence[Row]) -> bool:
        """Return True if these are the latest observations."""
        latest = map(self.table.seen, self.numbers[-len(rows) :])
        return list(latest) == [seen_at(shared, row) for row in rows]

    def row_at(self, origin: Origin) -> int | None:
        table = self.table
        for number, offset in zip(self.numbers, map(table.offsets.__getitem__, self.numbers), strict=True):
            if offset == origin.offset and table.origin(number) == origin:
                return number
        return None

    def remove(self, number: int) -> None:
        self.discard(number, self.table.position(number))
        self.table.remove(number)
        self._latest = None

    def clear(self) -> None:
        for number in self.numbers:
            self.table.remove(number)
        self.numbers, self._latest = array("I"), None

    def run_at(self, key: Origin) -> Run | None:
        """Return the run with this origin in its key."""
        return next((run for run in self.runs if run.key == key), None)

    def run_of(self, origin: Origin) -> Run | None:
        """Return the run that holds the observation of this origin."""
        index = bisect_right(self.runs, origin, key=_key)
        run = self.runs[index - 1] if index else None
        if run is None or run.key[:2] != origin[:2] or not run.first <= origin.offset <= run.last:
            return None
        return run

    def in_run(self, run: Run) -> list[int]:
        """Return the rows of the observations in a run, in order."""
        offsets = self.table.offsets
        within = [number for number in self.numbers if run.first <= offsets[number] <= run.last]
        return [number for number in within if self.table.origin(number)[:2] == run.key[:2]]

    def put_run(self, run: Run) -> None:
        """Add a run, replacing an earlier form of it."""
        self.drop_run(run.key)
        self.runs = tuple(sorted([*self.runs, run]))

    def drop_run(self, key: Origin) -> None:
        self.runs = tuple(run for run in self.runs if run.key != key)

    def put_cut(self, key: Origin, gone: tuple[int, ...]) -> None:
        """Store the contents of a run's cut; an empty one is not stored."""
        cuts = {known: offsets for known, offsets in self.cuts.items() if known != key}
        self.cuts = cuts | ({key: gone} if gone else {}) or _NO_CUTS

    def at(self, time_us: int) -> Sequence[Seen]:
        first = self._count_until_us(time_us - 1)
        return [self.table.seen(number) for number in self.numbers[first : self._count_until_us(time_us)]]

    def as_of(self, time_us: int) -> Seen | None:
        count = self._count_until_us(time_us)
        return self.table.seen(self.numbers[count - 1]) if count else None

    def span_at(self, time_us: int) -> tuple[int, int]:
        """Return the times from which, and before which, every answer is the same as at this time."""
        count, times_us = self._count_until_us(time_us), self.table.times_us
        since_us = times_us[self.numbers[count - 1]] if count else BEFORE_ALL_US
        until_us = times_us[self.numbers[count]] if count < len(self.numbers) else AFTER_ALL_US
        if self.horizon_us is None:
            return since_us, until_us
        if self.horizon_us <= time_us:
            return max(since_us, self.horizon_us), until_us
        return since_us, min(until_us, self.horizon_us)

    def is_folded_at(self, time_us: int) -> bool:
        """Return True if what was seen at a time may have been folded away."""
        return self.horizon_us is not None and time_us < self.horizon_us

    def before(self, position: Position) -> list[Seen]:
        return [self.table.seen(number) for number in self.numbers[: self.count_before(position)]]

    def back_from(self, position: Position) -> Iterator[Seen]:
        return map(self.table.seen, reversed(self.numbers[: self.count_before(position)]))

    def newest_first(self) -> Iterator[Seen]:
        return map(self.table.seen, reversed(self.numbers))

    @property
    def latest(self) -> Seen | None:
        if self._latest is None and self.numbers:
            self._latest = self.table.seen(self.numbers[-1])
        return self._latest

    def in_force_since(self, position: Position) -> Iterator[tuple[Seen, Position | None]]:
        """Yield what was in force at a position and after it, each with the position at which its force ended."""
        later = self.numbers[max(0, self.count_until(position) - 1) :]
        ends = [*map(self.table.position, later[1:]), None]
        return zip(map(self.table.seen, later), ends, strict=True)

    def first_after(self, position: Position) -> Seen | None:
        count = self.count_until(position)
        return self.table.seen(self.numbers[count]) if count < len(self.numbers) else None

    def one_too_many(
        self, entries_max: int, parts: Callable[[Seen, Seen], bool] = lambda _older, _newer: False
    ) -> tuple[Seen, bool] | None:
        """Return the observation to fold away, and whether history is lost with it; ``None`` if there is room."""
        if len(self) <= entries_max:
            return None
        same_tools: Seen | None = None
        for older, seen, newer in _triples(self):
            repeats = _same_tools(older, seen) and _same_tools(seen, newer)
            # A rejection that names no observer ends the force of a list only if the list names none either.
            if repeats and older.attributed == seen.attributed and not parts(older, seen):
                if _same_items(older, seen) and _same_items(seen, newer):
                    return seen, False
                same_tools = same_tools or seen
        # No call is bound to anything but tools: the history of the rest is given up before an answer about a tool is.
        return (self.table.seen(self.numbers[0]), True) if same_tools is None else (same_tools, False)

    def _count_until_us(self, time_us: int) -> int:
        """Return the number of observations at or before a time."""
        numbers, times_us = self.numbers, self.table.times_us
        if not numbers or times_us[numbers[-1]] <= time_us:
            return len(numbers)
        return bisect_right(numbers, time_us, key=times_us.__getitem__)


def latest_of_equal(candidates: Iterable[Seen]) -> list[Seen]:
    """Return the latest of each set of observations of equal lists, oldest first."""
    latest: dict[tuple[str, str], Seen] = {}
    for seen in candidates:
        place = (seen.catalogue, seen.completeness)
        known = latest.get(place)
        if known is None or known.position <= seen.position:
            latest.pop(place, None)
            latest[place] = seen
    return sorted(latest.values(), key=position_of)


def _triples(entries: Iterable[Seen]) -> Iterator[tuple[Seen, Seen, Seen]]:
    for (older, seen), (_, newer) in pairwise(pairwise(entries)):
        yield older, seen, newer


def _same_tools(one: Seen, other: Seen) -> bool:
    return (one.catalogue, one.completeness, one.signatures) == (other.catalogue, other.completeness, other.signatures)


def _same_items(one: Seen, other: Seen) -> bool:
    return all(one.listed(subject) == other.listed(subject) for subject in ITEM_SUBJECTS)


def finding_in(seen: Seen, kind: Kind, **more: Any) -> Finding:
    """Return a finding in the snapshot of an observation, at its time if no other is given."""
    return Finding(
        kind=kind,
        server_id=seen.server_id,
        observer_id=seen.observer_id,
        origin=seen.origin,
        snapshot_id=seen.snapshot_id,
        **{"time_us": seen.time_us} | more,
    )
