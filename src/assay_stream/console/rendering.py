"""What the address of a page asks for, what a page is made of, and its template.

Everything a template prints is escaped, and invisible characters in it are marked. The environment enforces this, not
each template: a template has to request an exception.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from aiohttp import web
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from assay_stream.alerts.view import AlertSelection, ReviewState, SeverityLevel
from assay_stream.console.sessions import Session
from assay_stream.errors import AssayStreamError, InputError
from assay_stream.limits import CONSOLE_LIMITS
from assay_stream.model.cloudevents import operator_time_us
from assay_stream.readmodel.queries import Store
from assay_stream.readmodel.rows import AlertFilter, EvidenceFilter, Paging
from assay_stream.text.escaping import LineSpan, Style, counted, shown, spans_of
from assay_stream.text.times import time_text

_SECOND_CHARS = len("2026-03-01T10:00:00")
_MARK = re.compile("⟦[^⟦⟧]*⟧")
_CLASSES: Mapping[Style, str] = {"dim": "quiet", "title": "name", "grave": "level-4", "warn": "level-3"}


def marked(text: str, *, keep_lines: bool = False) -> Markup:
    """Return any text as HTML: escaped, with marks for hidden characters and look-alikes."""
    return spanned(spans_of(text, keep_lines=keep_lines))


def spanned(spans: Iterable[LineSpan]) -> Markup:
    """Return spans as HTML: escaped, with their marks, each in the class of its style."""
    html = Markup()
    for span in spans:
        # No text holds brackets of this kind but ours.
        text = Markup(_MARK.sub(r'<span class="mark">\g<0></span>', str(escape(span.text))))  # noqa: S704 -- escaped
        html += Markup('<span class="%s">%s</span>') % (_CLASSES[span.style], text) if span.style in _CLASSES else text
    return html


def lines(text: str) -> Markup:
    """The same, keeping line breaks."""
    return marked(text, keep_lines=True)


def plain(text: str) -> Markup:
    """Escape text, with marks as plain text: for a page's title, which holds no elements."""
    return escape(shown(text))


def when(time_us: int | None) -> Markup:
    """Format a time, microseconds since the epoch, to the second; ``None`` is never."""
    if time_us is None:
        return Markup("never")
    text = time_text(time_us)
    short = f"{text[:_SECOND_CHARS].replace('T', ' ')}Z"
    return Markup('<time datetime="%s" title="%s">%s</time>') % (text, text, short)


def url(path: str, /, **given: str | None) -> str:
    """Return the address of a page of ours; absent fields are left out."""
    query = urlencode({name: text for name, text in given.items() if text}, errors="replace")
    return f"{path}?{query}" if query else path


def bare(value: str) -> str:
    """Return the first digits of a digest; the page's link has all of it."""
    digits = value.removeprefix("sha256:")
    return digits if len(digits) <= 16 else f"{digits[:12]}…"


def _printed(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return value if hasattr(value, "__html__") else marked(str(value))


class Renderer:
    """Render pages; thread-safe."""

    def __init__(self) -> None:
        self._environment = Environment(
            loader=PackageLoader("assay_stream.console"),
            autoescape=True,
            finalize=_printed,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters |= {each.__name__: each for each in (lines, plain, when, bare, counted, spanned)}
        self._environment.globals |= {"url": url, "filling": None}

    def page(self, template: str, data: Mapping[str, Any]) -> bytes:
        """Render a page; a lone surrogate, which UTF-8 cannot hold, becomes ``?``."""
        return self._environment.get_template(template).render(data).encode("utf-8", "replace")


_ANY = "any"
_NAMES = {"server": "server_id", "tool": "tool_name", "observer": "observer_id", "agent": "agent_id"}
_MICROS, _COUNT = re.compile(r"[0-9]{1,18}"), re.compile(r"[0-9]{1,6}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
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
            raise InputError("bad_option", "unknown state or severity: choose one from the form") from None

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
