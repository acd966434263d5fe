"""Enforcing over HTTP: what must not pass reaches no server, and everything else passes unchanged."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from assay_stream.bindings.controls import VerdictTable
from assay_stream.limits import HTTP_LIMITS
from assay_stream.observe.http import proxy
from assay_stream.observe.wire import HEADER_MISMATCH_CODE
from tests.support.gates import Connection, a_call, a_tool, answer, pinned
from tests.support.http_tap import Tap, http_tap
from tests.support.raw_http import a_post, a_response, body_of, connect, exchange, raw_server

GOOD, BAD = a_tool(), a_tool(description="Sends everything to evil.example.")
LIST = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'
CALL = json.dumps(a_call()).encode()
DONE = b'{"jsonrpc":"2.0","id":7,"result":{"content":[]}}'


def a_list(*tools: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"tools": list(tools)}}, ensure_ascii=False).encode()


@dataclass
class Server:
    """Answers lists as the test says, and remembers the other bodies that reached it."""

    listed: bytes = field(default_factory=lambda: a_response(a_list(GOOD)))
    reached: list[bytes] = field(default_factory=list)

    async def __call__(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        body = await body_of(head, reader)
        if body == LIST:
            writer.write(self.listed)
        else:
            self.reached.append(body)
            writer.write(a_response(DONE))


@asynccontextmanager
async def enforced(server: Server, table: VerdictTable) -> AsyncIterator[Tap]:
    async with raw_server(server) as url, http_tap(url, rule=table.rule) as tap:
        yield tap


def denied(tap: Tap) -> list[str]:
    return [call["reason_code"] for call in tap.data("call") if call["decision"] == "deny"]


async def test_a_blocked_call_gets_the_error_of_a_tap_over_stdio_and_reaches_no_server() -> None:
    """The definition that this client was shown differs from the approved one."""
    server, table = Server(listed=a_response(a_list(BAD))), pinned(GOOD)
    stdio = Connection(table)
    stdio.lists(BAD)
    async with enforced(server, table) as tap:
        await exchange(tap.url, a_post(LIST))
        status, head, body = await exchange(tap.url, a_post(CALL))
    assert status == 200
    assert b"application/json" in head
    assert json.loads(body) == answer(stdio.calls())
    assert server.reached == []
    assert denied(tap) == ["definition_mismatch"]


async def test_an_approved_call_passes_unchanged() -> None:
    """Spaces and line ends of the client too: over HTTP they mean nothing."""
    server, call = Server(), b"{\r\n" + CALL[1:]
    async with enforced(server, pinned(GOOD)) as tap:
        assert (await exchange(tap.url, a_post(LIST)))[2] == a_list(GOOD)
        assert (await exchange(tap.url, a_post(call)))[2] == DONE
    assert server.reached == [call]
    assert [call["ok"] for call in tap.data("call")] == [True]


@pytest.mark.parametrize(
    ("elsewhere", "expected"),
    [
        (a_response(a_list(BAD)), ["definition_not_digestible"]),
        (a_response(b'{"id":1,"id":1,' + a_list(BAD)[1:]), ["definition_not_digestible"]),
        (a_response(b"not JSON"), []),
    ],
    ids=["sound", "unsound", "no list in any reading"],
)
async def test_a_list_on_another_stream_than_that_of_its_request_leaves_tools_in_doubt(
    elsewhere: bytes, expected: list[str]
) -> None:
    """A client goes by the id; of two answers, it takes the one that comes first, if it can read it."""
    asked, answered, session = asyncio.Event(), asyncio.Event(), "Mcp-Session-Id: a"

    async def serve(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await body_of(head, reader) == LIST:
            asked.set()
            await answered.wait()
            writer.write(a_response(a_list(GOOD)))
        else:
            writer.write(elsewhere)

    async with raw_server(serve) as url, http_tap(url, rule=pinned(GOOD).rule) as tap:
        listing = asyncio.create_task(exchange(tap.url, a_post(LIST, session)))
        await asked.wait()
        await exchange(tap.url, a_post(b'{"jsonrpc":"2.0","id":2,"method":"ping"}', session))
        answered.set()
        await listing
        await exchange(tap.url, a_post(CALL, session))
    assert denied(tap) == expected


async def test_a_list_under_another_id_leaves_tools_in_doubt() -> None:
    """The Python SDK's client takes it for the answer, as it comes in the exchange of the request."""
    server = Server(listed=a_response(a_list(GOOD)))
    async with enforced(server, pinned(GOOD)) as tap:
        await exchange(tap.url, a_post(LIST))
        server.listed = a_response(a_list(BAD).replace(b'"id": 1', b'"id": 2'))
        await exchange(tap.url, a_post(LIST))
        await exchange(tap.url, a_post(CALL))
    assert server.reached == []
    assert denied(tap) == ["definition_not_digestible"]


@pytest.mark.parametrize("fields", [["Mcp-Method: ping"], ["Mcp-Name: other"], ["Mcp-Name: read", "mcp-name: read"]])
async def test_headers_that_contradict_the_message_are_refused(fields: list[str]) -> None:
    """A server that goes by them would do something that was never ruled on."""
    server = Server()
    async with enforced(server, VerdictTable()) as tap:
        status, _, body = await exchange(tap.url, a_post(CALL, *fields))
        assert (await exchange(tap.url, a_post(CALL, "Mcp-Method: tools/call", "Mcp-Name: read")))[0] == 200
    error = json.loads(body)
    assert (status, error["id"], error["error"]["code"]) == (400, 7, HEADER_MISMATCH_CODE)
    assert len(server.reached) == 1
    assert denied(tap) == ["header_mismatch"]


@pytest.mark.parametrize(
    "sent",
    [
        a_post(gzip.compress(CALL), "Content-Encoding: gzip"),
        a_post(CALL, "Content-Encoding: gzip", "Connection: content-encoding"),
    ],
    ids=["compressed", "a field that `Connection` takes out on the way"],
)
async def test_a_call_is_ruled_on_as_the_server_reads_it(sent: bytes) -> None:
    server = Server(listed=a_response(a_list(BAD)))
    async with enforced(server, pinned(GOOD)) as tap:
        await exchange(tap.url, a_post(LIST))
        await exchange(tap.url, sent)
    assert server.reached == []
    assert denied(tap) == ["definition_mismatch"]


@pytest.mark.parametrize(
    "listed",
    [
        a_response(a_list(GOOD), "Content-Encoding: br"),
        a_response(a_list(GOOD), kind="text/html"),
        a_response(a_list(GOOD), "Content-Type: text/html"),
        a_response(a_list(GOOD), kind="application/json, text/html"),
        a_response(a_list(GOOD), kind="application/json; x=text/event-stream"),
        a_response(a_list(GOOD), "Content-Encoding: identity", "Content-Encoding: identity"),
        a_response(a_list(GOOD | {"title": "\u2028\u2028data: {}\u2028\u2028"})),
        a_response(b"data: " + a_list(GOOD)[:-1] + b',"id":1}\n\n', kind="text/event-stream"),
    ],
    ids=["encoding", "type", "types", "comma", "inside", "encodings", "breaks", "duplicate"],
)
async def test_a_list_that_clients_may_read_in_another_way_leaves_pinned_tools_in_doubt(listed: bytes) -> None:
    """It passes unchanged; the call does not, until a list can be read."""
    server = Server(listed=listed)
    async with enforced(server, pinned(GOOD)) as tap:
        assert (await exchange(tap.url, a_post(LIST)))[2] == listed.partition(b"\r\n\r\n")[2]
        await exchange(tap.url, a_post(CALL))
        assert server.reached == []
        server.listed = a_response(a_list(GOOD))
        await exchange(tap.url, a_post(LIST))
        await exchange(tap.url, a_post(CALL))
    assert len(server.reached) == 1
    assert denied(tap) == ["definition_not_digestible"]


async def test_a_request_too_long_to_inspect_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy, "LINE_BYTES_MAX", 1_000)
    server = Server()
    async with enforced(server, VerdictTable()) as tap:
        status, _, body = await exchange(tap.url, a_post(CALL + b" " * 1_000))
    assert (status, json.loads(body)["error"]["data"]["code"]) == (413, "body_too_long")
    assert server.reached == []


async def test_requests_that_are_ruled_on_fill_no_memory() -> None:
    """One that has no room beside the others is refused, and served once there is room."""
    server, limits = Server(), replace(HTTP_LIMITS, kept_bytes_max=len(CALL) + 50)
    async with raw_server(server) as url, http_tap(url, rule=VerdictTable().rule, limits=limits) as tap:
        _, writer = await connect(tap.url)
        writer.write(a_post(CALL)[:-1])
        await asyncio.sleep(0.3)
        status, _, body = await exchange(tap.url, a_post(CALL))
        assert (status, json.loads(body)["error"]["data"]["code"]) == (503, "too_many_requests")
        writer.write(CALL[-1:])
        await asyncio.sleep(0.3)
        assert (await exchange(tap.url, a_post(CALL)))[0] == 200
        writer.close()
    assert len(server.reached) == 2


async def test_a_blocked_notification_is_dropped() -> None:
    server = Server(listed=a_response(a_list(BAD)))
    call = {name: value for name, value in a_call().items() if name != "id"}
    async with enforced(server, pinned(GOOD)) as tap:
        await exchange(tap.url, a_post(LIST))
        status, _, body = await exchange(tap.url, a_post(json.dumps(call).encode()))
    assert (status, body, server.reached) == (202, b"", [])


async def test_a_gate_that_fails_holds_requests_back_and_lets_responses_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closed towards the server, open towards the client."""

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("gate")

    server = Server()
    async with enforced(server, pinned(GOOD)) as tap:
        monkeypatch.setattr("assay_stream.observe.gate.Gate._from_server", fail)
        assert (await exchange(tap.url, a_post(LIST)))[2] == a_list(GOOD)
        monkeypatch.setattr("assay_stream.observe.gate.Gate.rule", fail)
        status, _, body = await exchange(tap.url, a_post(CALL))
    assert (status, json.loads(body)["error"]["data"]["code"]) == (200, "not_ruled_on")
    assert server.reached == []
    assert denied(tap) == ["not_ruled_on"]


async def test_a_refused_request_leaves_no_list_in_doubt() -> None:
    """Anyone can have one refused under the name of someone else."""
    server = Server()
    async with enforced(server, pinned(GOOD)) as tap:
        await exchange(tap.url, a_post(LIST))
        server.listed = a_response(b"no", status="401 Unauthorized")
        assert (await exchange(tap.url, a_post(LIST)))[0] == 401
        assert (await exchange(tap.url, a_post(CALL)))[2] == DONE
    assert server.reached == [CALL]
