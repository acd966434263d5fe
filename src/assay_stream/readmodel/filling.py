"""Records into the store. Each batch is one transaction, with the positions up to which its logs were read.

1. A record before the position of its log is a duplicate and skipped, however it is redelivered.
2. Invalid records are counted as refused, never fatal: the store must not stop where the stages go on.
3. Evidence that was erased on record is dropped, and not added again. Under a legal hold nothing else is dropped.
4. The tables depend only on the records and their order, not on how they are batched.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from itertools import groupby, islice
from typing import NamedTuple

import orjson

from assay_stream.bindings.erasures import RELEASE, Erasures, ScopeAct, act_in, acts_in
from assay_stream.errors import ConfigurationError
from assay_stream.limits import STORE_BATCH_RECORDS
from assay_stream.model.finding import ANY_SERVER
from assay_stream.model.record import Record, Role
from assay_stream.readmodel.bounds import Bounds, Dropped, drop, erase
from assay_stream.readmodel.calls import Calls, decompressed
from assay_stream.readmodel.inventory import Inventory
from assay_stream.readmodel.schema import failures, meta, put_meta

ROLES = (*(Role.BINDINGS, Role.DEFINITIONS, Role.VERDICTS, Role.CHANGES, Role.FINDINGS, Role.ALERTS), Role.EVIDENCE)
"""What the store is filled from."""

LogPlace = tuple[Role, str, int]
"""Role, topic and partition."""
_EVER_US = -(2**63)
_TIMESTAMP_MS_MAX = 2**63 // 1_000 - 1
_OFFSET_MAX = 2**63 - 1
_WITNESS_BYTES = 16


class LogState(NamedTuple):
    """How far a log goes.

    Args:
        following: continue here at the earliest: what precedes it is not a record, or is gone.
        lost: number of offsets that are gone.
        end: its current end, ``None`` if unknown.
    """

    following: int = 0
    lost: int = 0
    end: int | None = None


class Filler:
    """Fills a store; its only writer.

    Args:
        connection: from ``schema.writing`` or ``schema.temporary``.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._path = connection.execute("PRAGMA database_list").fetchone()[2] or "a temporary store"
        self._inode = _inode_of(self._path)
        self._calls = Calls(connection, meta(connection, "secret", b""))
        self._inventory = Inventory(connection)
        self._sources: dict[tuple[str, int], tuple[int, int]] = {}
        self.refresh()

    @property
    def connection(self) -> sqlite3.Connection:
        return self._connection

    @property
    def read(self) -> int:
        """Number of records read from all logs, including refused ones."""
        return int(self._connection.execute("SELECT coalesce(sum(read), 0) FROM source").fetchone()[0])

    def refresh(self) -> None:
        """Reload cached state from the store."""
        self._calls.reset(
            horizon_us=meta(self._connection, "horizon_us", _EVER_US), last=meta(self._connection, "last_evidence", 0)
        )
        self._erasures = erasures_in(self._connection)
        rows = self._connection.execute("SELECT topic, part, id, next FROM source")
        self._sources = {(topic, part): (number, following) for topic, part, number, following in rows}

    def position(self, topic: str, partition: int) -> int | None:
        """Return the next offset to read in a log, ``None`` if nothing was read."""
        found = self._sources.get((topic, partition))
        return None if found is None else found[1]

    def take(self, records: Sequence[Record]) -> int:
        """Add records, all or none; return how many were new.

        Args:
            records: records of one log in offset order.
        """
        new = 0
        with self._transaction():
            for (role, topic, part), group in groupby(records, _place_of):
                new += self._take_log((role, topic, part), list(group))
        return new

    def note(self, logs: Mapping[LogPlace, LogState], *, looked_us: int | None = None) -> None:
        """Update the state of logs without a record.

        Args:
            looked_us: when the brokers last reported the ends, microseconds since the epoch; ``None`` leaves it
                unchanged.

        Raises:
            ConfigurationError: ``store_missing`` if the file was removed: everything written would be lost.
        """
        self._check_file()
        with self._transaction():
            for place, state in logs.items():
                number, before = self._source(place)
                following = max(before, state.following)
                self._connection.execute(
                    "UPDATE source SET next = ?, lost = lost + ?, ends = coalesce(?, ends) WHERE id = ?",
                    (following, state.lost, state.end, number),
                )
                self._sources[place[1:]] = number, following
            if looked_us is not None:
                put_meta(self._connection, "looked_us", looked_us)

    def _check_file(self) -> None:
        if self._inode is not None and self._inode != _inode_of(self._path):
            raise ConfigurationError(
                "store_missing", f"{self._path} was deleted or replaced while it was filled: start store run again"
            )

    def keep_within(self, bounds: Bounds, *, now_us: int) -> Dropped:
        """Drop some rows that are too old, or too many; repeat until nothing is dropped. Under a hold: nothing."""
        if self._erasures.holds():
            return Dropped()
        with self._transaction():
            done = drop(self._connection, bounds, now_us=now_us)
            self._count_dropped(done.kind, done.bound, done.rows)
            if done.horizon_us is not None:
                horizon_us = max(meta(self._connection, "horizon_us", _EVER_US), done.horizon_us)
                put_meta(self._connection, "horizon_us", horizon_us)
        if done.rows:
            self.refresh()
        return done

    def _count_dropped(self, kind: str, bound: str, rows: int) -> None:
        if rows:
            self._connection.execute(
                "INSERT INTO dropped VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET rows = rows + excluded.rows",
                (kind, bound, rows),
            )

    def begin(self, deployment: str, *, oldest_us: int | None = None) -> None:
        """Record what the store is filled from, before the first record.

        Args:
            deployment: identifies the cluster and the topics.
            oldest_us: evidence before this event time is counted but not kept.

        Raises:
            ConfigurationError: ``store_of_another`` if it holds another deployment's records.
        """
        with self._transaction():
            before = meta(self._connection, "deployment", deployment)
            if before != deployment:
                raise ConfigurationError(
                    "store_of_another",
                    f"the store was filled from {before}, not from {deployment}: give each deployment a store of its "
                    "own, or begin again with --rebuild",
                )
            put_meta(self._connection, "deployment", deployment)
            if oldest_us is not None:
                put_meta(self._connection, "horizon_us", max(meta(self._connection, "horizon_us", _EVER_US), oldest_us))
        self.refresh()

    def witness(self, topic: str, partition: int) -> tuple[int, bytes] | None:
        """Return offset and hash of the last record read from a log, if any."""
        row = self._connection.execute(
            "SELECT last, witness FROM source WHERE topic = ? AND part = ? AND last IS NOT NULL", (topic, partition)
        ).fetchone()
        return None if row is None else (row[0], row[1])

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with failures(self._path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                # SQLite itself ends some transactions, as where the disk is full.
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                self.refresh()
                raise

    def _source(self, place: LogPlace) -> tuple[int, int]:
        role, topic, part = place
        known = self._sources.get((topic, part))
        if known is None:
            insert = "INSERT INTO source (role, topic, part, next) VALUES (?, ?, ?, 0) RETURNING id"
            known = self._connection.execute(insert, (role.value, topic, part)).fetchone()[0], 0
            self._sources[topic, part] = known
        return known

    def _take_log(self, place: LogPlace, records: list[Record]) -> int:
        number, following = self._source(place)
        new: list[Record] = []
        for record in records:
            if record.origin.offset >= following:
                new.append(record)
                following = min(record.origin.offset + 1, _OFFSET_MAX)
        if not new:
            return 0
        dropped = erased = 0
        if place[0] is Role.EVIDENCE:
            refused, dropped, erased = self._calls.take(number, new, self._erasures)
            put_meta(self._connection, "last_evidence", self._calls.last)
        else:
            refused = sum(not self._inventory.take(record) for record in new)
        if place[0] is Role.CHANGES and (acts := list(acts_in(new))):
            erased = self._erase(acts)
        self._count_dropped("evidence", "age", dropped)
        self._count_dropped("evidence", "erased", erased)
        self._connection.execute(
            "UPDATE source SET next = ?, read = read + ?, refused = refused + ?, time_us = max(time_us, ?), last = ?, "
            "witness = ? WHERE id = ?",
            (
                following,
                len(new),
                refused,
                min(new[-1].timestamp_ms, _TIMESTAMP_MS_MAX) * 1_000,
                following - 1,
                witness_of(new[-1]),
                number,
            ),
        )
        self._sources[place[1:]] = number, following
        return len(new)

    def _erase(self, acts: Sequence[ScopeAct]) -> int:
        """Drop what is erased as far as no hold stands: with an erasure, and when a hold is released."""
        for act in acts:
            self._erasures.take(act)
        # What was erased before stays so: only a release brings more of it.
        new = None if any(act.act == RELEASE for act in acts) else {act.origin for act in acts}
        standing = [act for act in self._erasures.standing() if new is None or act.origin in new]
        due = [act for act in standing if not self._erasures.holds(act.scope)]
        # The cached rows of what calls share are looked up again.
        rows = sum(erase(self._connection, act).rows for act in due)
        self._calls.reset(horizon_us=meta(self._connection, "horizon_us", _EVER_US), last=self._calls.last)
        return rows


def erasures_in(connection: sqlite3.Connection) -> Erasures:
    """Return the erasures and holds that a store has read."""
    rows = connection.execute("SELECT body FROM decision WHERE server = ?", (ANY_SERVER,))
    return Erasures(act for (body,) in rows if (act := act_in(orjson.loads(decompressed(body)))) is not None)


def _inode_of(path: str) -> int | None:
    try:
        return os.stat(path).st_ino
    except FileNotFoundError:
        return None


def _place_of(record: Record) -> LogPlace:
    return record.role, record.origin.topic, record.origin.partition


def witness_of(record: Record) -> bytes:
    """Return a hash that identifies a record."""
    found = blake2b(digest_size=_WITNESS_BYTES)
    for part in (record.key, record.value):
        found.update(b"-" if part is None else b"+%d:" % len(part) + part)
    return found.digest()


def fill(connection: sqlite3.Connection, records: Iterable[Record]) -> Filler:
    """Fill a store from records of ``ROLES``; others are skipped."""
    filler = Filler(connection)
    ours = (record for record in records if record.role in ROLES)
    while batch := list(islice(ours, STORE_BATCH_RECORDS)):
        filler.take(batch)
    return filler
