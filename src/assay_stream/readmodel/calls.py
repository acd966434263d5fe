"""Evidence into the store: one row, its bytes, and what it is found by, for each call."""

from __future__ import annotations

import sqlite3
import zlib
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib.resources import files

import msgspec
import orjson

from assay_stream.errors import InputError
from assay_stream.limits import STORE_NAMES_KEPT_MAX
from assay_stream.model.cloudevents import time_us_of
from assay_stream.model.record import Record
from assay_stream.readmodel.digests import (
    EVIDENCE_LINES,
    CallData,
    Digests,
    EvidenceLine,
    Marks,
    digest_key,
    own_digests,
    shared_digests,
)
from assay_stream.readmodel.names import Names
from assay_stream.readmodel.schema import REBUILD

HOUR_US = 3_600 * 1_000_000

_Subject = tuple[int, int, int]
_INSERT_EVIDENCE = f"INSERT INTO evidence VALUES ({','.join('?' * 13)})"  # noqa: S608
_COUNT = """INSERT INTO called VALUES (?, ?, ?, ?, ?)
  ON CONFLICT DO UPDATE SET calls = calls + excluded.calls, last_us = max(last_us, excluded.last_us)"""
_TALLY = "INSERT INTO tally VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET calls = calls + excluded.calls"


@cache
def _dictionary() -> bytes:
    # What every record of evidence has; part of the format of a store (SCHEMA_VERSION).
    return files(__package__).joinpath("evidence.dict").read_bytes()


def packed(value: bytes) -> bytes:
    """Return a record's bytes as the store keeps them."""
    deflate = zlib.compressobj(1, zlib.DEFLATED, zlib.MAX_WBITS, 8, zlib.Z_DEFAULT_STRATEGY, _dictionary())
    return deflate.compress(value) + deflate.flush()


def unpacked(body: bytes) -> bytes:
    """Return a record's bytes, which its checksum says are whole.

    Raises:
        InputError: ``store_unreadable``.
    """
    inflate = zlib.decompressobj(zlib.MAX_WBITS, _dictionary())
    with suppress(zlib.error):
        value = inflate.decompress(body)
        if inflate.eof:
            return value
    raise InputError("store_unreadable", f"a record in the store is damaged: {REBUILD}")


def read_line(value: bytes | None) -> EvidenceLine | None:
    """Return what the store reads of a record of evidence, ``None`` where it is none."""
    try:
        return None if value is None else EVIDENCE_LINES.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _time_us(line: EvidenceLine) -> int | None:
    try:
        return time_us_of(line.time)
    except InputError:
        return None


def count_calls(connection: sqlite3.Connection, calls: Sequence[tuple[int, int, int, int]], *, sign: int = 1) -> None:
    """Add calls to what is counted, or with a ``sign`` of -1 take them away.

    Args:
        calls: event time, and the numbers of server, tool and observer of each.
    """
    tally = Counter((time_us // HOUR_US, *place) for time_us, *place in calls)
    called: dict[tuple[int, int, int], list[int]] = {}
    for time_us, *place in calls:
        counted = called.setdefault((place[0], place[1], place[2]), [0, time_us])
        counted[0] += sign
        counted[1] = max(counted[1], time_us)
    connection.executemany(_TALLY, [(*place, sign * count) for place, count in tally.items()])
    connection.executemany(_COUNT, [(*place, *counted) for place, counted in called.items()])


class Calls:
    """Takes evidence in; the caller holds the transaction.

    Args:
        secret: key of the hashes by which calls are found.
    """

    def __init__(self, connection: sqlite3.Connection, names: Names, secret: bytes) -> None:
        self._connection = connection
        self._names = names
        self._words = Names(connection, "word")
        self._marks = Marks(secret)
        self._subjects: dict[tuple[str, ...], _Subject] = {}
        self._horizon_us = 0
        self._last = 0

    def reset(self, *, horizon_us: int, last: int) -> None:
        """Begin again from what the store holds.

        Args:
            horizon_us: evidence before this event time is counted and not kept.
            last: number of the latest row of evidence.
        """
        self._subjects.clear()
        self._words.forget()
        self._horizon_us, self._last = horizon_us, last

    @property
    def last(self) -> int:
        return self._last

    def take(self, source: int, records: Sequence[Record]) -> tuple[int, int]:
        """Take records of one log in; return how many were refused, and how many are too old to be kept."""
        rows, bodies, marks = [], [], []
        number, word, hashed = self._names.number, self._words.number, self._marks.hash
        refused = dropped = 0
        for record in records:
            line = read_line(record.value)
            time_us = None if line is None else _time_us(line)
            if line is None or time_us is None:
                refused += 1
                continue
            if time_us < self._horizon_us:
                dropped += 1
                continue
            data = line.data
            subject, server, tool = self._subject(data)
            self._last += 1
            agent = None if data.actor is None else data.actor.agent_id
            rows.append(
                (
                    self._last,
                    time_us,
                    source,
                    record.origin.offset,
                    subject,
                    server,
                    tool,
                    number(data.observer_id),
                    None if agent is None else number(agent),
                    None if data.decision is None else word(data.decision),
                    word(data.binding.scope),
                    None if data.unbound_reason is None else word(data.unbound_reason),
                    data.ok,
                )
            )
            bodies.append((self._last, packed(record.value or b"")))
            marks += [(hashed(value), time_us, self._last) for _, _, value in own_digests(line)]
        self._write(rows, bodies, marks)
        count_calls(self._connection, [(row[1], row[5], row[6], row[7]) for row in rows])
        return refused, dropped

    def _write(
        self, rows: Sequence[tuple[int | None, ...]], bodies: list[tuple[int, bytes]], marks: list[tuple[int, int, int]]
    ) -> None:
        execute = self._connection.executemany
        execute(_INSERT_EVIDENCE, rows)
        execute("INSERT INTO payload VALUES (?, ?)", bodies)
        # In the order of the table: each of its pages is visited once. Equal digests of one call are one mark.
        marks.sort()
        execute("INSERT OR IGNORE INTO mark VALUES (?, ?, ?)", marks)

    def _subject(self, data: CallData) -> _Subject:
        digests = shared_digests(data)
        key = (data.server_id, data.tool, *[part for digest in digests for part in digest])
        found = self._subjects.get(key)
        if found is None:
            if len(self._subjects) >= STORE_NAMES_KEPT_MAX:
                self._subjects.clear()
            found = self._subjects[key] = self._new_subject(data, digests)
        return found

    def _new_subject(self, data: CallData, digests: Digests) -> _Subject:
        server, tool = self._names.number(data.server_id), self._names.number(data.tool)
        text = orjson.dumps(digests).decode()
        select = "SELECT id FROM subject WHERE server = ? AND tool = ? AND digests = ?"
        known = self._connection.execute(select, (server, tool, text)).fetchone()
        if known is not None:
            return known[0], server, tool
        insert = "INSERT INTO subject (server, tool, full, digests) VALUES (?, ?, ?, ?) RETURNING id"
        full = data.binding.full_digest or ""
        subject = self._connection.execute(insert, (server, tool, full, text)).fetchone()[0]
        write_digests(self._connection, "calls", subject, digests)
        return subject, server, tool


def write_digests(connection: sqlite3.Connection, place: str, owner: int, digests: Digests) -> None:
    """Note where digests stand."""
    connection.executemany(
        "INSERT OR IGNORE INTO digest VALUES (?, ?, ?, ?, ?)",
        [(digest_key(value), place, owner, role, scheme) for role, scheme, value in digests],
    )


def drop_digests(connection: sqlite3.Connection, place: str, owner: int) -> None:
    connection.execute("DELETE FROM digest WHERE place = ? AND owner = ?", (place, owner))
