"""What operators decide in the console, as the control records that the commands make of the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast, get_args

import orjson

from assay_stream.alerts.formats.view import view_of
from assay_stream.alerts.index import AlertRow
from assay_stream.alerts.story import subject_of
from assay_stream.console.forms import Decided, Fields, Form
from assay_stream.console.rendering import url
from assay_stream.errors import InputError
from assay_stream.limits.console import CONSOLE_LIMITS
from assay_stream.readmodel.queries import Store
from assay_stream.report.decisions import (
    AlertAct,
    Decision,
    DefinitionAct,
    alert_decision,
    definition_decisions,
    values_to_decide,
)

ALERT_ACTS: tuple[AlertAct, ...] = get_args(AlertAct)
DEFINITION_ACTS: tuple[DefinitionAct, ...] = get_args(DefinitionAct)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What a decision is about, as its page showed it.

    Args:
        uid: of the alert; ``""`` where a definition was chosen on the page of its tool.
        full_digest: of the definition that was shown; ``""`` where the alert is about none.
    """

    server_id: str
    tool_name: str
    full_digest: str
    uid: str = ""

    def as_text(self) -> str:
        """Return it as the value of a field."""
        return orjson.dumps([self.server_id, self.tool_name, self.full_digest, self.uid]).decode()


def read_subject(text: str) -> Subject:
    """Return what a field of a form is about.

    Raises:
        InputError: ``bad_form``.
    """
    try:
        parts = orjson.loads(text)
    except orjson.JSONDecodeError:
        parts = None
    if not isinstance(parts, list) or [type(part) for part in parts] != [str] * 4:
        raise InputError("bad_form", "the form names what no page has: load its page again")
    server_id, tool_name, full_digest, uid = parts
    return Subject(server_id=server_id, tool_name=tool_name, full_digest=full_digest, uid=uid)


def subjects_of(fields: Fields) -> Iterator[Subject]:
    """Yield what a form is about, as far as it can be read."""
    for text in fields.get("subject", ()):
        with suppress(InputError):
            yield read_subject(text)


def subject_of_alert(row: AlertRow, record: dict[str, Any]) -> Subject:
    """Return what a decision on an alert is about.

    Args:
        record: its latest record.
    """
    tool_name, full_digest = subject_of(view_of(record)) or (row.tool_name, "")
    return Subject(server_id=row.server_id, tool_name=tool_name, full_digest=full_digest, uid=row.uid)


def decisions_on(store: Store, act: str, subject: Subject, *, assignee: str | None = None) -> Sequence[Decision]:
    """Return what is recorded where an operator decides on one subject.

    Args:
        act: one of ``ALERT_ACTS`` or ``DEFINITION_ACTS``.

    Raises:
        InputError: ``unknown_uid``; ``definition_changed`` where an alert is about another definition than its page
            showed; ``tool_not_observed``, ``no_definition_in_alert`` or ``scheme_not_available``.
    """
    if subject.uid:
        history = store.alert(subject.uid)
        now = subject_of_alert(history.row, history.records[-1])
        if act in ALERT_ACTS:
            return [alert_decision(act, server_id=now.server_id, uid=now.uid, assignee=assignee)]
        if now != subject:
            raise InputError(
                "definition_changed", f"alert {now.uid[:12]} is about another definition by now: look at it again"
            )
    elif act in ALERT_ACTS:
        raise InputError("bad_form", "no alert is named: choose one")
    if not subject.full_digest:
        raise InputError(
            "no_definition_in_alert", f"alert {subject.uid[:12]} names no definition: leave it out, or acknowledge it"
        )
    printed = store.printed(subject.server_id, subject.full_digest)
    if not printed:
        raise InputError(
            "tool_not_observed", "the store does not know this definition of the server: load the tool's page again"
        )
    pinned = store.pinned(subject.server_id, subject.tool_name)
    values = values_to_decide(printed, subject.tool_name, pinned=pinned)
    return definition_decisions(
        cast("DefinitionAct", act), server_id=subject.server_id, tool_name=subject.tool_name, values=values
    )


def act_of(text: str) -> str:
    """Return what to do.

    Raises:
        InputError: ``bad_form`` where the console can do no such thing.
    """
    if text not in (*ALERT_ACTS, *DEFINITION_ACTS):
        raise InputError("bad_form", "the console can do no such thing: choose from the page")
    return text


def decide(store: Store, form: Form) -> Decided:
    """Decide on everything that a form names: all of it, or nothing where one of them cannot be.

    Raises:
        InputError: ``bad_form``, or as ``decisions_on``.
    """
    act, reason = act_of(form.name("act")), form.reason()
    assignee = form.text("assignee") if act == "assign" else None
    if act == "assign" and assignee is None:
        raise InputError("bad_form", "name whom to assign to")
    subjects = list(dict.fromkeys(map(read_subject, form.values("subject"))))
    if not 0 < len(subjects) <= CONSOLE_LIMITS.subjects_max:
        raise InputError(
            "bad_form", f"choose at least one and at most {CONSOLE_LIMITS.subjects_max} to decide on at once"
        )
    decisions = [
        (kind, {**data, "reason": reason})
        for subject in subjects
        for kind, data in decisions_on(store, act, subject, assignee=assignee)
    ]
    return Decided(decisions=decisions, address=_next_page(form, subjects, act))


def _next_page(form: Form, subjects: Sequence[Subject], act: str) -> str:
    """Return the page to go on with: that of the one thing decided on, or the queue."""
    done = {"recorded": str(form.now_us), "act": act}
    first = subjects[0]
    if len(subjects) > 1:
        return url("/reviews", **done, count=str(len(subjects)))
    if first.uid:
        return url("/alert", uid=first.uid, **done)
    return url("/tool", server=first.server_id, tool=first.tool_name, **done)


Action = Callable[[Store, Form], Decided]

ACTIONS: Mapping[str, Action] = {"/decide": decide}
"""Every action by the path that its form is posted to."""
