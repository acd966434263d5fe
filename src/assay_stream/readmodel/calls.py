"""Evidence into the store: one row, its bytes, and what it is found by, for each call."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b

import msgspec
import orjson

from assay_stream.errors import InputError
from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.limits.store import STORE_ERA_RECORDS, STORE_NAMES_KEPT_MAX
from assay_stream.model.cloudevents import time_us_of
from assay_stream.model.record import Record
from assay_stream.readmodel import blocks
from assay_stream.readmodel.digests import (
    EVIDENCE_LINES,
    CallData,
    Digests,
    EvidenceLine,
    Marks,
    digest_key,
    own_values,
    shared_digests,
)
from assay_stream.readmodel.names import Names

HOUR_US = 3_600 * 1_000_000

_Subject = tuple[int, int, int]
_DigestRow = tuple[str, str, int, str, str]
_SUBJECT_BYTES = 16
_INSERT_DIGEST = "INSERT OR IGNORE INTO digest VALUES (?, ?, ?, ?, ?)"
_INSERT_EVIDENCE = f"INSERT INTO evidence VALUES ({','.join('?' * 13)})"  # noqa: S608
_COUNTED = {
    "called": ("server", "tool"),
    "reported": ("observer", "server"),
    "tally": ("hour", "server", "tool"),
    "reported_tally": ("hour", "observer"),
}
"""Tables of counts, and what each counts by."""
_WITH_LAST = ("called", "reported")


def _statements(table: str, key: tuple[str, ...]) -> tuple[str, str]:
    more = ", last_us = max(last_us, excluded.last_us)" if table in _WITH_LAST else ""
    places = ", ".join("?" * (len(key) + (2 if more else 1)))
    return (
        f"INSERT INTO {table} VALUES ({places}) ON CONFLICT DO UPDATE SET calls = calls + excluded.calls{more}",  # noqa: S608
        f"DELETE FROM {table} WHERE {' AND '.join(f'{each} = ?' for each in key)} AND calls = 0",  # noqa: S608
    )


_COUNTING = {table: _statements(table, key) for table, key in _COUNTED.items()}


def read_line(value: bytes | None) -> EvidenceLine | None:
    """Return what the store reads of a record of evidence, ``None`` where it is none."""
    if value is None or len(value) > DEFAULT_LIMITS.record_bytes_max:
        return None
    try:
        return EVIDENCE_LINES.decode(value)
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
    ordered = sorted(calls)
    columns = {
        "hour": [call[0] // HOUR_US for call in ordered],
        "server": [call[1] for call in ordered],
        "tool": [call[2] for call in ordered],
        "observer": [call[3] for call in ordered],
    }
    times = [(call[0],) for call in ordered]
    for table, key in _COUNTED.items():
        add, drop = _COUNTING[table]
        places: list[tuple[int, ...]] = list(zip(*(columns[each] for each in key), strict=True))
        # Of several calls at one place the latest is put last.
        last: dict[tuple[int, ...], tuple[int, ...]] = dict(zip(places, times, strict=True))
        if table not in _WITH_LAST:
            last = dict.fromkeys(places, ())
        counts = sorted((*place, sign * count, *last[place]) for place, count in Counter(places).items())
        connection.executemany(add, counts)
        if sign < 0:
            connection.executemany(drop, sorted(last))


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
        self._subjects: dict[bytes, _Subject] = {}
        self._new_digests: list[_DigestRow] = []
        self._horizon_us = 0
        self._last = 0

    def reset(self, *, horizon_us: int, last: int) -> None:
        """Begin again from what the store holds.

        Args:
            horizon_us: evidence before this event time is counted and not kept.
            last: number of the latest row of evidence.
        """
        self._subjects.clear()
        self._new_digests.clear()
        self._words.forget()
        self._horizon_us, self._last = horizon_us, last

    @property
    def last(self) -> int:
        return self._last

    def take(self, source: int, records: Sequence[Record]) -> tuple[int, int]:
        """Take records of one log in; return how many were refused, and how many are too old to be kept."""
        rows, values = [], []
        keys: list[str] = []
        owners: list[tuple[int, int]] = []
        number, word, first = self._names.number, self._words.number, self._last + 1
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
            values.append(record.value or b"")
            own = own_values(line)
            keys += own
            owners += [(time_us, self._last)] * len(own)
        blocks.append(self._connection, first, values)
        self._connection.executemany(_INSERT_EVIDENCE, rows)
        # In the order of the table: each of its pages is visited once. Equal digests of one call are one mark.
        marks = sorted(
            (owner // STORE_ERA_RECORDS, hashed, time_us, owner)
            for hashed, (time_us, owner) in zip(self._marks.hashes(keys), owners, strict=True)
        )
        self._connection.executemany("INSERT OR IGNORE INTO mark VALUES (?, ?, ?, ?)", marks)
        self._connection.executemany(_INSERT_DIGEST, sorted(self._new_digests))
        self._new_digests.clear()
        count_calls(self._connection, [(row[1], row[5], row[6], row[7]) for row in rows])
        return refused, dropped

    def _subject(self, data: CallData) -> _Subject:
        digests = shared_digests(data)
        # Remembered by hash: the texts are a kilobyte each.
        key = blake2b(orjson.dumps((data.server_id, data.tool, digests)), digest_size=_SUBJECT_BYTES).digest()
        found = self._subjects.get(key)
        if found is None:
            if len(self._subjects) >= STORE_NAMES_KEPT_MAX:
                self._subjects.clear()
            found = self._subjects[key] = self._new_subject(data, digests, key)
        return found

    def _new_subject(self, data: CallData, digests: Digests, key: bytes) -> _Subject:
        server, tool = self._names.number(data.server_id), self._names.number(data.tool)
        select = "SELECT id FROM subject WHERE server = ? AND tool = ? AND hash = ?"
        known = self._connection.execute(select, (server, tool, key)).fetchone()
        if known is not None:
            return known[0], server, tool
        insert = "INSERT INTO subject (server, tool, full, hash, digests) VALUES (?, ?, ?, ?, ?) RETURNING id"
        row = (server, tool, data.binding.full_digest or "", key, orjson.dumps(digests).decode())
        subject = self._connection.execute(insert, row).fetchone()[0]
        self._new_digests += _digest_rows("calls", subject, digests)
        return subject, server, tool


def write_digests(connection: sqlite3.Connection, place: str, owner: int, digests: Digests) -> None:
    """Note where digests stand."""
    connection.executemany(_INSERT_DIGEST, _digest_rows(place, owner, digests))


def drop_digests(connection: sqlite3.Connection, place: str, owner: int) -> None:
    """Forget where digests stand, but for those of subjects."""
    connection.execute("DELETE FROM digest WHERE place = ? AND owner = ? AND place != 'calls'", (place, owner))


def drop_subject(connection: sqlite3.Connection, number: int) -> None:
    """Drop a subject, with its digests."""
    text = connection.execute("DELETE FROM subject WHERE id = ? RETURNING digests", (number,)).fetchone()[0]
    statement = "DELETE FROM digest WHERE value = ? AND place = ? AND owner = ? AND role = ? AND scheme = ?"
    connection.executemany(statement, _digest_rows("calls", number, orjson.loads(text)))


def _digest_rows(place: str, owner: int, digests: Digests) -> list[_DigestRow]:
    return [(digest_key(value), place, owner, role, scheme) for role, scheme, value in digests]
