"""Which observers of a server may have seen a snapshot id: eight bytes for each observation.

An entry is a part of the id's hash and a part of the observer's number. It names candidates, never an answer: whoever
asks looks into their timelines. So neither colliding hashes nor entries of observations that are gone change what is
found, and the hash may differ from process to process.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence

_NUMBER_BITS = 24
_NUMBERS = 1 << _NUMBER_BITS
_HASHES = 1 << (64 - _NUMBER_BITS)
_RECENT_MIN = 64
_RECENT_PART = 16
"""One part in as many of the entries waits to be sorted in among the others: inserting moves that part alone."""
_STALE_PART = 8
"""One part in as many of the entries may stand for observations that are gone before all are collected anew."""


class SnapshotIndex:
    """The index of one server. Observers are numbered from 0."""

    __slots__ = ("_entries", "_recent", "_stale")

    def __init__(self) -> None:
        self._entries = array("Q")
        self._recent = array("Q")
        self._stale = 0

    def __len__(self) -> int:
        return len(self._entries) + len(self._recent)

    def add(self, snapshot_ids: Sequence[str], number: int) -> None:
        """Add observations of one observer."""
        entries = [_first_entry(name) | number % _NUMBERS for name in snapshot_ids]
        if len(entries) == 1:
            insort(self._recent, entries[0])
        else:
            self._recent = array("Q", sorted([*self._recent, *entries]))
        if len(self._recent) > max(_RECENT_MIN, len(self._entries) // _RECENT_PART):
            self._entries = _merged(self._entries, self._recent)
            self._recent = array("Q")

    def remove_one(self) -> bool:
        """Count an observation that is gone, and tell whether it is time to ``renew``."""
        self._stale += 1
        return self._stale > max(_RECENT_MIN, len(self) // _STALE_PART)

    def renew(self, named: Iterable[tuple[str, int]]) -> None:
        """Collect the entries anew from all observations, given as snapshot id and observer's number."""
        self._entries = array("Q", sorted(_first_entry(name) | number % _NUMBERS for name, number in named))
        self._recent = array("Q")
        self._stale = 0

    def candidates(self, snapshot_id: str, observers: int) -> Iterator[int]:
        """Yield the numbers of the observers that may have seen a snapshot id, in order.

        Args:
            observers: how many there are.
        """
        first = _first_entry(snapshot_id)
        numbers = {entry - first for entries in (self._entries, self._recent) for entry in _range(entries, first)}
        for number in sorted(numbers):
            yield from range(number, observers, _NUMBERS)


def _merged(entries: array[int], recent: array[int]) -> array[int]:
    """Return sorted entries with others among them, copied piece by piece: as objects they would take 40 bytes each."""
    merged, begin = array("Q"), 0
    for entry in recent:
        end = bisect_left(entries, entry, begin)
        merged.extend(entries[begin:end])
        merged.append(entry)
        begin = end
    merged.extend(entries[begin:])
    return merged


def _range(entries: array[int], first: int) -> Iterator[int]:
    index = bisect_left(entries, first)
    while index < len(entries) and entries[index] < first + _NUMBERS:
        yield entries[index]
        index += 1


def _first_entry(snapshot_id: str) -> int:
    return (hash(snapshot_id) % _HASHES) << _NUMBER_BITS
