"""What one observer saw on one server, in the order of event time, and what invalidates it.

The as-of contract: ``as_of(t)`` is the latest observation at or before ``t`` (inclusive); of two at the same time the
later origin wins. Arrival order never matters.

The number of observations kept is bounded. Folding first removes the oldest one whose neighbours saw the same
catalogue: that changes no as-of answer, only which of several equal observations is named. Where there is none it
removes the oldest, and the horizon records that earlier history is gone. A list older than all kept observations may
therefore change answers.

What ends the force of an observation (``Endings``):

1. A rejection ends what precedes it in the log (``Rejection.ends``): of the observer that its header names,
   or, where none is named, of every observer whose lists name none.
2. An announcement takes its place in its observer's timeline by event time: from then until the next list
   nothing is in force for the observer.
3. A record that names no observer may come from any observer that sends no header. None of these is bound to what
   others saw before it either.
4. An observer whose own record was refused, or that got an announcement, is bound to nothing that others saw: what it
   was shown is not known, and may differ.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from operator import attrgetter
from typing import Any

from assay_stream.bindings.sightings import OrderedRows, Row, Sightings
from assay_stream.model.facts import Announcement, Rejection, Seen
from assay_stream.model.fields import ITEM_SUBJECTS
from assay_stream.model.record import Origin, Position
from assay_stream.model.wire import FactKey

BEFORE_ALL_US, AFTER_ALL_US = -(2**63), 2**63 - 1

_position, _time = attrgetter("position"), attrgetter("time_us")
_NO_CUTS: dict[Origin, tuple[int, ...]] = {}


class Timeline(OrderedRows):
    """The observations of one observer on one server.

    Args:
        table: holds them; ``None`` for one of its own.
    """

    __slots__ = ("cuts", "horizon_us")

    def __init__(self, table: Sightings | None = None) -> None:
        super().__init__(Sightings() if table is None else table)
        self.horizon_us: int | None = None
        """Event time before which observations may have been folded away."""
        self.cuts: dict[Origin, tuple[int, ...]] = _NO_CUTS
        """Contents of the cuts of runs, by the origin in their keys. Never changed in place."""

    def __iter__(self) -> Iterator[Seen]:
        return map(self.table.seen, self.numbers)

    def keys(self, server_id: str, observer_id: str) -> Iterator[FactKey]:
        if self.horizon_us is not None:
            yield "horizon", server_id, observer_id
        runs = {number: self.table.run_of(number) for number in self.numbers}
        for number in (number for number, run in runs.items() if run is None):
            yield "seen", server_id, observer_id, *self.table.origin(number)
        yield from (("seen_run", server_id, observer_id, *run) for run in {*runs.values()} if run is not None)
        yield from (("run_cut", server_id, observer_id, *key) for key in self.cuts)

    def add(self, shared: Seen, rows: Sequence[Row]) -> Sequence[int]:
        """Add observations of one kind, in their order, and return the rows that are new; known ones join their run."""
        topic, partition, run = shared.origin
        index = self.count_before((rows[0][0], Origin(topic, partition, rows[0][1])))
        if index == len(self):
            added = self.table.add(shared, rows)
            self.numbers += added
            return added
        added, known = array("I"), list[int]()
        for row in rows:
            position = row[0], Origin(topic, partition, row[1])
            while index < len(self) and (here := self.table.position(self.numbers[index])) <= position:
                if here == position:
                    known.append(self.numbers[index])
                    break
                index += 1
            else:
                added += self.table.add(shared, [row])
                self.numbers.insert(index, added[-1])
        if run >= 0:
            self.table.put_in_run(known, shared)
        return added

    def row_at(self, origin: Origin) -> int | None:
        table = self.table
        for number, offset in zip(self.numbers, map(table.offsets.__getitem__, self.numbers), strict=True):
            if offset == origin.offset and table.origin(number) == origin:
                return number
        return None

    def remove(self, number: int) -> None:
        self.discard(number, self.table.position(number))
        self.table.remove(number)

    def clear(self) -> None:
        for number in self.numbers:
            self.table.remove(number)
        self.numbers = array("I")

    def in_run(self, key: Origin) -> list[int]:
        return [number for number in self.numbers if self.table.run_of(number) == key]

    def is_cut(self, origin: Origin) -> bool:
        return any(key[:2] == origin[:2] and origin.offset - key.offset in gone for key, gone in self.cuts.items())

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

    def back_from(self, position: Position) -> Iterator[Seen]:
        return map(self.table.seen, reversed(self.numbers[: self.count_before(position)]))

    def newest_first(self) -> Iterator[Seen]:
        return map(self.table.seen, reversed(self.numbers))

    @property
    def latest(self) -> Seen | None:
        return self.table.seen(self.numbers[-1]) if self.numbers else None

    def in_force_since(self, position: Position) -> Iterator[tuple[Seen, Position | None]]:
        """Yield what was in force at a position and after it, each with the position at which its force ended."""
        later = self.numbers[max(0, self.count_before(position, bisect_right) - 1) :]
        ends = [*map(self.table.position, later[1:]), None]
        return zip(map(self.table.seen, later), ends, strict=True)

    def first_after(self, position: Position) -> Seen | None:
        count = self.count_before(position, bisect_right)
        return self.table.seen(self.numbers[count]) if count < len(self.numbers) else None

    def one_too_many(self, entries_max: int, parts: Callable[[Seen, Seen], bool]) -> tuple[Seen, bool] | None:
        """Return the observation to fold away, and whether history is lost with it; ``None`` if there is room."""
        if len(self) <= entries_max:
            return None
        same_tools: Seen | None = None
        for (older, seen), (_, newer) in pairwise(pairwise(self)):
            repeats = _same_tools(older, seen) and _same_tools(seen, newer)
            # A rejection that names no observer ends the force of a list only if the list names none either.
            if repeats and older.attributed == seen.attributed and not parts(older, seen):
                if _same_items(older, seen) and _same_items(seen, newer):
                    return seen, False
                same_tools = same_tools or seen
        # No call is bound to anything but tools: the history of the rest is given up before an answer about a tool is.
        return (self.table.seen(self.numbers[0]), True) if same_tools is None else (same_tools, False)

    def _count_until_us(self, time_us: int) -> int:
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
    return sorted(latest.values(), key=_position)


def _same_tools(one: Seen, other: Seen) -> bool:
    return (one.catalogue, one.completeness, one.signatures) == (other.catalogue, other.completeness, other.signatures)


def _same_items(one: Seen, other: Seen) -> bool:
    return all(one.listed(subject) == other.listed(subject) for subject in ITEM_SUBJECTS)


_Ends = dict[str | None, list[Any]]
"""By the observer that they name, ``None`` for none; ordered by position."""


@dataclass(slots=True, eq=False)
class Endings:
    rejections: _Ends = field(default_factory=dict)
    announcements: _Ends = field(default_factory=dict)
    unlisted: Rejection | None = None
    """Stands for the rejections of observers without a list that were folded away."""
    without_list: set[str] = field(default_factory=set)
    """Observers with endings that never had a list."""
    _observer_of: dict[Origin, str | None] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Rejection | Announcement]:
        if self.unlisted is not None:
            yield self.unlisted
        yield from chain.from_iterable((*self.rejections.values(), *self.announcements.values()))

    def concern(self, observer_id: str) -> bool:
        return observer_id in self.rejections or observer_id in self.announcements

    def of(self, observer_id: str) -> list[Rejection | Announcement]:
        return [*self.rejections_of(observer_id), *self.announcements_of(observer_id)]

    def rejections_of(self, observer_id: str | None) -> Sequence[Rejection]:
        """Return the rejections that name an observer (with ``None``, those that name none), ordered by position."""
        return self.rejections.get(observer_id, ())

    def announcements_of(self, observer_id: str) -> Sequence[Announcement]:
        return self.announcements.get(observer_id, ())

    def add(self, fact: Rejection | Announcement, listed: Container[str]) -> None:
        """Add a fact, replacing an earlier form of it."""
        self.remove(fact.origin)
        observer_id = self._observer_of[fact.origin] = fact.observer_id
        if isinstance(fact, Rejection) and fact.unlisted:
            self.unlisted = fact
            return
        if observer_id is not None and observer_id not in listed and not self.concern(observer_id):
            self.without_list.add(observer_id)
        ends = self.rejections if isinstance(fact, Rejection) else self.announcements
        insort(ends.setdefault(observer_id, []), fact, key=_position)

    def remove(self, origin: Origin) -> str | None:
        """Remove the fact with this origin, if any, and return the observer that it names."""
        if origin not in self._observer_of:
            return None
        observer_id = self._observer_of.pop(origin)
        if self.unlisted is not None and self.unlisted.origin == origin:
            self.unlisted = None
        for ends in (self.rejections, self.announcements):
            if kept := [end for end in ends.pop(observer_id, ()) if end.origin != origin]:
                ends[observer_id] = kept
        if observer_id is not None and not self.concern(observer_id):
            self.without_list.discard(observer_id)
        return observer_id

    def rejected(self, seen: Seen, time_us: int) -> bool:
        """Return True if a rejection had ended the force of an observation by some time.

        The order of the log counts, not that of the clocks: dating a list ahead keeps nothing in force.
        """
        concerned = (self.rejections_of(seen.observer_id), () if seen.attributed else self.rejections_of(None))
        return any(end.ends(seen) for ends in concerned for end in ends if end.time_us <= time_us)

    def in_doubt(self, seen: Seen, time_us: int) -> bool:
        """Return True if a rejection that names no observer followed an observation of any observer by some time."""
        return any(end.is_after(seen) for end in self.rejections_of(None) if end.time_us <= time_us)

    def refused_own(self, observer_id: str, seen: Seen | None, time_us: int) -> bool:
        """Return True if the latest record of an observer by some time was refused."""
        if seen is None and self.unlisted is not None and self.unlisted.time_us <= time_us:
            return True
        return any(seen is None or end.ends(seen) for end in self.rejections_of(observer_id) if end.time_us <= time_us)

    def announced(self, observer_id: str, seen: Seen | None, time_us: int) -> Announcement | None:
        """Return the announcement that an observer got by some time and has seen no list since."""
        announced = self.announcements_of(observer_id)
        index = bisect_right(announced, time_us, key=_time)
        if not index or (seen is not None and announced[index - 1].position < seen.position):
            return None
        return announced[index - 1]

    def parts(self, older: Seen, newer: Seen) -> bool:
        """Return True if the force of an observation had ended when its observer made the next one."""
        announced = self.announcements_of(older.observer_id)
        index = bisect_right(announced, older.position, key=_position)
        if index < len(announced) and announced[index].position < newer.position:
            return True
        concerned = chain(self.rejections_of(older.observer_id), self.rejections_of(None))
        return any(end.is_after(older) and not end.is_after(newer) for end in concerned)

    def unanswered(
        self, timeline: Timeline | None, announcement: Announcement, *, limit_us: int, announcements_max: int
    ) -> tuple[int, int]:
        """Return since when, and how often, an observer got announcements without a list that lasts.

        A list that is declared out of date within the limit does not count: otherwise a server could keep its calls
        unbound forever by sending an announcement after each list.
        """
        announced = self.announcements_of(announcement.observer_id)
        index = bisect_left(announced, announcement.position, key=_position)
        first, count = announcement, 1
        while index > 0 and count < announcements_max:
            index -= 1
            answer = None if timeline is None else timeline.first_after(announced[index].position)
            if answer is not None and first.time_us - answer.time_us >= limit_us:
                break
            first, count = announced[index], count + 1
        return first.time_us, count

    def times_us(self, observer_id: str | None) -> Iterator[int]:
        """Yield the event times at which what is in force for an observer may end."""
        if observer_id is None:
            return (end.time_us for end in self)
        return (end.time_us for end in chain(self.rejections_of(None), self.of(observer_id)))
