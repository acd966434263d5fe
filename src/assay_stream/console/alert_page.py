"""The page of one alert: what changed, side by side, its indicators, who saw it, and which calls used it since."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay_stream.alerts.formats.view import AlertView, view_of
from assay_stream.alerts.index import Life
from assay_stream.alerts.page import CUT_SHORT_TEXT, event_text, life_events, observer_text, seen_text, suppression_text
from assay_stream.alerts.story import AlertStory, story_of
from assay_stream.console.answers import FEW, Answer
from assay_stream.console.asked import Asked
from assay_stream.console.comparison import side_by_side
from assay_stream.console.deciding import subject_of_alert
from assay_stream.readmodel.alert_life import life_of, pinned_digest
from assay_stream.readmodel.queries import Store
from assay_stream.readmodel.rows import AlertFilter, AlertHistory, EvidenceFilter
from assay_stream.report.rows import time_text
from assay_stream.work import Work


def alert(store: Store, asked: Asked) -> Answer:
    """Return the page of one alert.

    Raises:
        InputError: ``bad_uid``, ``unknown_uid``, ``ambiguous_uid``.
    """
    history = store.alert(asked.name("uid"))
    known = known_definitions(store, history)
    story = told(history, known, full=asked.is_full)
    view, life = story.view, story.life
    wanted = _calls_filter(story.row.server_id, story.row.tool_name, view, life)
    after = view.fact("mcp_digest_after")
    alike = store.alerts(AlertFilter(state=None, digest=after), FEW).rows if after else ()
    return Answer(
        template="alert.html",
        data={
            "story": story,
            "row": story.row,
            "history": history,
            "full": asked.is_full,
            "cut_short": CUT_SHORT_TEXT,
            "places": () if story.diff is None else side_by_side(story.diff),
            "names_definition": bool(view.fact("mcp_digest_before") or after),
            "after": after,
            "seen": seen_text(story.row),
            "last_observer": observer_text(view.fact("mcp_observer_id")) if view.fact("mcp_observer_id") else "",
            "events": [
                None if event is None else (event.time_ms * 1_000, event_text(event)) for event in life_events(life)
            ],
            "left_out": life.count - len(life.first) - len(life.latest),
            "suppression": suppression_text(story),
            "wanted": wanted,
            "since": None if wanted is None or wanted.since_us is None else time_text(wanted.since_us),
            "calls": None if wanted is None else store.evidence(wanted, FEW),
            "alike": [row for row in alike if row.uid != story.row.uid],
            "subject": subject_of_alert(history.row, history.records[-1]),
            "done": asked.done(store),
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDefinitions:
    """The definitions that an alert is about, as far as the store has them.

    Args:
        by_digest: by full digest.
        pinned: full digest of what an operator pinned, where the alert is about a pin.
    """

    by_digest: Mapping[str, dict[str, Any]]
    pinned: str | None


def known_definitions(store: Store, history: AlertHistory) -> KnownDefinitions:
    view = view_of(history.records[-1])
    pinned = pinned_digest(store, view)
    digests = {view.fact("mcp_digest_before"), view.fact("mcp_digest_after"), pinned}
    known = {each: row.definition for each in digests if each and (row := store.definition(each)) is not None}
    return KnownDefinitions(by_digest=known, pinned=pinned)


def told(history: AlertHistory, known: KnownDefinitions, *, full: bool = False, work: Work | None = None) -> AlertStory:
    """Return all that the store knows about an alert; further arguments as of ``story_of``."""
    return story_of(life_of(history), definitions=known.by_digest, pinned=known.pinned, full=full, work=work)


def _calls_filter(server_id: str, tool_name: str, view: AlertView, life: Life) -> EvidenceFilter | None:
    if not tool_name:
        return None
    given: dict[str, Any] = {"digest": view.fact("mcp_digest_after")} if view.fact("mcp_digest_after") else {}
    since_ms = min(view.first_seen_ms, life.first[0].first_seen_ms)
    return EvidenceFilter(
        server_id=server_id, tool_name=view.fact("mcp_renamed_to") or tool_name, since_us=since_ms * 1_000, **given
    )
