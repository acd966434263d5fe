"""Review pages: the queue, and the confirmation of a bulk decision."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import orjson

from assay_stream.alerts.index import AlertRow
from assay_stream.alerts.story import AlertStory
from assay_stream.console.answers import FEW, Answer
from assay_stream.console.asked import Asked
from assay_stream.console.comparison import SidesOfPlace, side_by_side
from assay_stream.console.deciding import ALERT_ACTS, DEFINITION_ACTS, Subject, act_of, decisions_on, subject_of_alert
from assay_stream.errors import InputError
from assay_stream.limits.console import CONSOLE_LIMITS
from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.model.evidence import PinStatus
from assay_stream.readmodel.queries import Store
from assay_stream.readmodel.rows import Paging
from assay_stream.readmodel.stories import known_definitions, story
from assay_stream.report.decisions import Decision
from assay_stream.work import Work

_TO_BE_LOOKED_AT = frozenset({PinStatus.MISMATCH, PinStatus.REJECTED})
"""Approving everything that a server offers must not approve these unseen: a poisoned tool is one of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """An alert in the queue.

    Args:
        pick: value of its checkbox: the alert, and the definition shown.
        places: what changed, side by side.
        is_too_long: whether the diff is shown on its own page only.
    """

    row: AlertRow
    story: AlertStory
    pick: str
    places: tuple[SidesOfPlace, ...]
    is_too_long: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One subject to be confirmed.

    Args:
        decisions: what would be recorded; empty if it cannot be decided.
        problem: why not.
        is_chosen: whether its checkbox is initially ticked.
    """

    subject: Subject
    decisions: Sequence[Decision] = ()
    problem: str = ""
    is_chosen: bool = True


def reviews(store: Store, asked: Asked) -> Answer:
    """Return the queue: unreviewed open alerts, each with its changes, and tools that differ."""
    wanted = asked.alerts(only_unreviewed=asked.text("all") is None)
    page = store.alerts(wanted, Paging(limit=CONSOLE_LIMITS.few_rows, after=asked.text("after")))
    is_first, work = asked.text("after") is None, Work(DEFAULT_LIMITS.work_units_max)
    return Answer(
        template="reviews.html",
        data={
            "reviews": [_review(store, row, work) for row in page.rows],
            "following": page.following,
            "asked": {name: text for name, text in asked.given.items() if name not in ("recorded", "act", "count")},
            "acts": (*DEFINITION_ACTS, "acknowledge", "assign", "close"),
            "differing": store.differing(FEW) if is_first else None,
            "done": asked.done(store),
        },
    )


def _review(store: Store, row: AlertRow, work: Work) -> Review:
    history = store.alert(row.uid)
    known = known_definitions(store, history)
    is_too_long = any(
        len(orjson.dumps(each)) > CONSOLE_LIMITS.review_definition_bytes_max for each in known.by_digest.values()
    )
    told = story(store, history, replace(known, by_digest={}) if is_too_long else known, is_short=True, work=work)
    full = subject_of_alert(row, history.records[-1]).full_digest
    return Review(
        row=row,
        story=told,
        # The whole digest: a server can make two definitions whose digests only begin alike.
        pick=f"{row.uid}.{full}",
        places=() if told.diff is None else side_by_side(told.diff),
        is_too_long=is_too_long,
    )


def confirm(store: Store, asked: Asked) -> Answer:
    """Return what a decision on several alerts, or on the tools of a server, would record.

    Raises:
        InputError: ``bad_form``, ``may_not_decide``.
    """
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
    return Answer(
        template="confirm.html",
        data={
            "act": act,
            "is_alert_act": act in ALERT_ACTS,
            "assignee": asked.text("assignee") or "",
            "reason": asked.text("reason") or "",
            "choices": [choice for choice in choices if not choice.problem],
            "is_any_unticked": any(not (choice.is_chosen or choice.problem) for choice in choices),
            "left_out": [choice for choice in choices if choice.problem],
            "server_id": server_id,
            "following": following,
        },
    )


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
