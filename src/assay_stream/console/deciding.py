"""Decisions of operators in the console, as the same control records that the commands write."""

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
    """Subject of a decision, as shown on its page.

    Args:
        uid: uid of the alert; ``""`` if a definition was chosen on the tool's page.
        full_digest: digest of the definition shown; ``""`` if the alert is about none.
    """

    server_id: str
    tool_name: str
    full_digest: str
    uid: str = ""

    def as_text(self) -> str:
        """Encode as a form field."""
        return orjson.dumps([self.server_id, self.tool_name, self.full_digest, self.uid]).decode()


def read_subject(text: str) -> Subject:
    """Parse the subject from a form field.

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
    """Yield the subjects of a form, skipping unreadable ones."""
    for text in fields.get("subject", ()):
        with suppress(InputError):
            yield read_subject(text)


def subject_of_alert(row: AlertRow, record: dict[str, Any]) -> Subject:
    """Return the subject of an alert; ``record`` is its latest record."""
    tool_name, full_digest = subject_of(view_of(record)) or (row.tool_name, "")
    return Subject(server_id=row.server_id, tool_name=tool_name, full_digest=full_digest, uid=row.uid)


def decisions_on(store: Store, act: str, subject: Subject, *, assignee: str | None = None) -> Sequence[Decision]:
    """Return the decisions that an act on one subject records.

    Args:
        act: one of ``ALERT_ACTS`` or ``DEFINITION_ACTS``.

    Raises:
        InputError: ``unknown_uid``; ``definition_changed`` if the alert is now about another definition than its page
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
    """Validate an act.

    Raises:
        InputError: ``bad_form`` for an unknown act.
    """
    if text not in (*ALERT_ACTS, *DEFINITION_ACTS):
        raise InputError("bad_form", "the console can do no such thing: choose from the page")
    return text


def decide(store: Store, form: Form) -> Decided:
    """Decide on all subjects of a form, or on none if one cannot be decided.

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
    """Return the next page: that of a single subject, or the queue."""
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
