"""What the store keeps beside evidence, within the bounds: closed alerts, and lists that later ones replaced."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from typing import Any

from assay_stream.limits.store import (
    STORE_ALERTS_PER_SERVER_MAX,
    STORE_CHANGES_PER_SERVER_MAX,
    STORE_DROP_ROWS,
    STORE_LISTED_PER_SERVER_MAX,
    STORE_LISTS_PER_SERVER_MAX,
)
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
_REPLACED_OF = f"{_LISTS} WHERE s.server = ? AND {_REPLACED} ORDER BY s.time_us LIMIT ?"
_FIRST_OF = f"{_LISTS} WHERE s.server = ? ORDER BY NOT {_REPLACED}, s.time_us LIMIT ?"
_OLD = f"{_LISTS} WHERE s.time_us < ? AND {_REPLACED} ORDER BY s.time_us LIMIT ?"
_ANY = f"{_LISTS} ORDER BY s.time_us LIMIT ?"
_CROWDED_LISTS = "SELECT server, count(*) - ? FROM seen GROUP BY server HAVING count(*) > ?"
_CROWDED_TOOLS = """SELECT c.server, count(*) - ? FROM catalogue c CROSS JOIN listed l ON l.catalogue = c.id
  GROUP BY c.server HAVING count(*) > ? AND EXISTS (SELECT 1 FROM seen WHERE server = c.server)"""
_CROWDED_ALERTS = "SELECT server, count(*) - ? FROM alert GROUP BY server HAVING count(*) > ?"
_CROWDED_CHANGES = "SELECT server, count(*) - ? FROM decision WHERE author IS NULL GROUP BY server HAVING count(*) > ?"
_TAKEN = """SELECT t.server, sum(length(d.body)) AS bytes FROM tool_fact t JOIN definition d ON d.full = t.full
  WHERE EXISTS (SELECT 1 FROM seen WHERE server = t.server) GROUP BY t.server ORDER BY bytes DESC, t.server"""


def drop_names(connection: sqlite3.Connection, numbers: Iterable[int]) -> None:
    """Drop those of some names that no row has."""
    statement = f"DELETE FROM name AS n WHERE id = ? AND {_UNREFERRED}"  # noqa: S608
    connection.executemany(statement, [(number,) for number in sorted(set(numbers))])


def drop_beyond(connection: sqlite3.Connection, *, before_us: int) -> Iterator[tuple[str, str, int]]:
    """Drop some of what is too old, or of which one server has too much; yield kind, bound and how many rows.

    Args:
        before_us: closed alerts that were not heard of since, and lists that others replaced since.
    """
    yield "alert", "age", _drop_alerts(connection, "state = 'closed' AND last_ms < ?", before_us // 1_000)
    for server, surplus in connection.execute(_CROWDED_ALERTS, (STORE_ALERTS_PER_SERVER_MAX,) * 2).fetchall():
        yield "alert", "server", _drop_alerts(connection, "server = ?", server, limit=surplus)
    for server, surplus in connection.execute(_CROWDED_CHANGES, (STORE_CHANGES_PER_SERVER_MAX,) * 2).fetchall():
        yield "decision", "server", _drop_changes(connection, server, min(surplus, STORE_DROP_ROWS))
    for server, surplus in connection.execute(_CROWDED_LISTS, (STORE_LISTS_PER_SERVER_MAX,) * 2).fetchall():
        found = connection.execute(_REPLACED_OF, (server, min(surplus, STORE_DROP_ROWS))).fetchall()
        yield "seen", "server", _drop(connection, found)
    for server, surplus in connection.execute(_CROWDED_TOOLS, (STORE_LISTED_PER_SERVER_MAX,) * 2).fetchall():
        yield "seen", "server", _drop_first(connection, server, surplus)
    yield "seen", "age", _drop(connection, connection.execute(_OLD, (before_us, STORE_DROP_ROWS)).fetchall())


def drop_greedy_lists(connection: sqlite3.Connection, *, size_bytes: int) -> int:
    """Drop some lists of the server whose definitions take most, where that is more than an eighth of the store, or all
    definitions are more than half; return how many were dropped.

    Args:
        size_bytes: what the store may take.
    """
    taken = connection.execute(_TAKEN).fetchall()
    if not taken or (taken[0][1] <= size_bytes // 8 and sum(row[1] for row in taken) <= size_bytes // 2):
        return 0
    return _drop_first(connection, taken[0][0], STORE_DROP_ROWS // 10)


def drop_oldest_lists(connection: sqlite3.Connection) -> int:
    """Drop some lists, in force or not; return how many."""
    return _drop(connection, connection.execute(_ANY, (STORE_DROP_ROWS,)).fetchall())


def drop_alerts(connection: sqlite3.Connection) -> int:
    """Drop some alerts, closed ones first; return how many."""
    return _drop_alerts(connection, "TRUE")


def _drop_alerts(connection: sqlite3.Connection, condition: str, *given: object, limit: int = STORE_DROP_ROWS) -> int:
    statement = f"SELECT id FROM alert WHERE {condition} ORDER BY state != 'closed', last_ms LIMIT ?"  # noqa: S608
    found = connection.execute(statement, (*given, min(limit, STORE_DROP_ROWS))).fetchall()
    connection.executemany("DELETE FROM alert_record WHERE alert = ?", found)
    connection.executemany("DELETE FROM alert WHERE id = ?", found)
    for (number,) in found:
        drop_digests(connection, "alert", number)
    return len(found)


def _drop_changes(connection: sqlite3.Connection, server: str, limit: int) -> int:
    statement = "SELECT id FROM decision WHERE server = ? AND author IS NULL ORDER BY time_us, id LIMIT ?"
    found = connection.execute(statement, (server, limit)).fetchall()
    connection.executemany("DELETE FROM decision WHERE id = ?", found)
    for (number,) in found:
        drop_digests(connection, "decision", number)
    return len(found)


def _drop_first(connection: sqlite3.Connection, server: int, tools: int) -> int:
    """Drop lists of a server with so many tools at least: replaced ones first, then the oldest."""
    return _drop(connection, connection.execute(_FIRST_OF, (server, STORE_DROP_ROWS)).fetchall(), tools_max=tools)


def _drop(
    connection: sqlite3.Connection, found: list[tuple[int, int, int, str]], *, tools_max: int = STORE_DROP_ROWS
) -> int:
    done = tools = 0
    for number, server, observer, digest in found:
        connection.execute("DELETE FROM seen WHERE id = ?", (number,))
        done += 1
        shown = "SELECT 1 FROM seen WHERE digest = ? AND server = ? LIMIT 1"
        if connection.execute(shown, (digest, server)).fetchone() is None:
            tools += _drop_catalogues(connection, server, digest)
        drop_names(connection, (server, observer))
        if tools >= min(tools_max, STORE_DROP_ROWS):
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
