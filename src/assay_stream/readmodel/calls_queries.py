"""Questions about calls: evidence by what is known of it, newest first, and one record whole."""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import fields
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import orjson

from assay_stream.alerts.story import AGENTS_NAMED_MAX, CALLS_NAMED_MAX, AgentCalls, CallsSince, CallSummary
from assay_stream.limits import STORE_SUBJECTS_SOUGHT_MAX
from assay_stream.model.record import Origin
from assay_stream.readmodel.calls import (
    EvidenceLine,
    calls_in,
    decompressed,
    digest_key,
    mark_hasher,
    marked_calls,
    name_code,
    own_digests,
    own_values,
    read_line,
    shared_digests,
    values_of,
)
from assay_stream.readmodel.rows import (
    CALL_COLUMNS,
    INT64_MAX,
    EvidenceFilter,
    EvidenceRecord,
    EvidenceRow,
    Page,
    Paging,
    Tables,
    at_one_moment,
    page_of,
    place_of,
    rows_max,
)
from assay_stream.readmodel.schema import meta
from assay_stream.text.times import time_us_of

_COLUMNS = ", ".join(
    ("e.id, e.time_us, o.topic, o.part, e.pos, s.digests", *(f"e.{column.name}" for column in CALL_COLUMNS))
)
_JOINED = "CROSS JOIN subject s ON s.id = e.subject CROSS JOIN source o ON o.id = e.source WHERE"
_NAMES = {column.field: column.name for column in CALL_COLUMNS}
_OTHER_FILTERS = ("since_us", "until_us", "is_unbound", "digest")
_COLUMN_OF = {each.name: _NAMES[each.name] for each in fields(EvidenceFilter) if each.name not in _OTHER_FILTERS}
_INDEXED = ("unbound", "decision", "observer", "server")
"""The order in which an index is chosen: what is rare first."""
_REFERENCE_CHARS_MAX = 18
_PLACE = re.compile(r"(.+)/([0-9]{1,9})/([0-9]{1,18})", re.DOTALL)
_CALLED = "FROM evidence e JOIN subject s ON s.id = e.subject WHERE {}"
# One pass over the calls; of the agents, who may be many, only the first leave SQLite. Totals come without any as well.
_COUNTED = """WITH called AS MATERIALIZED ({}),
  by_agent AS (SELECT agent, sum(calls) AS calls, min(first_us) / 1000 AS first_ms FROM called
    WHERE ? IS NULL OR full = ? GROUP BY agent)
  SELECT c.*, a.* FROM (SELECT coalesce(sum(calls), 0), coalesce(sum(calls) FILTER (WHERE full = ''), 0),
      (SELECT coalesce(sum(calls), 0) FROM by_agent), (SELECT count(*) FROM by_agent) FROM called) c
    LEFT JOIN (SELECT * FROM by_agent ORDER BY calls DESC, agent LIMIT ?) a ORDER BY a.calls DESC, a.agent"""

_Row = tuple[Any, ...]


class _Search(NamedTuple):
    """SQL conditions for evidence, what is given for them, the index to read by, and the begin and length of a page."""

    conditions: list[str]
    given: list[Any]
    by: str
    before: tuple[int, int]
    limit: int

    @property
    def values(self) -> tuple[Any, ...]:
        """What is given for a statement of ``_newest``."""
        return (*self.given, self.before[0], *self.before, self.limit)


def _search(wanted: EvidenceFilter, before: tuple[int, int], limit: int) -> _Search:
    asked = {column: getattr(wanted, name) for name, column in _COLUMN_OF.items()}
    columns = [column for column, text in asked.items() if text is not None]
    conditions = [f"e.{column} = ?" for column in columns]
    given: list[Any] = [asked[column] for column in columns]
    if wanted.is_unbound is not None:
        conditions.append("e.unbound IS NOT NULL" if wanted.is_unbound else "e.unbound IS NULL")
    for bound, text in ((wanted.since_us, "e.time_us >= ?"), (wanted.until_us, "e.time_us < ?")):
        if bound is not None:
            conditions.append(text)
            given.append(min(max(bound, -INT64_MAX), INT64_MAX))
    if wanted.decision == "allow":
        columns.remove("decision")
    elif wanted.decision is not None:
        conditions.append("e.decision != 'allow'")
    index = next((column for column in _INDEXED if column in columns), "time")
    return _Search(conditions, given, index, before, limit)


def _newest(source: str, conditions: list[str]) -> str:
    return (
        f"SELECT {_COLUMNS} FROM {source} {_JOINED} {' AND '.join([*conditions, 'e.time_us <= ?'])} "  # noqa: S608
        "AND (e.time_us < ? OR e.id < ?) ORDER BY e.time_us DESC, e.id DESC LIMIT ?"
    )


def _newest_first(row: _Row) -> tuple[int, int]:
    return -row[1], -row[0]


def _row(found: _Row) -> EvidenceRow:
    number, time_us, *place, digests = found[:6]
    members: dict[str, Any] = {
        column.field: None if value is None else column.read(value)
        for column, value in zip(CALL_COLUMNS, found[6:], strict=True)
    }
    shared = values_of(orjson.loads(digests))
    return EvidenceRow(reference=str(number), time_us=time_us, origin=Origin(*place), digests=shared, **members)


def _summary(line: EvidenceLine) -> CallSummary:
    data = line.data
    return CallSummary(time_us_of(line.time) // 1_000, line.id, data.tool_call_id, data.observer_id, str(data.decision))


class CallQueries(Tables):
    @at_one_moment
    def evidence(self, wanted: EvidenceFilter, paging: Paging = Paging()) -> Page[EvidenceRow]:  # noqa: B008 -- frozen
        """Return evidence, newest first.

        Raises:
            InputError: ``bad_cursor``.
        """
        limit = rows_max(paging) + 1
        found = list(islice(self._found(wanted, place_of(paging, int, int) or (INT64_MAX, INT64_MAX), limit), limit))
        return page_of(list(map(_row, found)), paging, lambda row: (row.time_us, int(row.reference)))

    @at_one_moment
    def evidence_of(self, reference: str) -> EvidenceRecord | None:
        """Return one full record of evidence, ``None`` if the store does not have it (any more).

        Args:
            reference: of an ``EvidenceRow`` of this store.
        """
        if not reference.isascii() or not reference.isdigit() or len(reference) > _REFERENCE_CHARS_MAX:
            return None
        return self._whole("e.id = ?", int(reference))

    @at_one_moment
    def calls_by_definition(self, server_id: str, *, since_us: int) -> list[tuple[str, str | None, str | None, int]]:
        """Return tool, full digest of the definition, decision and number of the calls on a server since a time."""
        return self.connection.execute(
            "SELECT e.tool, nullif(s.full, ''), e.decision, count(*) "
            "FROM evidence e JOIN subject s ON s.id = e.subject WHERE e.server = ? AND e.time_us >= ? GROUP BY 1, 2, 3",
            (server_id, since_us),
        ).fetchall()

    @at_one_moment
    def calls_held(self, server_id: str, tool_names: Collection[str]) -> int:
        """Return how many calls of some tools are here, without a look at each."""
        statement = "SELECT calls FROM called WHERE server = ? AND tool = ?"
        found = (self.connection.execute(statement, (server_id, name)) for name in tool_names)
        return sum(calls for rows in found for (calls,) in rows)

    @at_one_moment
    def calls_since(
        self, server_id: str, tool_names: Collection[str], *, full_digest: str | None, since_ms: int
    ) -> CallsSince:
        """Return the calls of a tool since a time, by the definition they were bound to.

        Args:
            tool_names: the names under which it is called.
            full_digest: the definition, ``None`` for any.
            since_ms: event time, inclusive, milliseconds since the epoch.
        """
        since_us = min(max(since_ms * 1_000, -INT64_MAX), INT64_MAX)
        places = ",".join("?" * len(tool_names))
        called = _CALLED.format(f"e.server = ? AND e.tool IN ({places}) AND e.time_us >= ?")
        given = (server_id, *sorted(tool_names), since_us)
        wanted = (full_digest, full_digest)
        counts = self.connection.execute(
            _COUNTED.format(
                f"SELECT s.full, e.agent, count(*) AS calls, min(e.time_us) AS first_us {called} GROUP BY 1, 2"
            ),
            (*given, *wanted, AGENTS_NAMED_MAX),
        ).fetchall()
        total, unbound, used, agents_count = counts[0][:4]
        bodies = self.connection.execute(
            f"SELECT e.body {called} AND (? IS NULL OR s.full = ?) ORDER BY e.time_us DESC, e.id DESC LIMIT ?",
            (*given, *wanted, CALLS_NAMED_MAX),
        )
        lines = [line for (body,) in bodies if (line := read_line(decompressed(body))) is not None]
        return CallsSince(
            full_digest=full_digest,
            since_ms=since_ms,
            used=used,
            unbound=0 if full_digest is None else unbound,
            other=0 if full_digest is None else total - used - unbound,
            latest=tuple(_summary(line) for line in lines),
            agents=tuple(AgentCalls(*row[4:]) for row in counts if agents_count),
            agents_count=agents_count,
        )

    @at_one_moment
    def evidence_at(self, text: str) -> EvidenceRecord | None:
        """Return the evidence at a place of its log, ``TOPIC/PARTITION/OFFSET``, which is the same in any store."""
        place = _PLACE.fullmatch(text)
        if place is None:
            return None
        condition = "e.source = (SELECT id FROM source WHERE topic = ? AND part = ?) AND e.pos = ?"
        return self._whole(condition, place[1], int(place[2]), int(place[3]))

    def _whole(self, condition: str, *given: str | int) -> EvidenceRecord | None:
        statement = f"SELECT {_COLUMNS}, e.body FROM evidence e {_JOINED} {condition}"  # noqa: S608
        found = self.connection.execute(statement, given).fetchone()
        if found is None:
            return None
        value = decompressed(found[-1])
        line = read_line(value)
        digests = () if line is None else values_of(shared_digests(line.data) + own_digests(line))
        return EvidenceRecord(row=_row(found[:-1]), value=value, digests=digests)

    def _found(self, wanted: EvidenceFilter, before: tuple[int, int], limit: int) -> Iterator[_Row]:
        """Yield rows of evidence in order, lazily."""
        search = _search(wanted, before, limit)
        if wanted.digest is not None:
            return self._with_digest(wanted.digest, search)
        if search.by in ("unbound", "decision") or (wanted.agent_id is None and wanted.tool_name is None):
            return self._ordered(search)
        names = {"agent": wanted.agent_id, "tool": wanted.tool_name, "server": wanted.server_id}
        hashed = mark_hasher(meta(self.connection, "secret", b""))
        columns = {column: {name_code(hashed(name))} for column, name in names.items() if name is not None}
        return self._in_eras(partial(calls_in, self.connection, columns), search)

    def _ordered(self, search: _Search) -> Iterator[_Row]:
        statement = _newest(f"evidence e INDEXED BY evidence_{search.by}", search.conditions)
        yield from self.connection.execute(statement, search.values)

    def _with_digest(self, digest: str, search: _Search) -> Iterator[_Row]:
        key = digest_key(digest)
        owners = "SELECT DISTINCT owner FROM digest WHERE value = ? AND place = 'calls' LIMIT ?"
        subjects = {owner for (owner,) in self.connection.execute(owners, (key, STORE_SUBJECTS_SOUGHT_MAX + 1))}
        hashed = mark_hasher(meta(self.connection, "secret", b""))(key)
        marked = partial(marked_calls, self.connection, hashed)
        walks = [self._checked(self._in_eras(marked, search, are_wanted=False), key)]
        if len(subjects) > STORE_SUBJECTS_SOUGHT_MAX:
            has_it = "EXISTS (SELECT 1 FROM digest WHERE value = ? AND place = 'calls' AND owner = e.subject)"
            conditions, given = [*search.conditions, has_it], [*search.given, key]
            walks.append(self._ordered(search._replace(conditions=conditions, given=given)))
        elif subjects:
            walks.append(self._in_eras(partial(calls_in, self.connection, {"subject": subjects}), search))
        seen: int | None = None
        for row in heapq.merge(*walks, key=_newest_first):
            # A digest can stand in a record twice, in both ways.
            if row[0] != seen:
                seen = row[0]
                yield row

    def _in_eras(
        self, numbers_in: Callable[[int, int | None], list[int]], search: _Search, *, are_wanted: bool = True
    ) -> Iterator[_Row]:
        """Yield rows in order, reading no more eras than asked for.

        Args:
            numbers_in: returns calls of an era that may be wanted, and may leave out those before a time.
            are_wanted: whether all of them are that the conditions hold for.
        """
        statement = _newest("json_each(?) j CROSS JOIN evidence e ON e.id = j.value", search.conditions)
        eras = "SELECT id, last_us FROM era WHERE first_us <= ? ORDER BY last_us DESC"
        waiting: list[_Row] = []
        for era, last_us in self.connection.execute(eras, search.before[:1]):
            ready = [row for row in waiting if row[1] > last_us]
            yield from ready
            waiting = waiting[len(ready) :]
            # A call that is dated ahead makes its era one of the first. Of the others in it few are read.
            oldest_us = None
            if are_wanted and len(waiting) >= search.limit:
                waiting = waiting[: search.limit]
                oldest_us = waiting[-1][1]
            if numbers := numbers_in(era, oldest_us):
                found = self.connection.execute(statement, (orjson.dumps(numbers).decode(), *search.values))
                waiting = sorted([*waiting, *found], key=_newest_first)
        yield from waiting

    def _checked(self, found: Iterator[_Row], key: str) -> Iterator[_Row]:
        """Keep rows whose record really has the digest: hashes may collide."""
        for row in found:
            body = self.connection.execute("SELECT body FROM evidence WHERE id = ?", row[:1]).fetchone()
            line = read_line(decompressed(body[0]))
            if line is not None and any(digest_key(value) == key for value in own_values(line)):
                yield row
