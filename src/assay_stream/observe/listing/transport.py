"""The transport protocol of a conversation, with implementations for stdio and HTTP.

Credentials are files, read when needed: a replaced one takes effect with the next listing. No redirect is
followed, so a credential never reaches another origin than the one it is configured for.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from assay_stream import __version__
from assay_stream.limits.listing import LISTING_LIMITS
from assay_stream.observe.http.bodies import Opaque, body_of
from assay_stream.observe.http.client import Client, ResponseHead, UpstreamError
from assay_stream.observe.http.event_stream import EventStream
from assay_stream.observe.http.headers import first
from assay_stream.observe.listing.servers import ListedServer

if TYPE_CHECKING:
    from assay_stream.observe.listing.conversation import Conversation

MODERN, LEGACY = "2026-07-28", "2025-11-25"

_PASSED_ON = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
"""Environment variables passed to servers: none of our settings, which hold passwords."""

_CHUNK_BYTES = 64 * 1024
_SESSION_CHARS_MAX = 1_024
_REDIRECTS = range(300, 400)
_EVENTS = "text/event-stream"


class ListingError(Exception):
    """A server could not be listed.

    Args:
        reason: a stable code, free of server text.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ServerRefusedError(ListingError):
    """The server answered with an error."""


class Transport(Protocol):
    """Sends messages to one server, and delivers its messages to ``Conversation.heard``."""

    async def send(self, raw: bytes, *, method: str | None, version: str | None, expects_answer: bool) -> None:
        """Send a message; for a request, also deliver the response if it arrives on the same exchange.

        Args:
            method: of a request or notification.
            version: the protocol revision in use, ``None`` while unknown.

        Raises:
            ListingError: the server cannot be reached, or its response is not MCP.
        """

    async def listen(self, version: str) -> None:
        """Receive unsolicited messages until the stream ends.

        Raises:
            ListingError: as ``send``.
        """

    async def close(self) -> None:
        """Close the connection, within a time limit."""


def read_credential(file: Path) -> str:
    """Return a file's content, without its final line feed.

    Raises:
        ListingError: ``credentials`` if it cannot be read, or holds characters invalid in a header or variable.
    """
    try:
        with file.open("rb") as opened:
            raw = opened.read(LISTING_LIMITS.credential_bytes_max + 1)
        text = raw.decode("ascii").rstrip("\r\n")
    except (OSError, UnicodeDecodeError):
        raise ListingError("credentials") from None
    if len(raw) > LISTING_LIMITS.credential_bytes_max or not text.strip() or not text.isprintable():
        raise ListingError("credentials")
    return text


def environment_of(server: ListedServer, ours: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a server's process.

    Raises:
        ListingError: ``credentials``.
    """
    passed = {name: ours[name] for name in _PASSED_ON if name in ours}
    return passed | {name: read_credential(file) for name, file in server.env_files.items()}


class StdioTransport:
    """A server's process, in its own process group.

    Its output comes through our own pipe, which can be closed while something still writes to it.
    """

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        output: tuple[asyncio.StreamReader, asyncio.ReadTransport],
        conversation: Conversation,
    ) -> None:
        self._process = process
        self._reader, self._pipe = output
        self._conversation = conversation
        self._limits = conversation.limits
        self._failure: ListingError | None = None
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def open(cls, server: ListedServer, conversation: Conversation) -> StdioTransport:
        """Start a server.

        Raises:
            ListingError: ``not_started``, ``credentials``.
        """
        environment = await asyncio.to_thread(environment_of, server, os.environ)
        ours, theirs = os.pipe()
        reader = asyncio.StreamReader()
        pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(ours, "rb", buffering=0)
        )
        try:
            process = await asyncio.create_subprocess_exec(
                *server.command,
                stdin=asyncio.subprocess.PIPE,
                stdout=theirs,
                # What it logs is its own, may hold secrets, and may be without end.
                stderr=asyncio.subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )
        except BaseException as error:
            pipe.close()
            if isinstance(error, OSError | ValueError):
                raise ListingError("not_started") from None
            raise
        finally:
            os.close(theirs)
        return cls(process, (reader, pipe), conversation)

    async def send(self, raw: bytes, *, method: str | None, version: str | None, expects_answer: bool) -> None:  # noqa: ARG002
        if self._reading.done() and self._failure is not None:
            raise self._failure
        writer = self._process.stdin
        if writer is None:
            raise ListingError("ended")
        try:
            writer.write(raw + b"\n")
            await writer.drain()
        except (OSError, RuntimeError):
            raise ListingError("ended") from None

    async def listen(self, version: str) -> None:  # noqa: ARG002 - the protocol's
        """Wait until the server exits: announcements come on its only stream."""
        await asyncio.shield(self._reading)
        if self._failure is not None:
            raise self._failure

    async def close(self) -> None:
        """Close its input, then terminate it, then kill its process group."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), self._limits.stop_limit_s)
            # Also where it ended by itself: children of its own may live on.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)
        await self._process.wait()
        self._reading.cancel()
        await asyncio.wait([self._reading])
        self._pipe.close()

    async def _read(self) -> None:
        self._failure = ListingError("ended")
        try:
            await self._read_lines()
        except ListingError as error:
            self._failure = error
        finally:
            self._conversation.end(self._failure.reason)

    async def _read_lines(self) -> None:
        parts, size_bytes = list[bytes](), 0
        while chunk := await self._reader.read(_CHUNK_BYTES):
            *lines, rest = chunk.split(b"\n")
            for line in lines:
                await self._conversation.heard(b"".join([*parts, line]))
                parts, size_bytes = [], 0
            parts.append(rest)
            size_bytes += len(rest)
            if size_bytes > self._limits.message_bytes_max:
                await self._conversation.heard(None)
                raise ListingError("too_much")


class HttpTransport:
    """HTTP requests to one Streamable HTTP endpoint, in both eras, and their session."""

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
        """Prepare a connection to a server, without sending anything.

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
