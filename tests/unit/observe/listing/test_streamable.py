"""Servers over HTTP that misbehave, and credentials that go nowhere else."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay_stream.limits import LISTING_LIMITS
from tests.support.listing import following, listed_once
from tests.support.raw_http import Answering, Endless, Serve, a_response, body_of, raw_server

QUICK = replace(
    LISTING_LIMITS,
    announced_gap_s=0.05,
    retry_first_s=0.1,
    answer_limit_s=2.0,
    probe_limit_s=1.0,
    message_bytes_max=100_000,
    connection_bytes_max=400_000,
)
TOOL = {"name": "echo", "description": "Echoes.", "inputSchema": {"type": "object"}}


def modern(seen: list[bytes], **more: Any) -> Serve:
    async def serve(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        message = json.loads(await body_of(head, reader))
        seen.append(head)
        result: dict[str, Any] = {"tools": [TOOL], **more}
        if message["method"] == "server/discover":
            result = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "instructions": "Be good."}
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
        writer.write(a_response(body))
        await writer.drain()

    return serve


async def test_a_stateless_server_is_asked_as_the_revision_says() -> None:
    """With its headers, and without a session."""
    seen: list[bytes] = []
    async with raw_server(modern(seen)) as url:
        listing = await listed_once({"url": url}, limits=QUICK)
    [snapshot] = listing.data()
    assert (snapshot["protocol_version"], snapshot["instructions"]) == ("2026-07-28", "Be good.")
    assert [b"Mcp-Method: tools/list" in head for head in seen] == [False, True]
    assert all(b"MCP-Protocol-Version: 2026-07-28" in head for head in seen)


@pytest.mark.parametrize(
    ("content", "header", "sent"),
    [
        ("abc\n", "Authorization", b"Authorization: Bearer abc\r\n"),
        ("Basic abc\n", "Authorization", b"Authorization: Basic abc\r\n"),
        ("abc", "X-Api-Key", b"X-Api-Key: abc\r\n"),
    ],
)
async def test_a_credential_comes_from_its_file(tmp_path: Path, content: str, header: str, sent: bytes) -> None:
    file, seen = tmp_path / "token", list[bytes]()
    file.write_text(content)
    async with raw_server(modern(seen)) as url:
        listing = await listed_once({"url": url, "token_file": str(file), "token_header": header}, limits=QUICK)
    assert listing.watched.failing is None
    assert all(sent in head for head in seen)


async def test_a_credential_that_is_replaced_counts_from_the_next_listing_on(tmp_path: Path) -> None:
    file, seen = tmp_path / "token", list[bytes]()
    file.write_text("old-one")
    async with (
        raw_server(modern(seen)) as url,
        following({"url": url, "token_file": str(file), "interval_s": 1}, limits=QUICK) as listing,
    ):
        await listing.wait_for(1)
        file.write_text("new-one")
        await listing.wait_for(3)
    assert b"Bearer old-one" in seen[0]
    assert b"Bearer new-one" in seen[-1]


@pytest.mark.parametrize("content", [b"", b"\n", b"two\nlines", "schlüssel".encode(), b"x" * 70_000, None])
async def test_a_file_that_holds_no_credential_is_a_failure_of_its_server(
    tmp_path: Path, content: bytes | None
) -> None:
    file, seen = tmp_path / "token", list[bytes]()
    if content is not None:
        file.write_bytes(content)
    async with raw_server(modern(seen)) as url:
        listing = await listed_once({"url": url, "token_file": str(file)}, limits=QUICK)
    assert (listing.watched.failing, seen) == ("credentials", [])


async def test_a_redirect_is_not_followed(tmp_path: Path) -> None:
    """Neither to another host nor to another path: the token stays where it belongs."""
    file, seen = tmp_path / "token", list[bytes]()
    file.write_text("the-token")
    async with raw_server(modern(seen)) as elsewhere:
        response = a_response(b"", f"Location: {elsewhere}", status="307 Temporary Redirect")
        async with raw_server(Answering(response)) as url:
            listing = await listed_once({"url": url, "token_file": str(file)}, limits=QUICK)
    assert (listing.watched.failing, seen) == ("redirects", [])


def page(body: bytes, **options: str) -> Serve:
    return Answering(a_response(body, **options))


@pytest.mark.parametrize(
    ("serve", "reason"),
    [
        (page(b"", status="401 Unauthorized"), "http_401"),
        (page(b"oh", status="503 Service Unavailable"), "http_503"),
        (page(b"oh", status="404 Not Found", kind="text/plain"), "http_404"),
        (page(b"<html>", kind="text/html"), "not_mcp"),
        (page(b""), "ended"),
        (page(b"x" * 150_000), "too_much"),
        (page(b'{"jsonrpc":"2.0","id":77,"result":{}}'), "ended"),
        (page(b": hello\n\n" * 9, kind="text/event-stream"), "ended"),
        (Answering(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"), "silent"),
        (Answering(b"junk\r\n\r\n"), "unreachable"),
    ],
)
async def test_an_answer_that_is_none_is_a_failure_with_its_reason(serve: Serve, reason: str) -> None:
    async with raw_server(serve) as url:
        listing = await listed_once({"url": url}, limits=QUICK)
    assert listing.watched.failing == reason
    assert listing.data() == []


async def test_a_body_without_an_end_is_cut() -> None:
    """What is read of one connection is bounded, whatever it is."""
    endless = Endless()
    async with raw_server(endless) as url:
        listing = await listed_once({"url": url}, limits=QUICK)
    assert listing.watched.failing in ("too_much", "unreadable")
    assert endless.sent_bytes < 20_000_000


async def test_a_server_says_for_how_long_its_list_holds() -> None:
    """The interval is an hour; ``ttlMs`` is shorter."""
    seen: list[bytes] = []
    quick = replace(QUICK, ttl_min_s=0.1)
    async with raw_server(modern(seen, ttlMs=200)) as url, following({"url": url}, limits=quick) as listing:
        await listing.wait_for(3)
    assert {snapshot["ttl_ms"] for snapshot in listing.data()} == {200}


async def test_a_list_of_a_bad_form_is_published_for_the_registry_to_refuse() -> None:
    """As behind a tap: a malformed list must not leave the one before in force."""
    async with raw_server(modern([], tools={"no": "list"})) as url:
        listing = await listed_once({"url": url}, limits=QUICK)
    [snapshot] = listing.data()
    assert snapshot["tools"] == {"no": "list"}


class LegacyServer:
    """A server of 2025-11-25: a session, a GET stream on which it announces a change, and a DELETE at the end."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, bool]] = []
        """Method or verb of each request, and whether it named the session."""
        self.streaming = asyncio.Event()
        self.lists = 0

    async def serve(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        body = await body_of(head, reader)
        verb = head.split()[0].decode()
        message = json.loads(body) if body else {}
        method = message.get("method", verb)
        self.requests.append((method, b"session-7" in head.lower()))
        result: dict[str, Any] | None = None
        if method == "initialize":
            tools = {"listChanged": True}
            result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": tools}, "serverInfo": {"name": "s"}}
        elif method == "tools/list":
            self.lists += 1
            result = {"tools": [{**TOOL, "title": f"edition {self.lists}"}]}
        if verb == "GET":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: hello\n\n")
            await writer.drain()
            self.streaming.set()
            await asyncio.sleep(0.2)
            writer.write(b'data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n\n')
            await writer.drain()
            await reader.read()
            writer.close()
        elif result is not None:
            answer = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
            events = b": first a comment\n\nevent: message\ndata: " + answer + b"\n\n"
            writer.write(a_response(events, "Mcp-Session-Id: session-7", kind="text/event-stream"))
        else:
            is_unknown = method == "server/discover"
            writer.write(a_response(b"", status="404 Not Found" if is_unknown else "202 Accepted"))
        await writer.drain()


async def test_a_session_of_an_earlier_revision_is_kept_for_announcements_and_ended() -> None:
    """The change on its GET stream is listed in the same session; a DELETE follows when the list is due."""
    server = LegacyServer()
    async with raw_server(server.serve) as url, following({"url": url}, limits=QUICK) as listing:
        snapshots = await listing.wait_for(2)
        assert len(listing.data("list_changed")) == 1
    assert [each["tools"][0]["title"] for each in snapshots] == ["edition 1", "edition 2"]
    assert server.requests == [
        ("server/discover", False),
        ("initialize", False),
        ("notifications/initialized", True),
        ("tools/list", True),
        ("GET", True),
        ("tools/list", True),
        ("DELETE", True),
    ]


async def test_a_server_without_a_stream_of_announcements_is_listed_at_its_interval() -> None:
    """It says that it announces changes, and answers 405 to who would hear them: that is no failure."""
    server = LegacyServer()

    async def serve(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if head.startswith(b"GET"):
            writer.write(a_response(b"", status="405 Method Not Allowed"))
        else:
            await server.serve(head, reader, writer)

    async with raw_server(serve) as url, following({"url": url}, limits=QUICK) as listing:
        await listing.wait_for(1)
        await asyncio.sleep(1)
    assert (server.lists, listing.watched.failing) == (1, None)


@pytest.mark.parametrize(("lived_s", "breaks"), [(0.3, 1), (0.0, 3)])
async def test_only_streams_that_break_early_prolong_the_pause(lived_s: float, breaks: int) -> None:
    """Three streams break, each after a while or at once."""
    server = LegacyServer()

    async def serve(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if head.startswith(b"GET"):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: hello\n\n")
            await writer.drain()
            await asyncio.sleep(lived_s)
            writer.close()
        else:
            await server.serve(head, reader, writer)

    quick = replace(QUICK, stream_steady_s=0.2)
    async with raw_server(serve) as url, following({"url": url}, limits=quick) as listing:
        await listing.wait_for(4)
        assert listing.watched.breaks == breaks
