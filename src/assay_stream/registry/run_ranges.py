"""Which observations of an observer stand in runs of the binding topic: a few numbers for each run.

The registry packs repeated lists (``registry.packing``): a run, then tombstones of the single facts that it stands for.

1. Every observation of its observer with an offset between the first and the last of a run is a row of it, or is gone.
   So a single fact or its tombstone with such an offset changes nothing, whether it comes before or after its run.
2. A run is only ever written again with more rows at its end, or with those that are left of it.
3. A cut names rows of a run that were folded away since the run was written.

The records of one transaction may come in any order, and compaction may leave any of them out that a later one with the
same key replaces.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple

Place = tuple[str, int]
"""Topic and partition."""
_NUMBERS = 4
_NONE_GONE: frozenset[int] = frozenset()


class RunRange(NamedTuple):
    """The offsets of one run.

    Args:
        key: that of the origin in its key.
        first, last: those of its first and its last row.
        rows: how many rows it was written with.
    """

    key: int
    first: int
    last: int
    rows: int


class RunRanges:
    """The runs of one observer over one partition of the snapshots topic, in the order of their offsets."""

    __slots__ = ("_cuts", "_numbers", "place")

    def __init__(self, place: Place) -> None:
        self.place = place
        self._numbers = array("Q")
        self._cuts: dict[int, bytes] | None = None

    @property
    def last_offset(self) -> int:
        """Offset of the last row of all, -1 without runs."""
        return self._numbers[-2] if self._numbers else -1

    def get(self, key: int) -> RunRange | None:
        index = self._index(key)
        found = self._at(index) if index < len(self._numbers) else None
        return found if found is not None and found.key == key else None

    def facts(self) -> Iterator[tuple[str, int]]:
        """Yield the kind of each fact, and the offset in its key."""
        yield from (("seen_run", key) for key in self._numbers[::_NUMBERS])
        yield from (("run_cut", key) for key in self._cuts or ())

    def last(self) -> RunRange | None:
        return self._at(len(self._numbers) - _NUMBERS) if self._numbers else None

    def covering(self, offset: int) -> RunRange | None:
        """Return the run whose offsets lie around this one."""
        count = bisect_right(range(0, len(self._numbers), _NUMBERS), offset, key=self._numbers.__getitem__)
        found = self._at((count - 1) * _NUMBERS) if count else None
        return found if found is not None and found.first <= offset <= found.last else None

    def put(self, run: RunRange) -> None:
        """Add a run, in place of an earlier form of it."""
        index = self._index(run.key)
        replaced = _NUMBERS if self.get(run.key) is not None else 0
        self._numbers[index : index + replaced] = array("Q", run)

    def drop(self, key: int) -> None:
        index = self._index(key)
        del self._numbers[index : index + _NUMBERS]

    def gone(self, key: int) -> frozenset[int]:
        """Return what the cut of a run names, counted from its key's offset."""
        text = None if self._cuts is None else self._cuts.get(key)
        return _NONE_GONE if text is None else frozenset(array("Q", text))

    def cut(self, key: int, gone: tuple[int, ...]) -> None:
        """Remember the cut of a run; none is remembered where nothing is gone."""
        cuts = self._cuts or {}
        cuts.pop(key, None)
        if gone:
            cuts[key] = array("Q", gone).tobytes()
        self._cuts = cuts or None

    def _index(self, key: int) -> int:
        starts = range(0, len(self._numbers), _NUMBERS)
        return bisect_left(starts, key, key=self._numbers.__getitem__) * _NUMBERS

    def _at(self, index: int) -> RunRange:
        return RunRange(*self._numbers[index : index + _NUMBERS])
