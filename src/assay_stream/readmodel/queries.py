"""Queries on the store. Every result is bounded, and every page has a cursor for the next one."""

from __future__ import annotations

import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from assay_stream.alerts.processor import partition_key
from assay_stream.alerts.story import AlertStory, CallsSince, Sightings, story_of, tool_names_of
from assay_stream.alerts.view import AlertSelection, AlertView, Life, view_of
from assay_stream.limits import STORE_ALERT_HEAD, STORE_CANDIDATES_MAX, STORE_PLACES_MAX
from assay_stream.model.finding import ANY_SERVER
from assay_stream.model.record import Record
from assay_stream.readmodel import schema
from assay_stream.readmodel.calls import digest_key
from assay_stream.readmodel.calls_queries import CallQueries
from assay_stream.readmodel.filling import fill
from assay_stream.readmodel.inventory_queries import InventoryQueries
from assay_stream.readmodel.rows import (
    AlertFilter,
    AlertHistory,
    DigestPlace,
    DigestValue,
    EvidenceFilter,
    Paging,
    at_one_moment,
)
from assay_stream.readmodel.schema import PositionRow, StoreStatus, meta, positions_of, status_of
from assay_stream.work import Work

_PREFIX = re.compile(r"(?:sha256:)?([0-9a-f]{6,63})…?")
"""A digest cut short, also as tables print it."""


_TOOLS_OF = """SELECT DISTINCT l.full, l.tool FROM catalogue c CROSS JOIN listed l ON l.catalogue = c.id
  WHERE c.server = ? AND l.full IN (SELECT value FROM json_each(?))"""


class Store(CallQueries, InventoryQueries):
    """Read access to a store.

    Not thread-safe: give each thread its own, or hold a lock.

    Args:
        connection: from ``schema.reading``, or the connection of a ``Filler`` in the same process.
    """

    def close(self) -> None:
        self.connection.close()

    @at_one_moment
    def places(self, digest: str) -> tuple[DigestPlace, ...]:
        """Return the places of a digest of any scheme: calls, tools, lists, pins, alerts, decisions.

        Args:
            digest: with or without ``sha256:``.
        """
        key = digest_key(digest)
        found = [
            self._place(place, owner, DigestValue(role=role, scheme=scheme, value=digest))
            for place, owner, role, scheme in self.connection.execute(
                "SELECT place, owner, role, scheme FROM digest WHERE value = ? "
                "ORDER BY place, role, scheme, owner LIMIT ?",
                (key, STORE_PLACES_MAX),
            )
        ]
        for row in self.evidence(EvidenceFilter(digest=digest), Paging(limit=STORE_PLACES_MAX)).rows:
            whole = self.evidence_of(row.reference)
            found += [
                DigestPlace(
                    digest=value,
                    place="evidence",
                    server_id=row.server_id,
                    tool_name=row.tool_name,
                    reference=row.reference,
                    calls=1,
                )
                for value in (() if whole is None else whole.digests)
                if digest_key(value.value) == key and value not in row.digests
            ]
        return self._with_tools(found[:STORE_PLACES_MAX])

    @at_one_moment
    def candidates(self, prefix: str) -> tuple[DigestPlace, ...]:
        """Return digests with a prefix, one place each, in order, at most ``STORE_CANDIDATES_MAX``.

        Covers tools, definitions, lists, pins, alerts and decisions. Values of a single call (its arguments, result,
        ids) are found by the full value only. Returns nothing for other text, or for an id that the store has as it is,
        unless digests begin with it: callers may choose ids, and one must not hide a digest.

        Args:
            prefix: at least six hexadecimal digits, with or without ``sha256:``.
        """
        match = _PREFIX.fullmatch(prefix.strip().lower())
        if match is None:
            return ()
        found: list[DigestPlace] = []
        after, end = match[1], f"{match[1]}g"
        while len(found) < STORE_CANDIDATES_MAX:
            row = self.connection.execute(
                "SELECT place, owner, role, scheme, value FROM digest WHERE value >= ? AND value < ? "
                "ORDER BY value, place, owner, role, scheme LIMIT 1",
                (after, end),
            ).fetchone()
            if row is None:
                break
            place, owner, role, scheme, value = row
            found.append(self._place(place, owner, DigestValue(role=role, scheme=scheme, value=value)))
            after = f"{value} "
        if self.evidence(EvidenceFilter(digest=prefix), Paging(limit=1)).rows:
            others = [each for each in found if each.digest.value != match[1]]
            own = DigestValue(role="call", scheme="id", value=prefix.strip())
            found = [DigestPlace(digest=own, place="evidence"), *others] if others else []
        return self._with_tools(found)

    def _with_tools(self, places: Sequence[DigestPlace]) -> tuple[DigestPlace, ...]:
        """Name the tools of definitions: what the registry says of one does not, its lists do."""
        fulls = defaultdict[str | None, list[str | None]](list)
        for each in places:
            if each.place == "tool":
                fulls[each.server_id].append(each.reference)
        names = {
            (server, full): tool
            for server, wanted in fulls.items()
            for full, tool in self.connection.execute(_TOOLS_OF, (server, orjson.dumps(wanted).decode()))
        }
        return tuple(
            replace(each, tool_name=names.get((each.server_id, each.reference), each.tool_name)) for each in places
        )

    def _place(self, place: str, owner: int, digest: DigestValue) -> DigestPlace:
        columns = {
            "calls": "server, tool, NULL, (SELECT calls FROM subject_calls WHERE subject = id) FROM subject",
            "tool": "server, NULL, full, 0 FROM tool_fact",
            "catalogue": "server, NULL, NULL, 0 FROM catalogue",
            "verdict": "server, tool, NULL, 0 FROM verdict",
            "definition": "NULL, NULL, full, 0 FROM definition",
            "alert": "server, tool, uid, 0 FROM alert",
            "decision": "server, tool, id, 0 FROM decision",
        }[place]
        found = self.connection.execute(f"SELECT {columns} WHERE id = ?", (owner,))
        server, tool, reference, calls = found.fetchone()
        return DigestPlace(
            digest=digest,
            place="list" if place == "catalogue" else place,
            server_id=server or None,
            tool_name=tool or None,
            reference=None if reference is None else str(reference),
            calls=calls,
        )

    def positions(self) -> tuple[PositionRow, ...]:
        return positions_of(self.connection)

    def looked_us(self) -> int | None:
        """Return when the ends of the logs were last checked, ``None`` if the store is not filled from topics."""
        found: int | None = meta(self.connection, "looked_us", None)
        return found

    @at_one_moment
    def status(self) -> StoreStatus:
        """Return what the store holds, and what it lacks."""
        return status_of(self.connection)


def load(records: Iterable[Record]) -> Store:
    """Fill a temporary store from records.

    Args:
        records: evidence, alerts, definitions, changes, verdicts and facts; others are skipped.
    """
    connection: sqlite3.Connection = schema.temporary()
    fill(connection, records)
    return Store(connection)


_UID_CHARS = 12
_ALIKE = Paging(limit=6)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDefinitions:
    """The definitions that an alert is about, as far as available.

    Args:
        by_digest: by full digest.
        pinned: full digest of the pinned definition, if the alert is about a pin.
    """

    by_digest: Mapping[str, dict[str, Any]]
    pinned: str | None


def key_of(view: AlertView) -> str:
    """Return the key of the alert's findings in the finding topic."""
    about = {"kind": view.kind, "server_id": view.fact("mcp_server_id"), "reason": view.fact("mcp_reason")}
    return partition_key(about | {"tool_name": view.fact("mcp_tool_name")})


def known_definitions(store: Store, history: AlertHistory, *, among: Store | None = None) -> KnownDefinitions:
    """Look up the definitions that an alert is about.

    Args:
        among: another store with the definitions.
    """
    view = view_of(history.records[-1])
    pinned, expected = None, view.fact("mcp_pin_expected")
    if expected and not view.fact("mcp_digest_before"):
        pinned = next((found.full_digest for found in store.definitions(expected)), None)
    among = store if among is None else among
    digests = {view.fact("mcp_digest_before"), view.fact("mcp_digest_after"), pinned}
    known = {each: row.definition for each in digests if each and (row := among.definition(each)) is not None}
    return KnownDefinitions(by_digest=known, pinned=pinned)


def story(
    store: Store,
    history: AlertHistory,
    known: KnownDefinitions | None = None,
    *,
    calls: CallsSince | None = None,
    is_short: bool = False,
    full: bool = False,
    work: Work | None = None,
) -> AlertStory:
    """Return all that the store knows about an alert; ``full`` and ``work`` as in ``story_of``.

    Args:
        is_short: leave out observers, for pages with many alerts.
        known: its definitions, if already looked up.
        calls: the calls that used the tool, if already looked up.
    """
    life = life_of(history)
    view, known = life.last, known_definitions(store, history) if known is None else known
    return story_of(
        life,
        sightings=None if is_short else _sightings(store, view),
        definitions=known.by_digest,
        pinned=known.pinned,
        calls=calls,
        see_also=_alike(store, view),
        full=full,
        work=work,
    )


def life_of(history: AlertHistory) -> Life:
    """Return the stored records of an alert, as far as they are shown."""
    views = [view_of(record) for record in history.records]
    return Life(count=history.count, first=views[:STORE_ALERT_HEAD], latest=views[STORE_ALERT_HEAD:])


def calls_of(
    store: Store, history: AlertHistory, *, since_ms: int | None = None, most: int | None = None
) -> CallsSince | None:
    """Return the calls that used the tool of an alert, ``None`` if it is about no tool.

    Args:
        since_ms: event time in milliseconds since the epoch; by default that of the first finding.
        most: calls of the tool that are counted one by one; if the store has more, the result is ``None``.
    """
    view, names = view_of(history.records[-1]), tool_names_of(view_of(history.records[-1]))
    if not names or (most is not None and store.calls_held(view.fact("mcp_server_id"), names) > most):
        return None
    if since_ms is None:
        since_ms = first_ms(history)
    return store.calls_since(view.fact("mcp_server_id"), names, full_digest=view.definition or None, since_ms=since_ms)


def first_ms(history: AlertHistory) -> int:
    """Return the event time of an alert's first finding, milliseconds since the epoch."""
    return min(view_of(record).first_seen_ms for record in (history.records[0], history.records[-1]))


def _sightings(store: Store, view: AlertView) -> Sightings | None:
    server_id = view.fact("mcp_server_id")
    entries = store.findings(server_id, key_of(view), ANY_SERVER)
    if not entries:
        return None
    sightings = Sightings(view.uid, server_id, view.fact("mcp_tool_name") or None)
    for entry in entries:
        sightings.add(entry)
    return sightings


def _alike(store: Store, view: AlertView) -> list[str]:
    after = view.fact("mcp_digest_after")
    if not after:
        return []
    selection = AlertSelection(server_id=view.fact("mcp_server_id"))
    rows = store.alerts(AlertFilter(selection=selection, state=None, digest=after), _ALIKE).rows
    return [row.uid[:_UID_CHARS] for row in rows if row.uid != view.uid]
