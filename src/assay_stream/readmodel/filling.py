"""Records into the store. Each batch is one transaction, with the positions up to which its logs were read.

1. A record before the position of its log was taken in before: it is left out, whoever delivers it again.
2. What is no record of ours is counted as refused, never fatal: the store must not stop where the stages go on.
3. The tables follow from the records and their order alone, however they are cut into batches.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby, islice
from typing import Any

from assay_stream.limits import STORE_BATCH_RECORDS
from assay_stream.model.record import Record, Role
from assay_stream.readmodel.calls import Calls
from assay_stream.readmodel.inventory import Inventory
from assay_stream.readmodel.names import Names

ROLES = (Role.BINDINGS, Role.DEFINITIONS, Role.VERDICTS, Role.CHANGES, Role.ALERTS, Role.EVIDENCE)
"""What the store is filled from."""

_Place = tuple[Role, str, int]


class Filler:
    """Fills a store; the only one that writes it.

    Args:
        connection: from ``schema.writing`` or ``schema.in_memory``.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._names = Names(connection)
        self._calls = Calls(connection, self._names, meta(connection, "secret", b""))
        self._inventory = Inventory(connection, self._names)
        self._sources: dict[tuple[str, int], tuple[int, int]] = {}
        self.refresh()

    def refresh(self) -> None:
        """Read again what is remembered of the store."""
        self._names.forget()
        self._calls.reset(
            horizon_us=meta(self._connection, "complete_since_us", 0), last=meta(self._connection, "last_evidence", 0)
        )
        rows = self._connection.execute("SELECT topic, part, id, next FROM source")
        self._sources = {(topic, part): (number, following) for topic, part, number, following in rows}

    def position(self, topic: str, partition: int) -> int | None:
        """Return the first offset of a log that was not read, ``None`` where nothing was."""
        found = self._sources.get((topic, partition))
        return None if found is None else found[1]

    def take(self, records: Sequence[Record]) -> int:
        """Take records in, all or none; return how many were new.

        Args:
            records: those of one log in the order of their offsets.
        """
        new = 0
        with self._transaction():
            for (role, topic, part), group in groupby(records, _place_of):
                new += self._take_log((role, topic, part), list(group))
        return new

    def note(
        self,
        role: Role,
        topic: str,
        partition: int,
        *,
        following: int | None = None,
        lost: int = 0,
        end: int | None = None,
    ) -> None:
        """Note what is known of a log without a record.

        Args:
            following: go on here: what stands before it is no record, or is gone.
            lost: offsets that are gone.
            end: where the log ends now.
        """
        with self._transaction():
            number, before = self._source((role, topic, partition))
            following = before if following is None else max(before, following)
            self._connection.execute(
                "UPDATE source SET next = ?, lost = lost + ?, ends = coalesce(?, ends) WHERE id = ?",
                (following, lost, end, number),
            )
            self._sources[topic, partition] = number, following

    @contextmanager
    def _transaction(self) -> Iterator[None]:
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

    def _source(self, place: _Place) -> tuple[int, int]:
        role, topic, part = place
        known = self._sources.get((topic, part))
        if known is None:
            insert = "INSERT INTO source (role, topic, part, next) VALUES (?, ?, ?, 0) RETURNING id"
            known = self._connection.execute(insert, (role.value, topic, part)).fetchone()[0], 0
            self._sources[topic, part] = known
        return known

    def _take_log(self, place: _Place, records: list[Record]) -> int:
        number, following = self._source(place)
        new: list[Record] = []
        for record in records:
            if record.origin.offset >= following:
                new.append(record)
                following = record.origin.offset + 1
        if not new:
            return 0
        dropped = 0
        if place[0] is Role.EVIDENCE:
            refused, dropped = self._calls.take(number, new)
            put_meta(self._connection, "last_evidence", self._calls.last)
        else:
            refused = sum(not self._inventory.take(record) for record in new)
        if dropped:
            put_meta(self._connection, "dropped", meta(self._connection, "dropped", 0) + dropped)
        self._connection.execute(
            "UPDATE source SET next = ?, read = read + ?, refused = refused + ?, time_us = max(time_us, ?) "
            "WHERE id = ?",
            (following, len(new), refused, new[-1].timestamp_ms * 1_000, number),
        )
        self._sources[place[1:]] = number, following
        return len(new)


def _place_of(record: Record) -> _Place:
    return record.role, record.origin.topic, record.origin.partition


def fill(connection: sqlite3.Connection, records: Iterable[Record]) -> Filler:
    """Fill a store from records of ``ROLES``; others are left out. Return what filled it."""
    filler = Filler(connection)
    ours = (record for record in records if record.role in ROLES)
    while batch := list(islice(ours, STORE_BATCH_RECORDS)):
        filler.take(batch)
    return filler


def meta(connection: sqlite3.Connection, name: str, default: Any) -> Any:
    """Return a value of the store itself."""
    row = connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
    return default if row is None else row[0]


def put_meta(connection: sqlite3.Connection, name: str, value: int | str) -> None:
    connection.execute("INSERT INTO meta VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value", (name, value))
