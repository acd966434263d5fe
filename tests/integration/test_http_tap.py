"""Real MCP servers behind the HTTP tap, driven by a real MCP client, in both eras of the protocol."""

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from tests.support.deployment import free_port
from tests.support.http_mcp_server import INSTRUCTIONS
from tests.support.http_tap import Tap, http_server, http_tap, listening
from tests.support.toml import toml_of

ERAS = {"legacy": "2025-11-25", "2026-07-28": "2026-07-28", "auto": "2026-07-28"}
INSTRUCTED = ("legacy", "auto")
"""The modes in which the client asks what the server is."""

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

pytestmark = pytest.mark.servers


def a_client(tap: Tap, mode: str, **headers: str) -> Client:
    http_client = httpx2.AsyncClient(headers=headers, timeout=30)
    return Client(streamable_http_client(tap.url, http_client=http_client), mode=mode)


@pytest.mark.parametrize("flags", [(), ("json",), ("stateless",)], ids=["sse", "json", "stateless"])
@pytest.mark.parametrize("mode", ERAS)
async def test_a_server_is_observed_while_a_client_lists_and_calls(mode: str, flags: tuple[str, ...]) -> None:
    """One snapshot, one record a call with its outcome, the client none the wiser."""
    async with http_server(*flags) as url, http_tap(url) as tap, a_client(tap, mode) as client:
        listed = await client.list_tools()
        meta: Any = {"traceparent": TRACE}
        good = await client.call_tool("echo", {"message": "a secret"}, meta=meta)
        bad = await client.call_tool("echo", {"massage": "a secret"})
        worked = await client.call_tool("work", {"steps": 3})
    assert [bool(each.is_error) for each in (good, bad, worked)] == [False, True, False]
    snapshot = tap.data("list")[-1]
    calls = tap.data("call")
    assert [tool["name"] for tool in snapshot["tools"]] == [tool.name for tool in listed.tools]
    assert snapshot["completeness"] == "complete"
    assert snapshot["protocol_version"] == ERAS[mode]
    assert snapshot.get("instructions") == (INSTRUCTIONS if mode in INSTRUCTED else None)
    assert [(call["tool_name"], call["ok"]) for call in calls] == [("echo", True), ("echo", False), ("work", True)]
    assert calls[0]["trace_id"] == TRACE[3:35]
    assert {call["snapshot_id"] for call in calls} == {snapshot["snapshot_id"]}
    assert len({call["tool_call_id"] for call in calls}) == 3
    assert calls[0]["args_hash"] != calls[1]["args_hash"]
    assert not any(b"a secret" in each.value for each in tap.sink.observations)


async def test_the_command_serves_the_servers_of_a_file(tmp_path: Path) -> None:
    """Each under its path, with its own name in the records."""
    output, file, port = tmp_path / "observations.ndjson", tmp_path / "taps.toml", free_port()
    async with http_server() as one, http_server("json") as two:
        entries = [{"server_id": name, "url": url, "path": f"/{name}"} for name, url in (("a", one), ("b", two))]
        file.write_text(toml_of({"upstreams": entries}))
        arguments = ["tap", "--listen", f"127.0.0.1:{port}", "--upstreams", str(file), "--output", str(output)]
        async with listening([sys.executable, "-m", "assay_stream", *arguments], port) as process:
            for name in ("a", "b"):
                async with Client(f"http://127.0.0.1:{port}/{name}", mode="auto") as client:
                    await client.list_tools()
            process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(process.wait(), 20) == 0
    assert [json.loads(line)["data"]["server_id"] for line in output.read_bytes().splitlines()] == ["a", "b"]


async def test_no_token_argument_or_result_is_published_or_logged(tmp_path: Path) -> None:
    """Planted secrets are looked for in everything that the tap writes, also when it is refused and misled."""
    output, log, port = tmp_path / "observations.ndjson", tmp_path / "log", free_port()
    secrets = [f"planted-{kind}-{port}" for kind in ("token", "argument", "name", "session", "host", "query")]
    token, argument, name, session, host, query = secrets
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "echo", "arguments": {"a": argument}}}
    arguments = ["tap", "--listen", f"127.0.0.1:{port}", "--server-id", "docs", "--output", str(output)]
    async with http_server("token") as url:
        command = [sys.executable, "-m", "assay_stream", *arguments, "--upstream", url]
        with log.open("wb") as stream:
            async with listening(command, port, log=stream) as process, httpx2.AsyncClient() as client:
                for path in ("mcp", f"{name}/mcp", f"mcp?key={query}"):
                    for fields in ({}, {"host": host}, {"mcp-session-id": session}, {"origin": f"http://{host}"}):
                        headers = {"authorization": f"Bearer {token}", **fields}
                        await client.post(f"http://127.0.0.1:{port}/{path}", json=call, headers=headers)
                await broken_request(port, f"authorization: Bearer {token}\r\nbroken {token}")
                process.send_signal(signal.SIGTERM)
                await asyncio.wait_for(process.wait(), 20)
    written = output.read_bytes() + log.read_bytes()
    assert b"mcp.tools.call.observed" in written
    assert [secret for secret in secrets if secret.encode() in written] == []


async def broken_request(port: int, fields: str) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"POST /mcp HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n\r\n".encode())
    await reader.read(1)
    writer.close()
