"""Requests that only some servers read as a call, sent to real servers directly and through a tap, in both eras."""

from __future__ import annotations

import asyncio
import contextlib
import json
from contextlib import AsyncExitStack

import pytest

from deploy.local.servers import node_server
from tests.support.deployment import free_port
from tests.support.gates import blocking
from tests.support.http_tap import Tap, http_server, http_tap, listening
from tests.support.misreading import MODERN, Tries, Try
from tests.support.raw_http import exchange

LEGACY = "2025-11-25"

pytestmark = pytest.mark.servers


async def answer_of(url: str, request: bytes) -> bytes:
    """What a server says; nothing if that has no end, as the stream of a GET."""
    host = url.split("/")[2].encode()
    with contextlib.suppress(TimeoutError, ConnectionError, asyncio.IncompleteReadError):
        async with asyncio.timeout(None if request.startswith(b"POST") else 1):
            _, head, body = await exchange(url, request.replace(b"Host: 127.0.0.1", b"Host: " + host))
            return head + body
    return b""


def on_record(tap: Tap) -> int:
    """Calls, and calls that are lost."""
    data = [json.loads(each.value)["data"] for each in tap.sink.observations]
    return sum("tool_name" in each or each.get("calls", 0) for each in data)


async def carried_out(url: str, tries: list[Try], era: str, *more: str) -> list[str]:
    """The tries whose call a server carried out."""
    answers = {each.name: await answer_of(url, each.request(era, *more)) for each in tries}
    return [name for name, said in answers.items() if said.startswith(b"HTTP/1.1 200") and b"was-carried-out" in said]


async def through_taps(
    url: str, tries: list[Try], found: list[str], era: str, *more: str
) -> tuple[list[str], list[str]]:
    """The calls carried out in spite of a tap that blocks them, and those that an observing tap has no record of.

    Args:
        found: the tries whose call the server carries out.
    """
    async with http_tap(url, rule=blocking("echo")) as tap:
        passed = await carried_out(tap.url, tries, era, *more)
    unseen: list[str] = []
    for each in (each for each in tries if each.name in found):
        async with http_tap(url) as tap:
            assert await carried_out(tap.url, [each], era, *more)
        unseen += [] if on_record(tap) else [each.name]
    return passed, unseen


@pytest.mark.parametrize("flags", [("stateless",), ("stateless", "json")], ids=["sse", "json"])
@pytest.mark.parametrize("era", [LEGACY, MODERN])
async def test_no_call_passes_a_tap_or_its_record_before_the_server_of_python(era: str, flags: tuple[str, ...]) -> None:
    """Some of the tries are calls to this server."""
    tries = list(Tries(era))
    async with http_server(*flags) as url:
        found = await carried_out(url, tries, era)
        assert {"as it should be", "a method twice, the last counts"} <= set(found)
        assert await through_taps(url, tries, found, era) == ([], [])


async def test_no_call_passes_a_tap_or_its_record_before_a_server_of_typescript() -> None:
    """The SDK's server, with sessions."""
    port, era = free_port(), LEGACY
    command = [*node_server("@modelcontextprotocol/server-everything", "2026.8.31"), "streamableHttp"]
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(listening(command, port, env={"PORT": str(port)}))
        url, tries = f"http://127.0.0.1:{port}/mcp", [each for each in Tries(era) if each.method != "DELETE"]
        asked = {"protocolVersion": era, "capabilities": {}, "clientInfo": {"name": "try", "version": "1"}}
        greeting = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": asked}).encode()
        head = (await answer_of(url, Try("", greeting).request(era))).decode().splitlines()
        [session] = [line for line in head if line.lower().startswith("mcp-session-id:")]
        found = await carried_out(url, tries, era, session)
        assert "as it should be" in found
        assert await through_taps(url, tries, found, era, session) == ([], [])
