"""Which observers of a server may have seen a snapshot id, in eight bytes for each observation and some room.

An entry is a part of the id's hash and a part of the observer's number. It names candidates, never an answer: the
caller looks into their timelines. So colliding hashes don't change what is found, and the hash may differ from process
to process.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence

_NUMBERS = 1 << 24
"""Observers that an entry tells apart: 40 bits are left for the hash."""
_PART_MAX = 1_024
"""Entries of a part before it is split, so that adding one moves a few kilobytes, however many there are."""


class SnapshotIndex:
    """The index of one server. Observers are numbered from 0."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts = [array("Q")]
        """Sorted; only the first may be empty."""

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def add(self, snapshot_ids: Sequence[str], number: int) -> None:
        """Add observations of one observer."""
        for snapshot_id in snapshot_ids:
            entry = _first(snapshot_id) + number % _NUMBERS
            place = self._place(entry)
            part = self._parts[place]
            insort(part, entry)
            if len(part) > _PART_MAX:
                half = len(part) // 2
                self._parts[place : place + 1] = [part[:half], part[half:]]

    def remove(self, snapshot_id: str, number: int) -> None:
        """Remove an observation that was added."""
        entry = _first(snapshot_id) + number % _NUMBERS
        place = self._place(entry)
        part = self._parts[place]
        del part[bisect_left(part, entry)]
        following = self._parts[place + 1 : place + 2]
        if following and len(part) + len(following[0]) <= _PART_MAX // 2:
            self._parts[place : place + 2] = [part + following[0]]
        elif not part and place:
            del self._parts[place]

    def candidates(self, snapshot_id: str, observers: int) -> list[int]:
        """Return the numbers of the observers that may have seen a snapshot id, in order.

        Args:
            observers: how many there are.
        """
        first, found = _first(snapshot_id), set[int]()
        for place in range(self._place(first), len(self._parts)):
            part = self._parts[place]
            begin, end = bisect_left(part, first), bisect_left(part, first + _NUMBERS)
            found.update(entry - first for entry in part[begin:end])
            if end < len(part):
                break
        return sorted(number for low in found for number in range(low, observers, _NUMBERS))

    def _place(self, entry: int) -> int:
        """Return the last part that an entry may stand in."""
        return bisect_right(self._parts, entry, lo=1, key=_least) - 1


def _least(part: array[int]) -> int:
    return part[0]


def _first(snapshot_id: str) -> int:
    """Return the entry of observer 0."""
    return _hash(snapshot_id) % (1 << 40) * _NUMBERS


def _hash(snapshot_id: str) -> int:
    return hash(snapshot_id)
