"""Decisions of operators in the console: from a posted form to the commands' own control records in Kafka."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar, cast, get_args
from urllib.parse import parse_qsl

import orjson
from aiohttp import web

from assay_stream.alerts.story import subject_of
from assay_stream.alerts.view import AlertRow, view_of
from assay_stream.config import Settings
from assay_stream.console.rendering import url
from assay_stream.console.sessions import Operator
from assay_stream.errors import ConfigurationError, InputError, OperatingError
from assay_stream.kafka.connection import start_producer
from assay_stream.kafka.publishing import KafkaProducer, disconnect, send_all
from assay_stream.kafka.refusals import explained
from assay_stream.kafka.topics import topic_names
from assay_stream.limits import CONSOLE_LIMITS, ConsoleLimits
from assay_stream.observe.observation import Observation
from assay_stream.observe.recorded import decision_event
from assay_stream.readmodel.queries import Store
from assay_stream.report.pins import (
    AlertAct,
    Decision,
    DefinitionAct,
    alert_decision,
    definition_decisions,
    values_of_print,
)

Fields = Mapping[str, tuple[str, ...]]
"""Posted fields by name, each with its values in order."""


CSRF_FIELD = "csrf"


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A form posted by an operator; session and CSRF token have been checked.

    Args:
        fields: without the token. Line ends are line feeds, whatever the browser sent.
        now_us: microseconds since the epoch.
    """

    fields: Fields
    operator: Operator
    now_us: int

    def text(self, name: str) -> str | None:
        return (self._value(name) or "").strip() or None

    def name(self, name: str) -> str:
        """Return a required field unchanged: names may begin and end with blanks."""
        value = self._value(name)
        if not value:
            raise InputError("bad_form", f"the form has no {name}: go back and fill it in")
        return value

    def reason(self) -> str:
        reason = self.text("reason")
        if reason is None:
            raise InputError("bad_form", "give a reason: it is recorded with the decision")
        return reason

    def _value(self, name: str) -> str | None:
        values = self.fields.get(name, ())
        if len(values) > 1:
            raise InputError("bad_form", f"the form has {name} more than once: load its page again")
        return values[0] if values else None


def read_fields(body: bytes, limits: ConsoleLimits = CONSOLE_LIMITS) -> Fields:
    """Parse a form body (``application/x-www-form-urlencoded``)."""
    if len(body) > limits.form_bytes_max:
        raise InputError("bad_form", f"the form is longer than {limits.form_bytes_max} bytes: send less at once")
    fields: dict[str, list[str]] = {}
    try:
        pairs = parse_qsl(
            body.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(body),
            errors="strict",
            max_num_fields=limits.form_fields_max,
        )
    except ValueError:
        raise InputError(
            "bad_form",
            f"the form cannot be read: it is damaged, or has more than {limits.form_fields_max} fields. "
            "Load its page again, and send less at once",
        ) from None
    for name, value in pairs:
        fields.setdefault(name, []).append(value.replace("\r\n", "\n"))
    return {name: tuple(values) for name, values in fields.items()}


@dataclass(eq=False, repr=False)
class KafkaPublish:
    """Publish decisions over a connection that is kept open until it fails."""

    settings: Settings
    _: KW_ONLY
    connect: Callable[[Settings], Awaitable[KafkaProducer]] | None = None
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    new_id: Callable[[], str] = lambda: str(uuid.uuid4())
    limits: ConsoleLimits = CONSOLE_LIMITS

    def __post_init__(self) -> None:
        self._connect = partial(self.connect or start_producer, self.settings)
        self._topics = topic_names(self.settings)
        self._producer: KafkaProducer | None = None
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def __call__(self, decisions: Sequence[Decision], author: str) -> None:
        """Publish decisions, and return once all in-sync replicas have all of them.

        Raises:
            InputError: for an invalid decision; none is published.
            ConfigurationError: if the brokers do not allow it; none is published.
            OperatingError: ``console_busy``, ``broker_unreachable``: none is published; ``not_delivered``: some may be.
        """
        now = self.clock()
        events = [
            decision_event(kind, {**data, "author": author}, author=author, event_id=self.new_id(), decided_at=now)
            for kind, data in decisions
        ]
        if self._waiting >= self.limits.decisions_waiting_max:
            raise OperatingError("console_busy", "too many decisions wait for Kafka: try again in a minute")
        self._waiting += 1
        try:
            async with self._turn:
                await self._send(events)
        finally:
            self._waiting -= 1

    async def aclose(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await disconnect(producer)

    async def _send(self, events: Sequence[Observation]) -> None:
        outcomes: Sequence[BaseException | None] = [TimeoutError()] * len(events)
        try:
            self._producer = self._producer or await self._connect()
            with suppress(TimeoutError):
                async with asyncio.timeout(self.limits.decision_limit_s):
                    outcomes = await send_all(self._producer, self._topics, events)
        finally:
            failed = [outcome for outcome in outcomes if outcome is not None]
            if failed:
                # Records in flight must not arrive after their failure was reported.
                await self.aclose()
        if not failed:
            return
        refusals = [known for each in failed if isinstance(known := explained(each), ConfigurationError)]
        if len(refusals) == len(events):
            raise refusals[0]
        raise OperatingError(
            "not_delivered",
            f"{len(failed)} of {len(events)} decisions were not acknowledged by Kafka ({type(failed[0]).__name__}). "
            "Look what is recorded in a minute, then send it again: a decision that is there twice changes nothing",
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
        return orjson.dumps([self.server_id, self.tool_name, self.full_digest, self.uid]).decode()


def read_subject(text: str) -> Subject:
    try:
        parts = orjson.loads(text)
    except orjson.JSONDecodeError:
        parts = None
    if not isinstance(parts, list) or [type(part) for part in parts] != [str] * 4:
        raise InputError("bad_form", "the form names what no page has: load its page again")
    server_id, tool_name, full_digest, uid = parts
    return Subject(server_id=server_id, tool_name=tool_name, full_digest=full_digest, uid=uid)


def subjects_of(fields: Fields) -> Iterator[Subject]:
    for text in fields.get("subject", ()):
        with suppress(InputError):
            yield read_subject(text)


def subject_of_alert(row: AlertRow, record: dict[str, Any]) -> Subject:
    """Return the subject of an alert; ``record`` is its latest record."""
    tool_name, full_digest = subject_of(view_of(record)) or (row.tool_name, "")
    return Subject(server_id=row.server_id, tool_name=tool_name, full_digest=full_digest, uid=row.uid)


def decisions_on(store: Store, act: str, subject: Subject, *, assignee: str | None = None) -> Sequence[Decision]:
    if subject.uid:
        history = store.alert(subject.uid)
        now = subject_of_alert(history.row, history.records[-1])
        if now != subject:
            raise InputError(
                "definition_changed", f"alert {now.uid[:12]} is about another definition by now: look at it again"
            )
        if act in ALERT_ACTS:
            return [alert_decision(act, server_id=now.server_id, uid=now.uid, assignee=assignee)]
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
    values = values_of_print(printed, subject.tool_name, pinned=pinned)
    return definition_decisions(
        cast("DefinitionAct", act), server_id=subject.server_id, tool_name=subject.tool_name, values=values
    )


def act_of(text: str) -> str:
    if text not in (*ALERT_ACTS, *DEFINITION_ACTS):
        raise InputError("bad_form", "unknown action: choose one from the page")
    return text


def decide(store: Store, form: Form) -> tuple[Sequence[Decision], str]:
    """Return the decisions on all subjects of a form, and the page to show then; raises if one cannot be decided."""
    act, reason = act_of(form.name("act")), form.reason()
    assignee = form.text("assignee") if act == "assign" else None
    if act == "assign" and assignee is None:
        raise InputError("bad_form", "name whom to assign to")
    subjects = list(dict.fromkeys(map(read_subject, form.fields.get("subject", ()))))
    if not 0 < len(subjects) <= CONSOLE_LIMITS.subjects_max:
        raise InputError(
            "bad_form", f"choose at least one and at most {CONSOLE_LIMITS.subjects_max} to decide on at once"
        )
    decisions = [
        (kind, {**data, "reason": reason})
        for subject in subjects
        for kind, data in decisions_on(store, act, subject, assignee=assignee)
    ]
    done, first = {"recorded": str(form.now_us), "act": act}, subjects[0]
    if len(subjects) > 1:
        address = url("/reviews", **done, count=str(len(subjects)))
    elif first.uid:
        address = url("/alert", uid=first.uid, **done)
    else:
        address = url("/tool", server=first.server_id, tool=first.tool_name, **done)
    return decisions, address


Decide = Callable[[Store, Form], tuple[Sequence[Decision], str]]

Publish = Callable[[Sequence[Decision], str], Awaitable[None]]
"""Publishes decisions of an author, and returns once Kafka has acknowledged all of them.

Raises:
    InputError: where a decision is wrong; none is published then.
    OperatingError: where not all are known to have been recorded.
"""

_FORM = "application/x-www-form-urlencoded"
_T = TypeVar("_T")


async def posted_fields(request: web.Request, limits: ConsoleLimits) -> Fields:
    if request.content_type != _FORM or "Content-Encoding" in request.headers:
        raise InputError("bad_form", f"a form is posted as {_FORM}, without an encoding")
    body = b""
    try:
        async with asyncio.timeout(limits.form_limit_s):
            while len(body) <= limits.form_bytes_max and (more := await request.content.readany()):
                body += more
    except TimeoutError:
        raise InputError(
            "bad_form", f"the form did not arrive within {limits.form_limit_s:g} s: send it again"
        ) from None
    return read_fields(body, limits)


async def to_its_end(work: Awaitable[_T]) -> _T:
    """Await work that is not cancelled with the caller."""
    task = asyncio.ensure_future(work)
    # What fails after its browser has gone is nobody's to see, and not an error of the loop.
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return await asyncio.shield(task)
