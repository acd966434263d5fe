"""What the store keeps within an age and a size. What goes is counted, and the store says from when on its evidence
is complete.

Everything that follows from evidence goes with it, so that the store is what it would be had it never had it.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from assay_stream.limits.store import STORE_DROP_ROWS, STORE_ERA_RECORDS
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
    3. Where there is no room: where definitions take more than their share, lists of the server whose take most; of
       the servers with the most evidence what came first; the oldest lists; alerts, closed ones first.

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
    return _make_room(connection, bounds, secret)


def _make_room(connection: sqlite3.Connection, bounds: Bounds, secret: bytes) -> Dropped:
    if lists := history_bounds.drop_greedy_lists(connection, size_bytes=bounds.size_bytes):
        return Dropped(rows=lists, kind="seen", bound="server")
    # By row, the order in which they came: a caller can date its calls, but not say when they were read.
    oldest = f"{_FROM} INDEXED BY evidence_came WHERE e.server = ? ORDER BY e.id LIMIT ?"
    found = [row for surplus in _surpluses(connection) for row in connection.execute(oldest, surplus).fetchall()]
    if found:
        _drop(connection, found, secret)
        _note_last_calls(connection, found)
        return Dropped(rows=len(found))
    if lists := history_bounds.drop_oldest_lists(connection):
        return Dropped(rows=lists, kind="seen")
    return Dropped(rows=history_bounds.drop_alerts(connection), kind="alert")


def _surpluses(connection: sqlite3.Connection) -> list[tuple[int, int]]:
    """Return of which servers to drop evidence, and how much: those with the most are left the same number each."""
    statement = "SELECT server, sum(calls) AS calls FROM called GROUP BY server ORDER BY calls DESC, server"
    counts = connection.execute(statement).fetchall()
    wanted = min(STORE_DROP_ROWS, sum(calls for _, calls in counts) // 10 + 1)
    share = taken = 0
    for number, (_, calls) in enumerate(counts, start=1):
        taken += calls
        share = max(taken - wanted, 0) // number
        if number == len(counts) or counts[number][1] <= share:
            break
    return [(server, calls - share) for server, calls in counts if calls > share]


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
