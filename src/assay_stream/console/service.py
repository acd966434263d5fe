"""The HTTP service of the console: routes, headers and error pages."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Any

from aiohttp import web

from assay_stream import __version__
from assay_stream.console.answers import HEADERS, Answer, elsewhere, status_of
from assay_stream.console.asked import Asked
from assay_stream.console.authentication import SIGN_IN_PAGES, Authenticator, has_token
from assay_stream.console.deciding import Action, subjects_of
from assay_stream.console.forms import CSRF_FIELD, Fields
from assay_stream.console.live import Live
from assay_stream.console.pages import PAGES
from assay_stream.console.posting import Posting, posted_fields, to_its_end
from assay_stream.console.reader import StoreReader
from assay_stream.console.rendering import Renderer
from assay_stream.console.sessions import Operator, Session
from assay_stream.console.shares import Shares
from assay_stream.errors import AssayStreamError, InputError, OperatingError
from assay_stream.limits.console import CONSOLE_LIMITS, ConsoleLimits
from assay_stream.observe.http.headers import is_host_served
from assay_stream.observe.http.tap import Listener
from assay_stream.readmodel.queries import Store

_log = logging.getLogger(__name__)

STATIC = {"/static/console.css": "text/css", "/static/console.js": "text/javascript"}
"""Files of the pages by address, and their types."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_NOTHING_SENT = frozenset({"broker_unreachable", "console_busy", "store_slow", "store_failing"})
"""Errors after which it is certain that no decision was recorded."""


class ConsoleService:
    """HTTP service of the console.

    Args:
        listener: address, and the host names served.
        authenticator: without it there is no sign-in, and nothing can be decided.
        posting: carries out posted forms; without it the console is read-only.
        filling: notice about the process that fills the store, if any.
        note: called with method, path and status of each answered request.
        clock: current time, microseconds since the epoch.
    """

    def __init__(
        self,
        reader: StoreReader,
        listener: Listener,
        *,
        authenticator: Authenticator | None = None,
        posting: Posting | None = None,
        filling: Callable[[], str | None] = lambda: None,
        note: Callable[[str, str, int], None] = lambda method, path, status: None,  # noqa: ARG005 -- nobody counts
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000,
        limits: ConsoleLimits = CONSOLE_LIMITS,
    ) -> None:
        self._reader = reader
        self._hosts = listener.hosts_served
        self._authenticator = authenticator
        self._posting = posting
        self._filling = filling
        self._note = note
        self._clock = clock
        self._limits = limits
        self._renderer = Renderer()
        self._live = Live(self._look, limits)
        self._asking = Shares(limits.operator_questions_max)
        self._following = Shares(limits.operator_streams_max)

    def application(self) -> web.Application:
        async def stop(_: web.Application) -> None:
            self._live.stop()

        app = web.Application(middlewares=[self._middleware])
        app.router.add_routes([web.get(path, self._file(path, kind)) for path, kind in STATIC.items()])
        app.router.add_routes([web.get(path, self._page(page)) for path, page in PAGES.items()])
        app.router.add_get("/events", self._events, allow_head=False)
        if self._authenticator is not None:
            app.router.add_routes(self._authenticator.routes(self._rendered))
            if self._posting is not None:
                app.router.add_routes(
                    [web.post(path, self._form(each)) for path, each in self._posting.actions.items()]
                )
        app.on_shutdown.append(stop)
        return app

    @property
    def streams(self) -> int:
        """Number of pages receiving live updates."""
        return self._live.streams

    @web.middleware
    async def _middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        request["session"] = None
        try:
            response = await self._admitted(request, handler)
        except web.HTTPMethodNotAllowed as error:
            allowed = ", ".join(sorted(error.allowed_methods))
            response = self._problem(request, 405, "Method not allowed.", f"Use {allowed}.")
            response.headers["Allow"] = allowed
        except web.HTTPNotFound:
            response = self._problem(request, 404, "There is no such page.", "Choose one from the menu.")
        except AssayStreamError as error:
            response = self._problem(request, status_of(error), error.message, "", code=error.code)
        except Exception as error:  # noqa: BLE001 -- the browser gets an answer whatever goes wrong here
            # Its text may quote what a server said.
            _log.error("page %s failed: %s", request.path, type(error).__name__)
            response = self._problem(
                request, 500, "The console failed to make this page.", "Its log says which page and why."
            )
        if self._authenticator is not None and not response.prepared:
            self._authenticator.keep_session(request, response)
        self._note(request.method, request.path, response.status)
        return response

    async def _admitted(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Handle a request for one of our hosts, from one of our pages, by a signed-in user."""
        if not is_host_served(request.headers.get("Host", ""), self._hosts):
            return self._problem(request, 421, "No such host is served here.", "Add the name with --allow-host.")
        if _is_of_another_page(request):
            return self._problem(request, 403, "A page of another site asked for this.", "Open it in a new window.")
        if self._authenticator is not None and request.path not in STATIC:
            request["session"] = self._authenticator.session_of(request)
            is_open = request.method not in ("GET", "HEAD") or request.path in SIGN_IN_PAGES
            if request["session"] is None and not is_open:
                return self._authenticator.refusal(request) or self._problem(
                    request, 401, "You are not signed in.", "Sign in, and open this page again."
                )
        return await handler(request)

    def _file(self, path: str, kind: str) -> Handler:
        body = files(__package__).joinpath(path.removeprefix("/")).read_bytes()

        async def handle(_: web.Request) -> web.StreamResponse:
            return web.Response(body=body, content_type=kind, charset="utf-8", headers=HEADERS)

        return handle

    def _page(self, page: Callable[[Store, Asked], Answer]) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            session = request["session"]
            is_own = request.headers.get("Sec-Fetch-Site", "same-origin") == "same-origin"
            asked = Asked(given=request.query, now_us=self._clock(), session=session, is_own=is_own)
            return await to_its_end(self._ask(lambda store: self._rendered(request, page(store, asked)), session))

        return handle

    async def _ask(self, question: Callable[[Store], web.Response], session: Session | None) -> web.Response:
        with self._asking.by(session):
            return await self._reader.ask(question)

    async def _look(self) -> object:
        filling = self._filling()
        return filling, (await self._reader.ask(_positions) if filling is None else None)

    def _form(self, action: Action) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            assert self._authenticator is not None  # noqa: S101 -- as for the routes
            assert self._posting is not None  # noqa: S101
            if not self._authenticator.is_own_form(request):
                return self._problem(
                    request, 403, "Another site's page sent this form.", "Nothing was recorded. Open the console."
                )
            fields: Fields = {}
            try:
                fields = await posted_fields(request, self._limits)
                operator = _who_decides(request["session"], fields)
                address = await self._posting.decide(action, fields, operator)
            except AssayStreamError as error:
                return self._undone(request, error, fields)
            except Exception as error:  # noqa: BLE001 -- as for a page
                _log.error("form %s failed: %s", request.path, type(error).__name__)
                failure = OperatingError("console_failed", "the console failed; its log says where")
                return self._undone(request, failure, fields)
            return elsewhere(address)

        return handle

    def _undone(self, request: web.Request, error: AssayStreamError, fields: Fields) -> web.Response:
        """Return the page of a form that failed, keeping what was entered."""
        session = request["session"]
        is_known = not isinstance(error, OperatingError) or error.code in _NOTHING_SENT
        data = {
            "title": "Nothing was recorded" if is_known else "It may not have been recorded",
            "what": error.message,
            "code": error.code,
            "action": request.path,
            "fields": [(name, each) for name, values in fields.items() if name != CSRF_FIELD for each in values],
            "about": list(subjects_of(fields)),
            # What changed has to be looked at first.
            "sends_again": error.code != "definition_changed" and (session is None or session.operator.may_decide),
        }
        return self._rendered(request, Answer(template="undone.html", data=data, status=status_of(error)))

    async def _events(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers=HEADERS | {"Content-Type": "text/event-stream"})
        try:
            with self._following.by(request["session"]):
                if self._live.is_full:
                    raise OperatingError("console_busy", "too many pages are kept up to date")
                await response.prepare(request)
                await self._live.stream(response.write)
        except OperatingError:
            return self._problem(
                request, 503, "Too many pages are kept up to date.", "Reload this one to see what is new."
            )
        except ConnectionError:  # the page is gone
            return response
        return response

    def _problem(
        self, request: web.Request, status: int, what: str, advice: str, *, code: str | None = None
    ) -> web.Response:
        data = {"what": what, "advice": advice, "code": code}
        return self._rendered(request, Answer(template="problem.html", data=data, status=status))

    def _rendered(self, request: web.Request, answer: Answer) -> web.Response:
        shared: dict[str, Any] = {
            "path": request.path,
            "version": __version__,
            "session": request["session"],
            "filling": self._filling(),
            "is_outside": self._authenticator is not None and request["session"] is None,
        }
        body = self._renderer.page(answer.template, {**shared, **answer.data})
        response = web.Response(
            body=body, status=answer.status, content_type="text/html", charset="utf-8", headers=HEADERS
        )
        if answer.status == 503:
            response.headers["Retry-After"] = "5"
        return response


def _is_of_another_page(request: web.Request) -> bool:
    """Return True if a page of another site made this request, other than by a link that was followed.

    It can't read the response, but it could exhaust the limits on requests.
    """
    fetched = request.headers.get("Sec-Fetch-Site", "none")
    return fetched not in ("none", "same-origin") and request.headers.get("Sec-Fetch-Dest") != "document"


def _who_decides(session: Session | None, fields: Fields) -> Operator:
    if session is None:
        raise InputError("not_signed_in", "your session is over: sign in in another window, then send this again")
    if not session.operator.may_decide:
        raise InputError("may_not_decide", "read-only account: ask an administrator for the operator role")
    if not has_token(fields, session):
        raise InputError(
            "form_outdated", "the form was made before you signed in: check what it would do, and send it again"
        )
    return session.operator


def _positions(store: Store) -> object:
    return [(row.role, row.topic, row.partition, row.following, row.end) for row in store.positions()]
