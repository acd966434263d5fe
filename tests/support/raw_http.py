"""HTTP byte by byte: servers that answer what a test says, and clients that send it."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Serve = Callable[[bytes, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
LIMIT_S = 20.0


@asynccontextmanager
async def raw_server(serve: Serve, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """A server that reads the head of each request and lets a function do the rest: its URL."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                await serve(head, reader, writer)
                if writer.is_closing():
                    break
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, limit=2**20, ssl=tls)
    try:
        yield f"http{'' if tls is None else 's'}://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    finally:
        server.close()


class Answering:
    """A server that reads each request with its body, keeps both, and answers the same."""

    def __init__(self, response: bytes) -> None:
        self._response = response
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []

    async def __call__(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heads.append(head)
        self.bodies.append(await body_of(head, reader))
        writer.write(self._response)
        await writer.drain()


class Endless:
    """A server that answers with a stream without end, as fast as that is read."""

    def __init__(self) -> None:
        self.sent_bytes = 0

    async def __call__(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await body_of(head, reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        while True:
            writer.write(b": " + b"x" * 65_533 + b"\n")
            await writer.drain()
            self.sent_bytes += 65_536


async def body_of(head: bytes, reader: asyncio.StreamReader) -> bytes:
    fields = {
        name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in head.splitlines()[1:])
    }
    if b"content-length" in fields:
        return await reader.readexactly(int(fields[b"content-length"]))
    if fields.get(b"transfer-encoding") != b"chunked":
        return b""
    body = b""
    while size := int(await reader.readline(), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readline()
    return body


async def connect(url: str) -> Streams:
    host, _, port = url.split("/")[2].rpartition(":")
    return await asyncio.open_connection(host, int(port), limit=2**20)


async def exchange(url: str, request: bytes) -> tuple[int, bytes, bytes]:
    """Send bytes, and return status, head and body of the response."""
    reader, writer = await connect(url)
    try:
        async with asyncio.timeout(LIMIT_S):
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            return int(head.split()[1]), head, await body_of(head, reader)
    finally:
        writer.close()


def a_post(body: bytes, *fields: str, path: str = "/mcp", host: str = "127.0.0.1") -> bytes:
    head = [f"POST {path} HTTP/1.1", f"Host: {host}", "Content-Type: application/json", *fields]
    return "\r\n".join([*head, f"Content-Length: {len(body)}", "", ""]).encode() + body


def a_response(body: bytes, *fields: str, status: str = "200 OK", kind: str = "application/json") -> bytes:
    head = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", *fields, f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(head).encode() + body
