"""The reverse proxy of the HTTP tap: streams bytes unchanged, and reports them to an observer.

Not preserved: hop-by-hop headers, ``Host``, encodings in ``Accept-Encoding`` that cannot be decoded
here, and the framing of a body without a stated length. A redirect is neither followed nor passed on: the
client would bypass the tap, and might send its credentials elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from aiohttp import web
from multidict import CIMultiDict

from assay_stream.limits import HTTP_LIMITS, HttpLimits
from assay_stream.observe.http.connections import Ending
from assay_stream.observe.http.listener import Listener
from assay_stream.observe.http.messages import (
    HeaderFields,
    forwarded,
    is_event_stream,
    is_host_served,
    is_origin_served,
    is_plain,
    passed_on,
)
from assay_stream.observe.http.traffic import Answered, Asked, Closed, HttpEvent, Passed, Replied
from assay_stream.observe.http.upstreams import Client, ResponseHead, Upstream, UpstreamError
from assay_stream.observe.session import LINE_BYTES_MAX, Commands
from assay_stream.observe.wire import failure

_PROBLEMS = {
    "host_not_served": (421, "this tap serves no such host; see --allow-host"),
    "origin_not_served": (403, "pages of this origin may not use this tap; see --allow-origin"),
    "no_such_upstream": (404, "no server is configured under this path"),
    "method_not_allowed": (405, "MCP uses POST, GET and DELETE"),
    "too_many_requests": (503, "too many requests are in progress; try again"),
    "body_too_long": (413, "the request is too long to inspect, so it was not passed on"),
    "body_stalled": (408, "the request's body did not arrive in time"),
    "upstream_unreachable": (502, "the server cannot be reached or does not answer in HTTP"),
    "upstream_silent": (504, "the server did not begin to answer in time"),
    "answer_too_long": (502, "the server's answer is too long to inspect, so it was not passed on"),
    "answer_unreadable": (502, "the server's answer cannot be parsed unambiguously, so it was not passed on"),
    "upstream_redirects": (502, "the server redirects elsewhere; configure its final address as the upstream"),
    "tap_failed": (500, "the tap failed; its log says why"),
}

_METHODS = frozenset(("GET", "POST", "DELETE", "OPTIONS", "HEAD"))
_READING = frozenset(("GET", "HEAD", "OPTIONS"))
_OF_LENGTH = frozenset(("content-length",))
_OF_CONTENT = _OF_LENGTH.union(("content-encoding", "content-digest", "repr-digest", "digest", "content-md5", "etag"))
"""Headers that depend on a body's bytes."""

_REDIRECTS = frozenset((301, 302, 303, 307, 308))
_log = logging.getLogger(__name__)


class HttpProblem(Exception):  # noqa: N818 - an answer, not an error of ours
    """The error response for a request that cannot be answered by the server."""

    def __init__(self, code: str) -> None:
        self.code = code
        super().__init__(code)


def answer_of(code: str) -> web.Response:
    status, text = _PROBLEMS[code]
    return web.Response(status=status, body=failure(code, text), content_type="application/json")


class Holding:
    """Memory for all bodies that are held until they are ruled on."""

    def __init__(self, bytes_max: int) -> None:
        self._left_bytes = bytes_max

    async def read(self, chunks: AsyncIterator[bytes], too_long: str) -> bytes:
        """Read a body to its end; ``give`` releases its size. Raises ``HttpProblem``."""
        body = bytearray()
        try:
            async for chunk in chunks:
                if len(chunk) > self._left_bytes:
                    raise HttpProblem("too_many_requests")
                self._left_bytes -= len(chunk)
                body += chunk
                if len(body) > LINE_BYTES_MAX:
                    raise HttpProblem(too_long)
        except BaseException:
            self.give(len(body))
            raise
        return bytes(body)

    def give(self, size_bytes: int) -> None:
        self._left_bytes += size_bytes


@dataclass(eq=False, repr=False)
class Upload:
    """The body of a request, streamed upstream. Its end starts the timeout for the server's response."""

    request: web.Request
    observer: ExchangeObserver
    limits: HttpLimits
    stalled: bool = field(default=False, init=False)
    _whole: bytes | None = field(default=None, init=False)
    deadline: asyncio.Timeout | None = field(default=None, init=False)

    def end(self) -> None:
        self.observer.note(Passed("client->server", None))
        if self.deadline is not None:
            self.deadline.reschedule(asyncio.get_running_loop().time() + self.limits.answer_limit_s)

    def here(self) -> bytes:
        """Return the body if all of it has arrived, to be sent together with its head; otherwise empty."""
        if self._whole is None and self.request.content.is_eof():
            self._whole = self.request.content.read_nowait()
            self.observer.note(Passed("client->server", self._whole))
        if self._whole:
            self.end()
        return self._whole or b""

    async def hold(self, holding: Holding) -> bytes:
        try:
            self._whole = await holding.read(self._chunks(), "body_too_long")
        except TimeoutError:
            raise HttpProblem("body_stalled") from None
        return self._whole

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._whole is not None:
            yield self._whole
        else:
            async for chunk in self._chunks():
                self.observer.note(Passed("client->server", chunk))
                yield chunk
        self.end()

    async def _chunks(self) -> AsyncIterator[bytes]:
        while True:
            try:
                async with asyncio.timeout(self.limits.body_pause_limit_s):
                    chunk = await self.request.content.readany()
            except TimeoutError:
                self.stalled = True
                raise
            if not chunk:
                return
            yield chunk


class ExchangeObserver:
    """Observer of an exchange; may refuse or hide, must not raise. This base class, for non-MCP traffic, is inert."""

    enforces = False
    """Whether a request passes only after a ruling on its whole body."""

    hides = False
    """Whether a response is held until it is known what the client gets of it."""

    def note(self, event: HttpEvent) -> None:
        """Record an event, ignoring the result."""

    async def inspect(self, event: HttpEvent) -> Commands | None:
        """Inspect an event and return what may pass now; ``None`` for a request that cannot be ruled on."""
        self.note(event)
        return Commands(event.data if isinstance(event, Passed) else None)

    def delivered(self) -> None:
        """Confirm that the returned bytes were sent."""


class _Streamed(web.StreamResponse):
    """A response with the server's headers only."""

    theirs: CIMultiDict[str]


class _AtOnce(web.Response):
    theirs: CIMultiDict[str]


def _answering(answer: ResponseHead, fields: HeaderFields, body: bytes | None = None) -> web.StreamResponse:
    headers = CIMultiDict(fields)
    options: dict[str, Any] = {"status": answer.status, "reason": answer.reason or None, "headers": headers}
    response = _Streamed(**options) if body is None else _AtOnce(**options, body=body)
    response.theirs = headers.copy()
    return response


async def _only_theirs(_: web.Request, response: web.StreamResponse) -> None:
    if isinstance(response, _Streamed | _AtOnce):
        for name in ("Server", "Content-Type"):
            if name not in response.theirs:
                response.headers.pop(name, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TapListener(Listener):
    """Where a tap listens, and what only a tap needs.

    Args:
        origins: web origins that may use it, besides its own.
        upstream_tls: trust settings for servers.
        context_key: key of the hashes that name authorisation contexts; a random one if it is empty.
    """

    origins: frozenset[str] = frozenset()
    upstream_tls: ssl.SSLContext | None = None
    context_key: bytes = b""


@dataclass(eq=False, repr=False)
class Proxy:
    """Forward requests to servers.

    Args:
        routes: server and URL by path of the tap.
        observe: observer factory, called per exchange.
        listener: which hosts and origins are served.
    """

    routes: Mapping[str, tuple[Upstream, str]]
    client: Client
    observe: Callable[[Upstream, str, HeaderFields], ExchangeObserver]
    _: KW_ONLY
    listener: TapListener
    limits: HttpLimits = HTTP_LIMITS
    failures: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._in_progress = 0
        self._hosts = self.listener.hosts_served
        self._holding = Holding(self.limits.kept_bytes_max)
        self._unreached: set[str] = set()

    def application(self) -> web.Application:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.handle)
        app.on_response_prepare.append(_only_theirs)
        return app

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self._in_progress += 1
        try:
            self._check(request)
            path, _, query = request.raw_path.partition("?")
            if path not in self.routes:
                raise HttpProblem("no_such_upstream")
            upstream, url = self.routes[path]
            if request.method not in _METHODS:
                raise HttpProblem("method_not_allowed")
            if url != upstream.url and (request.method not in _READING or request.body_exists):
                raise HttpProblem("method_not_allowed")  # documents about authorisation are only read
            if self._in_progress > self.limits.exchanges_max:
                raise HttpProblem("too_many_requests")
            return await self._exchange(request, upstream, url, query)
        except HttpProblem as problem:
            return answer_of(problem.code)
        except Exception as error:  # noqa: BLE001 - the client gets an answer whatever goes wrong here
            # That a client disconnects is no failure of ours.
            is_gone = request.transport is None or request.transport.is_closing()
            if not (isinstance(error, ConnectionError) and is_gone):
                self.failures += 1
                if self.failures == 1:
                    _log.exception("a request failed in the tap; further failures are only counted")
            return answer_of("tap_failed")
        finally:
            self._in_progress -= 1

    def _check(self, request: web.Request) -> None:
        """Prevent browser pages from reaching servers through the tap (MCP, Streamable HTTP, security warning)."""
        host, origin = request.headers.get("Host", ""), request.headers.get("Origin")
        if self._hosts and not is_host_served(host, self._hosts):
            raise HttpProblem("host_not_served")
        origins, is_loopback = self.listener.origins, self.listener.is_loopback
        if origin is not None and not is_origin_served(origin, host, origins, is_loopback=is_loopback):
            raise HttpProblem("origin_not_served")

    async def _exchange(self, request: web.Request, upstream: Upstream, url: str, query: str) -> web.StreamResponse:
        fields = list(request.headers.items())
        # What counts is what the server gets: a client can have any field taken out on the way.
        asked = passed_on(fields)
        observer: ExchangeObserver = (
            self.observe(upstream, request.method, asked) if url == upstream.url else ExchangeObserver()
        )
        ending: Ending = "upstream_failed"
        upload, held_bytes = Upload(request, observer, self.limits), 0
        try:
            if observer.enforces and request.body_exists:
                body = await upload.hold(self._holding)
                held_bytes = len(body)
                ruled = await observer.inspect(Asked(body, asked))
                if ruled is None:
                    return web.Response(status=500)
                if ruled.forward is None:
                    # With its id; or, if it expects no answer, as accepted.
                    status = 400 if ruled.is_bad_request else 200 if ruled.reply else 202
                    kind = "application/json" if ruled.reply else None
                    return web.Response(status=status, body=ruled.reply, content_type=kind)
            sent = forwarded(asked, plain=observer.hides)
            answer = await self._send(request, f"{url}?{query}" if query else url, sent, upload)
            answered = passed_on(answer.fields)
            observer.note(Answered(answer.status, answered))
            self._note_reached(url, None)
            try:
                if answer.status in _REDIRECTS:
                    raise HttpProblem("upstream_redirects")
                response, is_whole = await self._pass_back(request, answer, answered, observer)
                ending = "complete" if is_whole else "upstream_failed"
                return response
            finally:
                await answer.release()
        except (asyncio.CancelledError, ConnectionError):
            # aiohttp cancels the handler of a client that is gone.
            ending = "client_left"
            raise
        finally:
            self._holding.give(held_bytes)
            observer.note(Closed(ending))

    async def _send(self, request: web.Request, url: str, fields: HeaderFields, upload: Upload) -> ResponseHead:
        try:
            async with asyncio.timeout(None) as upload.deadline:
                if not request.body_exists:
                    upload.end()
                body = upload.here() or aiter(upload) if request.body_exists else None
                answer = await self.client.send(request.method, url, fields, body)
                upload.deadline = None
                return answer
        except TimeoutError:
            raise HttpProblem("upstream_silent") from None
        except UpstreamError as error:
            if upload.stalled:
                raise HttpProblem("body_stalled") from None
            self._note_reached(url, type(error.__cause__).__name__)
            raise HttpProblem("upstream_unreachable") from None

    def _note_reached(self, url: str, failure: str | None) -> None:
        """Log only changes: an absent server must not fill the log. Omit the query: it may hold secrets."""
        url = url.partition("?")[0]
        if failure is None:
            self._unreached.discard(url)
        elif url not in self._unreached:
            self._unreached.add(url)
            _log.warning("a server cannot be reached: %s: %s", url, failure)

    async def _pass_back(
        self, request: web.Request, answer: ResponseHead, fields: HeaderFields, observer: ExchangeObserver
    ) -> tuple[web.StreamResponse, bool]:
        """Forward a response, and return it with whether it was complete."""
        # Whatever the status: not every client looks at it.
        if observer.hides and not is_event_stream(fields):
            return await self._pass_whole(request, answer, fields, observer), True
        if observer.hides and not is_plain(fields):
            raise HttpProblem("answer_unreadable")
        if not observer.hides and (body := answer.here()):
            passing = await _passing(observer, body)
            at_once = _answering(answer, fields, passing + await _passing(observer, None))
            await at_once.prepare(request)
            await at_once.write_eof()
            observer.delivered()
            return at_once, True
        response = _answering(answer, _without(fields, _OF_LENGTH) if observer.hides else fields)
        await response.prepare(request)
        try:
            async for chunk in answer.chunks():
                if passing := await _passing(observer, chunk):
                    await response.write(passing)
                    observer.delivered()
        except UpstreamError:
            # No end of the body is written: the client must see that something is missing.
            response.force_close()
            if request.transport is not None:
                request.transport.close()
            return response, False
        if passing := await _passing(observer, None):
            await response.write(passing)
        await response.write_eof()
        observer.delivered()
        return response, True

    async def _pass_whole(
        self, request: web.Request, answer: ResponseHead, fields: HeaderFields, observer: ExchangeObserver
    ) -> web.StreamResponse:
        try:
            body = await self._holding.read(answer.chunks(), "answer_too_long")
        except UpstreamError:
            raise HttpProblem("upstream_unreachable") from None
        try:
            commands = await observer.inspect(Replied(body))
            shown = b"" if commands is None else commands.forward or b""
            if body and not shown:
                raise HttpProblem("answer_unreadable")
            response = _answering(answer, fields if shown == body else _without(fields, _OF_CONTENT))
            if shown != body:
                response.content_length = len(shown)
            await response.prepare(request)
            if shown:
                await response.write(shown)
            await response.write_eof()
            observer.delivered()
            return response
        finally:
            self._holding.give(len(body))


def _without(fields: HeaderFields, names: Collection[str]) -> HeaderFields:
    return [field for field in fields if field[0].lower() not in names]


async def _passing(observer: ExchangeObserver, data: bytes | None) -> bytes:
    commands = await observer.inspect(Passed("server->client", data))
    return b"" if commands is None else commands.forward or b""
