"""Requests that a server reads in another way than the tap: refused where it enforces, on record where it observes."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from assay_stream.bindings.controls import VerdictTable
from assay_stream.observe.wire import HEADER_MISMATCH_CODE, INVALID_REQUEST_CODE
from tests.support import misreading
from tests.support.gates import a_call, a_tool
from tests.support.http_tap import http_tap
from tests.support.misread_outcomes import shown
from tests.support.misreading import Tries
from tests.support.raw_http import Answering, a_post, a_response, exchange, raw_server
from tests.unit.observe.http.test_traffic import MODERN, Wire, ask, call, result

TOOL = a_tool()
CALL = json.dumps(a_call()).encode()
PING = b'{"jsonrpc":"2.0","id":7,"method":"ping"}'
JSON = "Content-Type: application/json"


POLYGLOT = Tries("2025-11-25").polyglot()
"""A ping to a reader of UTF-8; to one of UTF-7, to which the last member counts, a call."""


def posted(body: bytes, *fields: str) -> bytes:
    return a_post(body, *fields).replace(b"\r\n" + JSON.encode() + b"\r\n", b"\r\n", 1)


async def sent(request: bytes) -> tuple[int, dict[str, Any], int]:
    """What a client of an enforcing tap gets, and how many requests reached the server."""
    server = Answering(a_response(b'{"jsonrpc":"2.0","id":7,"result":{}}'))
    async with raw_server(server) as url, http_tap(url, rule=VerdictTable().rule) as tap:
        status, _, body = await exchange(tap.url, request)
    said = json.loads(body or b"{}")
    return status, said[0] if isinstance(said, list) else said, len(server.bodies)


def test_every_try_is_in_the_docs() -> None:
    """With its outcome, which tests/integration/test_misread_requests.py holds against real servers."""
    documented = (Path(__file__).parents[4] / "docs" / "security.md").read_text(encoding="utf-8")
    tries = [each.name for each in Tries(misreading.MODERN)]
    assert [name for name in tries if shown(name) not in documented] == []
    assert f"[{len(tries)} tries](" in documented


def test_the_body_of_the_attack_is_a_call_in_utf_7() -> None:
    assert json.loads(POLYGLOT)["method"] == "ping"
    assert json.loads(POLYGLOT.decode("utf-7"))["method"] == "tools/call"


@pytest.mark.parametrize(
    "fields",
    [
        [f"{JSON}; charset=utf-7"],
        [f"{JSON};CHARSET = 'UTF-7'"],
        [f"{JSON}; charset=utf-8; charset=utf-7"],
        [f'{JSON}; x="; charset=utf-7; y="'],
        [f"{JSON}; charset*=us-ascii''utf-7"],
        [f'{JSON}; charset="utf\\-7"'],
        [f"{JSON}; charset=iso-8859-1"],
        [f"{JSON}; charset=utf-16"],
        [f"{JSON}, application/json; charset=utf-7"],
        [JSON, "Content_Type: application/json; charset=utf-7"],
        ["Content_Type: application/json; charset=utf-7"],
        ["Content-Type: text/plain"],
        ["Content-Type: text/plain; x=json"],
        ["Content-Type: application/x-www-form-urlencoded"],
        ["Content-Type: multipart/form-data; boundary=x"],
        ["Content-Type: application/octet-stream"],
        ["Content-Type: text/event-stream"],
        [JSON, "Content-Encoding: br"],
        [JSON, "Content-Encoding: gzip"],
        [JSON, "Content-Encoding: identity", "Content-Encoding: identity"],
        [JSON, "Content_Encoding: br"],
    ],
    ids=lambda fields: " | ".join(fields),
)
async def test_a_body_that_its_headers_make_unclear_reaches_no_server(fields: list[str]) -> None:
    """The TypeScript SDK's server decodes any ``utf-*``; others heed any other field."""
    status, said, reached = await sent(posted(POLYGLOT, *fields))
    assert (status, reached) == (400, 0)
    is_stated_twice = len(fields) > 1 and fields[0] == JSON and "gzip" not in fields[1] and ": br" not in fields[1]
    expected = "header_mismatch" if is_stated_twice or "_" in "".join(fields) else "body_unclear"
    assert said["error"]["data"]["code"] == expected


@pytest.mark.parametrize(
    "kind",
    ["application/json", "Application/JSON ; Charset=UTF-8", 'application/json;charset="utf-8"', "application/json;"],
)
async def test_a_body_of_one_meaning_passes(kind: str) -> None:
    """However its type is written; or without one."""
    assert (await sent(posted(CALL, f"Content-Type: {kind}")))[2] == 1
    assert (await sent(posted(CALL)))[2] == 1
    assert (await sent(posted(gzip.compress(CALL, mtime=0), JSON, "Content-Encoding: gzip")))[2] == 1


@pytest.mark.parametrize(
    "body",
    [
        CALL.decode().encode("utf-16"),
        CALL.decode().encode("utf-16-le"),
        CALL.decode().encode("utf-32-be"),
        b"\xef\xbb\xbf" + CALL,
        CALL.replace(b'"read"', b'"\xe9"'),
        CALL + CALL,
        CALL + b"\0",
        PING + b"\n" + CALL,
        b"[" + PING + b",[" + CALL + b"]]",
        PING.replace(b'"ping"', b'["tools/call"]'),
        PING.replace(b'"ping"', b'{"toString":"tools/call"}'),
        PING[:-1] + b',"method":"tools/call","params":{"name":"read"}}',
        b"\0" + CALL,
        b"event: message\ndata: " + CALL + b"\n\n",
        b"data=" + CALL,
    ],
)  # fmt: skip
async def test_a_body_of_several_meanings_reaches_no_server(body: bytes) -> None:
    """Encodings, trailing bytes, batches in batches, members twice, and methods that are no text."""
    status, said, reached = await sent(a_post(body))
    assert (status, said["error"]["code"], reached) == (400, INVALID_REQUEST_CODE, 0)


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        (b'{"jsonrpc":"2.0","id":7,"result":{}}', ["Mcp-Method: tools/call", "Mcp-Name: read"]),
        (PING, ["Mcp_Method: tools/call"]),
        (CALL, ["Mcp-Name: read", "Mcp_Name: other"]),
        (PING, ["Mcp-Method: ping", "Mcp-Method: tools/call"]),
        (CALL.replace(b'"read"', '"é"'.encode()), ["Mcp-Name: é"]),
        (b"[" + PING + b"," + CALL + b"]", ["Mcp-Method: ping"]),
        (PING, ["Mcp-Session-Id: a", "Mcp-Session-Id: b"]),
        (PING, ["Mcp-Protocol-Version: 2025-06-18", "MCP-Protocol-Version: 2026-07-28"]),
        (PING, ["Authorization: Bearer a", "Authorization: Bearer b"]),
    ],
)  # fmt: skip
async def test_headers_that_say_another_call_reach_no_server(body: bytes, fields: list[str]) -> None:
    """Alone, twice, under a name that some servers take for it, or in bytes that programs decode differently."""
    status, said, reached = await sent(a_post(body, *fields))
    assert (status, reached) == (400, 0)
    assert b"method" not in body or said["error"]["code"] == HEADER_MISMATCH_CODE


def lost(wire: Wire) -> int:
    return sum(each["calls"] for each in wire.observed if "calls" in each)


def called(wire: Wire) -> list[str]:
    return [each["tool_name"] for each in wire.observed if "tool_name" in each]


@pytest.mark.parametrize(
    "kind",
    [
        "text/plain",
        "text/plain; x=json",
        "application/octet-stream",
        "application/x-www-form-urlencoded",
        "x",
        "",
        "text/event-stream",
        "multipart/form-data; boundary=x",
        "application/json; charset=koi8-r",
    ],
)
@pytest.mark.parametrize("encoding", ["", "gzip", "br"])
@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
def test_a_call_is_on_record_whatever_its_label(kind: str, encoding: str, method: str) -> None:
    """Servers that do not check the label carry it out, and so in a request that has no body as a rule."""
    wire = Wire()
    exchange_ = wire.posts(call(), method=method, **MODERN, Content_Type=kind, Content_Encoding=encoding)
    wire.answers(exchange_, result())
    wire.ends(exchange_)
    assert called(wire) == ["echo"]


def a_text(message: Any) -> str:
    return json.dumps(message)


@pytest.mark.parametrize(
    ("body", "fields", "found"),
    [
        (a_text(call()).encode("utf-16"), {}, []),
        (a_text(call()).encode("utf-32-be"), {}, []),
        (POLYGLOT, {"Content-Type": "application/json; charset=utf-7"}, []),
        (b"not gzip", {"Content-Encoding": "gzip"}, []),
        (gzip.compress(a_text(call()).encode(), mtime=0)[:-4], {"Content-Encoding": "gzip"}, []),
        (b"\x0b\x02\x80", {"Content-Encoding": "br"}, []),
        (b" " * 9_000 + a_text([call()] * 20).encode(), {}, []),
        (b"jsonrpc=2.0&method=tools%2Fcall", {"Content-Type": "application/x-www-form-urlencoded"}, []),
        (a_text(call() | {"Method": "ping"}).encode(), {}, ["echo"]),
        (a_text(call())[:-1].encode() + b',"method":"ping"}', {}, []),
        (a_text([[call()]]).encode(), {}, []),
        (a_text(ask("ping")).encode() + a_text(call()).encode(), {}, []),
    ],
)  # fmt: skip
def test_a_request_that_cannot_be_read_for_certain_is_on_record_as_lost(
    body: bytes, fields: dict[str, str], found: list[str]
) -> None:
    """Once, as the call that it may have been."""
    wire = Wire()
    exchange_ = wire.posts(body, **(MODERN | fields))
    wire.answers(exchange_, result())
    wire.ends(exchange_)
    assert (called(wire), lost(wire)) == (found, 1)


def test_a_request_that_the_server_refused_is_no_loss() -> None:
    wire = Wire()
    exchange_ = wire.posts(b"\xff\xfe{", **MODERN)
    wire.answers(exchange_, status=415)
    wire.ends(exchange_)
    assert wire.observed == []


@pytest.mark.parametrize("ending", ["client_left", "upstream_failed"])
def test_a_request_that_may_have_reached_the_server_is_a_loss(ending: Any) -> None:
    wire = Wire()
    wire.ends(wire.posts(b"\xff\xfe{", **MODERN), ending)
    assert lost(wire) == 1


@pytest.mark.parametrize("body", [b"", b" \r\n", b"[]", a_text(call("\ud83d")).encode()])
def test_what_holds_no_hidden_call_is_no_loss(body: bytes) -> None:
    """Nothing at all, no message at all, or half of an emoji in a call that every program reads alike."""
    wire = Wire()
    wire.ends(wire.posts(body, **MODERN))
    assert lost(wire) == 0


@pytest.mark.parametrize("kind", ["text/plain", "text/html", "application/octet-stream"])
def test_an_answer_is_read_whatever_its_label(kind: str) -> None:
    """A list that only its label keeps from being one is a list."""
    wire = Wire()
    listing, calling = wire.posts(ask("tools/list"), **MODERN), wire.posts(call(2), **MODERN)
    for each, said in ((listing, result(tools=[TOOL])), (calling, result(2))):
        wire.answers(each, Content_Type=kind)
        wire.passes(each, json.dumps(said).encode())
        wire.ends(each)
    snapshot, called_ = wire.observed
    assert (snapshot["tools"], called_["ok"]) == ([TOOL], True)
