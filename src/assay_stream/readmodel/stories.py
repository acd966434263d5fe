"""All that a store knows about one alert: its records, definitions, observers, and the calls that used the tool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay_stream.alerts.formats.view import AlertView, view_of
from assay_stream.alerts.index import AlertSelection, Life
from assay_stream.alerts.processor import partition_key
from assay_stream.alerts.story import AlertStory, CallsSince, Sightings, story_of, tool_names_of
from assay_stream.limits.store import STORE_ALERT_HEAD
from assay_stream.model.suppression import ANY_SERVER
from assay_stream.readmodel.queries import Store
from assay_stream.readmodel.rows import AlertFilter, AlertHistory, Paging
from assay_stream.work import Work

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


def calls_of(store: Store, history: AlertHistory, *, since_ms: int | None = None) -> CallsSince | None:
    """Return the calls that used the tool of an alert, ``None`` if it is about no tool.

    Args:
        since_ms: event time in milliseconds since the epoch; by default that of the first finding.
    """
    view, names = view_of(history.records[-1]), tool_names_of(view_of(history.records[-1]))
    if not names:
        return None
    if since_ms is None:
        since_ms = first_ms(history)
    return store.calls_since(
        view.fact("mcp_server_id"), names, full_digest=view.fact("mcp_digest_after") or None, since_ms=since_ms
    )


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
