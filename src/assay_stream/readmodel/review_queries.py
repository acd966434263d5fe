"""Review queries: alerts with their history, definitions, decisions."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from dataclasses import replace
from typing import Any

import orjson

from assay_stream.alerts.view import PREFIX_MIN, AlertRow, AlertSelection, ReviewState, read_alert
from assay_stream.errors import InputError
from assay_stream.limits import STORE_FINDINGS_PER_SERVER_MAX, STORE_PAGE_ROWS_MAX
from assay_stream.model.fields import compile_glob
from assay_stream.model.finding import Entry, decode_entry
from assay_stream.model.record import Origin
from assay_stream.readmodel.calls import decompressed, digest_key, values_of
from assay_stream.readmodel.rows import (
    INT64_MAX,
    RANK_MAX,
    AlertFilter,
    AlertHistory,
    DecisionRow,
    DefinitionRow,
    Page,
    Paging,
    Tables,
    at_one_moment,
    page_of,
    place_of,
    rank_of,
    rows_max,
)
from assay_stream.readmodel.schema import REBUILD

_PREFIX = re.compile(rf"[0-9a-f]{{{PREFIX_MIN},64}}")
_CANDIDATES_MAX = 5
_UID_CHARS = 12
_DECISIONS = """SELECT CAST(id AS TEXT) AS reference, time_us, change, server AS server_id, tool AS tool_name, author,
  alert AS alert_uid, body FROM decision"""


class ReviewQueries(Tables):
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
        ("uid >= ?", wanted.uid_prefix),
        ("uid < ?", None if wanted.uid_prefix is None else f"{wanted.uid_prefix}g"),
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
