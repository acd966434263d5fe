"""The reverse proxy of the HTTP tap: bytes pass unchanged and as they come, and are noted as they pass.

What is not as it was: headers for one connection only, ``Host``, encodings in ``Accept-Encoding`` that cannot be read
here, and how a body without a stated length is framed. A redirect is never followed, and never passed on either: the
client would go around the tap, and might take its credentials elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping

from aiohttp import web
from multidict import CIMultiDict

from assay_stream.limits.serving import HTTP_LIMITS, HttpLimits
from assay_stream.observe.http.client import Client, ResponseHead, UpstreamError
from assay_stream.observe.http.exchange import Ending
from assay_stream.observe.http.eyes import Blind, Eyes
from assay_stream.observe.http.headers import (
    HeaderFields,
    forwarded,
    is_event_stream,
    is_host_served,
    is_origin_served,
    is_plain,
    passed_on,
)
from assay_stream.observe.http.problems import HttpProblem, answer_of
from assay_stream.observe.http.upload import Holding, Upload
from assay_stream.observe.http.upstreams import Upstream
from assay_stream.observe.mcp_wire import LINE_BYTES_MAX

_METHODS = frozenset(("GET", "POST", "DELETE", "OPTIONS", "HEAD"))
_READING = frozenset(("GET", "HEAD", "OPTIONS"))
_OF_LENGTH = frozenset(("content-length",))
_OF_CONTENT = _OF_LENGTH.union(("content-encoding", "content-digest", "repr-digest", "digest", "content-md5", "etag"))
"""What says something of a body's bytes."""

_REDIRECTS = frozenset((301, 302, 303, 307, 308))

_log = logging.getLogger(__name__)


class _Passed(web.StreamResponse):
    """A response with the server's headers only.

    Args:
        without: those that say something of a body that is not passed on as it came.
    """

    def __init__(self, answer: ResponseHead, fields: HeaderFields, without: Collection[str] = ()) -> None:
        headers = CIMultiDict((name, value) for name, value in fields if not without or name.lower() not in without)
        super().__init__(status=answer.status, reason=answer.reason or None, headers=headers)
        self.added = _added_to(headers)


class _PassedAtOnce(web.Response):
    """The same with its body, in one write."""

    def __init__(self, answer: ResponseHead, fields: HeaderFields, body: bytes) -> None:
        headers = CIMultiDict(fields)
        super().__init__(status=answer.status, reason=answer.reason or None, headers=headers, body=body)
        self.added = _added_to(headers)


def _added_to(headers: Mapping[str, str]) -> Collection[str]:
    """Return what aiohttp adds to headers, unless it is among them."""
    return {"Server", "Content-Type"} - {name.title() for name in headers}


class Proxy:
    """Passes requests on to servers.

    Args:
        routes: server and URL by path of the tap.
        eyes: what sees an exchange with a server.
        hosts: what ``Host`` may name; everything if empty.
        origins: what ``Origin`` may be, beside the tap's own.
        is_loopback: whether only programs of this machine can connect.
    """

    def __init__(
        self,
        routes: Mapping[str, tuple[Upstream, str]],
        client: Client,
        eyes: Callable[[Upstream, str, HeaderFields], Eyes],
        *,
        hosts: Collection[str] = (),
        origins: Collection[str] = (),
        is_loopback: bool = True,
        limits: HttpLimits = HTTP_LIMITS,
    ) -> None:
        self._routes = routes
        self._client = client
        self._eyes = eyes
        self._hosts = hosts
        self._origins = origins
        self._is_loopback = is_loopback
        self._limits = limits
        self._in_progress = 0
        self._holding = Holding(limits.kept_bytes_max)
        self._unreached: set[str] = set()
        self.failures = 0

    def application(self) -> web.Application:
        """Return the web application to serve."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.handle)
        app.on_response_prepare.append(_only_theirs)
        return app

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        self._in_progress += 1
        try:
            self._check(request)
            path, _, query = request.raw_path.partition("?")
            if path not in self._routes:
                raise HttpProblem("no_such_upstream")
            upstream, url = self._routes[path]
            if request.method not in _METHODS:
                raise HttpProblem("method_not_allowed")
            if url != upstream.url and (request.method not in _READING or request.body_exists):
                raise HttpProblem("method_not_allowed")  # documents about authorisation are only read
            if self._in_progress > self._limits.exchanges_max:
                raise HttpProblem("too_many_requests")
            return await self._exchange(request, upstream, url, query)
        except HttpProblem as problem:
            return answer_of(problem.code)
        except Exception as error:  # noqa: BLE001 - the client gets an answer whatever goes wrong here
            if not _is_client_gone(request, error):
                self.failures += 1
                _log.exception("a request failed in the tap")
            return answer_of("tap_failed")
        finally:
            self._in_progress -= 1

    def _check(self, request: web.Request) -> None:
        """Keep pages in a browser from reaching servers through us (MCP, Streamable HTTP, security warning)."""
        host = request.headers.get("Host", "")
        if self._hosts and not is_host_served(host, self._hosts):
            raise HttpProblem("host_not_served")
        origin = request.headers.get("Origin")
        if origin is not None and not is_origin_served(origin, host, self._origins, is_loopback=self._is_loopback):
            raise HttpProblem("origin_not_served")

    async def _exchange(self, request: web.Request, upstream: Upstream, url: str, query: str) -> web.StreamResponse:
        fields = list(request.headers.items())
        # What counts is what the server gets: a client can have any field taken out on the way.
        asked = passed_on(fields)
        eyes: Eyes = self._eyes(upstream, request.method, asked) if url == upstream.url else Blind()
        ending: Ending = "upstream_failed"
        upload = Upload(request, eyes.from_client, self._limits)
        try:
            if eyes.rules and request.body_exists:
                refusal = await eyes.ruled(await upload.whole(self._holding))
                if refusal is not None:
                    kind = "application/json" if refusal.body else None
                    return web.Response(status=refusal.status, body=refusal.body, content_type=kind)
            sent = forwarded(asked, plain=eyes.hides)
            answer = await self._send(request, f"{url}?{query}" if query else url, sent, upload)
            answered = passed_on(answer.fields)
            eyes.answered(answer.status, answered)
            self._note_reached(url, None)
            if answer.status in _REDIRECTS:
                await answer.release()
                raise HttpProblem("upstream_redirects")
            try:
                response, is_whole = await self._pass_back(request, answer, answered, eyes)
                ending = "complete" if is_whole else "upstream_failed"
                return response
            finally:
                await answer.release()
        except (asyncio.CancelledError, ConnectionError):
            # aiohttp cancels the handler of a client that is gone.
            ending = "client_left"
            raise
        finally:
            upload.release()
            eyes.closed(ending)

    async def _send(self, request: web.Request, url: str, fields: HeaderFields, upload: Upload) -> ResponseHead:
        try:
            async with asyncio.timeout(None) as deadline:
                upload.starts(deadline)
                if not request.body_exists:
                    upload.end()
                body = upload.here() or aiter(upload) if request.body_exists else None
                answer = await self._client.send(request.method, url, fields, body)
                upload.starts(None)
                return answer
        except TimeoutError:
            raise HttpProblem("upstream_silent") from None
        except UpstreamError as error:
            if upload.stalled:
                raise HttpProblem("body_stalled") from None
            self._note_reached(url, type(error.__cause__).__name__)
            raise HttpProblem("upstream_unreachable") from None

    def _note_reached(self, url: str, failure: str | None) -> None:
        """Log only what changes: an absent server must not fill the log. The query is nobody's business."""
        url = url.partition("?")[0]
        if failure is None:
            self._unreached.discard(url)
        elif url not in self._unreached:
            self._unreached.add(url)
            _log.warning("a server cannot be reached: %s: %s", url, failure)

    async def _pass_back(
        self, request: web.Request, answer: ResponseHead, fields: HeaderFields, eyes: Eyes
    ) -> tuple[web.StreamResponse, bool]:
        """Pass a response on, and return it with whether it came whole."""
        # Whatever the status: not every client looks at it.
        if eyes.hides and not is_event_stream(fields):
            return await self._pass_whole(request, answer, fields, eyes), True
        if eyes.hides and not is_plain(fields):
            raise HttpProblem("answer_unreadable")
        if not eyes.hides and (body := answer.here()):
            passing = await eyes.from_server(body)
            at_once = _PassedAtOnce(answer, fields, passing + await eyes.from_server(None))
            await at_once.prepare(request)
            await at_once.write_eof()
            eyes.passed()
            return at_once, True
        response = _Passed(answer, fields, without=_OF_LENGTH if eyes.hides else ())
        await response.prepare(request)
        try:
            async for chunk in answer.chunks():
                if passing := await eyes.from_server(chunk):
                    await response.write(passing)
                    eyes.passed()
        except UpstreamError:
            # No end of the body is written: the client must see that something is missing.
            response.force_close()
            if request.transport is not None:
                request.transport.close()
            return response, False
        if passing := await eyes.from_server(None):
            await response.write(passing)
        await response.write_eof()
        eyes.passed()
        return response, True

    async def _pass_whole(
        self, request: web.Request, answer: ResponseHead, fields: HeaderFields, eyes: Eyes
    ) -> web.StreamResponse:
        """Pass a response on once its whole body was read and inspected."""
        parts: list[bytes] = []
        held_bytes = 0
        try:
            async for chunk in answer.chunks():
                self._holding.take(len(chunk))
                held_bytes += len(chunk)
                parts.append(chunk)
                if held_bytes > LINE_BYTES_MAX:
                    raise HttpProblem("answer_too_long")
            body = b"".join(parts)
            shown = await eyes.whole(body)
            if body and not shown:
                raise HttpProblem("answer_unreadable")
            response = _Passed(answer, fields, without=() if shown == body else _OF_CONTENT)
            if shown != body:
                response.content_length = len(shown)
            await response.prepare(request)
            if shown:
                await response.write(shown)
            await response.write_eof()
            eyes.passed()
            return response
        except UpstreamError:
            raise HttpProblem("upstream_unreachable") from None
        finally:
            self._holding.give(held_bytes)


def _is_client_gone(request: web.Request, error: Exception) -> bool:
    """Tell whether a request failed because its client left, at whatever step: what a server does is no such error."""
    return isinstance(error, ConnectionError) and (request.transport is None or request.transport.is_closing())


async def _only_theirs(_: web.Request, response: web.StreamResponse) -> None:
    """Remove what aiohttp adds to headers of a server."""
    if isinstance(response, _Passed | _PassedAtOnce):
        for name in response.added:
            response.headers.pop(name, None)
