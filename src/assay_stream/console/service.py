"""The HTTP service of the console: whom it serves, with which headers, and what it answers where a page fails."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from importlib.resources import files

from aiohttp import web

from assay_stream import __version__
from assay_stream.console.answers import Answer, absent
from assay_stream.console.asked import Asked
from assay_stream.console.live import Live
from assay_stream.console.pages import PAGES
from assay_stream.console.reader import StoreReader
from assay_stream.console.rendering import Renderer
from assay_stream.errors import AssayStreamError, InputError
from assay_stream.limits import CONSOLE_LIMITS, ConsoleLimits
from assay_stream.observe.http.headers import is_host_served
from assay_stream.observe.http.tap import Listener
from assay_stream.readmodel.queries import Store

_log = logging.getLogger(__name__)

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Server": "assay-stream",
}
"""Of every answer."""

_STATIC = {"/static/console.css": "text/css", "/static/console.js": "text/javascript"}
_NOT_FOUND = frozenset({"unknown_uid"})
_METHODS = ("GET", "HEAD")


class ConsoleService:
    """Answers requests.

    Args:
        reader: of the store.
        listener: where it listens, and which names it serves.
        clock: the time now, microseconds since the epoch.
    """

    def __init__(
        self,
        reader: StoreReader,
        listener: Listener,
        *,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000,
        limits: ConsoleLimits = CONSOLE_LIMITS,
    ) -> None:
        self._reader = reader
        self._hosts = listener.hosts_served
        self._clock = clock
        self._renderer = Renderer()
        self._live = Live(lambda: reader.ask(_positions), limits)
        self._static = {
            path: (files(__package__).joinpath(path.removeprefix("/")).read_bytes(), kind)
            for path, kind in _STATIC.items()
        }

    def application(self) -> web.Application:
        """Return what aiohttp serves."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.handle)

        async def stop(_: web.Application) -> None:
            self._live.stop()

        app.on_shutdown.append(stop)
        return app

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        if not is_host_served(request.headers.get("Host", ""), self._hosts):
            return self._problem(421, "No such host is served here.", "Add the name with --allow-host.")
        if _is_of_another_page(request):
            return self._problem(403, "A page of another site asked for this.", "Open it in a window of its own.")
        if request.method not in _METHODS:
            answer = self._problem(405, "The console only shows.", "Use GET or HEAD.")
            answer.headers["Allow"] = ", ".join(_METHODS)
            return answer
        if request.path == "/events" and request.method == "GET":
            return await self._events(request)
        if request.path in self._static:
            body, kind = self._static[request.path]
            return web.Response(body=body, content_type=kind, charset="utf-8", headers=HEADERS)
        return await self._page(request)

    async def _page(self, request: web.Request) -> web.Response:
        page = PAGES.get(request.path)
        asked = Asked(given=request.query, now_us=self._clock())

        def made(store: Store) -> web.Response:
            assert page is not None  # noqa: S101 -- asked below only where there is one
            return self._rendered(page(store, asked), request.path)

        if page is None:
            return self._rendered(absent("There is no such page.", "Choose one from the menu."), "")
        try:
            return await self._reader.ask(made)
        except AssayStreamError as error:
            return self._problem(_status_of(error), error.message, "", code=error.code)
        except Exception as error:  # noqa: BLE001 -- the browser gets an answer whatever goes wrong here
            # Its text may quote what a server said.
            _log.error("page %s failed: %s", request.path, type(error).__name__)
            return self._problem(500, "The console failed to make this page.", "Its log says which page and why.")

    async def _events(self, request: web.Request) -> web.StreamResponse:
        if self._live.is_full:
            return self._problem(503, "Too many pages are kept up to date.", "Reload this one to see what is new.")
        response = web.StreamResponse(headers=HEADERS | {"Content-Type": "text/event-stream"})
        await response.prepare(request)
        try:
            await self._live.stream(response.write)
        except ConnectionError:
            # The page is gone.
            return response
        return response

    def _problem(self, status: int, what: str, advice: str, *, code: str | None = None) -> web.Response:
        data = {"what": what, "advice": advice, "code": code}
        return self._rendered(Answer(template="problem.html", data=data, status=status), "")

    def _rendered(self, answer: Answer, path: str) -> web.Response:
        body = self._renderer.page(answer.template, {"path": path, "version": __version__, **answer.data})
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


def _positions(store: Store) -> object:
    return [(row.role, row.topic, row.partition, row.following, row.end) for row in store.positions()]


def _status_of(error: AssayStreamError) -> int:
    if error.code in _NOT_FOUND:
        return 404
    return 400 if isinstance(error, InputError) and not error.code.startswith("store_") else 503
