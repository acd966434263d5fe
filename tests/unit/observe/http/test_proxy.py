"""The proxy between hostile, broken, slow and vanishing peers: a clear status, and nothing lost."""

import asyncio
import gzip
import json
import random
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from assay_stream.limits import HTTP_LIMITS
from assay_stream.observe import Vantage
from assay_stream.observe.http.proxy import TapListener
from assay_stream.observe.http.upstreams import Upstream
from tests.support.gates import blocking
from tests.support.http_tap import THE_VANTAGE, http_tap
from tests.support.raw_http import (
    LIMIT_S,
    Answering,
    Endless,
    a_post,
    a_response,
    body_of,
    connect,
    exchange,
    raw_server,
)

CALL = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{}}}'
LIST = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'
TOOLS = b'{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"echo","inputSchema":{}}]}}'
DONE = b'{"jsonrpc":"2.0", "id":1,  "result":{"content":[]}}'
QUICK = replace(HTTP_LIMITS, answer_limit_s=0.3, body_pause_limit_s=0.3, connect_limit_s=1.0)


def problem(body: bytes) -> str:
    return str(json.loads(body)["error"]["data"]["code"])


async def test_bytes_and_headers_pass_unchanged_both_ways() -> None:
    """Spaces, order, repeated and unknown headers; those for one connection end there."""
    server = Answering(
        a_response(DONE, "Set-Cookie: a=1", "Set-Cookie: b=2", "X-Own: ü", "Connection: X-Hop", "X-Hop: 1")
    )
    request = a_post(
        CALL,
        "Authorization: Bearer t",
        "Mcp-Session-Id: s",
        "X-Two: 1",
        "X-Two: 2",
        "Connection: X-Mine",
        "X-Mine: 1",
        "Accept-Encoding: br, gzip;q=0.5",
        path="/mcp?a=%2F&b",
    )
    async with raw_server(server) as url, http_tap(url) as tap:
        status, head, body = await exchange(tap.url, request)
    assert (status, body) == (200, DONE)
    lines = head.split(b"\r\n")
    assert b"Set-Cookie: a=1" in lines
    assert b"Set-Cookie: b=2" in lines
    assert "X-Own: ü".encode() in lines
    assert b"X-Hop" not in head
    assert b"Server:" not in head
    assert server.bodies == [CALL]
    assert server.heads[0].startswith(b"POST /mcp?a=%2F&b HTTP/1.1\r\n")
    sent = server.heads[0].split(b"\r\n")
    for line in (b"Authorization: Bearer t", b"Mcp-Session-Id: s", b"X-Two: 1", b"X-Two: 2"):
        assert line in sent
    assert b"Accept-Encoding: gzip;q=0.5" in sent, "only what can be read here is offered to the server"
    assert b"X-Mine" not in server.heads[0]
    assert b"User-Agent" not in server.heads[0]


async def test_a_reason_phrase_that_cannot_be_written_costs_no_answer() -> None:
    """It means nothing (RFC 9112, section 4); the answer behind it was given."""
    async with raw_server(Answering(a_response(DONE, status="200 No\x0bsuch\x01thing"))) as url, http_tap(url) as tap:
        status, head, body = await exchange(tap.url, a_post(CALL))
    assert (status, body) == (200, DONE)
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")


async def test_a_stream_passes_event_by_event() -> None:
    """Nothing waits for the end of a stream, and comments pass as they are."""
    go = asyncio.Event()

    async def serve(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await body_of(head, reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        writer.write(b"e\r\n: keep-alive\n\n\r\n")
        await go.wait()
        event = b"data: " + TOOLS + b"\n\n"
        writer.write(f"{len(event):x}\r\n".encode() + event + b"\r\n0\r\n\r\n")

    async with raw_server(serve) as url, http_tap(url) as tap, asyncio.timeout(LIMIT_S):
        reader, writer = await connect(tap.url)
        writer.write(a_post(LIST))
        await reader.readuntil(b"\r\n\r\n")
        assert await reader.readuntil(b"\n\n\r\n") == b"e\r\n: keep-alive\n\n\r\n"
        go.set()
        assert TOOLS in await reader.readuntil(b"0\r\n\r\n")
        writer.close()
    assert [each["completeness"] for each in tap.data("list")] == ["complete"]


async def test_a_compressed_request_passes_compressed_and_is_read() -> None:
    server, packed = Answering(a_response(DONE)), gzip.compress(CALL)
    async with raw_server(server) as url, http_tap(url) as tap:
        await exchange(tap.url, a_post(packed, "Content-Encoding: gzip"))
    assert server.bodies == [packed]
    assert [call["ok"] for call in tap.data("call")] == [True]


async def test_a_compressed_list_passes_compressed_and_is_read() -> None:
    packed = gzip.compress(TOOLS)
    async with raw_server(Answering(a_response(packed, "Content-Encoding: gzip"))) as url, http_tap(url) as tap:
        _, head, body = await exchange(tap.url, a_post(LIST, "Accept-Encoding: gzip"))
    assert body == packed
    assert b"Content-Encoding: gzip" in head
    assert len(tap.data("list")) == 1


async def test_a_body_of_100_mb_passes_both_ways_and_is_reported_as_unread() -> None:
    """Too long to inspect; the call is evidence all the same."""
    body = random.Random(7).randbytes(1_000_000) * 100
    server = Answering(a_response(body))
    async with raw_server(server) as url, http_tap(url) as tap:
        assert (await exchange(tap.url, a_post(body)))[2] == body
        assert (await exchange(tap.url, a_post(CALL)))[2] == body
    assert server.bodies == [body, CALL]
    assert [call["error"] for call in tap.data("call")] == [{"code": "no_response"}]


@pytest.mark.parametrize("method", ["POST", "GET"])
async def test_a_server_that_never_answers(method: str) -> None:
    async def serve(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(LIMIT_S)

    async with raw_server(serve) as url, http_tap(url, limits=QUICK) as tap:
        request = a_post(CALL) if method == "POST" else b"GET /mcp HTTP/1.1\r\nHost: localhost\r\n\r\n"
        status, _, body = await exchange(tap.url, request)
    assert (status, problem(body)) == (504, "upstream_silent")
    assert [call["error"] for call in tap.data("call")] == [{"code": "upstream_failed"}] * (method == "POST")


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"])
async def test_a_server_that_is_none(answer: bytes) -> None:
    """Gone, or no HTTP: 502, and the call has a record."""

    async def serve(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await body_of(head, reader)
        writer.write(answer)
        writer.close()

    async with raw_server(serve) as url, http_tap(url) as tap:
        status, _, body = await exchange(tap.url, a_post(CALL))
    assert (status, problem(body)) == (502, "upstream_unreachable")
    assert [call["error"] for call in tap.data("call")] == [{"code": "upstream_failed"}]


@pytest.mark.parametrize("length", ["Content-Length: 1000", "Transfer-Encoding: chunked"])
async def test_half_a_response_is_not_made_whole(length: str) -> None:
    """The client gets what came, and sees that the rest is missing."""

    async def serve(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await body_of(head, reader)
        part = b'3\r\n{"j\r\n' if "chunked" in length else b'{"j'
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{length}\r\n\r\n".encode() + part)
        writer.close()

    async with raw_server(serve) as url, http_tap(url) as tap, asyncio.timeout(LIMIT_S):
        reader, writer = await connect(tap.url)
        writer.write(a_post(CALL))
        everything = await reader.read()
        writer.close()
    assert b'{"j' in everything
    assert not everything.endswith(b"0\r\n\r\n")
    assert [call["error"] for call in tap.data("call")] == [{"code": "upstream_failed"}]


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"])
async def test_a_redirect_takes_no_credentials_anywhere(status: str) -> None:
    """It is neither followed nor passed on."""
    elsewhere = Answering(a_response(DONE))
    async with raw_server(elsewhere) as other:
        redirect = Answering(a_response(b"", f"Location: {other}", status=status))
        async with raw_server(redirect) as url, http_tap(url) as tap:
            code, head, body = await exchange(tap.url, a_post(CALL, "Authorization: Bearer secret"))
    assert (code, problem(body)) == (502, "upstream_redirects")
    assert b"location" not in head.lower()
    assert elsewhere.heads == []
    assert [call["error"] for call in tap.data("call")] == [{"code": f"http_{status[:3]}"}]


@pytest.mark.parametrize(
    "fields",
    [
        ["Transfer-Encoding: chunked", "Content-Length: 5"],
        ["Content-Length: 5", "Content-Length: 6"],
        ["Content-Length: +5"],
        ["Transfer-Encoding: xchunked"],
        ["X: 1\r\n Content-Length: 5"],
        ["Content-Length : 5"],
    ],
)
async def test_a_smuggled_request_reaches_no_server(fields: list[str]) -> None:
    """Where the end of a request is in dispute, there is no request."""
    server = Answering(a_response(DONE))
    hidden = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-Hidden: 1\r\nContent-Length: 0\r\n\r\n"
    request = "\r\n".join(["POST /mcp HTTP/1.1", "Host: localhost", *fields, "", ""]).encode() + b"0\r\n\r\n" + hidden
    async with raw_server(server) as url, http_tap(url) as tap, asyncio.timeout(LIMIT_S):
        reader, writer = await connect(tap.url)
        writer.write(request)
        answer = await reader.readuntil(b"\r\n")
        writer.close()
    assert answer.split()[1] == b"400"
    assert server.heads == []


@pytest.mark.parametrize(
    ("host", "origin", "expected"),
    [
        ("127.0.0.1:1", None, 200),
        ("localhost", "http://localhost:3000", 200),
        ("[::1]:1", "http://127.0.0.1", 200),
        ("tap.internal", None, 200),
        ("localhost", "https://app.example", 200),
        ("evil.example", None, 421),
        ("localhost.evil.example", None, 421),
        ("", None, 421),
        ("localhost", "https://evil.example", 403),
        ("localhost", "http://localhost.evil.example", 403),
        ("localhost", "null", 403),
        ("localhost", "file://localhost", 403),
    ],
)
async def test_a_page_in_a_browser_reaches_no_server(host: str, origin: str | None, expected: int) -> None:
    """DNS rebinding: neither the name nor the page is ours."""
    listener = TapListener(port=0, hosts=frozenset({"tap.internal"}), origins=frozenset({"https://app.example"}))
    async with raw_server(Answering(a_response(DONE))) as url, http_tap(url, listener) as tap:
        fields = [] if origin is None else [f"Origin: {origin}"]
        status, _, _ = await exchange(tap.url, a_post(CALL, *fields, host=host))
    assert status == expected
    assert len(tap.data("call")) == (expected == 200)


async def test_a_client_that_vanishes_cancels_at_the_server_and_in_the_evidence() -> None:
    """From 2026-07-28 on, closing an exchange cancels it."""
    cut = asyncio.Event()

    async def serve(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await body_of(head, reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: begun\n\n")
        await reader.read()
        cut.set()

    async with raw_server(serve) as url, http_tap(url) as tap, asyncio.timeout(LIMIT_S):
        reader, writer = await connect(tap.url)
        writer.write(a_post(CALL, "MCP-Protocol-Version: 2026-07-28"))
        await reader.readuntil(b": begun\n\n")
        writer.close()
        await cut.wait()
    assert [call["error"] for call in tap.data("call")] == [{"code": "cancelled"}]


@pytest.mark.parametrize("hide", [False, True], ids=["observe", "hide"])
@pytest.mark.parametrize("step", ["prepare", "write", "write_eof"])
async def test_a_client_that_leaves_is_no_failure_of_the_tap(
    step: str, hide: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whichever step of an answer finds the connection closing: nothing is logged, and others are served."""
    passing, left = getattr(web.StreamResponse, step), asyncio.Event()

    async def in_chunks(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await body_of(head, reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        writer.write(f"{len(DONE):x}\r\n".encode() + DONE + b"\r\n")
        if step == "write":
            await asyncio.sleep(0.1)  # what comes at once is passed on at once, with its head
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    async def leaving(response: web.StreamResponse, *arguments: Any) -> Any:
        request = arguments[0] if step == "prepare" else response._req
        assert request is not None
        assert request.transport is not None
        request.transport.close()
        left.set()
        return await passing(response, *arguments)

    async with (
        raw_server(in_chunks) as url,
        http_tap(url, rule=blocking("none") if hide else None, hide=hide) as tap,
        asyncio.timeout(LIMIT_S),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(web.StreamResponse, step, leaving)
            reader, writer = await connect(tap.url)
            writer.write(a_post(CALL))
            await left.wait()
            assert not (await reader.read()).endswith(b"0\r\n\r\n") or hide
            writer.close()
        assert (await exchange(tap.url, a_post(CALL)))[2] == DONE
    assert not caplog.records
    assert len(tap.data("call")) == 2


async def test_a_slow_client_slows_the_server_down_and_fills_no_memory() -> None:
    """A server that sends without end waits for whoever reads."""
    endless = Endless()
    async with raw_server(endless) as url, http_tap(url) as tap, asyncio.timeout(LIMIT_S):
        _, writer = await connect(tap.url)
        writer.write(a_post(CALL))
        before = -1
        while endless.sent_bytes > before or not endless.sent_bytes:
            before = endless.sent_bytes
            await asyncio.sleep(0.5)
        assert endless.sent_bytes < 64 * 2**20
        writer.close()
    assert [call["error"] for call in tap.data("call")] == [{"code": "no_response"}]


async def test_a_client_that_pauses_within_its_body() -> None:
    async with raw_server(Answering(a_response(DONE))) as url, http_tap(url, limits=QUICK) as tap:
        status, _, body = await exchange(tap.url, a_post(CALL)[:-10])
    assert (status, problem(body)) == (408, "body_stalled")
    assert tap.data("call") == []


async def test_too_many_requests_are_refused_and_later_ones_served() -> None:
    """The bound holds for what is in progress only."""
    go = asyncio.Event()

    async def serve(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await body_of(head, reader)
        await go.wait()
        writer.write(a_response(DONE))

    async with raw_server(serve) as url, http_tap(url, limits=replace(HTTP_LIMITS, exchanges_max=2)) as tap:
        first = [asyncio.create_task(exchange(tap.url, a_post(CALL))) for _ in range(2)]
        await asyncio.sleep(0.2)
        status, _, body = await exchange(tap.url, a_post(CALL))
        assert (status, problem(body)) == (503, "too_many_requests")
        go.set()
        assert [status for status, _, _ in await asyncio.gather(*first)] == [200, 200]
        assert (await exchange(tap.url, a_post(CALL)))[0] == 200


async def test_a_large_request_may_ask_before_it_sends() -> None:
    """Expect: 100-continue, as curl sends it."""
    async with raw_server(Answering(a_response(DONE))) as url, http_tap(url) as tap, asyncio.timeout(LIMIT_S):
        reader, writer = await connect(tap.url)
        head, _, _ = a_post(CALL, "Expect: 100-continue").partition(b"\r\n\r\n")
        writer.write(head + b"\r\n\r\n")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(CALL)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK")
        writer.close()


async def test_several_servers_stand_behind_one_tap() -> None:
    """Each under its path, with the documents about how to authorise; anything else is nowhere."""
    server = Answering(a_response(DONE))
    async with raw_server(server) as url:
        upstreams = [
            Upstream(vantage=Vantage(server_id=name, observer_id="o"), url=url, path=f"/{name}") for name in ("a", "b")
        ]
        async with http_tap(upstreams) as tap:
            paths = ["/a", "/b", "/a/", "/c", "//a", "/a/../b", "/.well-known/oauth-protected-resource/b", "/%61"]
            reading = {
                path: f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() for path in paths if "known" in path
            }
            codes = [(await exchange(tap.url, reading.get(path) or a_post(CALL, path=path)))[0] for path in paths]
    assert codes == [200, 200, 404, 404, 404, 404, 200, 404]
    asked = [head.split(b" ")[1] for head in server.heads]
    assert asked == [b"/mcp", b"/mcp", b"/.well-known/oauth-protected-resource/mcp"]
    assert [call["server_id"] for call in tap.data("call")] == ["a", "b"]


async def test_an_observer_that_fails_breaks_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes pass, and the failure is counted."""

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("observer")

    monkeypatch.setattr("assay_stream.observe.http.traffic.Traffic.receive", fail)
    async with raw_server(Answering(a_response(DONE))) as url, http_tap(url) as tap:
        status, _, body = await exchange(tap.url, a_post(CALL))
    assert (status, body) == (200, DONE)
    assert tap.sink.observations == []


def test_an_upstream_is_the_vantage_of_its_server() -> None:
    """The path of the endpoint is that of the tap unless another is given."""
    assert Upstream(vantage=THE_VANTAGE, url="https://host/mcp").path == "/mcp"


@pytest.mark.parametrize("request_", [a_post(CALL), a_post(b""), a_post(CALL).replace(b"POST", b"GET", 1)])
async def test_documents_about_authorisation_are_only_read(request_: bytes) -> None:
    """Nothing that could be a call goes there uninspected."""
    server = Answering(a_response(DONE))
    path = b"/.well-known/oauth-protected-resource/mcp"
    async with raw_server(server) as url, http_tap(url) as tap:
        status, _, body = await exchange(tap.url, request_.replace(b"/mcp", path, 1))
        assert (status, problem(body)) == (405, "method_not_allowed")
        assert server.heads == []
        got = await exchange(tap.url, b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert got[0] == 200
