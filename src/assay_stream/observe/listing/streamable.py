"""A server that speaks Streamable HTTP, in both eras of the protocol.

No redirect is followed, so a credential never reaches another origin than the one it is configured for.
"""

from __future__ import annotations

import asyncio
import contextlib

from assay_stream import __version__
from assay_stream.observe.http.bodies import Opaque, body_of
from assay_stream.observe.http.client import Client, ResponseHead, UpstreamError
from assay_stream.observe.http.event_stream import EventStream
from assay_stream.observe.http.headers import first
from assay_stream.observe.listing.conversation import MODERN, Conversation
from assay_stream.observe.listing.servers import ListedServer
from assay_stream.observe.listing.transport import ListingError, read_credential

_SESSION_CHARS_MAX = 1_024
_REDIRECTS = range(300, 400)
_EVENTS = "text/event-stream"


class HttpTransport:
    """Requests to one endpoint, and the session that they belong to."""

    def __init__(
        self, url: str, client: Client, conversation: Conversation, credential: tuple[str, str] | None
    ) -> None:
        self._url = url
        self._client = client
        self._conversation = conversation
        self._credential = credential
        self._limits = conversation.limits
        self._session_id: str | None = None
        self._version: str | None = None

    @classmethod
    async def open(cls, server: ListedServer, client: Client, conversation: Conversation) -> HttpTransport:
        """Prepare a connection to a server; nothing is sent yet.

        Raises:
            ListingError: ``credentials``.
        """
        credential = None
        if server.token_file is not None:
            token = await asyncio.to_thread(read_credential, server.token_file)
            is_bearer = server.token_header.lower() == "authorization" and " " not in token
            credential = server.token_header, f"Bearer {token}" if is_bearer else token
        return cls(server.url or "", client, conversation, credential)

    async def send(self, raw: bytes, *, method: str | None, version: str | None, expects_answer: bool) -> None:
        self._version = version
        more = [("Content-Type", "application/json")]
        if version == MODERN and method is not None:
            more.append(("Mcp-Method", method))
        answer = await self._request("POST", raw, more)
        try:
            self._check(answer)
            if method == "initialize":
                self._begin_session(answer)
            if expects_answer:
                await self._hear(answer, listens=method == "subscriptions/listen")
        finally:
            await answer.release()

    async def listen(self, version: str) -> None:
        self._version = version
        answer = await self._request("GET", None, [])
        try:
            self._check(answer)
            if answer.status >= 400:
                raise ListingError(f"http_{answer.status}")
            await self._hear(answer, listens=True)
        finally:
            await answer.release()

    async def close(self) -> None:
        if self._session_id is None:
            return
        with contextlib.suppress(ListingError, TimeoutError):
            async with asyncio.timeout(self._limits.stop_limit_s):
                await (await self._request("DELETE", None, [])).release()

    async def _request(self, verb: str, body: bytes | None, more: list[tuple[str, str]]) -> ResponseHead:
        accepted = _EVENTS if verb == "GET" else f"application/json, {_EVENTS}"
        fields = [("User-Agent", f"assay-stream/{__version__}"), ("Accept", accepted), ("Accept-Encoding", "identity")]
        if self._credential is not None:
            fields.append(self._credential)
        if self._version is not None:
            fields.append(("MCP-Protocol-Version", self._version))
        if self._session_id is not None:
            fields.append(("Mcp-Session-Id", self._session_id))
        try:
            return await self._client.send(verb, self._url, [*fields, *more], body)
        except UpstreamError:
            raise ListingError("unreachable") from None

    def _check(self, answer: ResponseHead) -> None:
        if answer.status in _REDIRECTS:
            raise ListingError("redirects")
        if answer.status in (401, 403, 407, 429) or answer.status >= 500:
            raise ListingError(f"http_{answer.status}")

    def _begin_session(self, answer: ResponseHead) -> None:
        session_id = first(answer.fields, "mcp-session-id")
        if session_id is not None:
            if len(session_id) > _SESSION_CHARS_MAX or not session_id.isascii() or not session_id.isprintable():
                raise ListingError("not_mcp")
            self._session_id = session_id

    async def _hear(self, answer: ResponseHead, *, listens: bool) -> None:
        body = body_of(
            first(answer.fields, "content-type"),
            first(answer.fields, "content-encoding"),
            message_bytes_max=self._limits.message_bytes_max,
        )
        if isinstance(body, Opaque) or (listens and not isinstance(body, EventStream)):
            raise ListingError(f"http_{answer.status}" if answer.status >= 400 else "not_mcp")
        answered, size_bytes = False, 0
        try:
            async for chunk in answer.chunks():
                size_bytes += len(chunk)
                for message in body.feed(chunk):
                    answered = await self._conversation.heard(message) or answered
                if answered and not listens:
                    return
                if size_bytes > self._limits.connection_bytes_max or (
                    not isinstance(body, EventStream) and size_bytes > self._limits.message_bytes_max
                ):
                    await self._conversation.heard(None)
                    raise ListingError("too_much")
        except UpstreamError:
            raise ListingError("ended") from None
        for message in body.end():
            answered = await self._conversation.heard(message) or answered
        if not answered:
            # A session may answer on its GET stream; this client has none open while it asks.
            raise ListingError(f"http_{answer.status}" if answer.status >= 400 else "ended")
