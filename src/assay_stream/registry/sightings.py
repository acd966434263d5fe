"""Sightings: which list an observer saw when, as rows of one table.

A sighting has four columns: its time, its offset, its snapshot id, and the number of what it shares with others of its
observer. So a list that repeats another costs some 50 bytes, not objects. Whoever looks them up keeps the rows in an
order of its own: ``Timeline`` those of an observer, ``Observations`` those of a server, ``SnapshotIndex`` by id.

Evidence names the very sighting that a call is bound to, by origin and snapshot id, so equal ones can't become one row.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from functools import lru_cache
from hashlib import blake2b
from operator import attrgetter

from assay_stream.model.facts import Seen
from assay_stream.model.record import Origin, Position
from assay_stream.model.run_facts import SeenRun

Row = tuple[int, int, str]
"""Event time in microseconds, offset, and snapshot id."""
SHARED_FIELDS = tuple(field.name for field in fields(Seen) if field.name not in ("origin", "time_us", "snapshot_id"))
"""What repeated lists have in common, beside topic and partition."""
_shared_values = attrgetter(*SHARED_FIELDS)
_ID_BYTES = 16
_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_UUIDS = re.compile(f"{_UUID}(?:,{_UUID})*")
_PART_MAX = 1_024
"""Entries of a part of an index before it is split: adding one moves a few kilobytes, however many there are."""


def shared_part(fact: Seen | SeenRun) -> Seen:
    """Return what a list shares with its repeats: without time, offset and snapshot id."""
    return _made(fact, 0, _place(*fact.origin[:2]), "")


def seen_at(shared: Seen | SeenRun, row: Row) -> Seen:
    time_us, offset, snapshot_id = row
    topic, partition, _ = shared.origin
    return _made(shared, time_us, Origin(topic, partition, offset), snapshot_id)


@lru_cache
def _place(topic: str, partition: int) -> Origin:
    return Origin(topic, partition, 0)


def _made(fact: Seen | SeenRun, time_us: int, origin: Origin, snapshot_id: str) -> Seen:
    values = zip(SHARED_FIELDS, _shared_values(fact), strict=True)
    return Seen(origin=origin, time_us=time_us, snapshot_id=snapshot_id, **dict(values))


def row_of(seen: Seen) -> Row:
    return seen.time_us, seen.origin.offset, seen.snapshot_id


class Sightings:
    """The table: sightings of many servers by row number; numbers of removed ones are used again."""

    __slots__ = (
        "_counts",
        "_free",
        "_free_kinds",
        "_ids",
        "_numbers",
        "_shared",
        "_texts",
        "kinds",
        "offsets",
        "times_us",
    )

    def __init__(self) -> None:
        self.times_us = array("q")
        self.offsets = array("q")
        self.kinds = array("I")
        """Number of what a row shares with others."""
        self._ids = bytearray()
        """Snapshot ids: the bytes of UUIDs, as taps make them up, of other texts a digest."""
        self._texts: dict[int, str] = {}
        """Ids that are no UUIDs, by row."""
        self._shared: list[Seen | None] = []
        self._numbers: dict[Seen, int] = {}
        self._counts = array("I")
        self._free = array("I")
        self._free_kinds: list[int] = []

    def add(self, shared: Seen, rows: Sequence[Row]) -> array[int]:
        """Return the row numbers of new sightings that have a part in common."""
        kind = self._kind(shared, len(rows))
        if len(rows) == 1 and self._free:
            number = self._free.pop()
            self.times_us[number], self.offsets[number], snapshot_id = rows[0]
            self.kinds[number] = kind
            self._ids[number * _ID_BYTES : (number + 1) * _ID_BYTES] = self._packed([snapshot_id], number)
            return array("I", [number])
        first = len(self.kinds)
        times_us, offsets, ids = zip(*rows, strict=True)
        self._ids += self._packed(ids, first)
        self.times_us.extend(times_us)
        self.offsets.extend(offsets)
        self.kinds.extend([kind] * len(rows))
        return array("I", range(first, len(self.kinds)))

    def remove(self, number: int) -> None:
        """Remove a row, and what it shares with the last of those that have it."""
        self._texts.pop(number, None)
        self._free.append(number)
        kind = self.kinds[number]
        self._counts[kind] -= 1
        if not self._counts[kind]:
            del self._numbers[self.shared(number)]
            self._shared[kind] = None
            self._free_kinds.append(kind)

    def seen(self, number: int) -> Seen:
        return seen_at(self.shared(number), (self.times_us[number], self.offsets[number], self.snapshot_id(number)))

    def shared(self, number: int) -> Seen:
        shared = self._shared[self.kinds[number]]
        if shared is None:
            raise AssertionError("a row that is in use has a kind")
        return shared

    def position(self, number: int) -> Position:
        return self.times_us[number], self.origin(number)

    def origin(self, number: int) -> Origin:
        topic, partition, _ = self.shared(number).origin
        return Origin(topic, partition, self.offsets[number])

    def snapshot_id(self, number: int) -> str:
        text = self._texts.get(number)
        if text is not None:
            return text
        digits = self.id_bytes(number).hex()
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"

    def id_bytes(self, number: int) -> bytes:
        return bytes(self._ids[number * _ID_BYTES : (number + 1) * _ID_BYTES])

    def _packed(self, ids: Sequence[str], first: int) -> bytes:
        """Return the bytes of ids, and remember the texts of those that are no UUIDs, from a first row on."""
        packed = _uuid_bytes(ids)
        if packed is not None:
            return packed
        self._texts |= {number: text for number, text in enumerate(ids, first) if _uuid_bytes([text]) is None}
        return b"".join(map(bytes_of_id, ids))

    def _kind(self, shared: Seen, count: int) -> int:
        kind = self._numbers.get(shared)
        if kind is None:
            if self._free_kinds:
                kind = self._free_kinds.pop()
                self._shared[kind] = shared
            else:
                kind = len(self._shared)
                self._shared.append(shared)
                self._counts.append(0)
            self._numbers[shared] = kind
        self._counts[kind] += count
        return kind


def bytes_of_id(snapshot_id: str) -> bytes:
    """Return the bytes that stand for a snapshot id; different ids may have the same."""
    packed = _uuid_bytes([snapshot_id])
    return (
        blake2b(snapshot_id.encode(errors="surrogatepass"), digest_size=_ID_BYTES).digest()
        if packed is None
        else packed
    )


def _uuid_bytes(ids: Sequence[str]) -> bytes | None:
    """Return the bytes of UUIDs as they are usually written, ``None`` where any text is none."""
    text = ",".join(ids)
    if _UUIDS.fullmatch(text) is None or text.count(",") != len(ids) - 1:
        return None
    return bytes.fromhex(text.replace("-", "").replace(",", ""))


class OrderedRows:
    """Some rows of a table in the order of their positions."""

    __slots__ = ("numbers", "table")

    def __init__(self, table: Sightings) -> None:
        self.table = table
        self.numbers = array("I")

    def __len__(self) -> int:
        return len(self.numbers)

    def insert(self, number: int) -> None:
        self.numbers.insert(self.count_until(self.table.position(number)), number)

    def discard(self, number: int) -> None:
        del self.numbers[self.numbers.index(number, self.count_before(self.table.position(number)))]

    def count_before(self, position: Position) -> int:
        """Return how many stand before a position."""
        if not self.numbers or self.table.position(self.numbers[-1]) < position:
            return len(self.numbers)
        return bisect_left(self.numbers, position, key=self.table.position)

    def count_until(self, position: Position) -> int:
        """Return how many stand before a position or at it."""
        if not self.numbers or self.table.position(self.numbers[-1]) <= position:
            return len(self.numbers)
        return bisect_right(self.numbers, position, key=self.table.position)


class SnapshotIndex:
    """The rows of one server by snapshot id, in eight bytes for each and some room.

    An entry is a part of the id's hash and the number of a row. It names candidates, never an answer, so colliding
    hashes don't change what is found, and the hash may differ from process to process.
    """

    __slots__ = ("_parts", "_table")

    def __init__(self, table: Sightings, numbers: Iterable[int] = ()) -> None:
        self._table = table
        entries, size = sorted(map(self._entry, numbers)), _PART_MAX // 2
        self._parts = [array("Q", entries[first : first + size]) for first in range(0, len(entries) or 1, size)]
        """Sorted; only the first may be empty."""

    def add(self, numbers: Iterable[int]) -> None:
        for entry in map(self._entry, numbers):
            place = self._place(entry)
            part = self._parts[place]
            insort(part, entry)
            if len(part) > _PART_MAX:
                half = len(part) // 2
                self._parts[place : place + 1] = [part[:half], part[half:]]

    def remove(self, number: int) -> None:
        entry = self._entry(number)
        place = self._place(entry)
        part = self._parts[place]
        del part[bisect_left(part, entry)]
        following = self._parts[place + 1 : place + 2]
        if following and len(part) + len(following[0]) <= _PART_MAX // 2:
            self._parts[place : place + 2] = [part + following[0]]
        elif not part and place:
            del self._parts[place]

    def candidates(self, snapshot_id: str) -> Iterator[int]:
        """Yield the rows that may have a snapshot id."""
        first = _hash(bytes_of_id(snapshot_id)) << 32
        for place in range(self._place(first), len(self._parts)):
            part = self._parts[place]
            end = bisect_left(part, first + (1 << 32))
            yield from (entry - first for entry in part[bisect_left(part, first) : end])
            if end < len(part):
                break

    def _entry(self, number: int) -> int:
        return _hash(self._table.id_bytes(number)) << 32 | number

    def _place(self, entry: int) -> int:
        """Return the last part that an entry may stand in."""
        return bisect_right(self._parts, entry, lo=1, key=_least) - 1


def _least(part: array[int]) -> int:
    return part[0]


def _hash(id_bytes: bytes) -> int:
    return hash(id_bytes) & 0xFFFFFFFF
