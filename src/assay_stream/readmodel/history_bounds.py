"""What the store keeps beside evidence, within the bounds: closed alerts, and lists that later ones replaced."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Any

from assay_stream.limits import STORE_DROP_ROWS, STORE_LISTS_PER_SERVER_MAX
from assay_stream.readmodel.calls import drop_digests
from assay_stream.readmodel.digests import digest_key

_UNREFERRED = """NOT EXISTS (SELECT 1 FROM called WHERE server = n.id)
  AND NOT EXISTS (SELECT 1 FROM called WHERE tool = n.id) AND NOT EXISTS (SELECT 1 FROM reported WHERE observer = n.id)
  AND NOT EXISTS (SELECT 1 FROM evidence WHERE agent = n.id) AND NOT EXISTS (SELECT 1 FROM listed WHERE tool = n.id)
  AND NOT EXISTS (SELECT 1 FROM catalogue WHERE server = n.id) AND NOT EXISTS (SELECT 1 FROM seen WHERE server = n.id)
  AND NOT EXISTS (SELECT 1 FROM seen WHERE observer = n.id) AND NOT EXISTS (SELECT 1 FROM tool_fact WHERE server = n.id)
  AND NOT EXISTS (SELECT 1 FROM verdict WHERE server = n.id) AND NOT EXISTS (SELECT 1 FROM verdict WHERE tool = n.id)"""
"""Of a name ``n``: no row has it."""
_LISTS = "SELECT s.id, s.server, s.observer, s.digest FROM seen s"
_REPLACED = """EXISTS (SELECT 1 FROM seen l WHERE l.server = s.server AND l.observer = s.observer
  AND l.time_us >= s.time_us AND (l.time_us, l.pos, l.part) > (s.time_us, s.pos, s.part))"""
_CROWDED = f"{_LISTS} WHERE s.server = ? AND {_REPLACED} ORDER BY s.time_us LIMIT ?"
_OLD = f"{_LISTS} WHERE s.time_us < ? AND {_REPLACED} ORDER BY s.time_us LIMIT ?"
_ANY = f"{_LISTS} ORDER BY s.time_us LIMIT ?"


def drop_names(connection: sqlite3.Connection, numbers: Iterable[int]) -> None:
    """Drop those of some names that no row has."""
    statement = f"DELETE FROM name AS n WHERE id = ? AND {_UNREFERRED}"  # noqa: S608
    connection.executemany(statement, [(number,) for number in sorted(set(numbers))])


def drop_alerts(connection: sqlite3.Connection, *, closed_before_us: int | None) -> int:
    """Drop some alerts, and return how many.

    Args:
        closed_before_us: those that were closed, and not heard of since; ``None`` for the oldest, closed or not.
    """
    condition = "TRUE" if closed_before_us is None else "state = 'closed' AND last_ms < ?"
    given = () if closed_before_us is None else (closed_before_us // 1_000,)
    statement = f"SELECT id FROM alert WHERE {condition} ORDER BY state != 'closed', last_ms LIMIT ?"  # noqa: S608
    found = connection.execute(statement, (*given, STORE_DROP_ROWS)).fetchall()
    connection.executemany("DELETE FROM alert_record WHERE alert = ?", found)
    connection.executemany("DELETE FROM alert WHERE id = ?", found)
    for (number,) in found:
        drop_digests(connection, "alert", number)
    return len(found)


def drop_lists(connection: sqlite3.Connection, *, before_us: int | None) -> int:
    """Drop some notes that an observer was shown a list, with what nothing refers to any more; return how many.

    Args:
        before_us: those of before that later ones replaced, and those of which a server has too many; ``None`` for
            the oldest, replaced or not.
    """
    if before_us is None:
        return _drop(connection, connection.execute(_ANY, (STORE_DROP_ROWS,)).fetchall())
    crowded = "SELECT server, count(*) - ? FROM seen GROUP BY server HAVING count(*) > ?"
    for server, surplus in connection.execute(crowded, (STORE_LISTS_PER_SERVER_MAX,) * 2).fetchall():
        found = connection.execute(_CROWDED, (server, min(surplus, STORE_DROP_ROWS))).fetchall()
        if found:
            return _drop(connection, found)
    return _drop(connection, connection.execute(_OLD, (before_us, STORE_DROP_ROWS)).fetchall())


def _drop(connection: sqlite3.Connection, found: list[tuple[int, int, int, str]]) -> int:
    done = tools = 0
    for number, server, observer, digest in found:
        connection.execute("DELETE FROM seen WHERE id = ?", (number,))
        done += 1
        shown = "SELECT 1 FROM seen WHERE digest = ? AND server = ? LIMIT 1"
        if connection.execute(shown, (digest, server)).fetchone() is None:
            tools += _drop_catalogues(connection, server, digest)
        drop_names(connection, (server, observer))
        if tools >= STORE_DROP_ROWS:
            break
    return done


def _drop_catalogues(connection: sqlite3.Connection, server: int, digest: str) -> int:
    one = connection.execute
    dropped: list[tuple[int, str]] = []
    for (number,) in one("SELECT id FROM catalogue WHERE server = ? AND digest = ?", (server, digest)).fetchall():
        dropped += one("DELETE FROM listed WHERE catalogue = ? RETURNING tool, full", (number,)).fetchall()
        one("DELETE FROM catalogue WHERE id = ?", (number,))
        drop_digests(connection, "catalogue", number)
    for tool, full in set(dropped):
        if not _is_known(connection, server, tool, full):
            _drop_definition(connection, server, full)
    drop_names(connection, (tool for tool, _ in dropped))
    return len(dropped)


def _is_known(connection: sqlite3.Connection, *what: Any) -> bool:
    """Tell whether a definition of a server is in a list, or in a call."""
    statement = (
        "SELECT EXISTS (SELECT 1 FROM listed l JOIN catalogue c ON c.id = l.catalogue WHERE c.server = ?1 "
        "AND l.tool = ?2 AND l.full = ?3) "
        "OR EXISTS (SELECT 1 FROM subject WHERE server = ?1 AND tool = ?2 AND full = ?3)"
    )
    return bool(connection.execute(statement, what).fetchone()[0])


def _drop_definition(connection: sqlite3.Connection, server: int, full: str) -> None:
    gone = connection.execute("DELETE FROM tool_fact WHERE server = ? AND full = ? RETURNING id", (server, full))
    for (number,) in gone.fetchall():
        drop_digests(connection, "tool", number)
    elsewhere = "SELECT 1 FROM digest WHERE value = ? AND place != 'definition' LIMIT 1"
    if connection.execute(elsewhere, (digest_key(full),)).fetchone() is None:
        row = connection.execute("DELETE FROM definition WHERE full = ? RETURNING id", (full,)).fetchone()
        if row is not None:
            drop_digests(connection, "definition", row[0])
