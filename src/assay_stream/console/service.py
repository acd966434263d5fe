"""The HTTP service of the console: whom it serves, with which headers, and what it answers where a page fails."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from importlib.resources import files
from typing import Any

from aiohttp import web

from assay_stream import __version__
from assay_stream.console.answers import HEADERS, Answer, absent, elsewhere, status_of
from assay_stream.console.asked import Asked
from assay_stream.console.deciding import subjects_of
from assay_stream.console.door import Door, Visit, has_token
from assay_stream.console.forms import CSRF_FIELD, Fields
from assay_stream.console.live import Live
from assay_stream.console.operators import Operator, Session
from assay_stream.console.pages import PAGES
from assay_stream.console.posting import Posting, posted_fields, to_its_end
from assay_stream.console.reader import StoreReader
from assay_stream.console.rendering import Renderer
from assay_stream.console.shares import Shares
from assay_stream.errors import AssayStreamError, InputError, OperatingError
from assay_stream.limits.console import CONSOLE_LIMITS, ConsoleLimits
from assay_stream.observe.http.headers import is_host_served
from assay_stream.observe.http.tap import Listener
from assay_stream.readmodel.queries import Store

_log = logging.getLogger(__name__)

STATIC = {"/static/console.css": "text/css", "/static/console.js": "text/javascript"}
"""Files of the pages by address, and their types."""

_METHODS = ("GET", "HEAD")
_NOTHING_SENT = frozenset({"broker_unreachable", "console_busy", "store_slow", "store_failing"})
"""Errors after which it is certain that no decision was recorded."""


class ConsoleService:
    """Answers requests.

    Args:
        reader: of the store.
        listener: where it listens, and which names it serves.
        door: knows who asks; without it nobody is asked who they are, and nothing can be decided.
        posting: carries out what forms ask for; without it the console only shows.
        filling: what to say on pages about the process that fills the store, if anything.
        note: is given method, path and status of each request that was answered.
        clock: the time now, microseconds since the epoch.
    """

    def __init__(
        self,
        reader: StoreReader,
        listener: Listener,
        *,
        door: Door | None = None,
        posting: Posting | None = None,
        filling: Callable[[], str | None] = lambda: None,
        note: Callable[[str, str, int], None] = lambda method, path, status: None,  # noqa: ARG005 -- nobody counts
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000,
        limits: ConsoleLimits = CONSOLE_LIMITS,
    ) -> None:
        self._reader = reader
        self._hosts = listener.hosts_served
        self._door = door
        self._posting = posting
        self._filling = filling
        self._note = note
        self._clock = clock
        self._limits = limits
        self._renderer = Renderer()
        self._live = Live(self._look, limits)
        self._asking = Shares(limits.operator_questions_max)
        self._following = Shares(limits.operator_streams_max)
        self._static = {
            path: (files(__package__).joinpath(path.removeprefix("/")).read_bytes(), kind)
            for path, kind in STATIC.items()
        }

    def application(self) -> web.Application:
        """Return what aiohttp serves."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.handle)

        async def stop(_: web.Application) -> None:
            self._live.stop()

        app.on_shutdown.append(stop)
        return app

    @property
    def streams(self) -> int:
        """How many pages are kept up to date."""
        return self._live.streams

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        response = await self._handled(request)
        self._note(request.method, request.path, response.status)
        return response

    async def _look(self) -> object:
        filling = self._filling()
        return filling, (await self._reader.ask(_positions) if filling is None else None)

    async def _handled(self, request: web.Request) -> web.StreamResponse:
        if not is_host_served(request.headers.get("Host", ""), self._hosts):
            return self._problem(421, "No such host is served here.", "Add the name with --allow-host.")
        if _is_of_another_page(request):
            return self._problem(403, "A page of another site asked for this.", "Open it in a window of its own.")
        methods = _METHODS if self._door is None else (*_METHODS, "POST")
        if request.method not in methods:
            refused = self._problem(405, "The console does no such thing.", f"Use {', '.join(methods)}.")
            refused.headers["Allow"] = ", ".join(methods)
            return refused
        if request.path in self._static:
            body, kind = self._static[request.path]
            return web.Response(body=body, content_type=kind, charset="utf-8", headers=HEADERS)
        visit = Visit(session=None)
        if self._door is not None:
            try:
                visit = self._door.visit(request)
                answer = await self._door.answer(request, visit)
            except AssayStreamError as error:
                return self._problem(status_of(error), error.message, "", code=error.code)
            except Exception as error:  # noqa: BLE001 -- as for a page
                _log.error("signing in failed: %s", type(error).__name__)
                return self._problem(500, "The console failed to sign you in.", "Its log says why.")
            if isinstance(answer, Answer):
                return self._rendered(answer, "", visit.session)
            if answer is not None:
                return answer
        response = await self._answer(request, visit.session)
        if self._door is not None and visit.session_id is not None and not response.prepared:
            self._door.admit(response, visit.session_id)
        return response

    async def _answer(self, request: web.Request, session: Session | None) -> web.StreamResponse:
        if request.method == "POST":
            return await self._post(request, session)
        if self._door is not None and session is None:
            return self._door.refusal(request) or self._problem(
                401, "You are not signed in.", "Sign in, and open this page again."
            )
        if request.path == "/events" and request.method == "GET":
            return await self._events(request, session)
        return await self._page(request, session)

    async def _page(self, request: web.Request, session: Session | None) -> web.Response:
        page = PAGES.get(request.path)
        is_own = request.headers.get("Sec-Fetch-Site", "same-origin") == "same-origin"
        asked = Asked(given=request.query, now_us=self._clock(), session=session, is_own=is_own)

        def made(store: Store) -> web.Response:
            assert page is not None  # noqa: S101 -- asked below only where there is one
            return self._rendered(page(store, asked), request.path, session)

        if page is None:
            return self._rendered(absent("There is no such page.", "Choose one from the menu."), "", session)
        try:
            return await to_its_end(self._ask(made, session))
        except AssayStreamError as error:
            return self._problem(status_of(error), error.message, "", code=error.code, session=session)
        except Exception as error:  # noqa: BLE001 -- the browser gets an answer whatever goes wrong here
            # Its text may quote what a server said.
            _log.error("page %s failed: %s", request.path, type(error).__name__)
            return self._problem(500, "The console failed to make this page.", "Its log says which page and why.")

    async def _ask(self, question: Callable[[Store], web.Response], session: Session | None) -> web.Response:
        with self._asking.by(session):
            return await self._reader.ask(question)

    async def _post(self, request: web.Request, session: Session | None) -> web.Response:
        action = None if self._posting is None else self._posting.actions.get(request.path)
        if action is None or self._posting is None or self._door is None:
            return self._rendered(absent("There is no such form.", "Choose a page from the menu."), "", session)
        if not self._door.is_own_form(request):
            return self._problem(403, "Another site's page sent this form.", "Nothing was recorded. Open the console.")
        fields: Fields = {}
        try:
            fields = await posted_fields(request, self._limits)
            operator = _who_decides(session, fields)
            address = await self._posting.decide(action, fields, operator)
        except AssayStreamError as error:
            return self._undone(request.path, error, fields, session)
        except Exception as error:  # noqa: BLE001 -- as for a page
            _log.error("form %s failed: %s", request.path, type(error).__name__)
            failure = OperatingError("console_failed", "the console failed; its log says where")
            return self._undone(request.path, failure, fields, session)
        return elsewhere(address)

    def _undone(self, action: str, error: AssayStreamError, fields: Fields, session: Session | None) -> web.Response:
        """Return the page of a form that did not get through: what was entered is not lost."""
        is_known = not isinstance(error, OperatingError) or error.code in _NOTHING_SENT
        data = {
            "title": "Nothing was recorded" if is_known else "It may not have been recorded",
            "what": error.message,
            "code": error.code,
            "action": action,
            "fields": [(name, each) for name, values in fields.items() if name != CSRF_FIELD for each in values],
            "about": list(subjects_of(fields)),
            # What changed has to be looked at first.
            "sends_again": error.code != "definition_changed" and (session is None or session.operator.may_decide),
        }
        status = status_of(error)
        return self._rendered(Answer(template="undone.html", data=data, status=status), "", session)

    async def _events(self, request: web.Request, session: Session | None) -> web.StreamResponse:
        response = web.StreamResponse(headers=HEADERS | {"Content-Type": "text/event-stream"})
        try:
            with self._following.by(session):
                if self._live.is_full:
                    raise OperatingError("console_busy", "too many pages are kept up to date")
                await response.prepare(request)
                await self._live.stream(response.write)
        except OperatingError:
            return self._problem(503, "Too many pages are kept up to date.", "Reload this one to see what is new.")
        except ConnectionError:
            # The page is gone.
            return response
        return response

    def _is_outside(self, session: Session | None) -> bool:
        return self._door is not None and session is None

    def _problem(
        self, status: int, what: str, advice: str, *, code: str | None = None, session: Session | None = None
    ) -> web.Response:
        data = {"what": what, "advice": advice, "code": code}
        return self._rendered(Answer(template="problem.html", data=data, status=status), "", session)

    def _rendered(self, answer: Answer, path: str, session: Session | None) -> web.Response:
        shared: dict[str, Any] = {
            "path": path,
            "version": __version__,
            "session": session,
            "filling": self._filling(),
            "is_outside": self._is_outside(session),
        }
        body = self._renderer.page(answer.template, {**shared, **answer.data})
        response = web.Response(
            body=body, status=answer.status, content_type="text/html", charset="utf-8", headers=HEADERS
        )
        if answer.status == 503:
            response.headers["Retry-After"] = "5"
        return response


def _is_of_another_page(request: web.Request) -> bool:
    """Tell whether a page of another site asks, otherwise than by a link that somebody followed.

    It could not read the answer, but it could take the room of others.
    """
    fetched = request.headers.get("Sec-Fetch-Site", "none")
    return fetched not in ("none", "same-origin") and request.headers.get("Sec-Fetch-Dest") != "document"


def _who_decides(session: Session | None, fields: Fields) -> Operator:
    if session is None:
        raise InputError("not_signed_in", "your session is over: sign in in another window, then send this again")
    if not session.operator.may_decide:
        raise InputError("may_not_decide", "you may look, but not decide: ask who runs the console for that right")
    if not has_token(fields, session):
        raise InputError(
            "form_outdated", "the form was made before you signed in: check what it would do, and send it again"
        )
    return session.operator


def _positions(store: Store) -> object:
    return [(row.role, row.topic, row.partition, row.following, row.end) for row in store.positions()]
