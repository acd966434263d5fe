"""What the address of a page asks for, and what a page is made of."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from assay_stream.alerts.formats.view import ReviewState
from assay_stream.alerts.index import AlertSelection, SeverityLevel
from assay_stream.console.sessions import Session
from assay_stream.errors import AssayStreamError, InputError
from assay_stream.limits.serving import CONSOLE_LIMITS
from assay_stream.model.cloudevents import operator_time_us
from assay_stream.readmodel.queries import Store
from assay_stream.readmodel.rows import AlertFilter, EvidenceFilter, Paging

_ANY = "any"
_NAMES = {"server": "server_id", "tool": "tool_name", "observer": "observer_id", "agent": "agent_id"}
_MICROS, _COUNT = re.compile(r"[0-9]{1,18}"), re.compile(r"[0-9]{1,6}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A decision that an operator has just made."""

    act: str
    count: int
    is_read: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The parsed query string of a page.

    Args:
        given: fields; an empty one means no restriction.
        now_us: microseconds since the epoch.
        session: ``None`` if the console has no authentication.
        is_own: whether the browser states that one of our pages led here, not a link from elsewhere.
    """

    given: Mapping[str, str]
    now_us: int
    session: Session | None = None
    is_own: bool = True

    def text(self, name: str) -> str | None:
        """Return a field, ``None`` if it is absent."""
        return self.given.get(name, "").strip() or None

    def name(self, name: str) -> str:
        """Return a required field unchanged: names may begin and end with blanks."""
        found = self.given.get(name, "")
        if not found:
            raise InputError("bad_option", f"the address names no {name}: come here by a link")
        return found

    @property
    def is_full(self) -> bool:
        """Whether to show every difference, however long."""
        return self.text("full") is not None

    def paging(self) -> Paging:
        return Paging(limit=CONSOLE_LIMITS.rows, after=self.text("after"))

    def evidence(self) -> EvidenceFilter:
        bound = self.text("bound")
        names: dict[str, Any] = {field: self.given.get(name) or None for name, field in _NAMES.items()}
        return EvidenceFilter(
            **names,
            since_us=self._time("since"),
            until_us=self._time("until"),
            decision=self.text("decision"),
            scope=self.text("scope"),
            unbound_reason=self.text("unbound"),
            is_unbound=None if bound is None else bound == "no",
            digest=self.text("digest"),
        )

    def values(self, name: str) -> tuple[str, ...]:
        return tuple(value for key, value in self.given.items() if key == name)

    def done(self, store: Store) -> Done | None:
        """Return the decision that the address says was just recorded, if any.

        Until the store has read it, its author cannot find it there, so the page shows it.
        """
        recorded, act = self.text("recorded"), self.text("act")
        if not self.is_own or self.session is None or act is None or not _MICROS.fullmatch(recorded or ""):
            return None
        count = self.text("count") or "1"
        latest = store.decisions(
            author=self.session.operator.name, since_us=int(recorded or 0) // 1_000 * 1_000, paging=Paging(limit=1)
        )
        return Done(act=act, count=int(count) if _COUNT.fullmatch(count) else 1, is_read=bool(latest.rows))

    def alerts(self, *, only_unreviewed: bool = False) -> AlertFilter:
        """Build the alert filter; by default, open alerts."""
        since_us, severity, state = self._time("since"), self.text("severity"), self.text("state")
        try:
            return AlertFilter(
                selection=AlertSelection(
                    since_ms=None if since_us is None else since_us // 1_000,
                    server_id=self.given.get("server") or None,
                    severity=None if severity is None else SeverityLevel(severity),
                ),
                state=None if state == _ANY else ReviewState(state or ReviewState.OPEN),
                tool_name=self.given.get("tool") or None,
                kind=self.text("kind"),
                is_unreviewed=only_unreviewed or self.text("unreviewed") is not None,
            )
        except ValueError:
            raise InputError("bad_option", "no alert has such a state or severity: choose from the form") from None

    def _time(self, name: str) -> int | None:
        text = self.text(name)
        return None if text is None else operator_time_us(text, now_us=self.now_us)


HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # without one, browsers leave the origin of a form out
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Server": "assay-stream",
}
"""Of every answer."""

_STATUS = {
    "unknown_uid": 404,
    "not_signed_in": 401,
    "sign_in_refused": 401,
    "sign_in_limited": 429,
    "identity_refused": 403,
    "may_not_look": 403,
    "may_not_decide": 403,
    "form_outdated": 403,
    "console_failed": 500,
}

FEW = Paging(limit=CONSOLE_LIMITS.few_rows)
"""Rows of a table that is not what its page is about."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A page to be rendered."""

    template: str
    data: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200


Handler = Callable[[web.Request], Awaitable[Any]]
"""Returns a response, or an ``Answer`` that the service renders."""


def problem(status: int, what: str, advice: str = "", code: str | None = None) -> Answer:
    return Answer(template="problem.html", data={"what": what, "advice": advice, "code": code}, status=status)


def status_of(error: AssayStreamError) -> int:
    found = _STATUS.get(error.code)
    if found is not None:
        return found
    return 400 if isinstance(error, InputError) and not error.code.startswith("store_") else 503


def elsewhere(address: str) -> web.Response:
    return web.Response(status=303, headers=HEADERS | {"Location": address})
