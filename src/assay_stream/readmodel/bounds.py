"""What the store keeps within an age and a size. What goes is counted, and the store says from when on its evidence
is complete.

Everything that follows from evidence goes with it, so that the store is what it would be had it never had it.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from assay_stream.limits import STORE_AHEAD_US, STORE_DROP_ROWS, STORE_ERA_RECORDS
from assay_stream.readmodel import blocks
from assay_stream.readmodel.calls import count_calls, drop_subject, read_line
from assay_stream.readmodel.digests import Marks, own_values
from assay_stream.readmodel.history_bounds import drop_alerts, drop_lists, drop_names

_FROM = "SELECT e.id, e.time_us, e.server, e.tool, e.observer, e.agent, e.subject FROM evidence e"


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
        rows: how many records of evidence.
        horizon_us: evidence before this event time is not kept from now on, ``None`` where that did not change.
        alerts: how many alerts.
        lists: how many notes that an observer was shown a list.
    """

    rows: int = 0
    alerts: int = 0
    lists: int = 0
    horizon_us: int | None = None


def used_bytes(connection: sqlite3.Connection) -> int:
    """Return what the store holds, without the pages of its file that are free."""
    pages, free, size = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)


def drop(connection: sqlite3.Connection, bounds: Bounds, secret: bytes, *, now_us: int) -> Dropped:
    """Drop some of what is beyond the bounds; the caller holds the transaction, and asks again until none was.

    Where there is no room, evidence dated far ahead of the clock goes first, then the oldest; then the oldest lists,
    then alerts, closed ones first. Decisions and verdicts are the operator's own, and stay.
    """
    old = now_us - bounds.age_us
    found = connection.execute(
        f"{_FROM} WHERE e.time_us < ? ORDER BY e.time_us LIMIT ?", (old, STORE_DROP_ROWS)
    ).fetchall()
    if found:
        _drop(connection, found, secret)
        return Dropped(rows=len(found), horizon_us=old)
    if alerts := drop_alerts(connection, closed_before_us=old):
        return Dropped(alerts=alerts)
    if lists := drop_lists(connection, before_us=old):
        return Dropped(lists=lists)
    if used_bytes(connection) <= bounds.size_bytes:
        return Dropped()
    ahead = now_us + STORE_AHEAD_US
    found = connection.execute(
        f"{_FROM} WHERE e.time_us > ? ORDER BY e.time_us DESC LIMIT ?", (ahead, STORE_DROP_ROWS)
    ).fetchall()
    if found:
        _drop(connection, found, secret)
        # The latest calls went, not the first: what was called last is looked up again.
        for table, column, places in (
            ("called", "tool", {row[2:4] for row in found}),
            ("reported", "observer", {(row[2], row[4]) for row in found}),
        ):
            connection.executemany(
                f"UPDATE {table} SET last_us = (SELECT e.time_us FROM evidence e INDEXED BY evidence_{column} "  # noqa: S608
                f"WHERE e.{column} = {table}.{column} AND e.server = {table}.server ORDER BY e.time_us DESC LIMIT 1) "
                f"WHERE server = ? AND {column} = ?",
                sorted(places),
            )
        return Dropped(rows=len(found))
    found = connection.execute(f"{_FROM} ORDER BY e.time_us LIMIT ?", (STORE_DROP_ROWS,)).fetchall()
    if found:
        _drop(connection, found, secret)
        return Dropped(rows=len(found), horizon_us=found[-1][1] + 1)
    if lists := drop_lists(connection, before_us=None):
        return Dropped(lists=lists)
    return Dropped(alerts=drop_alerts(connection, closed_before_us=None))


def _drop(
    connection: sqlite3.Connection, found: list[tuple[int, int, int, int, int, int | None, int]], secret: bytes
) -> None:
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
    drop_names(connection, (number for row in found for number in row[2:6] if number is not None))
