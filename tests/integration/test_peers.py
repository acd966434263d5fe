"""Proxies that people use, before and behind the tap, and MCP's own conformance suite through it."""

import asyncio
import json
import re
import shlex
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from deploy.local.servers import node_server, python_server
from tests.support.deployment import free_port
from tests.support.gates import blocking
from tests.support.http_tap import http_server, http_tap, listening
from tests.support.mcp_session import data_of, read_events

MCP_PROXY, MCP_REMOTE, CONFORMANCE = "0.13.0", "0.15.1", "0.1.13"
TIME_SERVER = "2026.10.19"
README_URL = "https://docs.example/mcp"

pytestmark = [pytest.mark.servers, pytest.mark.tier(name="peers")]


def mcp_proxy(*arguments: str) -> list[str]:
    return [*python_server("mcp-proxy", MCP_PROXY, besides=("mcp>=1,<2",)), *arguments]


def mcp_remote(url: str) -> list[str]:
    return [*node_server("mcp-remote", MCP_REMOTE), url, "--allow-http", "--transport", "http-only"]


@asynccontextmanager
async def over_stdio(command: list[str]) -> AsyncIterator[Client]:
    parameters = StdioServerParameters(command=command[0], args=command[1:])
    async with Client(stdio_client(parameters), mode="legacy") as client:
        yield client


@pytest.mark.parametrize("hide", [False, True], ids=["observe", "hide"])
@pytest.mark.parametrize("peer", ["mcp-proxy", "mcp-remote"])
async def test_a_proxy_before_the_tap(peer: str, hide: bool) -> None:
    """It speaks Streamable HTTP to the tap as to any server; what is hidden does not reach its client."""
    rule = blocking("echo") if hide else None
    async with http_server() as url, http_tap(url, rule=rule, hide=hide) as tap:
        command = mcp_remote(tap.url) if peer == "mcp-remote" else mcp_proxy("--transport", "streamablehttp", tap.url)
        async with over_stdio(command) as client:
            shown = {tool.name for tool in (await client.list_tools()).tools}
            worked = await client.call_tool("work", {"steps": 2})
            if not hide:
                assert not (await client.call_tool("echo", {"message": "m"})).is_error
    assert not worked.is_error
    offered = {tool["name"] for tool in tap.data("list")[-1]["tools"]}
    assert offered - shown == ({"echo"} if hide else set())
    assert ("work", True) in [(call["tool_name"], call["ok"]) for call in tap.data("call")]


async def test_mcp_proxy_behind_the_tap_over_http() -> None:
    """It serves a program over Streamable HTTP."""
    port = free_port()
    server = [*python_server("mcp-server-time", TIME_SERVER), "--local-timezone", "UTC"]
    async with (
        listening(mcp_proxy("--port", str(port), "--", *server), port),
        http_tap(f"http://127.0.0.1:{port}/mcp") as tap,
        Client(tap.url, mode="legacy") as client,
    ):
        listed = await client.list_tools()
        assert not (await client.call_tool("get_current_time", {"timezone": "UTC"})).is_error
    assert [tool["name"] for tool in tap.data("list")[-1]["tools"]] == [tool.name for tool in listed.tools]
    assert [(call["tool_name"], call["ok"]) for call in tap.data("call")] == [("get_current_time", True)]


def readme_line(peer: str, url: str, output: Path) -> list[str]:
    """The command in a row of the README, but for the address, where it writes, and how the proxy is installed."""
    [row] = [line for line in Path("README.md").read_text().splitlines() if line.startswith(f"| `{peer}`")]
    command = shlex.split(re.findall("`(assay-stream [^`]*)`", row)[0])
    tap, proxy = command[1 : command.index("--")], command[command.index("--") + 1 :]
    if peer == "mcp-remote":
        assert proxy == ["npx", peer, README_URL]
        installed = mcp_remote(url)
    else:
        assert proxy[:4] == ["uvx", "--with", "mcp<2", peer]
        installed = mcp_proxy(*(url if word == README_URL else word for word in proxy[4:]))
    return [sys.executable, "-m", "assay_stream", *tap, "--output", str(output), "--", *installed]


@pytest.mark.parametrize("peer", ["mcp-proxy", "mcp-remote"])
async def test_a_proxy_behind_the_tap_over_stdio(peer: str, tmp_path: Path) -> None:
    """As the README writes it: the tap runs it as its server; it goes on to a server over HTTP."""
    output = tmp_path / "observations.ndjson"
    async with http_server() as url, over_stdio(readme_line(peer, url, output)) as client:
        listed = await client.list_tools()
        assert not (await client.call_tool("echo", {"message": "a secret"})).is_error
    events = read_events(output)
    assert [tool["name"] for tool in data_of(events, "list")[-1]["tools"]] == [tool.name for tool in listed.tools]
    assert [(call["tool_name"], call["ok"]) for call in data_of(events, "call")] == [("echo", True)]
    assert {event["data"]["server_id"] for event in events} == {"docs"}
    assert b"a secret" not in output.read_bytes()


async def verdicts(url: str, folder: Path) -> dict[str, list[tuple[str, str]]]:
    """What MCP's conformance suite says of a server: check and status, by scenario."""
    command = [*node_server("@modelcontextprotocol/conformance", CONFORMANCE), "server", "--url", url]
    process = await asyncio.create_subprocess_exec(
        *command, "--output-dir", str(folder), stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    await asyncio.wait_for(process.wait(), 120)
    found: dict[str, list[tuple[str, str]]] = {}
    for file in sorted(folder.glob("*/checks.json")):
        checks: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
        scenario = re.sub(r"-\d{4}-\d\d-\d\dT.*", "", file.parent.name)
        found[scenario] = [(check["id"], check["status"]) for check in checks]
    return found


async def test_the_conformance_suite_says_the_same_through_a_tap(tmp_path: Path) -> None:
    """Whether it observes or hides. What the server passes, it passes."""
    async with http_server("conformance") as url:
        direct = await verdicts(url, tmp_path / "direct")
        async with http_tap(url) as tap:
            observed = await verdicts(tap.url, tmp_path / "observed")
        async with http_tap(url, rule=blocking("none"), hide=True) as tap:
            hiding = await verdicts(tap.url, tmp_path / "hiding")
    passed = [name for name, checks in direct.items() if all(status == "SUCCESS" for _, status in checks)]
    assert len(passed) >= 20, direct
    assert observed == direct
    assert hiding == direct
