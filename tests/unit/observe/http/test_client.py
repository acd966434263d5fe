"""Servers over TLS, and what one client must not get of another."""

import asyncio
import json
import ssl
from pathlib import Path

from assay_stream.limits import HTTP_LIMITS
from assay_stream.observe.http.proxy import TapListener
from assay_stream.observe.http.upstreams import Client
from tests.support.http_tap import http_tap
from tests.support.https_server import Authority
from tests.support.raw_http import Answering, a_post, a_response, exchange, raw_server

LIST = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'
TOOLS = b'{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}'


def serving_tls(authority: Authority) -> ssl.SSLContext:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(authority.issue("127.0.0.1"))
    tls.set_alpn_protocols(["h2", "http/1.1"])
    return tls


async def test_a_server_over_tls_is_observed_if_its_certificate_is_trusted(tmp_path: Path) -> None:
    """By an authority that is named, or one of the system's."""
    authority = Authority(tmp_path)
    trusted = ssl.create_default_context(cafile=authority.file)
    async with raw_server(Answering(a_response(TOOLS)), serving_tls(authority)) as url:
        async with http_tap(url, TapListener(port=0, upstream_tls=trusted)) as tap:
            status, _, body = await exchange(tap.url, a_post(LIST))
        async with http_tap(url, TapListener(port=0)) as untrusting:
            refused, _, why = await exchange(untrusting.url, a_post(LIST))
    assert (status, body) == (200, TOOLS)
    assert [each["completeness"] for each in tap.data("list")] == ["complete"]
    assert (refused, json.loads(why)["error"]["data"]["code"]) == (502, "upstream_unreachable")


async def test_the_tap_serves_https(tmp_path: Path) -> None:
    """Clients verify its certificate like that of any server."""
    authority = Authority(tmp_path)
    async with (
        raw_server(Answering(a_response(TOOLS))) as url,
        http_tap(url, TapListener(port=0, tls=serving_tls(authority))) as tap,
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
    server = Answering(a_response(TOOLS, "Set-Cookie: who=me"))
    async with raw_server(server) as url:
        client = Client(HTTP_LIMITS, ssl.create_default_context())
        for _ in range(2):
            answer = await client.send("POST", url, [("Host", "localhost")], LIST)
            assert [chunk async for chunk in answer.chunks()] == [TOOLS]
            await answer.release()
        await client.close()
    assert len(server.heads) == 2
    assert b"cookie" not in server.heads[1].lower()


async def test_a_server_cannot_have_its_client_hold_long_fields() -> None:
    """Sixteen kilobytes pass, as with other clients."""
    for size, status in ((16_000, 200), (17_000, 502)):
        async with raw_server(Answering(a_response(TOOLS, f"X-Long: {'x' * size}"))) as url, http_tap(url) as tap:
            assert (await exchange(tap.url, a_post(LIST)))[0] == status
