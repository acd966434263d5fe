"""Which observers of a server may have seen a snapshot id: four bytes for an observation, eight on a large server.

An entry is a part of the id's hash and a part of the observer's number. It names candidates, never an answer: whoever
asks looks into their timelines. So colliding hashes do not change what is found, and the hash may differ from process
to process.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Sequence

_SHORT_NUMBERS = 1 << 8
"""Observers that an entry of four bytes tells apart. It has 24 bits left for the hash."""
_SHORT_MAX = 1 << 20
"""The most entries of four bytes: with more, one id in sixteen would name an observer that has not seen it."""
_LONG_NUMBERS = 1 << 24
_RECENT_MAX = 64
_GROWTH = 4
"""Runs are merged until each is this many times as long as the next: an entry is copied a few times, and few runs are
searched."""
_RUN_MAX = 1 << 19
"""No merge makes a longer run: it would keep the worker from all else for too long."""
_MERGED_AS_LIST_MAX = 16_384
"""Entries that are merged as objects, which takes less time but 40 bytes for each."""


class SnapshotIndex:
    """The index of one server. Observers are numbered from 0."""

    __slots__ = ("_long", "_short")

    def __init__(self) -> None:
        self._short = _Table("I", _SHORT_NUMBERS)
        self._long: _Table | None = None

    def __len__(self) -> int:
        return len(self._short) + (0 if self._long is None else len(self._long))

    def add(self, snapshot_ids: Sequence[str], number: int) -> None:
        """Add observations of one observer."""
        if number < _SHORT_NUMBERS and len(self._short) + len(snapshot_ids) <= _SHORT_MAX:
            self._short.add(snapshot_ids, number)
            return
        if self._long is None:
            self._long = _Table("Q", _LONG_NUMBERS)
        self._long.add(snapshot_ids, number)

    def remove(self, snapshot_id: str, number: int) -> None:
        """Remove an observation that was added."""
        # Ids that share an entry of the long table share one of the short table as well, but not vice versa.
        if self._long is None or not self._long.remove(snapshot_id, number):
            self._short.remove(snapshot_id, number)

    def candidates(self, snapshot_id: str, observers: int) -> list[int]:
        """Return the numbers of the observers that may have seen a snapshot id, in order.

        Args:
            observers: how many there are.
        """
        numbers = self._short.numbers(snapshot_id)
        if self._long is not None:
            for number in self._long.numbers(snapshot_id):
                numbers.update(range(number, observers, _LONG_NUMBERS))
        return sorted(numbers)


class _Table:
    """Entries of one width, in sorted runs; the last run takes what is added.

    Args:
        typecode: of an entry, as ``array`` has it.
        numbers: how many observers an entry tells apart.
    """

    __slots__ = ("_hashes", "_lengths", "_numbers", "_runs", "_typecode")

    def __init__(self, typecode: str, numbers: int) -> None:
        self._typecode = typecode
        self._numbers = numbers
        self._hashes = (1 << 8 * array(typecode).itemsize) // numbers
        self._runs = [array(typecode)]
        self._lengths: list[int] = []
        """Of each run but the last: how long it was when it was made."""

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    def add(self, snapshot_ids: Sequence[str], number: int) -> None:
        """Add observations of one observer."""
        entries = [self._first(name) + number % self._numbers for name in snapshot_ids]
        if len(entries) == 1:
            insort(self._runs[-1], entries[0])
        else:
            self._runs[-1] = array(self._typecode, sorted([*self._runs[-1], *entries]))
        if len(self._runs[-1]) < _RECENT_MAX:
            return
        while len(self._runs) > 1:
            longer, shorter = self._runs[-2:]
            if len(longer) >= _GROWTH * len(shorter) or len(longer) + len(shorter) > _RUN_MAX:
                break
            self._runs[-2:] = [self._merged(longer, shorter)]
            self._lengths.pop()
        self._lengths.append(len(self._runs[-1]))
        self._runs.append(array(self._typecode))

    def remove(self, snapshot_id: str, number: int) -> bool:
        """Remove one entry, and tell whether there was one."""
        entry = self._first(snapshot_id) + number % self._numbers
        for number in reversed(range(len(self._runs))):
            run = self._runs[number]
            index = bisect_left(run, entry)
            if index < len(run) and run[index] == entry:
                del run[index]
                if number < len(self._lengths) and len(run) <= self._lengths[number] // 2:
                    self._make_smaller(number)
                return True
        return False

    def numbers(self, snapshot_id: str) -> set[int]:
        """Return the numbers of observers, modulo those an entry tells apart, that have an entry with the id's hash."""
        first, found = self._first(snapshot_id), set()
        for run in self._runs:
            index = bisect_left(run, first)
            while index < len(run) and run[index] < first + self._numbers:
                found.add(run[index] - first)
                index += 1
        return found

    def _first(self, snapshot_id: str) -> int:
        return _hash(snapshot_id) % self._hashes * self._numbers

    def _make_smaller(self, number: int) -> None:
        """Give back the room of a run that has lost half of its entries: merge it with a neighbour, or copy it."""
        for first in (number, number - 1):
            pair = self._runs[first : first + 2]
            if 0 <= first < len(self._lengths) - 1 and sum(map(len, pair)) <= _RUN_MAX:
                merged = self._merged(*pair)
                self._runs[first : first + 2] = [merged]
                self._lengths[first : first + 2] = [len(merged)]
                return
        self._runs[number] = self._runs[number][:]
        self._lengths[number] = len(self._runs[number])

    def _merged(self, one: array[int], other: array[int]) -> array[int]:
        if len(one) + len(other) <= _MERGED_AS_LIST_MAX:
            return array(self._typecode, sorted(one + other))
        shorter, longer = sorted((one, other), key=len)
        merged, begin = array(self._typecode), 0
        for entry in shorter:
            end = bisect_left(longer, entry, begin)
            merged.extend(longer[begin:end])
            merged.append(entry)
            begin = end
        merged.extend(longer[begin:])
        return merged


def _hash(snapshot_id: str) -> int:
    return hash(snapshot_id)
