"""What ended the force of observations on one server, by observer.

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

from bisect import bisect_left, bisect_right, insort
from collections.abc import Container, Iterator
from itertools import chain

from assay_stream.bindings.timeline import Timeline
from assay_stream.model.facts import Announcement, Rejection, Seen
from assay_stream.model.record import Origin, Position


class OwnEnds:
    """What ended the force of one observer's observations, each kind ordered by position."""

    __slots__ = ("announcements", "rejections")

    def __init__(self) -> None:
        self.rejections: list[Rejection] = []
        self.announcements: list[Announcement] = []

    def __iter__(self) -> Iterator[Rejection | Announcement]:
        yield from self.rejections
        yield from self.announcements

    def __bool__(self) -> bool:
        return bool(self.rejections or self.announcements)

    def last_origin(self) -> Origin:
        return max(end.origin for end in self)


class Endings:
    __slots__ = ("_observer_of", "own", "unattributed", "unlisted", "without_list")

    def __init__(self) -> None:
        self.own: dict[str, OwnEnds] = {}
        """Endings by the observer they are about."""
        self.unattributed: list[Rejection] = []
        """Rejections that name no observer."""
        self.unlisted: Rejection | None = None
        """Stands for the rejections of observers without a list that were folded away."""
        self.without_list: set[str] = set()
        """Observers in ``own`` that never had a list."""
        self._observer_of: dict[Origin, str | None] = {}

    def __iter__(self) -> Iterator[Rejection | Announcement]:
        if self.unlisted is not None:
            yield self.unlisted
        yield from self.unattributed
        for own in self.own.values():
            yield from own

    def rejections(self) -> list[Rejection]:
        return sorted((end for end in self if isinstance(end, Rejection)), key=_position)

    def rejections_of(self, observer_id: str | None) -> list[Rejection]:
        """Return the rejections that name an observer (with ``None``, those that name none), ordered by position."""
        if observer_id is None:
            return self.unattributed
        own = self.own.get(observer_id)
        return [] if own is None else own.rejections

    def announcements_of(self, observer_id: str) -> list[Announcement]:
        own = self.own.get(observer_id)
        return [] if own is None else own.announcements

    def add(self, fact: Rejection | Announcement, listed: Container[str]) -> None:
        """Add a fact, replacing an earlier form of it."""
        self.remove(fact.origin)
        self._observer_of[fact.origin] = fact.observer_id
        if isinstance(fact, Rejection) and fact.observer_id is None:
            if fact.unlisted:
                self.unlisted = fact
            else:
                insort(self.unattributed, fact, key=_position)
            return
        observer_id = fact.observer_id or ""
        own = self.own.get(observer_id)
        if own is None:
            own = self.own[observer_id] = OwnEnds()
            if observer_id not in listed:
                self.without_list.add(observer_id)
        if isinstance(fact, Rejection):
            insort(own.rejections, fact, key=_position)
        else:
            insort(own.announcements, fact, key=_position)

    def remove(self, origin: Origin) -> str | None:
        """Remove the fact with this origin, if any, and return the observer that it names."""
        if origin not in self._observer_of:
            return None
        observer_id = self._observer_of.pop(origin)
        if observer_id is None:
            if self.unlisted is not None and self.unlisted.origin == origin:
                self.unlisted = None
            self.unattributed = [kept for kept in self.unattributed if kept.origin != origin]
            return None
        own = self.own[observer_id]
        own.rejections = [kept for kept in own.rejections if kept.origin != origin]
        own.announcements = [kept for kept in own.announcements if kept.origin != origin]
        if not own:
            del self.own[observer_id]
            self.without_list.discard(observer_id)
        return observer_id

    def has_listed(self, observer_id: str) -> None:
        self.without_list.discard(observer_id)

    def rejected(self, seen: Seen, time_us: int) -> bool:
        """Return True if a rejection had ended the force of an observation by some time.

        The order of the log counts, not that of the clocks: dating a list ahead keeps nothing in force.
        """
        concerned = (self.rejections_of(seen.observer_id), () if seen.attributed else self.unattributed)
        return any(end.ends(seen) for ends in concerned for end in ends if end.time_us <= time_us)

    def in_doubt(self, seen: Seen, time_us: int) -> bool:
        """Return True if a rejection that names no observer followed an observation of any observer by some time."""
        return any(end.is_after(seen) for end in self.unattributed if end.time_us <= time_us)

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

    def is_announced_between(self, observer_id: str, earlier: Position, later: Position) -> bool:
        announced = self.announcements_of(observer_id)
        index = bisect_right(announced, earlier, key=_position)
        return index < len(announced) and announced[index].position < later

    def parts(self, older: Seen, newer: Seen) -> bool:
        """Return True if the force of an observation had ended when its observer made the next one."""
        if self.is_announced_between(older.observer_id, older.position, newer.position):
            return True
        concerned = chain(self.rejections_of(older.observer_id), self.unattributed)
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
        return (end.time_us for end in chain(self.unattributed, self.own.get(observer_id, ())))


def _position(fact: Rejection | Announcement) -> Position:
    return fact.position


def _time(fact: Announcement) -> int:
    return fact.time_us
