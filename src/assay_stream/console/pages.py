"""The pages: each asks the store, and returns what its template shows."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from assay_stream.alerts.index import AlertSelection, ReviewState, SeverityLevel
from assay_stream.canonical.decode import decode_json
from assay_stream.console.alert_page import alert
from assay_stream.console.answers import FEW, Answer, absent
from assay_stream.console.asked import Asked
from assay_stream.console.comparison import side_by_side
from assay_stream.console.deciding import Subject
from assay_stream.console.review_pages import confirm, reviews
from assay_stream.drift.definition_diff import definition_diff
from assay_stream.limits.console import CONSOLE_LIMITS
from assay_stream.model.alert import SEVERITY_TEXTS
from assay_stream.model.evidence import Scope, Unbound
from assay_stream.model.kinds import Kind
from assay_stream.readmodel.queries import Store
from assay_stream.readmodel.rows import AlertFilter, DigestPlace, EvidenceFilter, Paging, VersionRow
from assay_stream.readmodel.status import StoreStatus

_COUNTED = (
    ("evidence", "calls"),
    ("alert", "alerts"),
    ("definition", "definitions"),
    ("decision", "decisions"),
    ("verdict", "pin evaluations"),
    ("catalogue", "distinct lists of tools"),
)
_CUT_DIGEST = re.compile(r"(sha256:)?[0-9a-f]{1,63}…?")

_LISTED_ELSEWHERE = (
    "It may have been dropped for age or size, or not been read yet: see Health for how far the store is."
)


def overview(store: Store, asked: Asked) -> Answer:
    status = store.status()
    now_us = _now_us(status, asked)
    counts = store.alert_counts()
    unknown = sum(
        n for (state, level), n in counts.items() if state is ReviewState.OPEN and level not in SEVERITY_TEXTS
    )
    return Answer(
        template="overview.html",
        data={
            "status": status,
            "behind": _behind(status, asked),
            "open": [
                (level, name, counts.get((ReviewState.OPEN, level), 0))
                for level, name in sorted(SEVERITY_TEXTS.items(), reverse=True)
            ],
            "unknown": unknown,
            "alerts": store.alerts(AlertFilter(), FEW),
            "servers": store.servers(now_us=now_us, paging=FEW),
            "observers": store.observers(now_us=now_us, paging=FEW),
        },
    )


def servers(store: Store, asked: Asked) -> Answer:
    now_us = _now_us(store.status(), asked)
    return Answer(template="servers.html", data={"servers": store.servers(now_us=now_us, paging=asked.paging())})


def observers(store: Store, asked: Asked) -> Answer:
    now_us = _now_us(store.status(), asked)
    return Answer(template="observers.html", data={"observers": store.observers(now_us=now_us, paging=asked.paging())})


def server(store: Store, asked: Asked) -> Answer:
    server_id, now_us = asked.name("server"), _now_us(store.status(), asked)
    row = store.server(server_id, now_us=now_us)
    if row is None:
        return absent("No such server is in the store.", f"See the list of servers. {_LISTED_ELSEWHERE}")
    return Answer(
        template="server.html",
        data={
            "row": row,
            "tools": store.tools(now_us=now_us, server_id=server_id, paging=asked.paging()),
            "alerts": store.alerts(AlertFilter(selection=AlertSelection(server_id=server_id)), FEW),
            "decisions": store.decisions(server_id=server_id, paging=FEW),
        },
    )


def tool(store: Store, asked: Asked) -> Answer:
    """Return one tool with its versions, two of them side by side."""
    server_id, tool_name, now_us = asked.name("server"), asked.name("tool"), _now_us(store.status(), asked)
    row = store.tool(server_id, tool_name, now_us=now_us)
    if row is None:
        return absent("No such tool is in the store.", f"See the tools of its server. {_LISTED_ELSEWHERE}")
    versions = store.versions(server_id, tool_name)
    before, after = _chosen(versions, asked)
    bodies = [None if each is None else store.definition(each) for each in (before, after)]
    was, now = (None if body is None else body.definition for body in bodies)
    diff = None if was is None and now is None else definition_diff(was, now, full=asked.is_full)
    exact = AlertFilter(selection=AlertSelection(server_id=server_id), state=None, tool_name=tool_name, is_exact=True)
    return Answer(
        template="tool.html",
        data={
            "row": row,
            "versions": versions,
            "before": before,
            "after": after,
            "has_before": was is not None,
            "has_after": now is not None,
            "diff": diff,
            "full": asked.is_full,
            "places": () if diff is None else side_by_side(diff),
            "alerts": store.alerts(exact, FEW).rows,
            "decisions": store.decisions(server_id=server_id, tool_name=tool_name, paging=FEW),
            "subjects": {
                full: Subject(server_id=server_id, tool_name=tool_name, full_digest=full).as_text()
                for full in (version.full_digest for version in versions)
            },
            "done": asked.done(store),
        },
    )


def _chosen(versions: tuple[VersionRow, ...], asked: Asked) -> tuple[str | None, str | None]:
    """Return the versions to compare: by default the latest and the one before it."""
    known = [version.full_digest for version in versions]
    after = asked.text("after_version") or (known[0] if known else None)
    before = asked.text("before_version") or next((each for each in known[1:] if each != after), None)
    return (before if before in known else None), (after if after in known else None)


def alerts(store: Store, asked: Asked) -> Answer:
    return Answer(
        template="alerts.html",
        data={
            "alerts": store.alerts(asked.alerts(), asked.paging()),
            "asked": asked.given,
            "severities": list(SeverityLevel),
            "states": list(ReviewState),
            "kinds": list(Kind),
        },
    )


def evidence(store: Store, asked: Asked) -> Answer:
    wanted = asked.evidence()
    candidates = () if wanted.digest is None else store.candidates(wanted.digest)
    if len(candidates) > 1:
        return _to_choose(wanted.digest or "", candidates)
    if candidates:
        wanted = replace(wanted, digest=candidates[0].digest.value)
    return Answer(
        template="evidence.html",
        data={
            "calls": store.evidence(wanted, asked.paging()),
            "asked": asked.given,
            "scopes": list(Scope),
            "reasons": list(Unbound),
            "status": store.status(),
        },
    )


def record(store: Store, asked: Asked) -> Answer:
    """Return the full evidence of one call, with every digest and its scheme."""
    found = store.evidence_of(asked.name("ref"))
    if found is None:
        return absent("This evidence is not in the store.", _LISTED_ELSEWHERE)
    named = {digest.scheme: digest.value for digest in found.digests}
    return Answer(
        template="record.html",
        data={
            "found": found,
            "row": found.row,
            "trace": named.get("trace_id") or named.get("tool_call_id"),
            "text": json.dumps(decode_json(found.value), indent=2),
        },
    )


def trace(store: Store, asked: Asked) -> Answer:
    """Return the events of one trace or call in order, and what is known of the definitions it used."""
    wanted = asked.text("id")
    if wanted is None:
        return Answer(template="trace.html", data={"id": "", "steps": None, "more": False})
    page = store.evidence(EvidenceFilter(digest=wanted), Paging(limit=CONSOLE_LIMITS.trace_rows))
    if not page.rows:
        return absent(
            "No call in the store has this id.",
            f"Paste the whole trace id, tool call id or evidence id. {_LISTED_ELSEWHERE}",
        )
    steps = []
    for row in sorted(page.rows, key=lambda row: (row.time_us, int(row.reference))):
        full = next((digest.value for digest in row.digests if digest.role == "definition"), None)
        about = () if full is None else store.alerts(AlertFilter(state=None, digest=full), FEW).rows
        steps.append((row, full, about))
    return Answer(template="trace.html", data={"id": wanted, "steps": steps, "more": page.following is not None})


def digest(store: Store, asked: Asked) -> Answer:
    """Return where a digest of any scheme occurs, and the calls that have it; for a prefix, the candidates."""
    wanted = asked.text("value")
    if wanted is None:
        return _to_choose("", ())
    candidates = store.candidates(wanted)
    if len(candidates) > 1:
        return _to_choose(wanted, candidates)
    wanted = candidates[0].digest.value if candidates else wanted
    places = store.places(wanted)
    calls = store.evidence(EvidenceFilter(digest=wanted), FEW)
    if not places and not calls.rows:
        cut = "Give at least 6 digits. Ids, and digests of arguments, results and records, must be complete. "
        advice = cut if _CUT_DIGEST.fullmatch(wanted.lower()) else "Check that you copied all of it. "
        return absent("The store has no such digest.", f"{advice}{_LISTED_ELSEWHERE}")
    return Answer(
        template="digest.html",
        data={
            "value": wanted,
            "candidates": (),
            "places": [each for each in places if each.place != "evidence"],
            "calls": calls,
        },
    )


def _to_choose(value: str, candidates: tuple[DigestPlace, ...]) -> Answer:
    """Return the page for choosing one of several matching digests."""
    return Answer(
        template="digest.html", data={"value": value, "candidates": candidates, "places": None, "calls": None}
    )


def health(store: Store, asked: Asked) -> Answer:
    """Return how far each log was read, and what the store lacks."""
    status = store.status()
    return Answer(
        template="health.html", data={"status": status, "behind": _behind(status, asked), "counted": _COUNTED}
    )


def _behind(status: StoreStatus, asked: Asked) -> int | None:
    """Return how many records the store has yet to read, ``None`` if unknown or stale."""
    if status.looked_us is not None and asked.now_us - status.looked_us > CONSOLE_LIMITS.store_fresh_s * 1_000_000:
        return None
    lags = [position.lag for position in status.positions]
    return None if None in lags or not lags else sum(lag for lag in lags if lag is not None)


def _now_us(status: StoreStatus, asked: Asked) -> int:
    """Return the end of the last day: in a store of files, that of its latest call."""
    is_live = any(position.end is not None for position in status.positions)
    return asked.now_us if is_live or status.newest_us is None else status.newest_us


PAGES: Mapping[str, Callable[[Store, Asked], Answer]] = {
    "/": overview,
    "/alerts": alerts,
    "/alert": alert,
    "/reviews": reviews,
    "/confirm": confirm,
    "/servers": servers,
    "/server": server,
    "/tool": tool,
    "/observers": observers,
    "/evidence": evidence,
    "/record": record,
    "/trace": trace,
    "/digest": digest,
    "/health": health,
}
"""Every page by its path."""
