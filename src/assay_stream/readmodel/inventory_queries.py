"""Questions about what ``inventory.py`` writes: servers, tools and observers, coverage, definitions and pins, alerts
with their history, decisions.
"""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from assay_stream.alerts.view import PREFIX_MIN, AlertRow, AlertSelection, AlertView, ReviewState, read_alert, view_of
from assay_stream.bindings.state import Bindings
from assay_stream.errors import InputError
from assay_stream.limits import STORE_FINDINGS_PER_SERVER_MAX, STORE_PAGE_ROWS_MAX
from assay_stream.model.evidence import Unbound
from assay_stream.model.facts import foreign_fact
from assay_stream.model.fields import compile_glob
from assay_stream.model.finding import Entry, decode_entry
from assay_stream.model.kinds import Kind
from assay_stream.model.record import Origin, Record, Role
from assay_stream.readmodel.calls import decompressed, digest_key, values_of
from assay_stream.readmodel.rows import (
    INT64_MAX,
    RANK_MAX,
    AlertFilter,
    AlertHistory,
    DecisionRow,
    DefinitionRow,
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
    rank_of,
    rows_max,
)
from assay_stream.readmodel.schema import REBUILD

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
# The latest list of each observer of a server, and the definitions in them.
_IN_FORCE = """latest AS (SELECT observer, time_us, digest FROM (SELECT observer, time_us, digest,
    row_number() OVER (PARTITION BY observer ORDER BY time_us DESC, pos DESC, part DESC) AS nth
    FROM seen WHERE server = ?1) WHERE nth = 1),
  shown AS (SELECT l.tool, l.full, max(s.time_us) AS time_us FROM latest s
    CROSS JOIN catalogue c ON c.server = ?1 AND c.digest = s.digest CROSS JOIN listed l ON l.catalogue = c.id
    GROUP BY 1, 2)"""
_SERVER = f"""WITH {_IN_FORCE} SELECT ?1 AS server_id, (SELECT count(DISTINCT tool) FROM shown) AS tools,
  (SELECT count(*) FROM (SELECT observer FROM latest UNION SELECT observer FROM called WHERE server = ?1)) AS observers,
  (SELECT count(DISTINCT tool) FROM verdict WHERE server = ?1 AND status != 'unpinned') AS pinned,
  coalesce(sum(calls), 0) AS calls,
  (SELECT count(*) FROM evidence WHERE server = ?1 AND time_us > ?2 AND time_us <= ?3) AS calls_day,
  (SELECT max(time_us) FROM latest) AS listed_us, max(last_us) AS called_us FROM called WHERE server = ?1"""  # noqa: S608
_OBSERVER = """SELECT ?1 AS observer_id, (SELECT count(*) FROM (SELECT server FROM called WHERE observer = ?1
    UNION SELECT server FROM seen WHERE observer = ?1)) AS servers, coalesce(sum(calls), 0) AS calls,
  (SELECT count(*) FROM evidence WHERE observer = ?1 AND time_us > ?2 AND time_us <= ?3) AS calls_day,
  (SELECT max(time_us) FROM seen WHERE observer = ?1) AS listed_us, max(last_us) AS called_us
  FROM called WHERE observer = ?1"""
_TOOLS = f"""WITH {_IN_FORCE},
  known AS (SELECT l.tool, l.full FROM catalogue c CROSS JOIN listed l ON l.catalogue = c.id WHERE c.server = ?1
    UNION SELECT tool, full FROM subject WHERE server = ?1 AND full != ''),
  called_ AS (SELECT tool, sum(calls) AS calls, max(last_us) AS last_us FROM called WHERE server = ?1 GROUP BY 1),
  named AS (SELECT tool FROM known WHERE tool >= ?4 UNION SELECT tool FROM called_ WHERE tool >= ?4 ORDER BY 1 LIMIT ?5)
  SELECT n.tool AS tool_name, coalesce(i.fulls, '[]') AS full_digests, coalesce(v.versions, 0) AS versions,
      coalesce((SELECT status FROM verdict WHERE server = ?1 AND tool = n.tool ORDER BY part, id LIMIT 1), 'unpinned')
        AS pin_status, coalesce(c.calls, 0) AS calls, coalesce(d.calls, 0) AS calls_day, i.time_us AS listed_us,
      c.last_us AS called_us FROM named n
    LEFT JOIN (SELECT tool, count(*) AS versions FROM known GROUP BY 1) v ON v.tool = n.tool
    LEFT JOIN (SELECT tool, json_group_array(full) AS fulls, max(time_us) AS time_us FROM shown GROUP BY 1) i
      ON i.tool = n.tool
    LEFT JOIN called_ c ON c.tool = n.tool
    LEFT JOIN (SELECT tool, count(*) AS calls FROM evidence WHERE server = ?1 AND time_us > ?2 AND time_us <= ?3
      GROUP BY 1) d ON d.tool = n.tool ORDER BY 1"""  # noqa: S608
_VERSIONS = f"""WITH {_IN_FORCE}, times AS (SELECT l.full, min(s.time_us) AS first_us, max(s.time_us) AS last_us
    FROM catalogue c CROSS JOIN listed l ON l.catalogue = c.id AND l.tool = ?2
      LEFT JOIN seen s ON s.digest = c.digest AND s.server = c.server
    WHERE c.server = ?1 AND (?3 IS NULL OR l.full = ?3) GROUP BY 1),
  calls AS (SELECT full, sum((SELECT calls FROM subject_calls WHERE subject = s.id)) AS calls FROM subject s
    WHERE server = ?1 AND tool = ?2 AND full != '' AND (?3 IS NULL OR full = ?3) GROUP BY 1)
  SELECT n.full AS full_digest, t.first_us, t.last_us, n.full IN (SELECT full FROM shown WHERE tool = ?2) AS is_listed,
    coalesce(c.calls, 0) AS calls FROM (SELECT full FROM times UNION SELECT full FROM calls) n
    LEFT JOIN times t ON t.full = n.full LEFT JOIN calls c ON c.full = n.full
    WHERE (coalesce(t.last_us, 0), n.full) < (?4, ?5) ORDER BY coalesce(t.last_us, 0) DESC, n.full DESC LIMIT ?6"""  # noqa: S608


_PREFIX = re.compile(rf"[0-9a-f]{{{PREFIX_MIN},64}}")
_CANDIDATES_MAX = 5
_UID_CHARS = 12
_DECISIONS = """SELECT CAST(id AS TEXT) AS reference, time_us, change, server AS server_id, tool AS tool_name, author,
  alert AS alert_uid, body FROM decision"""


def _day(now_us: int) -> tuple[int, int]:
    return now_us - _DAY_US, now_us


def _begin(after: tuple[str, ...] | None) -> str:
    """Return the first name of a page: the successor of the last page's last. The first of all names is empty."""
    return "" if after is None else after[-1] + "\0"


_LISTS = "SELECT server, observer, count(*), max(time_us) FROM seen WHERE time_us <= ? GROUP BY 1, 2"
_CALLS = f"""SELECT server, observer, iif(unbound IS NULL, scope, NULL), unbound IS '{Unbound.NOT_OBSERVED}', count(*),
  max(time_us) FROM evidence WHERE time_us >= ? AND time_us <= ? GROUP BY 1, 2, 3, 4"""  # noqa: S608
_LOSSES = """SELECT (SELECT body FROM alert_record WHERE alert = a.id ORDER BY id DESC LIMIT 1) FROM alert a
  WHERE kind = ?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """What was observed, by server and observer. Times are microseconds since the epoch.

    Args:
        lists: server, observer, number of lists that the registry keeps, time of the latest.
        calls: server, observer, the rule that bound them (``None`` for unbound ones), whether no list was in force,
            number, time of the latest.
        losses: latest record of each alert about lost observations.
    """

    lists: list[tuple[str, str, int, int]]
    calls: list[tuple[str, str, str | None, bool, int, int]]
    losses: list[AlertView]


class InventoryQueries(Tables):
    @at_one_moment
    def bindings(self, *server_ids: str) -> Bindings:
        """Return what the registry published about some servers, or about all of them.

        Raises:
            InputError: ``facts_dropped`` if facts about one of ``server_ids`` were dropped.
            IntegrityError: ``foreign_fact`` if the binding topic holds facts that this version does not write.
        """
        logs, ends, refused = self.connection.execute(
            "SELECT count(*), count(ends), sum(refused) FROM source WHERE role = ?", (Role.BINDINGS.value,)
        ).fetchone()
        if refused:
            raise foreign_fact()
        named = f"WHERE server IN ({','.join('?' * len(server_ids))})"
        without = f"SELECT server FROM without_facts {named}"  # noqa: S608
        if dropped := self.connection.execute(without, server_ids).fetchone():
            raise InputError(
                "facts_dropped",
                f"the store has no room for all that {dropped[0]} listed: ask the topics, or files with --input",
            )
        bindings = Bindings(home_partitions=logs if logs and logs == ends else None)
        statement = f"SELECT part, key, body FROM fact {named if server_ids else ''}"  # noqa: S608
        for part, key, body in self.connection.execute(statement, server_ids):
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
        found = self.connection.execute(_SERVERS, (begin, rows_max(paging) + 1)).fetchall()
        rows = [self._server(server, now_us) for (server,) in found]
        return page_of(rows, paging, lambda row: (row.server_id,))

    @at_one_moment
    def server(self, server_id: str, *, now_us: int) -> ServerRow | None:
        """Return one server, ``None`` if unknown."""
        row = self._server(server_id, now_us)
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
            rows += self._tools(server, now_us, begin, limit - len(rows))
            if len(rows) >= limit:
                break
        return page_of(rows, paging, lambda row: (row.server_id, row.tool_name))

    @at_one_moment
    def tool(self, server_id: str, tool_name: str, *, now_us: int) -> ToolRow | None:
        """Return one tool, ``None`` if it was neither listed nor called."""
        rows = self._tools(server_id, now_us, tool_name, 1)
        return next((row for row in rows if row.tool_name == tool_name), None)

    @at_one_moment
    def versions(
        self,
        server_id: str,
        tool_name: str,
        paging: Paging = Paging(),  # noqa: B008 -- frozen
        *,
        full_digest: str | None = None,
    ) -> Page[VersionRow]:
        """Return the definitions of a tool known from lists or calls, latest first.

        Args:
            full_digest: only this one, if it is one of them.

        Raises:
            InputError: ``bad_cursor``.
        """
        place = place_of(paging, int, str) or (INT64_MAX, "")
        asked = (server_id, tool_name, full_digest, *place, rows_max(paging) + 1)
        rows = [
            dict(row)
            | {"digests": self._digests_of(server_id, row["full_digest"]), "is_listed": bool(row["is_listed"])}
            for row in self._named(_VERSIONS, asked).fetchall()
        ]
        found = [VersionRow(server_id=server_id, tool_name=tool_name, **row) for row in rows]
        return page_of(found, paging, lambda row: (row.last_us or 0, row.full_digest))

    @at_one_moment
    def observers(self, *, now_us: int, paging: Paging = Paging()) -> Page[ObserverRow]:  # noqa: B008 -- frozen
        """Return observers by name.

        Raises:
            InputError: ``bad_cursor``.
        """
        begin = _begin(place_of(paging, str))
        found = self.connection.execute(_OBSERVERS, (begin, rows_max(paging) + 1)).fetchall()
        rows = [ObserverRow(**self._named(_OBSERVER, (*each, *_day(now_us))).fetchone()) for each in found]
        return page_of(rows, paging, lambda row: (row.observer_id,))

    @at_one_moment
    def coverage(self, *, since_us: int, until_us: int) -> Coverage:
        """Return what was observed up to a time; of calls, those since another time. Reads all evidence."""
        execute = self.connection.execute
        losses = (view_of(read_alert(decompressed(body))) for (body,) in execute(_LOSSES, (Kind.OBSERVATIONS_LOST,)))
        return Coverage(
            lists=execute(_LISTS, (until_us,)).fetchall(),
            calls=execute(_CALLS, (since_us, until_us)).fetchall(),
            losses=[view for view in losses if view.first_seen_ms * 1_000 <= until_us],
        )

    @at_one_moment
    def printed(self, server_id: str, full_digest: str) -> Mapping[str, str]:
        """Return a definition's value under every scheme, as printed for one server; empty if it never offered it."""
        statement = "SELECT schemes FROM tool_fact WHERE full = ? AND server = ? ORDER BY part LIMIT 1"
        row = self.connection.execute(statement, (full_digest, server_id)).fetchone()
        found: dict[str, str] = {} if row is None else orjson.loads(row[0])
        return found

    @at_one_moment
    def pinned(self, server_id: str, tool_name: str) -> Mapping[str, str]:
        """Return the approved value of a tool by scheme."""
        row = self.connection.execute(
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
        place = place_of(paging, int) or (INT64_MAX,)
        found = self._named(
            "SELECT id, server, tool, status, action FROM verdict WHERE id < ? AND tool IS NOT NULL "
            "AND (status IN ('mismatch', 'rejected') OR action = 'block') ORDER BY id DESC LIMIT ?",
            (*place, rows_max(paging) + 1),
        ).fetchall()
        page = page_of(found, paging, lambda row: (row["id"],))
        rows = (VerdictRow(row["server"], row["tool"], row["status"], row["action"]) for row in page.rows)
        return Page(rows=tuple(rows), following=page.following)

    def _servers_from(self, at: str, only: str | None) -> Iterator[str]:
        """Yield servers by name from one on, or only the given one."""
        if only is not None:
            if at <= only:
                yield only
            return
        while found := self.connection.execute(_SERVERS, (at, _NAMES_AT_ONCE)).fetchall():
            for (server,) in found:
                yield server
            at = _begin(found[-1])

    def _server(self, server: str, now_us: int) -> ServerRow:
        return ServerRow(**self._named(_SERVER, (server, *_day(now_us))).fetchone())

    def _tools(self, server: str, now_us: int, begin: str, limit: int) -> list[ToolRow]:
        rows = []
        for found in self._named(_TOOLS, (server, *_day(now_us), begin, limit)).fetchall():
            fulls = tuple(sorted(orjson.loads(found["full_digests"])))
            digests = self._digests_of(server, fulls[0]) if fulls else ()
            derived = {"full_digests": fulls, "digests": digests, "is_listed": bool(fulls)}
            rows.append(ToolRow(server_id=server, **dict(found) | derived))
        return rows

    def _digests_of(self, server: str, full: str) -> tuple[DigestValue, ...]:
        """Return a definition's digest under every scheme, as printed by the registry for a server, or for another."""
        statement = "SELECT schemes FROM tool_fact WHERE full = ? {} ORDER BY server, part LIMIT 1"
        row = self.connection.execute(statement.format("AND server = ?"), (full, server)).fetchone()
        row = row or self.connection.execute(statement.format(""), (full,)).fetchone()
        schemes = {} if row is None else orjson.loads(row[0])
        named = [("tool_definition", scheme, value) for scheme, value in sorted(schemes.items())]
        return values_of([("definition", "full", full), *named])

    @at_one_moment
    def alerts(self, wanted: AlertFilter = AlertFilter(), paging: Paging = Paging()) -> Page[AlertRow]:  # noqa: B008 -- frozen
        """Return alerts, the most severe first, then the latest.

        Raises:
            InputError: ``bad_cursor``; ``bad_glob`` if the tool's name is an invalid pattern.
        """
        place = place_of(paging, int, int, str) or (RANK_MAX + 1, INT64_MAX, "")
        conditions, given = _conditions(wanted)
        conditions.append("(severity, last_ms) <= (?, ?) AND ((severity, last_ms) < (?, ?) OR uid > ?)")
        statement = (
            f"SELECT row FROM alert WHERE {' AND '.join(conditions)} "  # noqa: S608
            "ORDER BY severity DESC, last_ms DESC, uid"
        )
        pattern = _pattern(wanted)
        rows: list[AlertRow] = []
        for (text,) in self.connection.execute(statement, (*given, *place[:2], *place)):
            row = _alert_row(text)
            if pattern is None or pattern.fullmatch(row.tool_name):
                rows.append(row)
                if len(rows) > rows_max(paging):
                    break
        return page_of(rows, paging, lambda row: (rank_of(row.severity_id), row.last_seen_ms, row.uid))

    @at_one_moment
    def alert_states(self, wanted: AlertFilter) -> Counter[ReviewState]:
        """Count the alerts that match a filter, ignoring its state, by state."""
        conditions, given = _conditions(replace(wanted, state=None))
        statement = (
            f"SELECT state, tool, count(*) FROM alert WHERE {' AND '.join(conditions) or 'TRUE'} "  # noqa: S608
            "GROUP BY state, tool"
        )
        pattern, counts = _pattern(wanted), Counter[ReviewState]()
        for state, tool, count in self.connection.execute(statement, given):
            if pattern is None or pattern.fullmatch(tool):
                counts[ReviewState(state)] += count
        return counts

    def alert_uids(self) -> list[str]:
        return [uid for (uid,) in self.connection.execute("SELECT uid FROM alert ORDER BY uid")]

    def alert_counts(self) -> dict[tuple[ReviewState, int], int]:
        """Count alerts by state and severity (OCSF; 7 if unknown)."""
        found = self.connection.execute("SELECT state, severity, count(*) FROM alert GROUP BY state, severity")
        return {(ReviewState(state), severity): count for state, severity, count in found}

    @at_one_moment
    def alert(self, prefix: str) -> AlertHistory:
        """Return one alert with its history.

        Args:
            prefix: prefix of its uid, at least six hexadecimal digits.

        Raises:
            InputError: ``bad_uid``, ``unknown_uid``, ``ambiguous_uid``.
        """
        beginning = prefix.lower()
        if not _PREFIX.fullmatch(beginning):
            raise InputError("bad_uid", f"give the first {PREFIX_MIN} to 64 hexadecimal digits of an alert's uid")
        found = self.connection.execute(
            "SELECT id, records, row FROM alert WHERE uid >= ? AND uid < ? ORDER BY uid LIMIT ?",
            (beginning, beginning + "g", _CANDIDATES_MAX),
        ).fetchall()
        if not found:
            latest = self.connection.execute("SELECT uid FROM alert ORDER BY last_ms DESC LIMIT ?", (_CANDIDATES_MAX,))
            named = ", ".join(uid[:_UID_CHARS] for (uid,) in latest)
            hint = f"the latest are {named}" if named else "there is no alert at all"
            raise InputError(
                "unknown_uid", f"no alert has a uid that starts with {prefix}; {hint} (assay-stream alerts list)"
            )
        if len(found) > 1:
            named = ", ".join(_alert_row(text).uid[:16] for _, _, text in found)
            raise InputError("ambiguous_uid", f"several alerts match that uid; give more of it: {named}")
        number, count, text = found[0]
        row = _alert_row(text)
        bodies = self.connection.execute("SELECT body FROM alert_record WHERE alert = ? ORDER BY id", (number,))
        return AlertHistory(
            row=row,
            records=tuple(read_alert(decompressed(body)) for (body,) in bodies),
            count=count,
            decisions=self.decisions(alert_uid=row.uid).rows,
        )

    @at_one_moment
    def findings(self, *keys: str) -> list[Entry]:
        """Return the suppression rules in force and the latest findings under some keys, in order within each key."""
        bodies: list[tuple[bytes]] = []
        for key in sorted(set(keys)):
            bodies += self.connection.execute("SELECT body FROM suppression WHERE server = ? ORDER BY rule", (key,))
            latest = "SELECT id, body FROM finding WHERE server = ? ORDER BY id DESC LIMIT ?"
            statement = f"SELECT body FROM ({latest}) ORDER BY id"  # noqa: S608
            bodies += self.connection.execute(statement, (key, STORE_FINDINGS_PER_SERVER_MAX))
        return [decode_entry(decompressed(body)) for (body,) in bodies]

    @at_one_moment
    def alert_records(self, server_id: str) -> list[dict[str, Any]]:
        """Return the stored records of all alerts about a server: the first and the latest ones of each."""
        found = self.connection.execute(
            "SELECT r.body FROM alert a JOIN alert_record r ON r.alert = a.id WHERE a.server = ? ORDER BY r.id",
            (server_id,),
        )
        return [read_alert(decompressed(body)) for (body,) in found]

    @at_one_moment
    def changes(self, server_id: str) -> list[dict[str, Any]]:
        """Return the records of all decisions on a server and observations of its keys, oldest first."""
        statement = "SELECT body FROM decision WHERE server = ? ORDER BY time_us, id"
        return [orjson.loads(decompressed(body)) for (body,) in self.connection.execute(statement, (server_id,))]

    @at_one_moment
    def definitions(self, digest: str) -> tuple[DefinitionRow, ...]:
        """Return the stored definitions that have a digest, under any scheme."""
        fulls = [
            row[0]
            for row in self.connection.execute(
                "SELECT DISTINCT coalesce(t.full, d.full) FROM digest g "
                "LEFT JOIN tool_fact t ON g.place = 'tool' AND t.id = g.owner "
                "LEFT JOIN definition d ON g.place = 'definition' AND d.id = g.owner "
                "WHERE g.value = ? AND g.place IN ('tool', 'definition') ORDER BY 1 LIMIT ?",
                (digest_key(digest), _CANDIDATES_MAX * 2),
            )
        ]
        return tuple(found for found in map(self.definition, fulls) if found is not None)

    @at_one_moment
    def definition(self, full_digest: str) -> DefinitionRow | None:
        """Return a definition by its full digest, ``None`` if the store does not have it.

        Raises:
            InputError: ``store_unreadable`` if the stored content does not match the digest.
        """
        row = self.connection.execute("SELECT body FROM definition WHERE full = ?", (full_digest,)).fetchone()
        if row is None:
            return None
        printed = [
            orjson.loads(schemes)
            for (schemes,) in self.connection.execute(
                "SELECT DISTINCT schemes FROM tool_fact WHERE full = ? LIMIT ?", (full_digest, STORE_PAGE_ROWS_MAX)
            )
        ]
        # The digest of a definition can cover its server: such a scheme prints one value for each.
        named = sorted(set.intersection(*(set(each.items()) for each in printed))) if printed else []
        digests = [
            ("definition", "full", full_digest),
            *(("tool_definition", scheme, value) for scheme, value in named),
        ]
        content = orjson.loads(decompressed(row[0]))
        body = content.get("definition") if isinstance(content, dict) else None
        if not isinstance(body, dict):
            raise InputError("store_unreadable", f"the store holds {full_digest} without its definition: {REBUILD}")
        return DefinitionRow(full_digest=full_digest, definition=body, digests=values_of(digests))

    @at_one_moment
    def decisions(
        self,
        *,
        server_id: str | None = None,
        tool_name: str | None = None,
        alert_uid: str | None = None,
        author: str | None = None,
        since_us: int | None = None,
        paging: Paging = Paging(),  # noqa: B008 -- frozen
    ) -> Page[DecisionRow]:
        """Return operators' decisions, latest first.

        Raises:
            InputError: ``bad_cursor``.
        """
        place = place_of(paging, int, int) or (INT64_MAX, INT64_MAX)
        conditions = ["(time_us, id) < (?, ?)"]
        given: list[Any] = [*place]
        for column, value in (("server", server_id), ("tool", tool_name), ("alert", alert_uid), ("author", author)):
            if value is not None:
                conditions.append(f"{column} = ?")
                given.append(value)
        if since_us is not None:
            conditions.append("time_us >= ?")
            given.append(since_us)
        statement = f"{_DECISIONS} WHERE {' AND '.join(conditions)} ORDER BY time_us DESC, id DESC LIMIT ?"
        found = self._named(statement, (*given, rows_max(paging) + 1)).fetchall()
        return page_of([_decision(row) for row in found], paging, lambda row: (row.time_us, int(row.reference)))


def _pattern(wanted: AlertFilter) -> re.Pattern[str] | None:
    return None if wanted.tool_name is None or wanted.is_exact else compile_glob(wanted.tool_name)


def _conditions(wanted: AlertFilter) -> tuple[list[str], list[Any]]:
    selection: AlertSelection = wanted.selection
    state = ReviewState.OPEN if wanted.is_unreviewed else wanted.state
    asked = [
        ("state = ?", None if state is None else state.value),
        ("kind = ?", wanted.kind),
        ("server = ?", selection.server_id),
        ("tool = ?", wanted.tool_name if wanted.is_exact else None),
        ("last_ms >= ?", selection.since_ms),
        ("severity >= ?", selection.severity_id),
        ("definition = ?", wanted.digest),
    ]
    conditions = [text for text, value in asked if value is not None]
    if wanted.is_unreviewed:
        conditions.append("assigned = ''")
    return conditions, [value for _, value in asked if value is not None]


def _alert_row(text: str) -> AlertRow:
    fields = orjson.loads(text)
    return AlertRow(**fields | {"state": ReviewState(fields["state"])})


def _decision(found: sqlite3.Row) -> DecisionRow:
    row = dict(found)
    content = orjson.loads(decompressed(row.pop("body")))["data"]
    return DecisionRow(
        **row,
        reason=content.get("reason"),
        scheme=content.get("scheme"),
        value=content.get("value"),
        is_superseded=bool(content.get("superseded")),
        origin=Origin(**content["origin"]),
        content=content,
    )
