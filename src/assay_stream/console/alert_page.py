"""The page of one alert: what changed, side by side, its indicators, who saw it, and which calls used it since."""

from __future__ import annotations

from typing import Any

from assay_stream.alerts.formats.view import AlertView
from assay_stream.alerts.index import Life
from assay_stream.alerts.page import CUT_SHORT_TEXT, event_text, life_events, observer_text, seen_text, suppression_text
from assay_stream.console.answers import FEW, Answer
from assay_stream.console.asked import Asked
from assay_stream.console.comparison import side_by_side
from assay_stream.console.deciding import subject_of_alert
from assay_stream.readmodel.queries import Store
from assay_stream.readmodel.rows import AlertFilter, EvidenceFilter
from assay_stream.readmodel.stories import story
from assay_stream.report.rows import time_text


def alert(store: Store, asked: Asked) -> Answer:
    """Return the page of one alert.

    Raises:
        InputError: ``bad_uid``, ``unknown_uid``, ``ambiguous_uid``.
    """
    history = store.alert(asked.name("uid"))
    told = story(store, history, full=asked.is_full)
    view, life = told.view, told.life
    wanted = _calls_filter(told.row.server_id, told.row.tool_name, view, life)
    after = view.fact("mcp_digest_after")
    alike = store.alerts(AlertFilter(state=None, digest=after), FEW).rows if after else ()
    return Answer(
        template="alert.html",
        data={
            "story": told,
            "row": told.row,
            "history": history,
            "full": asked.is_full,
            "cut_short": CUT_SHORT_TEXT,
            "places": () if told.diff is None else side_by_side(told.diff),
            "names_definition": bool(view.fact("mcp_digest_before") or after),
            "after": after,
            "seen": seen_text(told.row),
            "last_observer": observer_text(view.fact("mcp_observer_id")) if view.fact("mcp_observer_id") else "",
            "events": [
                None if event is None else (event.time_ms * 1_000, event_text(event)) for event in life_events(life)
            ],
            "left_out": life.count - len(life.first) - len(life.latest),
            "suppression": suppression_text(told),
            "wanted": wanted,
            "since": None if wanted is None or wanted.since_us is None else time_text(wanted.since_us),
            "calls": None if wanted is None else store.evidence(wanted, FEW),
            "alike": [row for row in alike if row.uid != told.row.uid],
            "subject": subject_of_alert(history.row, history.records[-1]),
            "done": asked.done(store),
        },
    )


def _calls_filter(server_id: str, tool_name: str, view: AlertView, life: Life) -> EvidenceFilter | None:
    if not tool_name:
        return None
    given: dict[str, Any] = {"digest": view.fact("mcp_digest_after")} if view.fact("mcp_digest_after") else {}
    since_ms = min(view.first_seen_ms, life.first[0].first_seen_ms)
    return EvidenceFilter(
        server_id=server_id, tool_name=view.fact("mcp_renamed_to") or tool_name, since_us=since_ms * 1_000, **given
    )
