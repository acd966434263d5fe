"""What waits for its other half, by origin: in memory while it is little, else in a temporary file.

The file has no name for anybody else to open, and is gone with the process.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from assay_stream.limits import HELD_BYTES_MAX
from assay_stream.model.record import Origin

Value = TypeVar("Value")


class Waiting(Generic[Value]):
    """Values by origin; of one origin in the order in which they came.

    Args:
        pack: a value as bytes.
        unpack: and back.
        most: how many are kept in memory; beyond that all of them move to a temporary file.
        size_bytes: how large a value is; over ``HELD_BYTES_MAX`` of all of them move there, too.
    """

    def __init__(
        self,
        pack: Callable[[Value], bytes],
        unpack: Callable[[bytes], Value],
        most: int,
        size_bytes: Callable[[Value], int],
    ) -> None:
        self._pack, self._unpack, self._most, self._size_bytes = pack, unpack, most, size_bytes
        self._kept_bytes = 0
        self._kept: dict[Origin, list[Value]] = {}
        self._count = 0
        self._file: sqlite3.Connection | None = None
        self._topics: dict[str, int] = {}

    def put(self, origin: Origin, value: Value) -> None:
        """Let a value wait.

        Args:
            origin: what it waits under.
            value: the value.
        """
        self._kept.setdefault(origin, []).append(value)
        self._count += 1
        self._kept_bytes += self._size_bytes(value)
        if self._count > self._most or self._kept_bytes > HELD_BYTES_MAX:
            self._spill()

    def pop(self, origin: Origin) -> Value | None:
        """Return the first value that waits under an origin, and let go of it.

        Args:
            origin: an origin.
        """
        if self._file is not None:
            value = self._from_file(self._file, origin)
            if value is not None:
                return value
        waiting = self._kept.get(origin)
        if waiting is None:
            return None
        self._count -= 1
        value = waiting.pop(0)
        self._kept_bytes -= self._size_bytes(value)
        if not waiting:
            del self._kept[origin]
        return value

    def rest(self) -> Iterator[Value]:
        """Yield everything that waits, those that came first first."""
        if self._file is not None:
            for (blob,) in self._file.execute("SELECT value FROM waiting ORDER BY number"):
                yield self._unpack(blob)
        for waiting in self._kept.values():
            yield from waiting

    def _spill(self) -> None:
        if self._file is None:
            self._file = sqlite3.connect("")
            self._file.executescript(
                "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; "
                "CREATE TABLE waiting (number INTEGER PRIMARY KEY, topic INT, part INT, place INT, value BLOB); "
                "CREATE INDEX by_origin ON waiting (topic, part, place);"
            )
        rows = ((*self._key(origin), self._pack(value)) for origin, waiting in self._kept.items() for value in waiting)
        self._file.executemany("INSERT INTO waiting (topic, part, place, value) VALUES (?, ?, ?, ?)", rows)
        self._kept.clear()
        self._count = self._kept_bytes = 0

    def _from_file(self, file: sqlite3.Connection, origin: Origin) -> Value | None:
        if origin.topic not in self._topics:
            return None
        where = "topic = ? AND part = ? AND place = ? ORDER BY number LIMIT 1"
        query = f"SELECT number, value FROM waiting WHERE {where}"  # noqa: S608 - nothing in it is anybody's text
        found = file.execute(query, self._key(origin)).fetchone()
        if found is None:
            return None
        file.execute("DELETE FROM waiting WHERE number = ?", (found[0],))
        return self._unpack(found[1])

    def _key(self, origin: Origin) -> tuple[int, str, str]:
        # As text: evidence may claim any number, and the file's integers have 64 bits.
        number = self._topics.setdefault(origin.topic, len(self._topics))
        return number, str(origin.partition), str(origin.offset)


class Offsets:
    """A set of origins that costs little where offsets follow each other."""

    def __init__(self) -> None:
        self._runs: dict[tuple[str, int], tuple[list[int], list[int]]] = {}

    def add(self, origin: Origin) -> None:
        """Add an origin.

        Args:
            origin: what to add.
        """
        starts, ends = self._runs.setdefault(origin[:2], ([], []))
        if ends and ends[-1] == origin.offset:
            # As in a log that is in order.
            ends[-1] += 1
            return
        index = bisect_right(starts, origin.offset) - 1
        if index >= 0 and origin.offset < ends[index]:
            return
        joins_left = index >= 0 and ends[index] == origin.offset
        joins_right = index + 1 < len(starts) and starts[index + 1] == origin.offset + 1
        if joins_left and joins_right:
            ends[index] = ends.pop(index + 1)
            starts.pop(index + 1)
        elif joins_left:
            ends[index] += 1
        elif joins_right:
            starts[index + 1] -= 1
        else:
            starts.insert(index + 1, origin.offset)
            ends.insert(index + 1, origin.offset + 1)

    def __contains__(self, origin: object) -> bool:
        if not isinstance(origin, Origin) or origin[:2] not in self._runs:
            return False
        starts, ends = self._runs[origin[:2]]
        index = bisect_right(starts, origin.offset) - 1
        return index >= 0 and origin.offset < ends[index]
