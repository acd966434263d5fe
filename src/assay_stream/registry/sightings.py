"""The observations of one observer, in columns: an observer that sees the same again adds 40 bytes, not objects.

The latest observation stays as it is: most questions are about it. Older ones are rows of times, offsets, snapshot ids
and what they share with others; each is made anew when it is asked for.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import overload

from assay_stream.model.facts import Seen
from assay_stream.model.record import Origin
from assay_stream.registry.runs import Row, Shared, row_of, shared_by

_NEAR = 4
"""Rows on either side that are looked at for something equal to share, where lists alternate."""
_UUID_BYTES = 16
_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_UUIDS = re.compile(f"{_UUID}(?:,{_UUID})*")


class _Rows:
    """Observations in the order of their positions, one column for each part of a row."""

    __slots__ = ("ids", "offsets", "shared", "times_us")

    def __init__(self) -> None:
        self.times_us = array("q")
        self.offsets = array("q")
        self.shared: list[Shared] = []
        """One for all rows while they are equal in it, else one for each."""
        self.ids: bytearray | list[str] = bytearray()
        """Snapshot ids: 16 bytes each while all are UUIDs, as taps make them up, else their texts."""

    def __len__(self) -> int:
        return len(self.times_us)

    def seen(self, index: int) -> Seen:
        return self._shared_at(index).seen((self.times_us[index], self.offsets[index], self._id(index)))

    def insert(self, index: int, shared: Shared, rows: Sequence[Row]) -> None:
        times_us, offsets, ids = zip(*rows, strict=True)
        packed = _packed(ids)
        self._share(index, shared, len(rows))
        if isinstance(self.ids, bytearray) and packed is None:
            self.ids = [self._id(number) for number in range(len(self))]
        self.times_us[index:index] = array("q", times_us)
        self.offsets[index:index] = array("q", offsets)
        if isinstance(self.ids, bytearray) and packed is not None:
            self.ids[index * _UUID_BYTES : index * _UUID_BYTES] = packed
        else:
            self.ids[index:index] = ids

    def pop(self, index: int) -> Seen:
        seen = self.seen(index)
        del self.times_us[index], self.offsets[index]
        if len(self.shared) > 1:
            del self.shared[index]
        if isinstance(self.ids, bytearray):
            del self.ids[index * _UUID_BYTES : (index + 1) * _UUID_BYTES]
        else:
            del self.ids[index]
        return seen

    def index_of(self, origin: Origin) -> int | None:
        return next((i for i in _places(self.offsets, origin.offset) if self._shared_at(i)[2:4] == origin[:2]), None)

    def named(self, snapshot_id: str) -> Iterator[int]:
        """Yield the rows with a snapshot id, in their order."""
        if isinstance(self.ids, list):
            yield from _places(self.ids, snapshot_id)
            return
        packed = _packed([snapshot_id])
        place = -1 if packed is None else self.ids.find(packed)
        while packed is not None and place >= 0:
            if place % _UUID_BYTES == 0:
                yield place // _UUID_BYTES
            place = self.ids.find(packed, place + 1)

    def _shared_at(self, index: int) -> Shared:
        return self.shared[index if len(self.shared) > 1 else 0]

    def _share(self, index: int, shared: Shared, count: int) -> None:
        """Add what rows share that are about to be inserted."""
        if not len(self):
            self.shared = [shared]
        if self.shared == [shared]:
            return
        if len(self.shared) == 1:
            self.shared *= len(self)
        near = self.shared[max(0, index - _NEAR) : index + _NEAR]
        self.shared[index:index] = [next((known for known in near if known == shared), shared)] * count

    def _id(self, index: int) -> str:
        if isinstance(self.ids, list):
            return self.ids[index]
        return _text(self.ids[index * _UUID_BYTES : (index + 1) * _UUID_BYTES])


_NO_ROWS = _Rows()


class PackedSightings:
    """The observations of one observer; a sequence that ``bisect`` works on."""

    __slots__ = ("_latest", "_older")

    def __init__(self) -> None:
        self._latest: Seen | None = None
        self._older = _NO_ROWS

    def __len__(self) -> int:
        return len(self._older) + (self._latest is not None)

    def __bool__(self) -> bool:
        return self._latest is not None

    def __iter__(self) -> Iterator[Seen]:
        return self.starting_at(0)

    def __reversed__(self) -> Iterator[Seen]:
        if self._latest is not None:
            yield self._latest
        yield from map(self._older.seen, reversed(range(len(self._older))))

    @overload
    def __getitem__(self, index: int) -> Seen: ...
    @overload
    def __getitem__(self, index: slice) -> list[Seen]: ...
    def __getitem__(self, index: int | slice) -> Seen | list[Seen]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        place = index if index >= 0 else index + len(self)
        if self._latest is not None and place == len(self._older):
            return self._latest
        if place < 0:
            raise IndexError(index)
        return self._older.seen(place)

    def starting_at(self, index: int) -> Iterator[Seen]:
        """Yield the observations from a place on."""
        yield from map(self._older.seen, range(index, len(self._older)))
        if self._latest is not None:
            yield self._latest

    def append(self, seen: Seen) -> None:
        """Add an observation that comes after all others."""
        if self._latest is not None:
            self._add_older(len(self._older), shared_by(self._latest), [row_of(self._latest)])
        self._latest = seen

    def append_rows(self, shared: Shared, rows: list[Row]) -> None:
        """Add observations that come after all others, in their order."""
        if self._latest is not None:
            self._add_older(len(self._older), shared_by(self._latest), [row_of(self._latest)])
        if len(rows) > 1:
            self._add_older(len(self._older), shared, rows[:-1])
        self._latest = shared.seen(rows[-1])

    def insert(self, index: int, seen: Seen) -> None:
        """Add an observation before another one."""
        if index == len(self):
            self.append(seen)
        else:
            self._add_older(index, shared_by(seen), [row_of(seen)])

    def pop(self, index: int) -> Seen:
        """Remove an observation, and return it."""
        if self._latest is None or index != len(self._older):
            return self._older.pop(index)
        seen, self._latest = self._latest, self._older.pop(index - 1) if index else None
        return seen

    def index_of(self, origin: Origin) -> int | None:
        """Return the place of the observation with this origin."""
        index = self._older.index_of(origin)
        if index is None and self._latest is not None and self._latest.origin == origin:
            return len(self._older)
        return index

    def stand_at(self, time_us: int) -> tuple[Seen | None, int | None]:
        """Return the latest observation at or before a time, and the time of the one after it."""
        if self._latest is None or self._latest.time_us <= time_us:
            return self._latest, None
        times_us = self._older.times_us
        index = bisect_right(times_us, time_us)
        until_us = times_us[index] if index < len(times_us) else self._latest.time_us
        return self._older.seen(index - 1) if index else None, until_us

    def named(self, snapshot_id: str) -> Iterator[Seen]:
        """Yield the observations with this snapshot id, in their order."""
        yield from map(self._older.seen, self._older.named(snapshot_id))
        if self._latest is not None and self._latest.snapshot_id == snapshot_id:
            yield self._latest

    def _add_older(self, index: int, shared: Shared, rows: Sequence[Row]) -> None:
        if self._older is _NO_ROWS:
            self._older = _Rows()
        self._older.insert(index, shared, rows)


def _places(column: array[int] | list[str], value: int | str) -> Iterator[int]:
    index = -1
    with suppress(ValueError):
        while True:
            index = column.index(value, index + 1)  # type: ignore[arg-type]
            yield index


def _packed(ids: Sequence[str]) -> bytes | None:
    """Return the bytes of UUIDs as they are usually written, ``None`` where any text is none."""
    text = ",".join(ids)
    if _UUIDS.fullmatch(text) is None or text.count(",") != len(ids) - 1:
        return None
    return bytes.fromhex(text.replace("-", "").replace(",", ""))


def _text(packed: bytes | bytearray) -> str:
    digits = packed.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
