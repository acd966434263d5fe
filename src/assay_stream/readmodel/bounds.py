"""What the store keeps within an age and a size. What goes is counted, and the store says from when on its evidence
is complete.

Everything that follows from evidence goes with it, so that the store is what it would be had it never had it.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from assay_stream.limits import STORE_AHEAD_US, STORE_DROP_ROWS
from assay_stream.readmodel.calls import count_calls, read_line, unpacked
from assay_stream.readmodel.digests import Marks, own_digests
from assay_stream.readmodel.history_bounds import drop_alerts, drop_lists, drop_names

_COLUMNS = "e.id, e.time_us, e.server, e.tool, e.observer, e.agent, e.subject, p.body"
_FROM = f"SELECT {_COLUMNS} FROM evidence e JOIN payload p ON p.evidence = e.id"  # noqa: S608


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
        connection.executemany(
            "UPDATE called SET last_us = (SELECT e.time_us FROM evidence e INDEXED BY evidence_tool WHERE e.tool = "
            "called.tool AND e.server = called.server AND e.observer = called.observer ORDER BY e.time_us DESC "
            "LIMIT 1) WHERE server = ? AND tool = ? AND observer = ?",
            sorted({row[2:5] for row in found}),
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
    connection: sqlite3.Connection, found: list[tuple[int, int, int, int, int, int | None, int, bytes]], secret: bytes
) -> None:
    marks, hashed = [], Marks(secret).hash
    for number, time_us, *_, body in found:
        line = read_line(unpacked(body))
        if line is not None:
            marks += [(hashed(value), time_us, number) for _, _, value in own_digests(line)]
    many = connection.executemany
    many("DELETE FROM mark WHERE hash = ? AND time_us = ? AND evidence = ?", marks)
    numbers = [(row[0],) for row in found]
    many("DELETE FROM evidence WHERE id = ?", numbers)
    many("DELETE FROM payload WHERE evidence = ?", numbers)
    count_calls(connection, [(row[1], row[2], row[3], row[4]) for row in found], sign=-1)
    connection.execute("DELETE FROM tally WHERE calls = 0")
    connection.execute("DELETE FROM called WHERE calls = 0")
    subjects = sorted({row[6] for row in found})
    used = "SELECT 1 FROM evidence WHERE subject = ? LIMIT 1"
    unused = [(each,) for each in subjects if connection.execute(used, (each,)).fetchone() is None]
    many("DELETE FROM digest WHERE place = 'calls' AND owner = ?", unused)
    many("DELETE FROM subject WHERE id = ?", unused)
    drop_names(connection, (number for row in found for number in row[2:6] if number is not None))
