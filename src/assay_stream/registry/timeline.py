"""What one observer saw on one server, in the order of event time.

The as-of contract: ``as_of(t)`` is the latest observation at or before ``t`` (inclusive); of two at the same time the
later origin wins. Arrival order never matters.

The number of observations kept is bounded. Folding first removes the oldest one whose neighbours saw the same
catalogue: that changes no as-of answer, only which of several equal observations is named. Where there is none it
removes the oldest, and the horizon records that earlier history is gone. A list that arrives later than as many
observations as are kept may therefore change answers.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import Any

from assay_stream.model.facts import Seen
from assay_stream.model.fields import ITEM_SUBJECTS
from assay_stream.model.finding import Finding
from assay_stream.model.kinds import Kind
from assay_stream.model.record import Origin, Position
from assay_stream.model.wire import FactKey
from assay_stream.registry.run_ranges import Place, RunRange, RunRanges
from assay_stream.registry.runs import Row, Shared, row_of, shared_by
from assay_stream.registry.sightings import PackedSightings

BEFORE_ALL_US, AFTER_ALL_US = -(2**63), 2**63 - 1
"""Event times before and after everything."""


def position_of(fact: Seen) -> Position:
    return fact.position


def _time(seen: Seen) -> int:
    return seen.time_us


class Timeline:
    """The observations of one observer on one server.

    Args:
        entries: what holds them, empty.
        number: the observer's number among those of its server.
    """

    __slots__ = ("_entries", "horizon_us", "number", "runs")

    def __init__(self, entries: PackedSightings | None = None, number: int = 0) -> None:
        self._entries = PackedSightings() if entries is None else entries
        self.number = number
        self.horizon_us: int | None = None
        """Event time before which observations may have been folded away."""
        self.runs: tuple[RunRanges, ...] = ()
        """Which of its observations stand in runs of the binding topic, for each partition of the snapshots topic."""

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Seen]:
        return iter(self._entries)

    def keys(self, server_id: str, observer_id: str) -> Iterator[FactKey]:
        """Yield the keys of the facts that make it up."""
        if self.horizon_us is not None:
            yield "horizon", server_id, observer_id
        yield from (seen.key() for seen in self if self.run_of(seen.origin) is None)
        for ranges in self.runs:
            yield from ((kind, server_id, observer_id, *ranges.place, offset) for kind, offset in ranges.facts())

    def add(self, seen: Seen) -> bool:
        """Add an observation, and tell whether it is new."""
        entries, position = self._entries, seen.position
        if not entries or entries[-1].position < position:
            entries.append(seen)
            return True
        index = same = bisect_right(entries, position, key=position_of)
        while same and entries[same - 1].position == position:
            same -= 1
            if entries[same] == seen:
                return False
        entries.insert(index, seen)
        return True

    def extend(self, shared: Shared, rows: list[Row]) -> None:
        """Add observations that come after all others."""
        self._entries.append_rows(shared, rows)

    def ends_with(self, shared: Shared, rows: Sequence[Row]) -> bool:
        """Tell whether these are the latest observations."""
        latest = list(islice(self.newest_first(), len(rows)))[::-1]
        return [(shared_by(seen), row_of(seen)) for seen in latest] == [(shared, row) for row in rows]

    def nth_latest(self, number: int) -> Seen | None:
        """Return the observation that as many are the latest with, ``None`` where there are fewer."""
        return self._entries[-number] if len(self._entries) >= number else None

    def runs_at(self, place: Place) -> RunRanges:
        """Return the runs over one partition, to change them."""
        found = next((ranges for ranges in self.runs if ranges.place == place), None)
        if found is None:
            found = RunRanges(place)
            self.runs = (*self.runs, found)
        return found

    def run_of(self, origin: Origin) -> RunRange | None:
        """Return the run that an observation of this origin stands in."""
        for ranges in self.runs:
            if ranges.place == origin[:2]:
                return ranges.covering(origin.offset)
        return None

    def in_run(self, place: Place, run: RunRange) -> list[Seen]:
        """Return the observations that stand in a run, in their order."""
        return [
            seen for seen in self._entries if run.first <= seen.origin.offset <= run.last and seen.origin[:2] == place
        ]

    def remove(self, origin: Origin) -> Seen | None:
        index = self._entries.index_of(origin)
        return None if index is None else self._entries.pop(index)

    def named(self, snapshot_id: str) -> Iterator[Seen]:
        """Yield the observations with this snapshot id, in their order."""
        return self._entries.named(snapshot_id)

    def at(self, time_us: int) -> Sequence[Seen]:
        latest = self.latest
        if latest is None or latest.time_us < time_us:
            return ()
        first = bisect_left(self._entries, time_us, key=_time)
        return self._entries[first : bisect_right(self._entries, time_us, key=_time)]

    def as_of(self, time_us: int) -> Seen | None:
        return self._entries.stand_at(time_us)[0]

    def span_at(self, time_us: int) -> tuple[int, int]:
        """Return the times from which, and before which, every answer is the same as at this time."""
        seen, next_us = self._entries.stand_at(time_us)
        since_us = BEFORE_ALL_US if seen is None else seen.time_us
        until_us = AFTER_ALL_US if next_us is None else next_us
        if self.horizon_us is None:
            return since_us, until_us
        if self.horizon_us <= time_us:
            return max(since_us, self.horizon_us), until_us
        return since_us, min(until_us, self.horizon_us)

    def is_folded_at(self, time_us: int) -> bool:
        """Tell whether what was seen at a time may have been folded away."""
        return self.horizon_us is not None and time_us < self.horizon_us

    def before(self, position: Position) -> list[Seen]:
        entries = self._entries
        if entries and entries[-1].position < position:
            return list(entries)
        return [seen for seen in entries if seen.position < position]

    def back_from(self, position: Position) -> Iterator[Seen]:
        """Yield the observations before a position, newest first."""
        latest = self.latest
        if latest is None or latest.position < position:
            return self.newest_first()
        entries = self._entries
        before = bisect_left(entries, position, key=position_of)
        return (entries[index] for index in reversed(range(before)))

    def newest_first(self) -> Iterator[Seen]:
        return reversed(self._entries)

    @property
    def latest(self) -> Seen | None:
        return self._entries[-1] if self._entries else None

    def in_force_since(self, position: Position) -> Iterator[tuple[Seen, Position | None]]:
        """Yield what was in force at a position and after it, each with the position at which its force ended."""
        latest = self.latest
        if latest is None or latest.position <= position:
            yield from () if latest is None else ((latest, None),)
            return
        entries = self._entries
        first = max(0, bisect_right(entries, position, key=position_of) - 1)
        later = entries.starting_at(first)
        seen = next(later)
        for following in later:
            yield seen, following.position
            seen = following
        yield seen, None

    def first_after(self, position: Position) -> Seen | None:
        """Return the earliest observation after a position."""
        latest = self.latest
        if latest is None or latest.position <= position:
            return None
        index = bisect_right(self._entries, position, key=position_of)
        return self._entries[index] if index < len(self._entries) else None

    def one_too_many(
        self, entries_max: int, parts: Callable[[Seen, Seen], bool] = lambda _older, _newer: False
    ) -> tuple[Seen, bool] | None:
        """Return the observation to fold away, and whether history is lost with it; ``None`` if there is room."""
        entries = self._entries
        if len(entries) <= entries_max:
            return None
        same_tools: Seen | None = None
        for older, seen, newer in _triples(entries):
            repeats = _same_tools(older, seen) and _same_tools(seen, newer)
            # A rejection that names no observer ends the force of a list only if the list names none either.
            if repeats and older.attributed == seen.attributed and not parts(older, seen):
                if _same_items(older, seen) and _same_items(seen, newer):
                    return seen, False
                same_tools = same_tools or seen
        # No call is bound to anything but tools: the history of the rest is given up before an answer about a tool is.
        return (entries[0], True) if same_tools is None else (same_tools, False)


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
    """Yield each entry that has neighbours between these."""
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
