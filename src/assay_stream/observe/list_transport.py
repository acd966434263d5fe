"""The servers of ``list-watch``, and how a conversation reaches one: over stdio or HTTP.

Credentials are files, read when needed: a replaced one takes effect with the next listing. No redirect is
followed, so a credential never reaches another origin than the one it is configured for.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, StrictBool, ValidationError, ValidationInfo, model_validator

from assay_stream import __version__
from assay_stream.errors import ConfigurationError
from assay_stream.files.local import no_field
from assay_stream.limits import LISTING_LIMITS
from assay_stream.observe.http.messages import EventStream, Opaque, body_of, first
from assay_stream.observe.http.upstreams import Client, ResponseHead, UpstreamError, is_endpoint
from assay_stream.observe.observation import Vantage

if TYPE_CHECKING:
    from assay_stream.observe.list_watch import Conversation

_OF_TRANSPORT = frozenset(
    ("host", "content-length", "content-type", "content-encoding", "transfer-encoding", "connection", "accept")
)
_Seconds = Annotated[
    float, Field(strict=True, ge=LISTING_LIMITS.interval_min_s, le=LISTING_LIMITS.interval_max_s, allow_inf_nan=False)
]


class ListedServer(BaseModel):
    """One server.

    Args:
        url: its MCP endpoint; ``None`` for a command.
        command: program and arguments; empty for a URL.
        token_file: holds the value for ``token_header``, reread for each listing.
        token_header: ``Authorization`` puts ``Bearer`` before it.
        env_files: environment variables, each from a file.
        interval_s: the longest time between two listings.
        listen: whether to stay connected for changes that the server announces.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    vantage: Vantage
    url: str | None = None
    command: tuple[Annotated[str, Field(pattern=r"^[^\x00]*$")], ...] = ()
    token_file: Path | None = None
    token_header: Annotated[str, Field(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}$")] = "Authorization"  # noqa: S105 - a name
    env_files: dict[Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]{0,127}$")], Path] = {}
    interval_s: _Seconds
    listen: StrictBool = True

    @model_validator(mode="before")
    @classmethod
    def _named(cls, entry: Any, info: ValidationInfo) -> Any:
        """Put what names the server into its vantage, and the defaults of the file where it says nothing."""
        file: Mapping[str, Any] = info.context or {}
        names = {name: entry.get(name) for name in ("server_id", "auth_context")} if isinstance(entry, dict) else {}
        context = names.get("auth_context")
        if not isinstance(names.get("server_id"), str) or not isinstance(context, str | None) or "vantage" in entry:
            raise ValueError("give server_id, and optionally auth_context, each as text")
        vantage = replace(file["observer"], **{name: value for name, value in names.items() if name in entry})
        given = {name: value for name, value in entry.items() if name not in names}
        return {"interval_s": file["interval_s"], **given, "vantage": vantage}

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if (self.url is None) == (not self.command):
            raise ValueError("give either url or command")
        if self.url is not None and not is_endpoint(self.url):
            raise ValueError("url must be http(s)://host[:port]/path, without user name, query or fragment")
        if self.token_file is not None and self.url is None:
            raise ValueError("token_file is for a server with a url; a command takes env_files")
        if self.env_files and self.url is not None:
            raise ValueError("env_files are for a server with a command")
        if self.token_header.lower() in _OF_TRANSPORT:
            raise ValueError("token_header must be the name of a header that carries credentials")
        return self

    @property
    def host(self) -> str:
        """Key of the per-host limit: its host and port, or this machine."""
        return "" if self.url is None else urlsplit(self.url).netloc.lower()


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    interval_s: _Seconds = LISTING_LIMITS.interval_default_s
    servers: Annotated[list[ListedServer], Field(min_length=1, max_length=LISTING_LIMITS.servers_max)]


_FIELDS = ("server_id", "auth_context", *(name for name in ListedServer.model_fields if name != "vantage"))
_WANTED = {
    "servers": f"must be a list of 1 to {LISTING_LIMITS.servers_max} servers",
    "url": "must be a text",
    "command": "must be a list of texts: the program and its arguments",
    "token_file": "must be a path",
    "token_header": "must be the name of a header that carries credentials",
    "env_files": "must give the name of each variable the path of its file",
    "interval_s": f"must be {LISTING_LIMITS.interval_min_s:g} to {LISTING_LIMITS.interval_max_s:g} seconds",
    "listen": "must be true or false",
}


def listed_servers(content: object, where: str, observer: Vantage) -> list[ListedServer]:
    """Return the servers in the file ``where``; ``observer`` has their defaults. Raises ``bad_servers``."""
    interval_s = content.get("interval_s") if isinstance(content, dict) else None
    defaults = {"observer": observer, "interval_s": interval_s or LISTING_LIMITS.interval_default_s}
    try:
        found = _File.model_validate(content, context=defaults).servers
    except ValidationError as error:
        # No values: a secret may stand in the wrong place.
        wrong = error.errors(include_url=False, include_input=False)[0]
        at = wrong["loc"] or ("servers",)
        place = f"{where}, server {int(at[1]) + 1}" if len(at) > 1 else where
        field = str(at[2] if len(at) > 2 else at[0])
        if wrong["type"] == "value_error":
            why = wrong["msg"].removeprefix("Value error, ")
        elif wrong["type"] == "extra_forbidden":
            why = no_field([field], _FIELDS if len(at) > 1 else _File.model_fields)
        else:
            why = f"{field} {_WANTED[field]}"
        raise ConfigurationError("bad_servers", f"{place}: {why}") from None
    if len({(each.vantage.server_id, each.vantage.auth_context) for each in found}) < len(found):
        raise ConfigurationError(
            "bad_servers", f"{where}: two servers have one server_id: give each its own, or an auth_context of its own"
        )
    return found


MODERN, LEGACY = "2026-07-28", "2025-11-25"

_PASSED_ON = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
"""Environment variables passed to servers: none of our settings, which hold passwords."""

_CHUNK_BYTES = 64 * 1024
_SESSION_CHARS_MAX = 1_024
_REDIRECTS = range(300, 400)
_EVENTS = "text/event-stream"


class ListingError(Exception):
    """A server could not be listed: a stable code, free of server text."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ServerRefusedError(ListingError):
    """The server answered with an error."""


def read_credential(file: Path) -> str:
    """Return a file's content without its final line feed, fit for a header or variable."""
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
    passed = {name: ours[name] for name in _PASSED_ON if name in ours}
    return passed | {name: read_credential(file) for name, file in server.env_files.items()}


@dataclass(eq=False, repr=False)
class StdioTransport:
    """A server's process, in its own process group.

    Its output comes through our own pipe, which can be closed while something still writes to it.
    """

    process: asyncio.subprocess.Process
    reader: asyncio.StreamReader
    pipe: asyncio.ReadTransport
    conversation: Conversation
    _failure: ListingError | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def open(cls, server: ListedServer, conversation: Conversation) -> StdioTransport:
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
        return cls(process, reader, pipe, conversation)

    async def send(self, raw: bytes, *, method: str | None, version: str | None, expects_answer: bool) -> None:  # noqa: ARG002
        """Send a message; its answer comes on the server's only stream. Raises ``ListingError``."""
        if self._reading.done() and self._failure is not None:
            raise self._failure
        writer = self.process.stdin
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
        if self.process.stdin is not None:
            self.process.stdin.close()
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.process.wait(), self.conversation.limits.stop_limit_s)
            # Also where it ended by itself: children of its own may live on.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, number)
        await self.process.wait()
        self._reading.cancel()
        await asyncio.wait([self._reading])
        self.pipe.close()

    async def _read(self) -> None:
        self._failure = ListingError("ended")
        try:
            await self._read_lines()
        except ListingError as error:
            self._failure = error
        finally:
            self.conversation.end(self._failure.reason)

    async def _read_lines(self) -> None:
        # One buffer: a list of parts would take many times their size where a server writes byte by byte.
        held = bytearray()
        while chunk := await self.reader.read(_CHUNK_BYTES):
            *lines, rest = chunk.split(b"\n")
            for line in lines:
                await self.conversation.heard(bytes(held + line))
                held.clear()
            held += rest
            if len(held) > self.conversation.limits.message_bytes_max:
                await self.conversation.heard(None)
                raise ListingError("too_much")


@dataclass(eq=False, repr=False)
class HttpTransport:
    """HTTP requests to one Streamable HTTP endpoint, in both eras, and their session."""

    url: str
    client: Client
    conversation: Conversation
    credential: tuple[str, str] | None
    _session_id: str | None = field(default=None, init=False)
    _version: str | None = field(default=None, init=False)

    @classmethod
    async def open(cls, server: ListedServer, client: Client, conversation: Conversation) -> HttpTransport:
        credential = None
        if server.token_file is not None:
            token = await asyncio.to_thread(read_credential, server.token_file)
            is_bearer = server.token_header.lower() == "authorization" and " " not in token
            credential = server.token_header, f"Bearer {token}" if is_bearer else token
        return cls(server.url or "", client, conversation, credential)

    async def send(self, raw: bytes, *, method: str | None, version: str | None, expects_answer: bool) -> None:
        """Send a message, and hear the answer if it comes on the same exchange; raises ``ListingError``."""
        self._version = version
        more = [("Content-Type", "application/json")]
        if version == MODERN and method is not None:
            more.append(("Mcp-Method", method))
        async with self._request("POST", raw, more) as answer:
            session_id = first(answer.fields, "mcp-session-id") if method == "initialize" else None
            if session_id is not None:
                if len(session_id) > _SESSION_CHARS_MAX or not session_id.isascii() or not session_id.isprintable():
                    raise ListingError("not_mcp")
                self._session_id = session_id
            if expects_answer:
                await self._hear(answer, listens=method == "subscriptions/listen")

    async def listen(self, version: str) -> None:
        """Hear unsolicited messages until the stream ends; raises ``ListingError``."""
        self._version = version
        async with self._request("GET", None, []) as answer:
            if answer.status >= 400:
                raise ListingError(f"http_{answer.status}")
            await self._hear(answer, listens=True)

    async def close(self) -> None:
        if self._session_id is None:
            return
        with contextlib.suppress(ListingError, TimeoutError):
            async with asyncio.timeout(self.conversation.limits.stop_limit_s), self._request("DELETE", None, []):
                pass

    @contextlib.asynccontextmanager
    async def _request(self, verb: str, body: bytes | None, more: list[tuple[str, str]]) -> AsyncIterator[ResponseHead]:
        accepted = _EVENTS if verb == "GET" else f"application/json, {_EVENTS}"
        fields = [("User-Agent", f"assay-stream/{__version__}"), ("Accept", accepted), ("Accept-Encoding", "identity")]
        if self.credential is not None:
            fields.append(self.credential)
        if self._version is not None:
            fields.append(("MCP-Protocol-Version", self._version))
        if self._session_id is not None:
            fields.append(("Mcp-Session-Id", self._session_id))
        try:
            answer = await self.client.send(verb, self.url, [*fields, *more], body)
        except UpstreamError:
            raise ListingError("unreachable") from None
        try:
            if answer.status in _REDIRECTS:
                raise ListingError("redirects")
            if answer.status in (401, 403, 407, 429) or answer.status >= 500:
                raise ListingError(f"http_{answer.status}")
            yield answer
        finally:
            await answer.release()

    async def _hear(self, answer: ResponseHead, *, listens: bool) -> None:
        body = body_of(
            first(answer.fields, "content-type"),
            first(answer.fields, "content-encoding"),
            message_bytes_max=self.conversation.limits.message_bytes_max,
        )
        if isinstance(body, Opaque) or (listens and not isinstance(body, EventStream)):
            raise ListingError(f"http_{answer.status}" if answer.status >= 400 else "not_mcp")
        answered, size_bytes = False, 0
        try:
            async for chunk in answer.chunks():
                size_bytes += len(chunk)
                for message in body.feed(chunk):
                    answered = await self.conversation.heard(message) or answered
                if answered and not listens:
                    return
                if size_bytes > self.conversation.limits.connection_bytes_max or (
                    not isinstance(body, EventStream) and size_bytes > self.conversation.limits.message_bytes_max
                ):
                    await self.conversation.heard(None)
                    raise ListingError("too_much")
        except UpstreamError:
            raise ListingError("ended") from None
        for message in body.end():
            answered = await self.conversation.heard(message) or answered
        if not answered:
            # A session may answer on its GET stream; this client has none open while it asks.
            raise ListingError(f"http_{answer.status}" if answer.status >= 400 else "ended")
