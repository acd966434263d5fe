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
from assay_stream.observe.http.tap import Listener, serve
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
        return web.Response(text="here")

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
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
