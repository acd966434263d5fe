"""Evidence and calls put together by origin, in bounded memory, whatever order either comes in.

Both come in the order of their logs as a rule, so that one waits for the other only briefly. What waits longer
goes to a temporary file that has no name for anybody else to open.
"""

from __future__ import annotations

import base64
import sqlite3
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

import orjson

from assay_stream.core.record import Origin, Record, Role
from assay_stream.forensics.evidence_record import Recorded

WAITING_MAX = 50_000
"""Values of one side that wait in memory: about 100 MB of evidence."""

Pair = tuple[Recorded, Record]
Value = TypeVar("Value")


class Pairing:
    """Gives each record of evidence the call that it names.

    Args:
        waiting_max: how many values of either side wait in memory.
    """

    def __init__(self, *, waiting_max: int = WAITING_MAX) -> None:
        self._evidence: Waiting[Recorded] = Waiting(_pack_evidence, _unpack_evidence, waiting_max)
        self._calls: Waiting[Record] = Waiting(_pack_call, _unpack_call, waiting_max)
        self._paired = Offsets()
        self.waits_for_calls = 0
        """How many records of evidence wait for their call."""
        self.waits_for_evidence = 0
        """How many calls wait for their evidence."""

    def evidence(self, given: Recorded) -> Pair | None:
        """Take a record of evidence in, and return it with its call where that is there already.

        Args:
            given: the record.
        """
        if given.call is None:
            raise AssertionError("evidence that names no call has no pair")
        call = self._calls.pop(given.call)
        if call is None:
            self._evidence.put(given.call, given)
            self.waits_for_calls += 1
            return None
        self.waits_for_evidence -= 1
        self._paired.add(given.call)
        return given, call

    def call(self, record: Record, *, keep: bool = True) -> Pair | None:
        """Take a call in, and return it with its evidence where that is there already.

        Args:
            record: the call's record.
            keep: whether to let it wait where it is not.
        """
        given = self._evidence.pop(record.origin)
        if given is None:
            if keep:
                self._calls.put(record.origin, record)
                self.waits_for_evidence += 1
            return None
        self.waits_for_calls -= 1
        self._paired.add(record.origin)
        return given, record

    def unpaired(self) -> Iterator[tuple[Recorded, bool]]:
        """Yield the evidence that found no call, and whether another record has had that call."""
        for given in self._evidence.rest():
            yield given, given.call in self._paired

    def calls_left(self) -> Iterator[Record]:
        """Yield the calls that no evidence has named."""
        for record in self._calls.rest():
            if record.origin not in self._paired:
                yield record


def paired(evidence: Iterable[Recorded], calls: Iterable[Record], pairing: Pairing) -> Iterator[Pair]:
    """Yield pairs, reading from the side that fewer values wait of.

    Args:
        evidence: records that name a call.
        calls: records of the calls topic; those that no evidence names are passed over.
        pairing: keeps what waits.
    """
    waiting_evidence, waiting_calls = iter(evidence), iter(calls)
    more_evidence = more_calls = True
    while more_evidence or (more_calls and pairing.waits_for_calls):
        pair = None
        if more_evidence and (not more_calls or pairing.waits_for_calls <= pairing.waits_for_evidence):
            given = next(waiting_evidence, None)
            more_evidence = given is not None
            pair = None if given is None else pairing.evidence(given)
        else:
            call = next(waiting_calls, None)
            more_calls = call is not None
            pair = None if call is None else pairing.call(call, keep=more_evidence)
        if pair is not None:
            yield pair


class Waiting(Generic[Value]):
    """Values by origin; of one origin in the order in which they came.

    Args:
        pack: a value as bytes.
        unpack: and back.
        most: how many are kept in memory; beyond that all of them move to a temporary file.
    """

    def __init__(self, pack: Callable[[Value], bytes], unpack: Callable[[bytes], Value], most: int) -> None:
        self._pack, self._unpack, self._most = pack, unpack, most
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
        if self._count > self._most:
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
        rows = (
            (*self._key(origin), self._pack(value)) for origin, waiting in self._kept.items() for value in waiting
        )
        self._file.executemany("INSERT INTO waiting (topic, part, place, value) VALUES (?, ?, ?, ?)", rows)
        self._kept.clear()
        self._count = 0

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


def _pack_evidence(given: Recorded) -> bytes:
    record = None if given.record is None else _fields(given.record)
    return orjson.dumps([given.where, _text(given.value), record])


def _unpack_evidence(packed: bytes) -> Recorded:
    where, value, record = orjson.loads(packed)
    return Recorded(where, base64.b64decode(value), None if record is None else _record(record))


def _pack_call(record: Record) -> bytes:
    return orjson.dumps(_fields(record))


def _unpack_call(packed: bytes) -> Record:
    return _record(orjson.loads(packed))


def _fields(record: Record) -> list[Any]:
    headers = [[name, _text(value)] for name, value in record.headers]
    return [
        record.role.value,
        list(record.origin),
        _text(record.key),
        _text(record.value),
        headers,
        record.timestamp_ms,
    ]


def _record(fields: list[Any]) -> Record:
    role, origin, key, value, headers, timestamp_ms = fields
    return Record(
        role=Role(role),
        origin=Origin(*origin),
        key=None if key is None else base64.b64decode(key),
        value=None if value is None else base64.b64decode(value),
        headers=tuple((name, base64.b64decode(text)) for name, text in headers),
        timestamp_ms=timestamp_ms,
    )


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else base64.b64encode(raw).decode()
