"""Feeds in the gateways they are for, each in an environment of its own, over real servers and real Kafka.

`make gateways` runs the long form: a thousand calls each.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPError

from assay_stream.kafka.topics import topic_table
from assay_stream.model.record import Record, Role
from assay_stream.observe.jsonrpc import BLOCKED_CODE
from deploy.local.gateways import gateway_python
from deploy.local.servers import python_server
from tests.integration.test_enforcing import ordered, wait_for_row
from tests.support.deployment import Deployment, free_port, payload
from tests.support.http_tap import http_server

pytestmark = [pytest.mark.kafka, pytest.mark.servers]

ROOT = Path(__file__).resolve().parents[2]
CALLS = int(os.environ.get("ASSAY_GATEWAY_CALLS", "30"))
TOOL = "get_current_time"
PLANTED = "planted-sk-live-4eC39HqLyjWDarjtT1zdp7dc"
"""A secret in arguments, and, as the server quotes them, in results."""


def time_server(version: str = "2026.10.19") -> list[str]:
    """The command of a released server."""
    return [*python_server("mcp-server-time", version), "--local-timezone", "UTC"]


def tapped(deployment: Deployment, command: list[str]) -> list[str]:
    """A server behind a stdio tap of its own, as the gateway starts it."""
    stated = ["--server-id", "time", "--observer-id", "behind", "--bootstrap-servers", deployment.bootstrap]
    env = [f"{name}={value}" for name, value in deployment.env.items()]
    return ["env", *env, sys.executable, "-m", "assay_stream", "tap", *stated, "--", *command]


@asynccontextmanager
async def through_fastmcp(
    deployment: Deployment, command: list[str], folder: Path, mode: str, **options: Any
) -> AsyncIterator[Client]:
    """A client of a server behind FastMCP's proxy, which has our feed. What it counted is in ``stats`` afterwards."""
    said = {
        "bootstrap_servers": deployment.bootstrap,
        "topics": deployment.topics,
        "command": command,
        "stats": str(folder / "stats"),
        **options,
    }
    async with through(
        [str(ROOT / "tests" / "support" / "fastmcp_gateway.py"), json.dumps(said)], folder, mode
    ) as client:
        yield client


@asynccontextmanager
async def through(arguments: list[str], folder: Path, mode: str) -> AsyncIterator[Client]:
    """A client of a program that FastMCP's environment runs, over standard input and output."""
    python = str(await asyncio.to_thread(gateway_python, "fastmcp"))
    with (folder / "log").open("a") as log:
        gateway = StdioServerParameters(
            command=python, args=arguments, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}
        )
        async with Client(stdio_client(gateway, errlog=log), mode=mode) as client:
            yield client


async def call_all(client: Client, name: str, count: int = CALLS) -> None:
    """Call a tool: every third call fails, and every argument holds the secret."""
    for number in range(count):
        timezone = "UTC" if number % 3 else f"{PLANTED}-{number}"
        await client.call_tool(name, {"timezone": timezone})


async def evidence_of(deployment: Deployment, observers: set[str], count: int) -> dict[str, list[dict[str, Any]]]:
    """The evidence of observers, once each has as many records."""

    def by_observer(records: list[Any]) -> dict[str, list[dict[str, Any]]]:
        found: dict[str, list[dict[str, Any]]] = {observer: [] for observer in observers}
        for data in map(payload, records):
            found[str(data["observer_id"])].append(data)
        return found

    def enough(records: list[Any]) -> bool:
        return all(len(each) >= count for each in by_observer(records).values())

    return by_observer(await deployment.wait_for(Role.EVIDENCE, enough, limit_s=120))


async def assert_no_secret(deployment: Deployment, folder: Path) -> None:
    """Neither topics nor the gateway's log have what was in arguments and results."""
    for spec in topic_table(deployment.settings):
        for record in await deployment.read(spec.role):
            said = (record.value or b"") + (record.key or b"") + repr(record.headers).encode()
            assert PLANTED.encode() not in said, spec.role
    for file in folder.iterdir():
        ours = [line for line in file.read_text(errors="replace").splitlines() if "assay" in line]
        assert not [line for line in ours if PLANTED in line], file


class TestFastMCP:
    """The middleware over ``create_proxy``."""

    @pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
    async def test_every_call_is_evidence_with_the_definition_that_the_client_was_shown(
        self, deployment: Deployment, tmp_path: Path, mode: str
    ) -> None:
        """As a tap behind the proxy saw it, but for what the proxy alters, which is a finding."""
        worker = deployment.start_worker()
        await worker.wait_ready()
        async with through_fastmcp(deployment, tapped(deployment, time_server()), tmp_path, mode) as client:
            shown = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert "fastmcp" in (shown[TOOL].meta or {}), "the proxy's own addition"
            await call_all(client, TOOL)
        seen = await evidence_of(deployment, {"gateway", "behind"}, CALLS)
        assert {observer: len(each) for observer, each in seen.items()} == {"gateway": CALLS, "behind": CALLS}
        for call in seen["gateway"]:
            assert call["binding"]["scope"] == "exact"
        definitions = {observer: {each["tool_definition_digest"] for each in seen[observer]} for observer in seen}
        whole = {observer: {each["binding"]["full_digest"] for each in seen[observer]} for observer in seen}
        assert definitions["gateway"] == definitions["behind"]
        assert len(definitions["gateway"]) == 1
        assert whole["gateway"].isdisjoint(whole["behind"])
        assert [each["ok"] for each in seen["gateway"]].count(False) == [each["ok"] for each in seen["behind"]].count(
            False
        )
        altered = await deployment.wait_for(Role.FINDINGS, lambda all_: TOOL in changed_tools(all_, "gateway"))
        assert changed_tools(altered, "gateway")[TOOL] == {"$._meta.fastmcp", "$.title"}
        await assert_no_secret(deployment, tmp_path)
        assert json.loads((tmp_path / "stats").read_text()) == {"delivered": CALLS + 1, "dropped": {}, "failures": {}}

    async def test_a_swapped_server_is_refused(self, deployment: Deployment, tmp_path: Path) -> None:
        """Policy, pins, another version behind the proxy: its changed tool is refused, and evidence says so."""
        worker = deployment.start_worker()
        await worker.wait_ready()
        reason = ("--reason", "as reviewed")
        await ordered(deployment, "policy", "set", "--server-id", "time", "--enforcement", "block", *reason)
        enforcing = {"verdicts": deployment.topics[Role.VERDICTS]}
        async with through_fastmcp(deployment, time_server("0.6.2"), tmp_path, "legacy", **enforcing) as client:
            await client.list_tools()
            await until_passed(client)
            await deployment.wait_for(
                Role.EVIDENCE, lambda records: any(b'"allow"' in (each.value or b"") for each in records)
            )
            await ordered(deployment, "pins", "approve", "--server-id", "time", "--all", *reason)
            await wait_for_row(deployment, "pins", "list", tool_name=TOOL, comparison="match")
            await until_passed(client)
        async with through_fastmcp(deployment, time_server(), tmp_path, "legacy", **enforcing) as client:
            await client.list_tools()
            async with asyncio.timeout(30):
                while (refused := await refusal_of(client)).data["reason_code"] == "verdicts_unavailable":
                    await asyncio.sleep(0.1)
        assert (refused.code, refused.data["code"], refused.data["reason_code"]) == (
            BLOCKED_CODE,
            "call_blocked",
            "definition_mismatch",
        )
        wanted = b'"definition_mismatch"'
        records = await deployment.wait_for(
            Role.EVIDENCE, lambda all_: any(wanted in (each.value or b"") for each in all_)
        )
        assert [each["decision"] for each in map(payload, records) if each["reason_code"] == "definition_mismatch"] == [
            "deny"
        ]
        await assert_no_secret(deployment, tmp_path)

    async def test_the_documented_lines_publish(self, deployment: Deployment, tmp_path: Path) -> None:
        """As they stand in docs/gateways.md, but for the broker, its topics, and the address of the server."""
        [source] = [
            block
            for block in re.findall(r"```python\n(.*?)```", (ROOT / "docs/gateways.md").read_text(), re.DOTALL)
            if "create_proxy" in block
        ]
        script = tmp_path / "gateway.py"
        script.write_text(source.replace("broker-1:9092", deployment.bootstrap))
        port = free_port()
        edited = script.read_text().replace("https://docs.example/mcp", f"http://127.0.0.1:{port}/mcp")
        topics = f"topics={{role: {deployment.name!r} + '.' + name for role, name in TOPIC_NAMES.items()}}"
        edited = edited.replace(f'"{deployment.bootstrap}"}}', f'"{deployment.bootstrap}"}}, {topics}')
        script.write_text(f"from assay_stream.model.record import TOPIC_NAMES\n{edited}")
        async with http_server(port=port), through([str(script)], tmp_path, "legacy") as client:
            await client.list_tools()
            await client.call_tool("echo", {"message": "m"})
            for role in (Role.SNAPSHOTS, Role.CALLS):
                await deployment.wait_until_written(role, 1)


def changed_tools(findings: list[Record], observer_id: str) -> dict[str, set[str]]:
    """Where the definitions differ that an observer was shown, by tool."""
    found = [json.loads(each.value or b"{}") for each in findings]
    changes = [each for each in found if each.get("kind") == "tool_changed" and each["observer_id"] == observer_id]
    return {each["tool_name"]: {path for _, path, _ in each["changes"]} for each in changes}


async def refusal_of(client: Client) -> Any:
    """The error with which a call is refused."""
    with pytest.raises(MCPError) as caught:
        await client.call_tool(TOOL, {"timezone": PLANTED})
    return caught.value.error


async def until_passed(client: Client) -> None:
    """Call until the verdicts have been read and the call passes."""
    async with asyncio.timeout(30):
        while True:
            try:
                await client.call_tool(TOOL, {"timezone": "UTC"})
            except MCPError:
                await asyncio.sleep(0.1)
            else:
                return
