"""Questions about what there is: servers, tools, observers, and the versions of a tool's definition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from assay_stream.readmodel.digests import values_of
from assay_stream.readmodel.inventory_statements import (
    IN_A_DAY,
    OBSERVERS,
    SERVERS,
    STATUSES,
    TOOLS,
    VERSIONS,
    OfServer,
    hours_of_day,
)
from assay_stream.readmodel.paging import Tables, at_one_moment, page_of, place_of, rows_max
from assay_stream.readmodel.rows import DigestValue, ObserverRow, Page, Paging, ServerRow, ToolRow, VersionRow

_NAMES_AT_ONCE = 1_000


def _begin(after: tuple[str, ...] | None) -> str:
    """Return the first name of a page: the one next to where the last page ended. The first of all names is empty."""
    return "" if after is None else after[-1] + "\0"


class InventoryQueries(Tables):
    """Questions about what there is."""

    @at_one_moment
    def servers(self, *, now_us: int, paging: Paging = Paging()) -> Page[ServerRow]:  # noqa: B008 -- frozen
        """Return servers by name.

        Args:
            now_us: the time up to which calls of a day are counted, microseconds since the epoch.

        Raises:
            InputError: ``bad_cursor``.
        """
        begin = _begin(place_of(paging, str))
        found = self._connection.execute(SERVERS, (begin, rows_max(paging) + 1)).fetchall()
        rows = [self._server_row(text, number, now_us) for text, number in found]
        return page_of(rows, paging, lambda row: (row.server_id,))

    @at_one_moment
    def server(self, server_id: str, *, now_us: int) -> ServerRow | None:
        """Return one server, ``None`` where nothing is known of it."""
        number = self._names.known(server_id)
        row = None if number is None else self._server_row(server_id, number, now_us)
        return None if row is None or (row.listed_us is None and row.called_us is None) else row

    @at_one_moment
    def tools(self, *, now_us: int, server_id: str | None = None, paging: Paging = Paging()) -> Page[ToolRow]:  # noqa: B008
        """Return tools by server and name: those that were listed, and those that were called.

        Raises:
            InputError: ``bad_cursor``.
        """
        place = place_of(paging, str, str)
        at = "" if place is None else place[0]
        limit = rows_max(paging) + 1
        rows: list[ToolRow] = []
        for server, number in self._servers_from(at, server_id):
            begin = _begin(place if server == at else None)
            found = self._connection.execute(TOOLS, (number, begin, limit - len(rows))).fetchall()
            if found:
                known = self._of_server(number, now_us)
                rows += [self._tool_row((server, number), tool, known) for tool in found]
            if len(rows) >= limit:
                break
        return page_of(rows, paging, lambda row: (row.server_id, row.tool_name))

    @at_one_moment
    def tool(self, server_id: str, tool_name: str, *, now_us: int) -> ToolRow | None:
        """Return one tool, ``None`` where it was neither listed nor called."""
        server, tool = self._names.known(server_id), self._names.known(tool_name)
        if server is None or tool is None:
            return None
        row = self._tool_row((server_id, server), (tool_name, tool), self._of_server(server, now_us))
        return row if row.versions or row.calls or row.is_listed else None

    @at_one_moment
    def versions(self, server_id: str, tool_name: str) -> tuple[VersionRow, ...]:
        """Return the definitions of a tool that are known from lists or calls, latest first."""
        server, tool = self._names.known(server_id), self._names.known(tool_name)
        if server is None or tool is None:
            return ()
        times: dict[str, tuple[int | None, int | None]] = {}
        for full, first, last in self._connection.execute(
            "SELECT l.full, min(s.time_us), max(s.time_us) FROM catalogue c "
            "CROSS JOIN listed l ON l.catalogue = c.id AND l.tool = ? "
            "LEFT JOIN seen s ON s.digest = c.digest AND s.server = c.server WHERE c.server = ? GROUP BY l.full",
            (tool, server),
        ):
            times[full] = (first, last)
        calls: dict[str, int] = {}
        for full, count in self._connection.execute(
            "SELECT s.full, (SELECT count(*) FROM evidence e WHERE e.subject = s.id) FROM subject s "
            "WHERE s.server = ? AND s.tool = ? AND s.full != ''",
            (server, tool),
        ):
            calls[full] = calls.get(full, 0) + count
            times.setdefault(full, (None, None))
        shown = self._shown(self._latest(server), server, tool)
        rows = [
            VersionRow(
                server_id=server_id,
                tool_name=tool_name,
                full_digest=full,
                digests=self._digests_of(server, full),
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
        for text, number in self._connection.execute(OBSERVERS, (begin, rows_max(paging) + 1)).fetchall():
            calls, last = self._called("reported", "observer", number)
            listed = self._one("SELECT max(time_us) FROM seen WHERE observer = ?", number)
            servers = self._one(
                "SELECT count(*) FROM (SELECT server FROM reported WHERE observer = ? "
                "UNION SELECT server FROM seen WHERE observer = ?)",
                number,
                number,
            )
            rows.append(
                ObserverRow(
                    observer_id=text,
                    servers=servers,
                    calls=calls,
                    calls_day=self._day("reported_tally", "observer", number, now_us),
                    listed_us=listed,
                    called_us=last,
                )
            )
        return page_of(rows, paging, lambda row: (row.observer_id,))

    def _one(self, statement: str, *given: object) -> Any:
        return self._connection.execute(statement, given).fetchone()[0]

    def _servers_from(self, at: str, only: str | None) -> Iterator[tuple[str, int]]:
        """Yield servers by name from one on, or the one that is asked for."""
        if only is not None:
            number = self._names.known(only)
            if number is not None and at <= only:
                yield only, number
            return
        number = self._names.known(at)
        if number is not None:
            yield at, number
        while found := self._connection.execute(SERVERS, (_begin((at,)), _NAMES_AT_ONCE)).fetchall():
            yield from found
            at = found[-1][0]

    def _server_row(self, text: str, number: int, now_us: int) -> ServerRow:
        latest = self._latest(number)
        digests = sorted({digest for _, digest in latest.values()})
        places = ",".join("?" * len(digests))
        tools = self._one(
            "SELECT count(DISTINCT l.tool) FROM catalogue c JOIN listed l ON l.catalogue = c.id "  # noqa: S608
            f"WHERE c.server = ? AND c.digest IN ({places})",
            number,
            *digests,
        )
        calls, last = self._called("called", "server", number)
        observers = {
            row[0] for row in self._connection.execute("SELECT observer FROM reported WHERE server = ?", (number,))
        }
        return ServerRow(
            server_id=text,
            tools=tools,
            observers=len(observers | latest.keys()),
            pinned=self._one(
                "SELECT count(DISTINCT tool) FROM verdict WHERE server = ? AND tool IS NOT NULL "
                "AND status != 'unpinned'",
                number,
            ),
            calls=calls,
            calls_day=self._day("tally", "server", number, now_us),
            listed_us=max((time_us for time_us, _ in latest.values()), default=None),
            called_us=last,
        )

    def _of_server(self, server: int, now_us: int) -> OfServer:
        execute = self._connection.execute
        day = f"SELECT tool, sum(calls) FROM tally WHERE {IN_A_DAY} AND server = ? GROUP BY tool"  # noqa: S608
        called = "SELECT tool, calls, last_us FROM called WHERE server = ?"
        return OfServer(
            latest=self._latest(server),
            called={tool: (calls, last_us) for tool, calls, last_us in execute(called, (server,))},
            day=dict(execute(day, (*hours_of_day(now_us), server))),
            versions=dict(execute(VERSIONS, (server,))),
            # Of several partitions the first: it is put last.
            statuses=dict(execute(STATUSES, (server,))),
        )

    def _tool_row(self, server: tuple[str, int], tool: tuple[str, int], known: OfServer) -> ToolRow:
        shown = self._shown(known.latest, server[1], tool[1])
        calls, last = known.called.get(tool[1], (0, None))
        fulls = tuple(sorted(shown))
        return ToolRow(
            server_id=server[0],
            tool_name=tool[0],
            full_digests=fulls,
            digests=self._digests_of(server[1], fulls[0]) if fulls else (),
            versions=known.versions.get(tool[1], 0),
            is_listed=bool(shown),
            pin_status=known.statuses.get(tool[1], "unpinned"),
            calls=calls,
            calls_day=known.day.get(tool[1], 0),
            listed_us=max(shown.values(), default=None),
            called_us=last,
        )

    def _latest(self, server: int) -> dict[int, tuple[int, str]]:
        """Return time and digest of what each observer of a server was shown last."""
        statement = "SELECT observer, time_us, digest FROM seen WHERE server = ? ORDER BY time_us, pos, part"
        return {
            observer: (time_us, digest) for observer, time_us, digest in self._connection.execute(statement, (server,))
        }

    def _shown(self, latest: dict[int, tuple[int, str]], server: int, tool: int) -> dict[str, int]:
        """Return the definitions of a tool in the latest lists, and when each was shown last."""
        shown: dict[str, int] = {}
        for time_us, digest in sorted(set(latest.values())):
            for (full,) in self._connection.execute(
                "SELECT l.full FROM catalogue c JOIN listed l ON l.catalogue = c.id AND l.tool = ? "
                "WHERE c.server = ? AND c.digest = ?",
                (tool, server, digest),
            ):
                shown[full] = time_us
        return shown

    def _called(self, table: str, column: str, number: int) -> tuple[int, int | None]:
        statement = f"SELECT coalesce(sum(calls), 0), max(last_us) FROM {table} WHERE {column} = ?"  # noqa: S608
        found: tuple[int, int | None] = self._connection.execute(statement, (number,)).fetchone()
        return found

    def _day(self, table: str, column: str, number: int, now_us: int) -> int:
        statement = f"SELECT coalesce(sum(calls), 0) FROM {table} WHERE {IN_A_DAY} AND {column} = ?"  # noqa: S608
        return int(self._one(statement, *hours_of_day(now_us), number))

    def _digests_of(self, server: int, full: str) -> tuple[DigestValue, ...]:
        """Return a definition's digest under every scheme, as the registry printed it for a server, or for another."""
        statement = "SELECT schemes FROM tool_fact WHERE full = ? {} ORDER BY server, part LIMIT 1"
        row = self._connection.execute(statement.format("AND server = ?"), (full, server)).fetchone()
        row = row or self._connection.execute(statement.format(""), (full,)).fetchone()
        schemes = {} if row is None else orjson.loads(row[0])
        named = [("tool_definition", scheme, value) for scheme, value in sorted(schemes.items())]
        return values_of([("definition", "full", full), *named])
