"""An index over a server's observations, for what every record asks about them.

Without it each question takes time in the number of observers or the length of history, and both are up to whoever
writes observations. The index follows from the observations alone: it is built on first use and kept up to date, so
that a restart builds what was there. A process that never asks, such as a join, never builds it.

An observation is a row of three numbers: its time, its offset, and which of the known ``Shared`` it has; each order
holds the number of the row. So a list that repeats another adds bytes, not objects, and an answer is what the
observation shares with others, not its id.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from assay_stream.model.facts import Rejection, Seen
from assay_stream.model.fields import ITEM_SUBJECTS, Subject
from assay_stream.model.record import Origin, Position
from assay_stream.registry.runs import Shared, shared_by
from assay_stream.registry.timeline import position_of

_Place = tuple[str, int]
_Key = TypeVar("_Key")


class _Numbered:
    """What observations share, numbered while an observation has it."""

    __slots__ = ("_counts", "_free", "_numbers", "shared")

    def __init__(self) -> None:
        self.shared: list[Shared | None] = []
        self._numbers: dict[Shared, int] = {}
        self._counts = array("Q")
        self._free: list[int] = []

    def take(self, shared: Shared) -> int:
        """Return the number for another observation."""
        number = self._numbers.get(shared)
        if number is None:
            if self._free:
                number = self._free.pop()
                self.shared[number] = shared
            else:
                number = len(self.shared)
                self.shared.append(shared)
                self._counts.append(0)
            self._numbers[shared] = number
        self._counts[number] += 1
        return number

    def number_of(self, shared: Shared) -> int:
        return self._numbers[shared]

    def give_back(self, number: int) -> None:
        """Forget an observation that has a number, and the number with the last of them."""
        self._counts[number] -= 1
        shared = self.shared[number]
        if not self._counts[number] and shared is not None:
            del self._numbers[shared]
            self.shared[number] = None
            self._free.append(number)

    def at(self, number: int) -> Shared:
        shared = self.shared[number]
        if shared is None:
            raise AssertionError("a row has a number that was taken for it")
        return shared


class _Table:
    """Time, offset and kind of each observation, under a number that the orders hold."""

    __slots__ = ("_free", "kinds", "numbered", "offsets", "times_us")

    def __init__(self) -> None:
        self.numbered = _Numbered()
        self.times_us = array("q")
        self.offsets = array("q")
        self.kinds = array("I")
        self._free = array("I")

    def take(self, time_us: int, offset: int, shared: Shared) -> int:
        """Return the number for another observation."""
        kind = self.numbered.take(shared)
        if self._free:
            row = self._free.pop()
            self.times_us[row], self.offsets[row], self.kinds[row] = time_us, offset, kind
            return row
        self.times_us.append(time_us)
        self.offsets.append(offset)
        self.kinds.append(kind)
        return len(self.kinds) - 1

    def give_back(self, row: int) -> None:
        self.numbered.give_back(self.kinds[row])
        self._free.append(row)

    def shared(self, row: int) -> Shared:
        return self.numbered.at(self.kinds[row])

    def position(self, row: int) -> Position:
        shared = self.shared(row)
        return self.times_us[row], Origin(shared.topic, shared.partition, self.offsets[row])


class _Rows:
    """Some rows of a table in the order of their positions."""

    __slots__ = ("_rows", "_table")

    def __init__(self, table: _Table) -> None:
        self._table = table
        self._rows = array("I")

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Position:
        return self._table.position(self._rows[index])

    def add(self, position: Position, row: int) -> None:
        is_last = not len(self) or self[-1] <= position
        self._rows.insert(len(self) if is_last else bisect_left(self, position), row)

    def find(self, position: Position, kind: int) -> int:
        """Return a row that is there."""
        index = bisect_left(self, position)
        while self._table.kinds[self._rows[index]] != kind:
            index += 1
        return self._rows[index]

    def remove(self, position: Position, row: int) -> None:
        del self._rows[self._rows.index(row, bisect_left(self, position))]

    def before(self, position: Position) -> int:
        """Return how many stand before a position."""
        return len(self) if not len(self) or self[-1] < position else bisect_left(self, position)

    def back_from(self, position: Position) -> Iterator[Shared]:
        """Yield those before a position, newest first."""
        for index in reversed(range(self.before(position))):
            yield self._table.shared(self._rows[index])

    def since(self, position: Position) -> Iterator[Shared]:
        """Yield those at or after a position."""
        return map(self._table.shared, self._rows[self.before(position) :])

    @property
    def latest_us(self) -> int:
        """Event time of the latest one."""
        return self._table.times_us[self._rows[-1]]


class Observations:
    """The observations of one server by anybody, in order; a position is that of an observation."""

    def __init__(self, observations: Iterable[Seen]) -> None:
        self._table = _Table()
        self._all = _Rows(self._table)
        self._of_rights: dict[str | None, _Rows] = {}
        self._stating: dict[Subject, _Rows] = {}
        self._complete: dict[str, _Rows] = {}
        self._of_place: dict[_Place, _Rows] = {}
        self._offsets: dict[_Place, array[int]] = {}
        self._uses: Counter[tuple[str, str]] = Counter()
        for seen in sorted(observations, key=position_of):
            self.add(seen)

    def add(self, seen: Seen) -> None:
        row = self._table.take(seen.time_us, seen.origin.offset, shared_by(seen))
        for rows in self._rows_of(seen):
            rows.add(seen.position, row)
        offsets = self._offsets.setdefault(seen.origin[:2], array("q"))
        offsets.insert(bisect_left(offsets, seen.origin.offset), seen.origin.offset)
        self._uses.update(_uses_of(seen))

    def remove(self, seen: Seen) -> None:
        row = self._all.find(seen.position, self._table.numbered.number_of(shared_by(seen)))
        for rows in self._rows_of(seen):
            rows.remove(seen.position, row)
        place = seen.origin[:2]
        offsets = self._offsets[place]
        del offsets[bisect_left(offsets, seen.origin.offset)]
        drop_empty(self._offsets, place)
        drop_empty(self._of_place, place)
        drop_empty(self._of_rights, seen.auth_context)
        drop_empty(self._complete, seen.catalogue)
        for subject in ITEM_SUBJECTS:
            drop_empty(self._stating, subject)
        for use in _uses_of(seen):
            take_one(self._uses, use)
        self._table.give_back(row)

    def __len__(self) -> int:
        return len(self._all)

    @property
    def any_complete(self) -> bool:
        """Whether anybody observed a complete list."""
        return bool(self._complete)

    @property
    def latest_us(self) -> int:
        """Event time of the latest observation, 0 where there is none."""
        return self._all.latest_us if len(self._all) else 0

    def back_from(self, position: Position) -> Iterator[Shared]:
        """Yield what the observations before a position share with others, newest first."""
        return self._all.back_from(position)

    def back_under_rights(self, position: Position, auth_context: str | None) -> Iterator[Shared]:
        """Yield the same of those under some rights."""
        return _back_from(self._of_rights.get(auth_context), position)

    def back_stating(self, position: Position, subject: Subject) -> Iterator[Shared]:
        """Yield the same of those that state prompts, or templates."""
        return _back_from(self._stating.get(subject), position)

    def observers_since(self, position: Position) -> Iterable[str]:
        """Return who observed anything at or after a position, each once."""
        return dict.fromkeys(shared.observer_id for shared in self._all.since(position))

    def was_shown_complete(self, catalogue: str, position: Position) -> bool:
        """Tell whether a complete list with this catalogue was observed before a position."""
        rows = self._complete.get(catalogue)
        return rows is not None and rows[0] < position

    def all_before(self, rejection: Rejection) -> bool:
        """Tell whether a rejection came after every observation."""
        own = rejection.origin[:2]
        return all(
            self._offsets[place][-1] < rejection.origin.offset if place == own else rows.latest_us <= rejection.time_us
            for place, rows in self._of_place.items()
        )

    def uses(self, kind: str, digest: str) -> bool:
        """Tell whether an observation names a ``catalogue``, ``signatures``, or a list of a ``Subject``."""
        return (kind, digest) in self._uses

    def _rows_of(self, seen: Seen) -> Iterator[_Rows]:
        yield self._all
        yield self._made(self._of_rights, seen.auth_context)
        yield self._made(self._of_place, seen.origin[:2])
        for subject in ITEM_SUBJECTS:
            if seen.listed(subject) is not None:
                yield self._made(self._stating, subject)
        if seen.completeness == "complete":
            yield self._made(self._complete, seen.catalogue)

    def _made(self, rows: dict[_Key, _Rows], key: _Key) -> _Rows:
        found = rows.get(key)
        if found is None:
            found = rows[key] = _Rows(self._table)
        return found


def _back_from(rows: _Rows | None, position: Position) -> Iterator[Shared]:
    return iter(()) if rows is None else rows.back_from(position)


def take_one(counts: Counter[_Key], key: _Key) -> None:
    """Count one less of a key that is there, and drop it at zero."""
    counts[key] -= 1
    if not counts[key]:
        del counts[key]


def drop_empty(collections: dict[_Key, Any], key: _Key) -> None:
    """Drop a key whose collection is empty."""
    if key in collections and not collections[key]:
        del collections[key]


def _uses_of(seen: Seen) -> Iterator[tuple[str, str]]:
    yield "catalogue", seen.catalogue
    if seen.signatures is not None:
        yield "signatures", seen.signatures
    for subject in ITEM_SUBJECTS:
        listed = seen.listed(subject)
        if listed is not None:
            yield subject.value, listed
