"""Clients that hold connections and ask for nothing."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web

from assay_stream.limits import HTTP_LIMITS, HttpLimits
from assay_stream.observe.http.listener import Listener, serve
from tests.support.https_server import Authority

LIMITS = replace(HTTP_LIMITS, idle_client_s=0.5)
REQUEST = b"GET /%s HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
def tls(tmp_path: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Contexts of a server and of its clients."""
    authority, server = Authority(tmp_path), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(authority.issue("127.0.0.1"))
    return server, ssl.create_default_context(cafile=authority.file)


@asynccontextmanager
async def a_server(
    limits: HttpLimits = LIMITS, *, slow: asyncio.Event | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Whoever asks for ``/slow`` waits for an event."""

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/slow" and slow is not None:
            await slow.wait()
        async for _ in request.content.iter_any():
            pass
        return web.Response(text="here")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    stop, port = asyncio.Event(), asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve(app, Listener(port=0, tls=tls), limits, port.set_result, stop))
    try:
        yield await port
    finally:
        stop.set()
        await serving


async def ends(reader: asyncio.StreamReader) -> bool:
    with suppress(TimeoutError, ConnectionError):
        async with asyncio.timeout(3):
            await reader.read()
            return True
    return reader.at_eof() or reader.exception() is not None


async def test_a_header_that_never_ends_does_not_hold_a_connection() -> None:
    async with a_server() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n")

        async def trickle() -> None:
            with suppress(ConnectionError):
                while True:
                    writer.write(b"X-Next: 1\r\n")
                    await writer.drain()
                    await asyncio.sleep(0.1)

        trickling = asyncio.create_task(trickle())
        assert await ends(reader)
        trickling.cancel()
        writer.close()


async def test_a_request_with_many_long_fields_is_refused() -> None:
    """It would hold them for as long as its server takes. An access token with many groups passes."""
    head = b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X-Long: %b\r\n" % (b"x" * 16_000) * 3
    async with a_server(HTTP_LIMITS) as port, asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head + b"X-Long: %b\r\n\r\n" % (b"x" * 18_000))
        assert (await reader.readline()).startswith(b"HTTP/1.1 431 ")
        await reader.readuntil(b"over 65,536 bytes")
        writer.write(head + b"\r\n")
        assert b"200 OK" in await reader.readuntil(b"here")
        writer.close()


async def test_who_says_nothing_is_let_go() -> None:
    """Before the first request, and after one."""
    async with a_server() as port:
        silent, silent_writer = await asyncio.open_connection("127.0.0.1", port)
        served, served_writer = await asyncio.open_connection("127.0.0.1", port)
        served_writer.write(REQUEST % b"")
        assert b"200 OK" in await served.readuntil(b"here")
        assert await ends(silent)
        assert await ends(served)
        silent_writer.close()
        served_writer.close()


async def test_a_request_in_progress_is_not_cut() -> None:
    slow = asyncio.Event()
    async with a_server(slow=slow) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(REQUEST % b"slow")
        await asyncio.sleep(4 * LIMITS.idle_client_s)
        slow.set()
        async with asyncio.timeout(10):
            assert b"200 OK" in await reader.readuntil(b"here")
        writer.close()


async def test_the_longest_idle_makes_room_for_who_comes() -> None:
    """A request in progress does not; where there is nothing else, who comes is sent away."""
    slow = asyncio.Event()
    async with a_server(replace(HTTP_LIMITS, clients_max=2), slow=slow) as port:
        busy, busy_writer = await asyncio.open_connection("127.0.0.1", port)
        busy_writer.write(REQUEST % b"slow")
        idle, idle_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.sleep(0.1)
        third, third_writer = await asyncio.open_connection("127.0.0.1", port)
        third_writer.write(REQUEST % b"slow")
        assert await ends(idle)
        await asyncio.sleep(0.1)
        fourth, fourth_writer = await asyncio.open_connection("127.0.0.1", port)
        assert await ends(fourth)
        slow.set()
        for reader in (busy, third):
            async with asyncio.timeout(10):
                assert b"200 OK" in await reader.readuntil(b"here")
        for writer in (busy_writer, idle_writer, third_writer, fourth_writer):
            writer.close()


async def test_a_late_handshake_does_not_hold_a_connection(tls: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    """Nor does one that never comes; a prompt one is served, and what follows it at once."""
    server, client = tls
    async with a_server(replace(HTTP_LIMITS, idle_client_s=3.0), tls=server) as port:
        silent, silent_writer = await asyncio.open_connection("127.0.0.1", port)
        late, late_writer = await asyncio.open_connection("127.0.0.1", port)
        prompt, prompt_writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
        prompt_writer.write(REQUEST % b"")
        async with asyncio.timeout(10):
            assert b"200 OK" in await prompt.readuntil(b"here")
        await asyncio.sleep(2.3)
        await late_writer.start_tls(client, server_hostname="127.0.0.1")
        assert await ends(late)
        assert await ends(silent)
        for writer in (silent_writer, late_writer, prompt_writer):
            writer.close()


async def test_handshakes_count_as_connections(tls: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    server, client = tls
    async with a_server(replace(HTTP_LIMITS, clients_max=2), tls=server) as port:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(6)]
        assert [await ends(reader) for reader, _ in silent[:4]] == [True] * 4
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
        writer.write(REQUEST % b"")
        async with asyncio.timeout(10):
            assert b"200 OK" in await reader.readuntil(b"here")
        for each in (*(writer for _, writer in silent), writer):
            each.close()


async def test_a_client_that_speaks_no_tls_is_let_go(tls: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    async with a_server(HTTP_LIMITS, tls=tls[0]) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(REQUEST % b"")
        assert await ends(reader)
        writer.close()


async def a_long_head(port: int, fields: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection whose request head has that many fields of 60 KB, and no end yet."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with suppress(ConnectionError):
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        for number in range(fields):
            writer.write(b"X-%d: %s\r\n" % (number, b"x" * 60_000))
            await writer.drain()
            await asyncio.sleep(0.01)
    return reader, writer


async def test_a_head_of_megabytes_is_not_held() -> None:
    """Of many fields, each within its limit; nor one that comes behind a request at work."""
    slow = asyncio.Event()
    async with a_server(HTTP_LIMITS, slow=slow) as port:
        reader, writer = await a_long_head(port, 30)
        assert await ends(reader)
        behind, behind_writer = await asyncio.open_connection("127.0.0.1", port)
        behind_writer.write(REQUEST % b"slow" + b"GET / HTTP/1.1\r\n")
        with suppress(ConnectionError):
            for number in range(30):
                await asyncio.sleep(0.01)
                behind_writer.write(b"X-%d: %s\r\n" % (number, b"x" * 60_000))
                await behind_writer.drain()
        assert await ends(behind)
        writer.close()
        behind_writer.close()


async def test_the_longest_head_makes_room_for_others() -> None:
    async with a_server(replace(HTTP_LIMITS, all_early_bytes_max=500_000)) as port:
        short, short_writer = await a_long_head(port, 1)
        long, long_writer = await a_long_head(port, 5)
        _, third_writer = await a_long_head(port, 3)
        assert await ends(long)
        short_writer.write(b"\r\n")
        async with asyncio.timeout(10):
            assert b"200 OK" in await short.readuntil(b"here")
        for each in (short_writer, long_writer, third_writer):
            each.close()


async def test_a_long_body_takes_no_room_of_heads() -> None:
    """Sent at once with its head, over again on one connection, and read before the answer."""
    async with a_server(HTTP_LIMITS) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(3):
            writer.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000000\r\n\r\n" + b"x" * 5_000_000)
            async with asyncio.timeout(10):
                assert b"200 OK" in await reader.readuntil(b"here")
        writer.close()
