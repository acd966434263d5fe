"""Inventory queries: servers, tools, observers, the versions of a tool's definition, and its pins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from assay_stream.bindings.state import Bindings
from assay_stream.errors import InputError
from assay_stream.model.facts import foreign_fact
from assay_stream.model.record import Origin, Record, Role
from assay_stream.readmodel.calls import decompressed, values_of
from assay_stream.readmodel.rows import (
    DigestValue,
    ObserverRow,
    Page,
    Paging,
    ServerRow,
    Tables,
    ToolRow,
    VerdictRow,
    VersionRow,
    at_one_moment,
    page_of,
    place_of,
    rows_max,
)

_DAY_US = 86_400 * 1_000_000
_NAMES_AT_ONCE = 1_000


def _distinct(table: str, column: str) -> str:
    """Return a query for up to ?2 values of an indexed column from ?1 on, with one index step per value."""
    return (
        f"SELECT n FROM (WITH RECURSIVE step(n) AS (SELECT min({column}) FROM {table} WHERE {column} >= ?1 UNION ALL "  # noqa: S608
        f"SELECT (SELECT min({column}) FROM {table} WHERE {column} > n) FROM step WHERE n IS NOT NULL LIMIT ?2 + 1) "
        "SELECT n FROM step WHERE n IS NOT NULL)"
    )


_SERVERS = (
    " UNION ".join(_distinct(each, "server") for each in ("called", "seen", "catalogue")) + " ORDER BY n LIMIT ?2"
)
_OBSERVERS = " UNION ".join(_distinct(each, "observer") for each in ("called", "seen")) + " ORDER BY n LIMIT ?2"
_LISTED = "SELECT l.tool, l.full FROM catalogue c CROSS JOIN listed l ON l.catalogue = c.id WHERE c.server = ?1"
_TOOLS = f"""SELECT tool FROM ({_LISTED}) WHERE tool >= ?2
  UNION SELECT tool FROM called WHERE server = ?1 AND tool >= ?2 ORDER BY tool LIMIT ?3"""  # noqa: S608
_VERSIONS = f"""SELECT tool, count(*) FROM ({_LISTED} UNION
  SELECT tool, full FROM subject WHERE server = ?1 AND full != '') GROUP BY tool"""  # noqa: S608
_STATUSES = "SELECT tool, status FROM verdict WHERE server = ? AND tool IS NOT NULL ORDER BY part DESC, id DESC"
_IN_A_DAY = "time_us > ? AND time_us <= ?"


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfServer:
    """Data for the rows of a server's tools.

    Args:
        latest: time and digest of each observer's latest list.
        called: calls and the time of the last one, by tool.
        day: calls of the last day, by tool.
        versions: number of known definitions, by tool.
        statuses: of verdicts, by tool.
    """

    latest: dict[str, tuple[int, str]]
    called: dict[str, tuple[int, int]]
    day: dict[str, int]
    versions: dict[str, int]
    statuses: dict[str, str]


def _day(now_us: int) -> tuple[int, int]:
    return now_us - _DAY_US, now_us


def _begin(after: tuple[str, ...] | None) -> str:
    """Return the first name of a page: the successor of the last page's last. The first of all names is empty."""
    return "" if after is None else after[-1] + "\0"


class InventoryQueries(Tables):
    @at_one_moment
    def bindings(self, *server_ids: str) -> Bindings:
        """Return what the registry published about some servers, or about all of them.

        Raises:
            InputError: ``facts_dropped`` if facts about one of ``server_ids`` were dropped.
            IntegrityError: ``foreign_fact`` if the binding topic holds facts that this version does not write.
        """
        logs, ends, refused = self._connection.execute(
            "SELECT count(*), count(ends), sum(refused) FROM source WHERE role = ?", (Role.BINDINGS.value,)
        ).fetchone()
        if refused:
            raise foreign_fact()
        named = f"WHERE server IN ({','.join('?' * len(server_ids))})"
        without = f"SELECT server FROM without_facts {named}"  # noqa: S608
        if dropped := self._connection.execute(without, server_ids).fetchone():
            raise InputError(
                "facts_dropped",
                f"the store has no room for all that {dropped[0]} listed: ask the topics, or files with --input",
            )
        bindings = Bindings(home_partitions=logs if logs and logs == ends else None)
        statement = f"SELECT part, key, body FROM fact {named if server_ids else ''}"  # noqa: S608
        for part, key, body in self._connection.execute(statement, server_ids):
            place = Origin(topic=Role.BINDINGS.value, partition=part, offset=0)
            bindings.take(Record(role=Role.BINDINGS, origin=place, key=key, value=decompressed(body)))
        return bindings

    @at_one_moment
    def servers(self, *, now_us: int, paging: Paging = Paging()) -> Page[ServerRow]:  # noqa: B008 -- frozen
        """Return servers by name.

        Args:
            now_us: end of the day whose calls are counted, microseconds since the epoch.

        Raises:
            InputError: ``bad_cursor``.
        """
        begin = _begin(place_of(paging, str))
        found = self._connection.execute(_SERVERS, (begin, rows_max(paging) + 1)).fetchall()
        rows = [self._server_row(server, now_us) for (server,) in found]
        return page_of(rows, paging, lambda row: (row.server_id,))

    @at_one_moment
    def server(self, server_id: str, *, now_us: int) -> ServerRow | None:
        """Return one server, ``None`` if unknown."""
        row = self._server_row(server_id, now_us)
        return None if row.listed_us is None and row.called_us is None else row

    @at_one_moment
    def tools(self, *, now_us: int, server_id: str | None = None, paging: Paging = Paging()) -> Page[ToolRow]:  # noqa: B008
        """Return tools by server and name: those listed or called.

        Raises:
            InputError: ``bad_cursor``.
        """
        place = place_of(paging, str, str)
        at = "" if place is None else place[0]
        limit = rows_max(paging) + 1
        rows: list[ToolRow] = []
        for server in self._servers_from(at, server_id):
            begin = _begin(place if server == at else None)
            found = self._connection.execute(_TOOLS, (server, begin, limit - len(rows))).fetchall()
            if found:
                known = self._of_server(server, now_us)
                rows += [self._tool_row(server, tool, known) for (tool,) in found]
            if len(rows) >= limit:
                break
        return page_of(rows, paging, lambda row: (row.server_id, row.tool_name))

    @at_one_moment
    def tool(self, server_id: str, tool_name: str, *, now_us: int) -> ToolRow | None:
        """Return one tool, ``None`` if it was neither listed nor called."""
        row = self._tool_row(server_id, tool_name, self._of_server(server_id, now_us))
        return row if row.versions or row.calls or row.is_listed else None

    @at_one_moment
    def versions(self, server_id: str, tool_name: str) -> tuple[VersionRow, ...]:
        """Return the definitions of a tool known from lists or calls, latest first."""
        times: dict[str, tuple[int | None, int | None]] = {}
        for full, first, last in self._connection.execute(
            "SELECT l.full, min(s.time_us), max(s.time_us) FROM catalogue c "
            "CROSS JOIN listed l ON l.catalogue = c.id AND l.tool = ? "
            "LEFT JOIN seen s ON s.digest = c.digest AND s.server = c.server WHERE c.server = ? GROUP BY l.full",
            (tool_name, server_id),
        ):
            times[full] = (first, last)
        calls: dict[str, int] = {}
        for full, count in self._connection.execute(
            "SELECT s.full, (SELECT count(*) FROM evidence e WHERE e.subject = s.id) FROM subject s "
            "WHERE s.server = ? AND s.tool = ? AND s.full != ''",
            (server_id, tool_name),
        ):
            calls[full] = calls.get(full, 0) + count
            times.setdefault(full, (None, None))
        shown = self._shown(self._latest(server_id), server_id, tool_name)
        rows = [
            VersionRow(
                server_id=server_id,
                tool_name=tool_name,
                full_digest=full,
                digests=self._digests_of(server_id, full),
                first_us=first,
                last_us=last,
                is_listed=full in shown,
                calls=calls.get(full, 0),
            )
            for full, (first, last) in times.items()
        ]
        return tuple(sorted(rows, key=lambda row: (row.last_us or 0, row.full_digest), reverse=True))

    @at_one_moment
    def observers(self, *, now_us: int, paging: Paging = Paging()) -> Page[ObserverRow]:  # noqa: B008 -- frozen
        """Return observers by name.

        Raises:
            InputError: ``bad_cursor``.
        """
        begin = _begin(place_of(paging, str))
        rows = []
        for (observer,) in self._connection.execute(_OBSERVERS, (begin, rows_max(paging) + 1)).fetchall():
            calls, last = self._called("observer", observer)
            listed = self._one("SELECT max(time_us) FROM seen WHERE observer = ?", observer)
            servers = self._one(
                "SELECT count(*) FROM (SELECT server FROM called WHERE observer = ?1 "
                "UNION SELECT server FROM seen WHERE observer = ?1)",
                observer,
            )
            rows.append(
                ObserverRow(
                    observer_id=observer,
                    servers=servers,
                    calls=calls,
                    calls_day=self._calls_day("observer", observer, now_us),
                    listed_us=listed,
                    called_us=last,
                )
            )
        return page_of(rows, paging, lambda row: (row.observer_id,))

    @at_one_moment
    def printed(self, server_id: str, full_digest: str) -> Mapping[str, str]:
        """Return a definition's value under every scheme, as printed for one server; empty if it never offered it."""
        statement = "SELECT schemes FROM tool_fact WHERE full = ? AND server = ? ORDER BY part LIMIT 1"
        row = self._connection.execute(statement, (full_digest, server_id)).fetchone()
        found: dict[str, str] = {} if row is None else orjson.loads(row[0])
        return found

    @at_one_moment
    def pinned(self, server_id: str, tool_name: str) -> Mapping[str, str]:
        """Return the approved value of a tool by scheme."""
        row = self._connection.execute(
            "SELECT body FROM verdict WHERE server = ? AND tool = ? ORDER BY part, id LIMIT 1", (server_id, tool_name)
        ).fetchone()
        found: dict[str, str] = {} if row is None else orjson.loads(row[0]).get("pins", {})
        return found

    @at_one_moment
    def differing(self, paging: Paging = Paging()) -> Page[VerdictRow]:  # noqa: B008 -- frozen
        """Return tools that differ from their pins, or that their policy blocks, most recently changed first.

        Raises:
            InputError: ``bad_cursor``.
        """
        place = place_of(paging, int) or (2**63 - 1,)
        found = self._connection.execute(
            "SELECT id, server, tool, status, action FROM verdict WHERE id < ? AND tool IS NOT NULL "
            "AND (status IN ('mismatch', 'rejected') OR action = 'block') ORDER BY id DESC LIMIT ?",
            (*place, rows_max(paging) + 1),
        ).fetchall()
        page = page_of(found, paging, lambda row: (row[0],))
        rows = tuple(
            VerdictRow(server_id=server, tool_name=tool, status=status, action=action)
            for _, server, tool, status, action in page.rows
        )
        return Page(rows=rows, following=page.following)

    def _one(self, statement: str, *given: object) -> Any:
        return self._connection.execute(statement, given).fetchone()[0]

    def _servers_from(self, at: str, only: str | None) -> Iterator[str]:
        """Yield servers by name from one on, or only the given one."""
        if only is not None:
            if at <= only:
                yield only
            return
        while found := self._connection.execute(_SERVERS, (at, _NAMES_AT_ONCE)).fetchall():
            for (server,) in found:
                yield server
            at = _begin(found[-1])

    def _server_row(self, server: str, now_us: int) -> ServerRow:
        latest = self._latest(server)
        digests = sorted({digest for _, digest in latest.values()})
        places = ",".join("?" * len(digests))
        tools = self._one(
            "SELECT count(DISTINCT l.tool) FROM catalogue c JOIN listed l ON l.catalogue = c.id "  # noqa: S608
            f"WHERE c.server = ? AND c.digest IN ({places})",
            server,
            *digests,
        )
        calls, last = self._called("server", server)
        distinct = "SELECT DISTINCT observer FROM called WHERE server = ?"
        observers = {observer for (observer,) in self._connection.execute(distinct, (server,))}
        return ServerRow(
            server_id=server,
            tools=tools,
            observers=len(observers | latest.keys()),
            pinned=self._one(
                "SELECT count(DISTINCT tool) FROM verdict WHERE server = ? AND tool IS NOT NULL "
                "AND status != 'unpinned'",
                server,
            ),
            calls=calls,
            calls_day=self._calls_day("server", server, now_us),
            listed_us=max((time_us for time_us, _ in latest.values()), default=None),
            called_us=last,
        )

    def _of_server(self, server: str, now_us: int) -> _OfServer:
        execute = self._connection.execute
        day = f"SELECT tool, count(*) FROM evidence WHERE server = ? AND {_IN_A_DAY} GROUP BY tool"  # noqa: S608
        called = "SELECT tool, sum(calls), max(last_us) FROM called WHERE server = ? GROUP BY tool"
        return _OfServer(
            latest=self._latest(server),
            called={tool: (calls, last_us) for tool, calls, last_us in execute(called, (server,))},
            day=dict(execute(day, (server, *_day(now_us)))),
            versions=dict(execute(_VERSIONS, (server,))),
            # Of several partitions the first: it is put last.
            statuses=dict(execute(_STATUSES, (server,))),
        )

    def _tool_row(self, server: str, tool: str, known: _OfServer) -> ToolRow:
        shown = self._shown(known.latest, server, tool)
        calls, last = known.called.get(tool, (0, None))
        fulls = tuple(sorted(shown))
        return ToolRow(
            server_id=server,
            tool_name=tool,
            full_digests=fulls,
            digests=self._digests_of(server, fulls[0]) if fulls else (),
            versions=known.versions.get(tool, 0),
            is_listed=bool(shown),
            pin_status=known.statuses.get(tool, "unpinned"),
            calls=calls,
            calls_day=known.day.get(tool, 0),
            listed_us=max(shown.values(), default=None),
            called_us=last,
        )

    def _latest(self, server: str) -> dict[str, tuple[int, str]]:
        """Return time and digest of the latest list of each observer of a server."""
        statement = "SELECT observer, time_us, digest FROM seen WHERE server = ? ORDER BY time_us, pos, part"
        return {
            observer: (time_us, digest) for observer, time_us, digest in self._connection.execute(statement, (server,))
        }

    def _shown(self, latest: dict[str, tuple[int, str]], server: str, tool: str) -> dict[str, int]:
        """Return the definitions of a tool in the latest lists, and when each was last seen."""
        shown: dict[str, int] = {}
        for time_us, digest in sorted(set(latest.values())):
            for (full,) in self._connection.execute(
                "SELECT l.full FROM catalogue c JOIN listed l ON l.catalogue = c.id AND l.tool = ? "
                "WHERE c.server = ? AND c.digest = ?",
                (tool, server, digest),
            ):
                shown[full] = time_us
        return shown

    def _called(self, column: str, name: str) -> tuple[int, int | None]:
        statement = f"SELECT coalesce(sum(calls), 0), max(last_us) FROM called WHERE {column} = ?"  # noqa: S608
        found: tuple[int, int | None] = self._connection.execute(statement, (name,)).fetchone()
        return found

    def _calls_day(self, column: str, name: str, now_us: int) -> int:
        statement = f"SELECT count(*) FROM evidence WHERE {column} = ? AND {_IN_A_DAY}"  # noqa: S608
        return int(self._one(statement, name, *_day(now_us)))

    def _digests_of(self, server: str, full: str) -> tuple[DigestValue, ...]:
        """Return a definition's digest under every scheme, as printed by the registry for a server, or for another."""
        statement = "SELECT schemes FROM tool_fact WHERE full = ? {} ORDER BY server, part LIMIT 1"
        row = self._connection.execute(statement.format("AND server = ?"), (full, server)).fetchone()
        row = row or self._connection.execute(statement.format(""), (full,)).fetchone()
        schemes = {} if row is None else orjson.loads(row[0])
        named = [("tool_definition", scheme, value) for scheme, value in sorted(schemes.items())]
        return values_of([("definition", "full", full), *named])
