"""Servers over TLS, in HTTP/1.1 and HTTP/2."""

from __future__ import annotations

import asyncio
import json
import ssl
from pathlib import Path

import pytest

from assay_stream.limits.serving import HTTP_LIMITS
from assay_stream.observe.http.client import Http2Client
from assay_stream.observe.http.tap import Listener
from tests.support.http_tap import http_tap
from tests.support.https_server import Authority
from tests.support.raw_http import a_post, a_response, answering, body_of, exchange, raw_server

pytest.importorskip("h2", reason="comes with the extra tap")
from tests.support.http2_server import http2_server

LIST = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'
TOOLS = b'{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}'


async def test_a_server_over_http2_is_observed(tmp_path: Path) -> None:
    """Streamed, with the client's headers and none of our own, from a certificate that is verified."""
    authority = Authority(tmp_path)
    event = [b": keep-alive\n\n", b"data: " + TOOLS[:20], TOOLS[20:] + b"\n\n"]
    fields = [("content-type", "text/event-stream"), ("x-own", "1")]
    async with http2_server(authority.issue("127.0.0.1"), fields, event) as server:
        trusted = ssl.create_default_context(cafile=authority.file)
        listener = Listener(port=0, http2=True, upstream_tls=trusted)
        async with http_tap(server.url, listener) as tap:
            status, head, body = await exchange(tap.url, a_post(LIST, "Authorization: Bearer t"))
        async with http_tap(server.url, Listener(port=0, http2=True)) as untrusting:
            refused, _, why = await exchange(untrusting.url, a_post(LIST))
    assert (status, body) == (200, b"".join(event))
    assert b"x-own: 1" in head
    [(asked, sent)] = server.asked
    assert (asked[":method"], asked[":path"], sent) == ("POST", "/mcp", LIST)
    assert asked["authorization"] == "Bearer t"
    assert asked[":authority"] == server.url.split("/")[2]
    assert "user-agent" not in asked
    assert [each["completeness"] for each in tap.data("list")] == ["complete"]
    assert (refused, json.loads(why)["error"]["data"]["code"]) == (502, "upstream_unreachable")


@pytest.mark.parametrize("http2", [False, True])
async def test_a_server_over_http1_is_observed_by_either_client(http2: bool) -> None:
    """The tap asks for no more than the server speaks."""
    async with raw_server(answering(a_response(TOOLS))) as url, http_tap(url, Listener(port=0, http2=http2)) as tap:
        assert (await exchange(tap.url, a_post(LIST)))[2] == TOOLS
    assert len(tap.data("list")) == 1


async def test_the_tap_serves_https(tmp_path: Path) -> None:
    """Clients verify its certificate like that of any server."""
    authority = Authority(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(authority.issue("127.0.0.1"))
    async with (
        raw_server(answering(a_response(TOOLS))) as url,
        http_tap(url, Listener(port=0, tls=tls)) as tap,
        asyncio.timeout(20),
    ):
        port = int(tap.url.split("/")[2].rpartition(":")[2])
        trusted = ssl.create_default_context(cafile=authority.file)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusted)
        writer.write(a_post(LIST))
        assert (await reader.readuntil(TOOLS)).startswith(b"HTTP/1.1 200 OK")
        writer.close()
    assert len(tap.data("list")) == 1


async def test_a_cookie_goes_out_with_no_request_of_another_client() -> None:
    """It is the client's to send again."""
    heads: list[bytes] = []

    async def serve(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(head)
        await body_of(head, reader)
        writer.write(a_response(TOOLS, "Set-Cookie: who=me"))

    async with raw_server(serve) as url:
        client = Http2Client(HTTP_LIMITS, ssl.create_default_context())
        for _ in range(2):
            answer = await client.send("POST", url, [("Host", "localhost")], LIST)
            assert [chunk async for chunk in answer.chunks()] == [TOOLS]
            await answer.release()
        kept = len(client._session.cookies.jar)
        await client.close()
    assert len(heads) == 2
    assert kept == 0


async def test_a_connection_that_does_not_close_costs_no_observations(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was noted is published all the same."""

    async def fail(_: object) -> None:
        raise TimeoutError

    monkeypatch.setattr("httpx.AsyncClient.aclose", fail)
    async with raw_server(answering(a_response(TOOLS))) as url, http_tap(url, Listener(port=0, http2=True)) as tap:
        await exchange(tap.url, a_post(LIST))
    assert len(tap.data("list")) == 1
