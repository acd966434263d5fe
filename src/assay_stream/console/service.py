"""The HTTP services of the console: routes, headers, error pages, changes told to open pages, health and metrics.

Every label value is from a fixed set, never from a browser.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector, generate_latest

from assay_stream import __version__
from assay_stream.console.authentication import (
    CALLBACK,
    SIGN_IN,
    SIGN_IN_PAGES,
    SIGN_OUT,
    START,
    Authenticator,
    has_token,
    now_us,
)
from assay_stream.console.deciding import (
    CSRF_FIELD,
    Decide,
    Fields,
    Form,
    Publish,
    decide,
    posted_fields,
    subjects_of,
    to_its_end,
)
from assay_stream.console.pages import PAGES
from assay_stream.console.rendering import HEADERS, Answer, Asked, Handler, Renderer, elsewhere, problem, status_of
from assay_stream.console.sessions import Operator, Session, Shares, with_room
from assay_stream.errors import AssayStreamError, InputError, OperatingError
from assay_stream.kafka.part import Part
from assay_stream.limits import CONSOLE_LIMITS, ConsoleLimits
from assay_stream.model.evidence import Producer
from assay_stream.observe.http.listener import Listener
from assay_stream.observe.http.messages import is_host_served
from assay_stream.readmodel import schema
from assay_stream.readmodel.queries import Store
from assay_stream.report.pins import Decision
from assay_stream.worker.telemetry import Health, health_pages

_T = TypeVar("_T")

_BUSY = frozenset({"console_busy", "store_slow"})
"""The store opens, and others use it."""


class StoreReader:
    """Read a folder's store, reopening it for each query, so that a new or rebuilt one is noticed."""

    def __init__(self, folder: Path, limits: ConsoleLimits = CONSOLE_LIMITS) -> None:
        self._folder = folder
        self._limits = limits
        self._pool = ThreadPoolExecutor(limits.threads, "assay-stream console")
        self._room = threading.BoundedSemaphore(limits.questions_max)

    async def ask(self, question: Callable[[Store], _T]) -> _T:
        """Run a query on a thread and return its result.

        Raises:
            OperatingError: ``console_busy``, ``store_slow``, ``store_failing``.
            ConfigurationError: ``store_missing``, ``store_version``.
            InputError: ``store_unreadable``, and as the query.
        """
        busy = "too many pages are being made at once: try again in a few seconds"
        return await with_room(self._room, self._pool, partial(self._answer, question), busy)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _answer(self, question: Callable[[Store], _T]) -> _T:
        until_s = time.monotonic() + self._limits.question_limit_s
        connection = schema.reading(self._folder)
        connection.set_progress_handler(lambda: time.monotonic() > until_s, self._limits.steps_between_looks)
        store = Store(connection)
        try:
            with schema.failures(self._folder):
                try:
                    # A page asks several questions: what it lists must not be gone when it looks closer.
                    with store.moment():
                        return question(store)
                except sqlite3.OperationalError as error:
                    if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
                        raise
                    raise OperatingError(
                        "store_slow",
                        f"the store did not answer within {self._limits.question_limit_s:g} s: ask for less "
                        "(a server, a shorter time), or look at the disk",
                    ) from None
        finally:
            store.close()


class Live:
    def __init__(self, look: Callable[[], Awaitable[object]], limits: ConsoleLimits = CONSOLE_LIMITS) -> None:
        self._look = look
        self._limits = limits
        self._changed = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self.streams = 0
        self.is_stopped = False

    @property
    def is_full(self) -> bool:
        return self.is_stopped or self.streams >= self._limits.streams_max

    async def stream(self, send: Callable[[bytes], Awaitable[None]]) -> None:
        """Send events to one page until it disconnects or ``stop``."""
        self.streams += 1
        if self._looking is None:
            self._looking = asyncio.create_task(self._follow())
        try:
            await send(b"retry: 5000\n\n")
            while not self.is_stopped:
                changed = self._changed
                try:
                    async with asyncio.timeout(self._limits.beat_every_s):
                        await changed.wait()
                except TimeoutError:
                    await send(b":\n\n")
                else:
                    if not self.is_stopped:
                        await send(b"event: changed\ndata: {}\n\n")
        finally:
            self.streams -= 1
            if not self.streams and self._looking is not None:
                self._looking.cancel()
                self._looking = None

    def stop(self) -> None:
        self.is_stopped = True
        self._changed.set()

    async def _follow(self) -> None:
        before = None
        while True:
            try:
                now = await self._look()
            except AssayStreamError as error:
                # The page says it too once it is read again. Where there is no room, it must not be.
                now = before if error.code in _BUSY else error.code
            if before is not None and now != before:
                self._changed.set()
                self._changed = asyncio.Event()
            before = now
            await asyncio.sleep(self._limits.look_every_s)


_log = logging.getLogger(__name__)

STATIC = {"/static/console.css": "text/css", "/static/console.js": "text/javascript"}
"""Files of the pages by address, and their types."""

DECIDE = "/decide"

_NOTHING_SENT = frozenset({"broker_unreachable", "console_busy", "store_slow", "store_failing"})
"""Errors after which it is certain that no decision was recorded."""


@dataclass(eq=False, repr=False)
class ConsoleService:
    """HTTP service of the console.

    Args:
        listener: address, and the host names served.
        authenticator: without it there is no sign-in, and nothing can be decided.
        publish: publishes what operators decide; without it the console is read-only.
        decide: what posted forms do.
        filling: notice about the process that fills the store, if any.
        note: called with method, path and status of each answered request.
        clock: current time, microseconds since the epoch.
    """

    reader: StoreReader
    listener: Listener
    _: KW_ONLY
    authenticator: Authenticator | None = None
    publish: Publish | None = None
    decide: Decide = decide
    filling: Callable[[], str | None] = lambda: None
    note: Callable[[str, str, int], None] = lambda method, path, status: None  # noqa: ARG005 -- nobody counts
    clock: Callable[[], int] = now_us
    limits: ConsoleLimits = CONSOLE_LIMITS

    def __post_init__(self) -> None:
        self._hosts = self.listener.hosts_served
        self._renderer = Renderer()
        self._live = Live(self._look, self.limits)
        self._asking = Shares(
            self.limits.operator_questions_max, "you have too many pages loading at once: try again in a few seconds"
        )
        self._following = Shares(
            self.limits.operator_streams_max,
            "too many of your pages are kept up to date: close some, and reload this one",
        )

    def application(self) -> web.Application:
        async def stop(_: web.Application) -> None:
            self._live.stop()

        app = web.Application(middlewares=[self._middleware])
        app.router.add_routes([web.get(path, self._file(path, kind)) for path, kind in STATIC.items()])
        app.router.add_routes([web.get(path, self._page(path)) for path in PAGES])
        app.router.add_get("/events", self._events, allow_head=False)
        if self.authenticator is not None:
            app.router.add_routes(self.authenticator.routes())
            if self.publish is not None:
                app.router.add_post(DECIDE, self._form(self.publish, self.authenticator))
        app.on_shutdown.append(stop)
        return app

    @property
    def streams(self) -> int:
        """Number of pages receiving live updates."""
        return self._live.streams

    @web.middleware
    async def _middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        request["session"] = None
        allowed: dict[str, str] = {}
        try:
            answer = await self._admitted(request, handler)
            if isinstance(answer, Answer):
                answer = self._rendered(request, answer)
        except web.HTTPMethodNotAllowed as error:
            allowed["Allow"] = ", ".join(sorted(error.allowed_methods))
            answer = problem(405, "Method not allowed.", f"Use {allowed['Allow']}.")
        except web.HTTPNotFound:
            answer = problem(404, "Page not found.", "Choose one from the menu.")
        except AssayStreamError as error:
            answer = problem(status_of(error), error.message, code=error.code)
        except Exception as error:  # noqa: BLE001 -- the browser gets an answer whatever goes wrong here
            # Its text may quote what a server said.
            _log.error("page %s failed: %s", request.path, type(error).__name__)
            answer = problem(500, "The console failed to make this page.", "Its log says which page and why.")
        response = self._rendered(request, answer) if isinstance(answer, Answer) else answer
        if not response.prepared:
            response.headers.update(allowed)
            if self.authenticator is not None:
                self.authenticator.keep_session(request, response)
        self.note(request.method, request.path, response.status)
        return response

    async def _admitted(self, request: web.Request, handler: Handler) -> Any:
        """Handle a request for one of our hosts, from one of our pages, by a signed-in user."""
        if not is_host_served(request.headers.get("Host", ""), self._hosts):
            return problem(421, "This host name is not served.", "Add the name with --allow-host.")
        if _is_of_another_page(request):
            return problem(403, "A page of another site requested this.", "Open it in a new window.")
        if self.authenticator is not None and request.path not in STATIC:
            request["session"] = self.authenticator.session_of(request)
            is_open = request.method not in ("GET", "HEAD") or request.path in SIGN_IN_PAGES
            if request["session"] is None and not is_open:
                return self.authenticator.refusal(request) or problem(
                    401, "You are not signed in.", "Sign in, and open this page again."
                )
        return await handler(request)

    def _file(self, path: str, kind: str) -> Handler:
        body = files(__package__).joinpath(path.removeprefix("/")).read_bytes()

        async def handle(_: web.Request) -> web.StreamResponse:
            return web.Response(body=body, content_type=kind, charset="utf-8", headers=HEADERS)

        return handle

    def _page(self, path: str) -> Handler:
        page, template = PAGES[path], f"{path.strip('/') or 'overview'}.html"

        async def handle(request: web.Request) -> web.StreamResponse:
            session = request["session"]
            is_own = request.headers.get("Sec-Fetch-Site", "same-origin") == "same-origin"
            asked = Asked(given=request.query, now_us=self.clock(), session=session, is_own=is_own)

            def made(store: Store) -> web.Response:
                found = page(store, asked)
                return self._rendered(request, found if isinstance(found, Answer) else Answer(template, found))

            return await to_its_end(self._ask(made, session))

        return handle

    async def _ask(self, question: Callable[[Store], web.Response], session: Session | None) -> web.Response:
        with self._asking.by(session):
            return await self.reader.ask(question)

    async def _look(self) -> object:
        filling = self.filling()
        return filling, (await self.reader.ask(_positions) if filling is None else None)

    def _form(self, publish: Publish, authenticator: Authenticator) -> Handler:
        async def decided(form: Form) -> str:
            decisions, address = await self.reader.ask(lambda store: self.decide(store, form))
            await publish(decisions, form.operator.name)
            return address

        async def handle(request: web.Request) -> web.StreamResponse | Answer:
            if not authenticator.is_own_form(request):
                return problem(403, "Another site's page sent this form.", "Nothing was recorded. Open the console.")
            fields: Fields = {}
            try:
                fields = await posted_fields(request, self.limits)
                operator = _who_decides(request["session"], fields)
                given = {name: values for name, values in fields.items() if name != CSRF_FIELD}
                form = Form(fields=given, operator=operator, now_us=self.clock())
                return elsewhere(await to_its_end(decided(form)))
            except AssayStreamError as error:
                return self._undone(request, error, fields)
            except Exception as error:  # noqa: BLE001 -- as for a page
                _log.error("form %s failed: %s", request.path, type(error).__name__)
                failure = OperatingError("console_failed", "the console failed; its log says where")
                return self._undone(request, failure, fields)

        return handle

    def _undone(self, request: web.Request, error: AssayStreamError, fields: Fields) -> Answer:
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
        return Answer(template="undone.html", data=data, status=status_of(error))

    async def _events(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers=HEADERS | {"Content-Type": "text/event-stream"})
        with self._following.by(request["session"]), suppress(ConnectionError):  # the page is gone
            if self._live.is_full:
                raise OperatingError("console_busy", "too many pages are kept up to date: reload this one later")
            await response.prepare(request)
            await self._live.stream(response.write)
        return response

    def _rendered(self, request: web.Request, answer: Answer) -> web.Response:
        shared: dict[str, Any] = {
            "path": request.path,
            "version": __version__,
            "session": request["session"],
            "filling": self.filling(),
            "is_outside": self.authenticator is not None and request["session"] is None,
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


PUBLISHED, FAILED, SIGNED_IN, REFUSED = "published", "failed", "ok", "failed"

_KNOWN = frozenset({*PAGES, *STATIC, DECIDE, SIGN_IN, SIGN_OUT, START, CALLBACK, "/events"})
_ELSE = "other"


class ConsoleMetrics:
    def __init__(self, producer: Producer | None = None) -> None:
        self.registry = registry = CollectorRegistry()
        if producer is not None:
            ProcessCollector(registry=registry)

        def metric(kind: type[Any], name: str, text: str, *labels: str) -> Any:
            return kind(f"assay_stream_{name}", text, labels, registry=registry)

        self.requests = metric(Counter, "console_requests", "Requests answered.", "page", "status")
        self.sign_ins = metric(Counter, "console_sign_ins", "Attempts to sign in.", "outcome")
        self.decisions = metric(Counter, "console_decisions", "Decisions sent to Kafka.", "outcome")
        self.streams = metric(Gauge, "console_streams", "Pages kept up to date now.")
        self.store_age = metric(
            Gauge, "console_store_age_seconds", "Since it was last seen how far the store's topics go."
        )
        self.stage_ready = metric(Gauge, "stage_ready", "1 while a stage does its work, as /readyz says.", "stage")
        build = metric(Gauge, "build_info", "1, with the version and the commit of this process.", "version", "git")
        made = producer or Producer(version=__version__)
        build.labels(made.version, made.git).set(1)
        # There from the start, at 0: an increase from nothing to 1 is none for Prometheus.
        for outcome in (SIGNED_IN, REFUSED):
            self.sign_ins.labels(outcome)
        for outcome in (PUBLISHED, FAILED):
            self.decisions.labels(outcome)

    def answered(self, method: str, path: str, status: int) -> None:
        self.requests.labels(path if path in _KNOWN else _ELSE, str(status)).inc()
        if (method, path) in (("POST", SIGN_IN), ("GET", CALLBACK)):
            self.sign_ins.labels(SIGNED_IN if status == 303 else REFUSED).inc()

    def counting(self, publish: Publish) -> Publish:
        async def counted(decisions: Sequence[Decision], author: str) -> None:
            outcome = FAILED
            try:
                await publish(decisions, author)
                outcome = PUBLISHED
            finally:
                self.decisions.labels(outcome).inc(len(decisions))

        return counted


@dataclass(slots=True)
class ConsoleWatch:
    """Serve health and metrics.

    Args:
        streams: number of pages receiving live updates.
        is_filled: whether the store filler is running; ``None`` if this console has none.
        clock: current time, microseconds since the epoch.
    """

    reader: StoreReader
    metrics: ConsoleMetrics
    streams: Callable[[], int]
    is_filled: Callable[[], bool] | None = None
    clock: Callable[[], int] = now_us
    _console: Part = field(default_factory=Part)
    _looked_us: int | None = None

    def application(self) -> web.Application:
        health = Health()
        health.watch("console", self._console)
        return health_pages(health, self._text, look=self._look)

    def _text(self) -> bytes:
        metrics, age_s = self.metrics, self._age_s()
        metrics.streams.set(self.streams())
        metrics.store_age.set(float("nan") if age_s is None else age_s)
        metrics.stage_ready.labels("console").set(self._console.is_ready)
        if self.is_filled is not None:
            metrics.stage_ready.labels("filling").set(self.is_filled())
        text: bytes = generate_latest(metrics.registry)
        return text

    def _age_s(self) -> float | None:
        return None if self._looked_us is None else max(0, self.clock() - self._looked_us) / 1e6

    async def _look(self) -> dict[str, Any]:
        code = None
        try:
            self._looked_us = await self.reader.ask(lambda store: store.looked_us())
            self._console.is_ready = True
        except AssayStreamError as error:
            self._console.is_ready = error.code in _BUSY
            if not self._console.is_ready:
                self._looked_us, code = None, error.code
        filled = {} if self.is_filled is None else {"filled": self.is_filled()}
        return {**filled, "store_age_s": self._age_s(), "error": code}
