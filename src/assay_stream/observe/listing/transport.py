"""What a conversation needs of its transport, and the one over standard input and output.

Credentials are files, read when they are needed: one that is replaced counts from the next listing on.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from assay_stream.limits.listing import LISTING_LIMITS
from assay_stream.observe.listing.servers import ListedServer

if TYPE_CHECKING:
    from assay_stream.observe.listing.conversation import Conversation

_PASSED_ON = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
"""What a server gets of our environment: no settings of ours, which hold passwords."""

_CHUNK_BYTES = 64 * 1024


class ListingError(Exception):
    """A server could not be listed.

    Args:
        reason: a stable code, without anything that the server said.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ServerRefusedError(ListingError):
    """The server answered with an error."""


class Transport(Protocol):
    """Carries messages to one server, and what comes back to ``Conversation.heard``."""

    async def send(self, raw: bytes, *, method: str | None, version: str | None, expects_answer: bool) -> None:
        """Send a message; of a request, also hear what answers it, as far as that comes with it.

        Args:
            method: of a request or notification.
            version: the protocol revision in use, ``None`` until that is known.

        Raises:
            ListingError: if the server cannot be reached, or does not answer as MCP servers do.
        """

    async def listen(self, version: str) -> None:
        """Hear what the server sends by itself, until it ends.

        Raises:
            ListingError: as ``send``.
        """

    async def close(self) -> None:
        """End the connection, within a bound."""


def read_credential(file: Path) -> str:
    """Return what a file holds, without the line feed at its end.

    Raises:
        ListingError: ``credentials`` where it cannot be read, or holds what no header or variable may.
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
    """Return the environment of a server's process.

    Raises:
        ListingError: ``credentials``.
    """
    passed = {name: ours[name] for name in _PASSED_ON if name in ours}
    return passed | {name: read_credential(file) for name, file in server.env_files.items()}


class StdioTransport:
    """The process of a server, in a group of its own.

    Its output comes through a pipe of ours, which can be closed while something still writes to it.
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
        """Wait until the server ends: what it announces comes on its one stream."""
        await asyncio.shield(self._reading)
        if self._failure is not None:
            raise self._failure

    async def close(self) -> None:
        """Close its input, then ask it to end, then end it, with whatever it started."""
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
