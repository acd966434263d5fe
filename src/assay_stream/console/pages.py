"""The pages: each asks the store, and returns what its template shows."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import orjson

from assay_stream.alerts.page import sections
from assay_stream.alerts.view import AlertRow, AlertSelection, AlertView, Life, ReviewState, SeverityLevel
from assay_stream.canonical.decode import decode_json
from assay_stream.console.deciding import ALERT_ACTS, DEFINITION_ACTS, Subject, act_of, decisions_on, subject_of_alert
from assay_stream.console.rendering import FEW, Answer, Asked, problem
from assay_stream.drift.definition import DefinitionDiff, PlaceDiff, definition_diff
from assay_stream.errors import InputError
from assay_stream.limits import CONSOLE_LIMITS, DEFAULT_LIMITS
from assay_stream.model.alert import SEVERITY_TEXTS
from assay_stream.model.control import PinStatus
from assay_stream.model.evidence import Scope, Unbound
from assay_stream.model.kinds import Kind
from assay_stream.readmodel.queries import Store, calls_of, known_definitions, story
from assay_stream.readmodel.rows import AlertFilter, DigestPlace, EvidenceFilter, Paging, VersionRow
from assay_stream.readmodel.schema import StoreStatus
from assay_stream.report.pins import Decision
from assay_stream.text.times import time_text
from assay_stream.text.word_diff import Piece
from assay_stream.work import Work

Shown = Mapping[str, Any] | Answer
"""What the page's own template shows, or another answer."""


class SidesOfPlace(NamedTuple):
    path: str
    what: str
    before: tuple[Piece, ...]
    after: tuple[Piece, ...]


def side_by_side(diff: DefinitionDiff | None) -> tuple[SidesOfPlace, ...]:
    """Return the places that differ, in two columns; notes on omitted text appear in both."""

    def side(place: PlaceDiff, without: str) -> tuple[Piece, ...]:
        kept = tuple(piece for piece in place.pieces if piece.op != without)
        return kept if any(piece.op != "note" for piece in kept) else ()

    places = () if diff is None else diff.places
    return tuple(SidesOfPlace(each.path, each.what, side(each, "come"), side(each, "gone")) for each in places)


def alert(store: Store, asked: Asked) -> Shown:
    history = store.alert(asked.name("uid"))
    counted = calls_of(store, history, most=CONSOLE_LIMITS.counted_calls_max)
    told = story(store, history, calls=counted, full=asked.is_full)
    view, life = told.view, told.life
    wanted = _calls_filter(view, life)
    after = view.fact("mcp_digest_after")
    alike = store.alerts(AlertFilter(state=None, digest=after), FEW).rows if after else ()
    places = side_by_side(told.diff)
    named = ("changes", "signs", "why", "severity", "next", "observers", "history", "references")
    return {
        "story": told,
        "row": view,
        "history": history,
        "full": asked.is_full,
        "places": places,
        "said": sections(told, *named, *(() if places else ("definition",))),
        "after": after,
        "wanted": wanted,
        "since": None if wanted is None or wanted.since_us is None else time_text(wanted.since_us),
        "calls": None if wanted is None else store.evidence(wanted, FEW),
        "is_counted": counted is not None,
        "alike": [row for row in alike if row.uid != view.uid],
        "subject": subject_of_alert(history.row, history.records[-1]),
        "done": asked.done(store),
    }


def _calls_filter(view: AlertView, life: Life) -> EvidenceFilter | None:
    if not view.tool_name:
        return None
    given: dict[str, Any] = {"digest": view.definition} if view.definition else {}
    since_ms = min(view.first_seen_ms, life.first[0].first_seen_ms)
    tool_name = view.fact("mcp_renamed_to") or view.tool_name
    return EvidenceFilter(server_id=view.server_id, tool_name=tool_name, since_us=since_ms * 1_000, **given)


_TO_BE_LOOKED_AT = frozenset({PinStatus.MISMATCH, PinStatus.REJECTED})
"""Approving everything that a server offers must not approve these unseen: a poisoned tool is one of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    subject: Subject
    decisions: Sequence[Decision] = ()
    problem: str = ""
    is_chosen: bool = True


def reviews(store: Store, asked: Asked) -> Shown:
    """Return the queue: unreviewed open alerts, each with its changes, and tools that differ."""
    wanted = asked.alerts(only_unreviewed=asked.text("all") is None)
    page = store.alerts(wanted, Paging(limit=CONSOLE_LIMITS.few_rows, after=asked.text("after")))
    is_first, work = asked.text("after") is None, Work(DEFAULT_LIMITS.work_units_max)
    return {
        "reviews": [_review(store, row, work) for row in page.rows],
        "following": page.following,
        "asked": {name: text for name, text in asked.given.items() if name not in ("recorded", "act", "count")},
        "acts": (*DEFINITION_ACTS, "acknowledge", "assign", "close"),
        "differing": store.differing(FEW) if is_first else None,
        "done": asked.done(store),
    }


def _review(store: Store, row: AlertRow, work: Work) -> Mapping[str, Any]:
    history = store.alert(row.uid)
    known = known_definitions(store, history)
    is_too_long = any(
        len(orjson.dumps(each)) > CONSOLE_LIMITS.review_definition_bytes_max for each in known.by_digest.values()
    )
    told = story(store, history, replace(known, by_digest={}) if is_too_long else known, is_short=True, work=work)
    full = subject_of_alert(row, history.records[-1]).full_digest
    return {
        "row": row,
        "story": told,
        "said": sections(told, "changes", "signs"),
        # The whole digest: a server can make two definitions whose digests only begin alike.
        "pick": f"{row.uid}.{full}",
        "places": side_by_side(told.diff),
        "is_too_long": is_too_long,
    }


def confirm(store: Store, asked: Asked) -> Shown:
    """Return what a decision on several alerts, or on the tools of a server, would record."""
    if asked.session is None or not asked.session.operator.may_decide:
        raise InputError("may_not_decide", "read-only account: ask an administrator for the operator role")
    if not asked.is_own:
        raise InputError(
            "bad_form", "a link cannot ask for a decision: open Reviews, or the page of a server, and choose"
        )
    act = act_of(asked.name("act"))
    server_id = asked.given.get("server")
    following = None
    if server_id:
        if act not in DEFINITION_ACTS:
            raise InputError("bad_form", "tools can be approved or rejected: choose one of these")
        page = store.tools(now_us=asked.now_us, server_id=server_id, paging=asked.paging())
        following = page.following
        choices = [
            _choice(
                store,
                act,
                Subject(server_id=server_id, tool_name=row.tool_name, full_digest=full),
                is_chosen=len(row.full_digests) == 1 and row.pin_status not in _TO_BE_LOOKED_AT,
            )
            for row in page.rows
            if row.is_listed and row.pin_status != "match"
            for full in row.full_digests
        ]
    else:
        picks = list(dict.fromkeys(asked.values("pick")))
        if not 0 < len(picks) <= CONSOLE_LIMITS.subjects_max:
            raise InputError("bad_form", f"go back and choose 1 to {CONSOLE_LIMITS.subjects_max} alerts")
        choices = list(_picked(store, act, picks))
    return {
        "act": act,
        "is_alert_act": act in ALERT_ACTS,
        "assignee": asked.text("assignee") or "",
        "reason": asked.text("reason") or "",
        "choices": [choice for choice in choices if not choice.problem],
        "is_any_unticked": any(not (choice.is_chosen or choice.problem) for choice in choices),
        "left_out": [choice for choice in choices if choice.problem],
        "server_id": server_id,
        "following": following,
    }


def _picked(store: Store, act: str, picks: Sequence[str]) -> Iterator[Choice]:
    for pick in picks:
        uid, _, seen = pick.partition(".")
        history = store.alert(uid)
        subject = subject_of_alert(history.row, history.records[-1])
        if subject.full_digest != seen:
            yield Choice(subject=subject, problem="It is about another definition than the one you looked at.")
        else:
            yield _choice(store, act, subject)


def _choice(store: Store, act: str, subject: Subject, *, is_chosen: bool = True) -> Choice:
    try:
        # Who is named matters for the record, not for whether there can be one.
        found = decisions_on(store, act, subject, assignee="-" if act == "assign" else None)
    except InputError as error:
        return Choice(subject=subject, problem=error.message)
    return Choice(subject=subject, decisions=found, is_chosen=is_chosen)


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
    "It may have been dropped because of age or size, or not been read yet: see Health for the store's progress."
)


def overview(store: Store, asked: Asked) -> Shown:
    status = store.status()
    now_us = _now_us(status, asked)
    counts = {level: n for (state, level), n in store.alert_counts().items() if state is ReviewState.OPEN}
    return {
        "status": status,
        "behind": _behind(status, asked),
        "open": [(level, name, counts.get(level, 0)) for level, name in sorted(SEVERITY_TEXTS.items(), reverse=True)],
        "unknown": sum(n for level, n in counts.items() if level not in SEVERITY_TEXTS),
        "alerts": store.alerts(AlertFilter(), FEW),
        "servers": store.servers(now_us=now_us, paging=FEW),
        "observers": store.observers(now_us=now_us, paging=FEW),
    }


def servers(store: Store, asked: Asked) -> Shown:
    return {"servers": store.servers(now_us=_now_us(store.status(), asked), paging=asked.paging())}


def observers(store: Store, asked: Asked) -> Shown:
    return {"observers": store.observers(now_us=_now_us(store.status(), asked), paging=asked.paging())}


def server(store: Store, asked: Asked) -> Shown:
    server_id, now_us = asked.name("server"), _now_us(store.status(), asked)
    row = store.server(server_id, now_us=now_us)
    if row is None:
        return problem(404, "No such server is in the store.", f"See the list of servers. {_LISTED_ELSEWHERE}")
    return {
        "row": row,
        "tools": store.tools(now_us=now_us, server_id=server_id, paging=asked.paging()),
        "alerts": store.alerts(AlertFilter(selection=AlertSelection(server_id=server_id)), FEW),
        "decisions": store.decisions(server_id=server_id, paging=FEW),
    }


def tool(store: Store, asked: Asked) -> Shown:
    server_id, tool_name, now_us = asked.name("server"), asked.name("tool"), _now_us(store.status(), asked)
    row = store.tool(server_id, tool_name, now_us=now_us)
    if row is None:
        return problem(404, "No such tool is in the store.", f"See the tools of its server. {_LISTED_ELSEWHERE}")
    page = store.versions(server_id, tool_name, asked.paging())
    versions = page.rows
    before, after = (
        each if each and store.versions(server_id, tool_name, full_digest=each).rows else None
        for each in _chosen(versions, asked)
    )
    bodies = [None if each is None else store.definition(each) for each in (before, after)]
    was, now = (None if body is None else body.definition for body in bodies)
    diff = None if was is None and now is None else definition_diff(was, now, full=asked.is_full)
    exact = AlertFilter(selection=AlertSelection(server_id=server_id), state=None, tool_name=tool_name, is_exact=True)
    return {
        "row": row,
        "versions": versions,
        "page": page,
        "here": asked.text("after"),
        "before": before,
        "after": after,
        "has_before": was is not None,
        "has_after": now is not None,
        "diff": diff,
        "full": asked.is_full,
        "places": side_by_side(diff),
        "alerts": store.alerts(exact, FEW).rows,
        "decisions": store.decisions(server_id=server_id, tool_name=tool_name, paging=FEW),
        "subjects": {
            full: Subject(server_id=server_id, tool_name=tool_name, full_digest=full).as_text()
            for full in (version.full_digest for version in versions)
        },
        "done": asked.done(store),
    }


def _chosen(versions: tuple[VersionRow, ...], asked: Asked) -> tuple[str | None, str | None]:
    """Return the versions to compare: by default the latest and the one before it."""
    known = [version.full_digest for version in versions]
    after = asked.text("after_version") or (known[0] if known else None)
    before = asked.text("before_version") or next((each for each in known[1:] if each != after), None)
    return before, after


def alerts(store: Store, asked: Asked) -> Shown:
    return {
        "alerts": store.alerts(asked.alerts(), asked.paging()),
        "asked": asked.given,
        "severities": list(SeverityLevel),
        "states": list(ReviewState),
        "kinds": list(Kind),
    }


def evidence(store: Store, asked: Asked) -> Shown:
    wanted = asked.evidence()
    candidates = () if wanted.digest is None else store.candidates(wanted.digest)
    if len(candidates) > 1:
        return _to_choose(wanted.digest or "", candidates)
    if candidates:
        wanted = replace(wanted, digest=candidates[0].digest.value)
    return {
        "calls": store.evidence(wanted, asked.paging()),
        "asked": asked.given,
        "scopes": list(Scope),
        "reasons": list(Unbound),
        "status": store.status(),
    }


def record(store: Store, asked: Asked) -> Shown:
    """Return the full evidence of one call, with every digest and its scheme."""
    found = store.evidence_at(asked.name("ref"))
    if found is None:
        return problem(404, "This evidence is not in the store.", _LISTED_ELSEWHERE)
    named = {digest.scheme: digest.value for digest in found.digests}
    return {
        "found": found,
        "row": found.row,
        "trace": named.get("trace_id") or named.get("tool_call_id"),
        "text": json.dumps(decode_json(found.value), indent=2),
    }


def trace(store: Store, asked: Asked) -> Shown:
    """Return the events of one trace or call in order, and what is known of the definitions it used."""
    wanted = asked.text("id")
    if wanted is None:
        return {"id": "", "steps": None, "more": False}
    page = store.evidence(EvidenceFilter(digest=wanted), Paging(limit=CONSOLE_LIMITS.trace_rows))
    if not page.rows:
        return problem(
            404,
            "No call in the store has this id.",
            f"Paste the whole trace id, tool call id or evidence id. {_LISTED_ELSEWHERE}",
        )
    steps = []
    for row in sorted(page.rows, key=lambda row: (row.time_us, int(row.reference))):
        full = next((digest.value for digest in row.digests if digest.role == "definition"), None)
        about = () if full is None else store.alerts(AlertFilter(state=None, digest=full), FEW).rows
        steps.append((row, full, about))
    return {"id": wanted, "steps": steps, "more": page.following is not None}


def digest(store: Store, asked: Asked) -> Shown:
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
        return problem(404, "The store has no such digest.", f"{advice}{_LISTED_ELSEWHERE}")
    return {
        "value": wanted,
        "candidates": (),
        "places": [each for each in places if each.place != "evidence"],
        "calls": calls,
    }


def _to_choose(value: str, candidates: tuple[DigestPlace, ...]) -> Answer:
    """Return the page for choosing one of several matching digests."""
    return Answer(
        template="digest.html", data={"value": value, "candidates": candidates, "places": None, "calls": None}
    )


def health(store: Store, asked: Asked) -> Shown:
    status = store.status()
    return {"status": status, "behind": _behind(status, asked), "counted": _COUNTED}


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


_NAMED = (alerts, alert, reviews, confirm, servers, server, tool, observers, evidence, record, trace, digest, health)
PAGES: Mapping[str, Callable[[Store, Asked], Shown]] = {"/": overview} | {f"/{each.__name__}": each for each in _NAMED}
"""Every page by its path, which is the name of its function and of its template."""
