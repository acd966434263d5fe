"""What the store keeps within an age and a size. What goes is counted, and the store says from when on its evidence
is complete.

Everything that follows from evidence goes with it, so that the store is what it would be had it never had it.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from assay_stream.limits.store import STORE_AHEAD_US, STORE_DROP_ROWS, STORE_ERA_RECORDS
from assay_stream.readmodel import blocks, history_bounds
from assay_stream.readmodel.calls import count_calls, drop_subject, read_line
from assay_stream.readmodel.digests import Marks, own_values
from assay_stream.readmodel.status import used_bytes

_FROM = "SELECT e.id, e.time_us, e.server, e.tool, e.observer, e.agent, e.subject FROM evidence e"
_Row = tuple[int, int, int, int, int, int | None, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What the store may keep.

    Args:
        age_us: of evidence by event time, of closed alerts and replaced lists; microseconds.
        size_bytes: of the store altogether.
    """

    age_us: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """What one look at the bounds dropped.

    Args:
        kind: table of the rows.
        bound: ``age``, ``size``, or ``server``, where one server had more than its share.
        horizon_us: evidence before this event time is not kept from now on, ``None`` where that did not change.
    """

    rows: int = 0
    kind: str = "evidence"
    bound: str = "size"
    horizon_us: int | None = None

    def __bool__(self) -> bool:
        return self.rows > 0


def drop(connection: sqlite3.Connection, bounds: Bounds, secret: bytes, *, now_us: int) -> Dropped:
    """Drop some of what is beyond the bounds; the caller holds the transaction, and asks again until none was.

    1. What is too old: evidence, closed alerts, lists that others replaced.
    2. What one server has too much of, whatever room there is: it drives nobody else's rows out.
    3. Where there is no room: evidence dated far ahead of the clock; where definitions take more than their share,
       lists of the server whose take most; the oldest evidence; the oldest lists; alerts, closed ones first.

    Verdicts follow from pins, policies and the lists in force; decisions are the operators' own, and stay.
    """
    old = now_us - bounds.age_us
    found = connection.execute(
        f"{_FROM} WHERE e.time_us < ? ORDER BY e.time_us LIMIT ?", (old, STORE_DROP_ROWS)
    ).fetchall()
    if found:
        _drop(connection, found, secret)
        return Dropped(rows=len(found), bound="age", horizon_us=old)
    for kind, bound, rows in history_bounds.drop_beyond(connection, before_us=old):
        if rows:
            return Dropped(rows=rows, kind=kind, bound=bound)
    if used_bytes(connection) <= bounds.size_bytes:
        return Dropped()
    return _make_room(connection, bounds, secret, now_us)


def _make_room(connection: sqlite3.Connection, bounds: Bounds, secret: bytes, now_us: int) -> Dropped:
    ahead = now_us + STORE_AHEAD_US
    found = connection.execute(
        f"{_FROM} WHERE e.time_us > ? ORDER BY e.time_us DESC LIMIT ?", (ahead, STORE_DROP_ROWS)
    ).fetchall()
    if found:
        _drop(connection, found, secret)
        _note_last_calls(connection, found)
        return Dropped(rows=len(found))
    if lists := history_bounds.drop_greedy_lists(connection, size_bytes=bounds.size_bytes):
        return Dropped(rows=lists, kind="seen", bound="server")
    found = connection.execute(f"{_FROM} ORDER BY e.time_us LIMIT ?", (STORE_DROP_ROWS,)).fetchall()
    if found:
        _drop(connection, found, secret)
        return Dropped(rows=len(found), horizon_us=found[-1][1] + 1)
    if lists := history_bounds.drop_oldest_lists(connection):
        return Dropped(rows=lists, kind="seen")
    return Dropped(rows=history_bounds.drop_alerts(connection), kind="alert")


def _note_last_calls(connection: sqlite3.Connection, dropped: list[_Row]) -> None:
    """Look up what was called last: the latest calls went, not the first."""
    for table, column, places in (
        ("called", "tool", {row[2:4] for row in dropped}),
        ("reported", "observer", {(row[2], row[4]) for row in dropped}),
    ):
        connection.executemany(
            f"UPDATE {table} SET last_us = (SELECT e.time_us FROM evidence e INDEXED BY evidence_{column} "  # noqa: S608
            f"WHERE e.{column} = {table}.{column} AND e.server = {table}.server ORDER BY e.time_us DESC LIMIT 1) "
            f"WHERE server = ? AND {column} = ?",
            sorted(places),
        )


def _drop(connection: sqlite3.Connection, found: list[_Row], secret: bytes) -> None:
    marks, hashes = [], Marks(secret).hashes
    times = {row[0]: row[1] for row in found}
    for number, value in blocks.take_out(connection, times):
        line = read_line(value)
        if line is not None:
            era = number // STORE_ERA_RECORDS
            marks += [(era, each, times[number], number) for each in hashes(own_values(line))]
    many = connection.executemany
    many("DELETE FROM mark WHERE era = ? AND hash = ? AND time_us = ? AND evidence = ?", marks)
    many("DELETE FROM evidence WHERE id = ?", [(number,) for number in times])
    count_calls(connection, [(row[1], row[2], row[3], row[4]) for row in found], sign=-1)
    subjects = sorted({row[6] for row in found})
    used = "SELECT 1 FROM evidence WHERE subject = ? LIMIT 1"
    for each in subjects:
        if connection.execute(used, (each,)).fetchone() is None:
            drop_subject(connection, each)
    history_bounds.drop_names(connection, (number for row in found for number in row[2:6] if number is not None))
