"""Feeds in the gateways they are for, each in an environment of its own, over real servers and real Kafka.

`make gateways` runs the long form: a thousand calls each, and a minute without Kafka in the middle of FastMCP's.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from assay_stream.kafka.topics import topic_table
from assay_stream.model.record import Record, Role
from assay_stream.observe.wire import BLOCKED_CODE
from deploy.local.gateways import built, gateway_python
from deploy.local.kafka import QUICK_START, Broker
from deploy.local.servers import python_server
from tests.support.deployment import Deployment, free_port, payload
from tests.support.enforcing import wait_for_row
from tests.support.http_tap import http_server, listening

pytestmark = [pytest.mark.kafka, pytest.mark.servers, pytest.mark.tier(name="peers")]

ROOT = Path(__file__).resolve().parents[2]
CALLS = int(os.environ.get("ASSAY_GATEWAY_CALLS", "30"))
LONG = 1_000
"""Calls of the long form."""

OUTAGE_S = 60.0
TOOL = "get_current_time"
PLANTED = "planted-sk-live-4eC39HqLyjWDarjtT1zdp7dc"
"""A secret in arguments, and, as the server quotes them, in results."""


def time_server(version: str = "2026.10.19") -> list[str]:
    return [*python_server("mcp-server-time", version), "--local-timezone", "UTC"]


def tapped(deployment: Deployment, command: list[str]) -> list[str]:
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
    for number in range(count):
        timezone = "UTC" if number % 3 else f"{PLANTED}-{number}"
        await client.call_tool(name, {"timezone": timezone})


async def evidence_of(deployment: Deployment, observers: set[str], count: int) -> dict[str, list[dict[str, Any]]]:
    def by_observer(records: list[Any]) -> dict[str, list[dict[str, Any]]]:
        found: dict[str, list[dict[str, Any]]] = {observer: [] for observer in observers}
        for data in map(payload, records):
            found[str(data["observer_id"])].append(data)
        return found

    def enough(records: list[Any]) -> bool:
        return all(len(each) >= count for each in by_observer(records).values())

    return by_observer(await deployment.wait_for(Role.EVIDENCE, enough, limit_s=120))


async def assert_no_secret(deployment: Deployment, folder: Path, *others: str) -> None:
    """Neither topics nor our lines in the gateway's log have what was in arguments and results, or other secrets."""
    secrets = (PLANTED, *others)
    for spec in topic_table(deployment.settings):
        for record in await deployment.read(spec.role):
            said = (record.value or b"") + (record.key or b"") + repr(record.headers).encode()
            assert not [each for each in secrets if each.encode() in said], spec.role
    for file in (folder / "log", folder / "stats"):
        if not file.exists():
            continue
        ours = [line for line in file.read_text(errors="replace").splitlines() if "assay_stream" in line]
        assert not [line for line in ours for each in secrets if each in line], file


class TestFastMCP:
    @pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
    async def test_every_call_is_evidence_with_the_definition_that_the_client_was_shown(
        self, deployment: Deployment, tmp_path: Path, mode: str
    ) -> None:
        """As a tap behind the proxy saw it, but for what the proxy alters, which is a finding."""
        await deployment.ready_worker()
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
        observers = ("gateway", "behind")
        listed: dict[str, str] = {}
        for snapshot in (json.loads(each.value or b"") for each in await deployment.read(Role.SNAPSHOTS)):
            listed.setdefault(snapshot["data"]["observer_id"], snapshot["time"])
        first, second = listed.values()
        if first <= second:
            # The finding is about the observer whose list reached the log last.
            altered = await deployment.wait_for(Role.FINDINGS, lambda all_: TOOL in changed_tools(all_, *observers))
            assert changed_tools(altered, *observers)[TOOL] == {"$._meta.fastmcp", "$.title"}
        else:
            # The older list came late, and there is none before it that it could differ from.
            findings = await deployment.wait_for(Role.FINDINGS, lambda all_: "observer_added" in kinds_of(all_))
            assert "tool_changed" not in kinds_of(findings)
        await assert_no_secret(deployment, tmp_path)
        assert json.loads((tmp_path / "stats").read_text()) == {"delivered": CALLS + 1, "dropped": {}, "failures": {}}

    async def test_a_swapped_server_is_refused(self, deployment: Deployment, tmp_path: Path) -> None:
        """Policy, pins, another version behind the proxy: its changed tool is refused, and evidence says so."""
        await deployment.ready_worker()
        reason = ("--reason", "as reviewed")
        await deployment.output_of("policy", "set", "--server-id", "time", "--enforcement", "block", "--new", *reason)
        enforcing = {"verdicts": deployment.topics[Role.VERDICTS]}
        async with through_fastmcp(deployment, time_server("0.6.2"), tmp_path, "legacy", **enforcing) as client:
            await client.list_tools()
            await until_passed(client)
            await deployment.wait_for(
                Role.EVIDENCE, lambda records: any(b'"allow"' in (each.value or b"") for each in records)
            )
            await deployment.output_of("pins", "approve", "--server-id", "time", "--all", *reason)
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

    @pytest.mark.skipif(CALLS < LONG, reason="the long form: make gateways")
    @pytest.mark.parametrize("mode", ["legacy"])
    async def test_a_minute_without_kafka_blocks_nothing_and_loses_nothing_uncounted(
        self, tmp_path: Path, mode: str
    ) -> None:
        """The broker dies among the calls, and comes back: every call was answered at once, and is on record."""
        with Broker(options=QUICK_START) as broker:
            deployment = Deployment(broker.bootstrap, name="outage")
            await deployment.apply_topics()
            slowest_s = 0.0
            async with through_fastmcp(deployment, time_server(), tmp_path, mode) as client:
                await client.list_tools()
                for number in range(CALLS):
                    if number == CALLS // 3:
                        broker.kill()
                        away_since = time.monotonic()
                    if number == 2 * CALLS // 3:
                        await asyncio.sleep(max(0.0, away_since + OUTAGE_S - time.monotonic()))
                        await asyncio.to_thread(broker.start)
                    started = time.monotonic()
                    await client.call_tool(TOOL, {"timezone": PLANTED})
                    slowest_s = max(slowest_s, time.monotonic() - started)
                await deployment.wait_until_written(Role.CALLS, CALLS, limit_s=120)
            counted = json.loads((tmp_path / "stats").read_text())
            assert counted == {"delivered": CALLS + 1, "dropped": {}, "failures": {}}
            calls = [json.loads(each.value or b"") for each in await deployment.read(Role.CALLS)]
            assert len({each["id"] for each in calls}) == CALLS, "what was sent twice has the same id"
            assert slowest_s < OUTAGE_S / 4, "no call waited for Kafka"

    async def test_the_documented_lines_publish(self, deployment: Deployment, tmp_path: Path) -> None:
        """As they stand in docs/gateways.md, but for the broker, its topics, and the address of the server."""
        port = free_port()
        script = tmp_path / "gateway.py"
        source = documented("FastMCP", "python", deployment)
        script.write_text(source.replace("https://docs.example/mcp", f"http://127.0.0.1:{port}/mcp"))
        async with http_server(port=port), through([str(script)], tmp_path, "legacy") as client:
            await client.list_tools()
            await client.call_tool("echo", {"message": "m"})
            for role in (Role.SNAPSHOTS, Role.CALLS):
                await deployment.wait_until_written(role, 1)


KEY = "sk-kJ8vN2qR7tX4wZ9bC3fH6mP1sL5yD0aG"
"""What LiteLLM's client authenticates with."""

START_LIMIT_S = 240.0
"""LiteLLM takes half a minute on a quiet machine."""


def documented(section: str, language: str, deployment: Deployment) -> str:
    """A block of docs/gateways.md, as it stands there but for the broker and the names of its topics."""
    page = (ROOT / "docs/gateways.md").read_text()
    block = re.search(rf"^## {section}\n.*?```{language}\n(.*?)```", page, re.DOTALL | re.MULTILINE)
    assert block is not None
    stated = block[1].replace('"broker-1:9092"', f'"{deployment.bootstrap}"')
    return stated.replace("})\npublisher", f"}}, topics={topics_of(deployment)!r})\npublisher")


def topics_of(deployment: Deployment) -> dict[str, str]:
    return {role.value: topic for role, topic in deployment.topics.items()}


def needed(gateway: str) -> Path:
    python = built(gateway)
    if python is None:
        pytest.skip(f"{gateway} is not installed: make gateways, or python -m deploy.local.gateways {gateway}")
    return python


class TestLiteLLM:
    @asynccontextmanager
    async def gateway(self, deployment: Deployment, folder: Path, servers: dict[str, Any]) -> AsyncIterator[Client]:
        python, port = needed("litellm"), free_port()
        (folder / "assay_feed.py").write_text(documented("LiteLLM", "python", deployment))
        settings = {"callbacks": ["assay_feed.handler"]}
        config = {"mcp_servers": servers, "litellm_settings": settings, "general_settings": {"master_key": KEY}}
        (folder / "config.yaml").write_text(json.dumps(config))
        env = {
            "PYTHONPATH": str(ROOT / "src"),
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "LITELLM_ENABLE_MCP_STDIO": "true",
            "LITELLM_MCP_STDIO_EXTRA_COMMANDS": "env",
        }
        command = [str(python.parent / "litellm"), "--config", str(folder / "config.yaml"), "--host", "127.0.0.1"]
        http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {KEY}"}, timeout=120)
        with (folder / "log").open("wb") as log:
            async with listening([*command, "--port", str(port)], port, log=log, env=env, limit_s=START_LIMIT_S):
                transport = streamable_http_client(f"http://127.0.0.1:{port}/mcp", http_client=http)
                async with Client(transport, mode="legacy") as client:
                    yield client

    async def test_every_call_is_evidence_with_the_digest_of_a_tap_behind(
        self, deployment: Deployment, tmp_path: Path
    ) -> None:
        """Under the server's own names: LiteLLM passes definitions on as they are, and says that lists are partial."""
        needed("litellm")
        async with server_behind_tap(deployment) as url:
            servers = {"docs": {"transport": "http", "url": url}}
            seen = await self.carried(deployment, tmp_path, servers, "docs-echo", {"message": PLANTED}, CALLS)
        assert [each["ok"] for each in seen] == [True] * CALLS
        lists = [json.loads(each.value or b"")["data"] for each in await deployment.read(Role.SNAPSHOTS)]
        assert {each["completeness"] for each in lists if each["observer_id"] == "gateway-1"} == {"partial"}

    async def test_the_same_over_stdio(self, deployment: Deployment, tmp_path: Path) -> None:
        """A released server, behind the tap that LiteLLM starts anew for each call, so only a few; each fails."""
        needed("litellm")
        command, *arguments = tapped(deployment, time_server())
        servers = {"time": {"transport": "stdio", "command": command, "args": arguments}}
        seen = await self.carried(deployment, tmp_path, servers, f"time-{TOOL}", {"timezone": PLANTED}, 3)
        assert [each["ok"] for each in seen] == [False] * 3

    async def carried(
        self, deployment: Deployment, folder: Path, servers: dict[str, Any], name: str, arguments: Any, count: int
    ) -> list[dict[str, Any]]:
        """Call a tool of a server behind a tap, and return the evidence of it, held against the tap's."""
        await deployment.ready_worker()
        async with self.gateway(deployment, folder, servers) as client:
            assert name in {tool.name for tool in (await client.list_tools()).tools}
            for _ in range(count):
                await client.call_tool(name, arguments)
            seen = await evidence_of(deployment, {"gateway-1", "behind"}, count)
        ours, others = seen["gateway-1"], seen["behind"]
        assert (len(ours), len(others)) == (count, count)
        for digest in ("tool_definition_digest", "args_hash"):
            assert {each[digest] for each in ours} == {each[digest] for each in others}
        assert {each["binding"]["full_digest"] for each in ours} == {each["binding"]["full_digest"] for each in others}
        assert {each["binding"]["scope"] for each in ours} == {"exact"}
        assert {each["shown_tool_name"] for each in ours} == {name}
        assert not changed_tools(await deployment.read(Role.FINDINGS), "gateway-1")
        assert "observing failed" not in (folder / "log").read_text()
        await assert_no_secret(deployment, folder, KEY)
        return ours


class TestContextForge:
    SECRETS = ("planted-jwt-3f9a8c1e5b7d2460a8c1e5b7d2469f3a", "Planted-Pw-9!x")

    @asynccontextmanager
    async def gateway(self, deployment: Deployment, folder: Path, servers: dict[str, str]) -> AsyncIterator[Client]:
        """A client of ContextForge, which runs the documented plugin, with MCP servers by their names."""
        python, port = needed("contextforge"), free_port()
        plugins = yaml.safe_load(documented("ContextForge", "yaml", deployment))
        plugins["plugins"][0]["config"] |= {"topics": topics_of(deployment)}
        (folder / "plugins.yaml").write_text(json.dumps(plugins | {"plugin_dirs": [], "plugin_settings": {}}))
        key, password = self.SECRETS
        env = {
            "PYTHONPATH": str(ROOT / "src"),
            "PLUGINS_ENABLED": "true",
            "PLUGINS_CONFIG_FILE": str(folder / "plugins.yaml"),
            "DATABASE_URL": f"sqlite:///{folder}/gateway.db",
            "SSRF_ALLOW_LOCALHOST": "true",
            "JWT_SECRET_KEY": key,
            "AUTH_ENCRYPTION_SECRET": key[::-1],
            "PLATFORM_ADMIN_EMAIL": "admin@example.com",
            "PLATFORM_ADMIN_PASSWORD": password,
            "BASIC_AUTH_PASSWORD": password,
            "CACHE_TYPE": "memory",
            "RATE_LIMITING_ENABLED": "false",
        }
        token = await self.token(python, env)
        http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=120, follow_redirects=True)
        command = [str(python.parent / "mcpgateway"), "--host", "127.0.0.1", "--port", str(port)]
        with (folder / "log").open("wb") as log:
            async with listening(command, port, log=log, env=env, limit_s=START_LIMIT_S, folder=folder):
                for name, url in servers.items():
                    stated = {"name": name, "url": url, "transport": "STREAMABLEHTTP"}
                    added = await http.post(f"http://127.0.0.1:{port}/gateways", json=stated)
                    assert added.status_code in (200, 201), added.text
                transport = streamable_http_client(f"http://127.0.0.1:{port}/mcp/", http_client=http)
                async with Client(transport, mode="legacy") as client:
                    yield client

    async def token(self, python: Path, env: dict[str, str]) -> str:
        stated = ["--username", "admin@example.com", "--exp", "600", "--secret", self.SECRETS[0], "--admin"]
        making = await asyncio.create_subprocess_exec(
            python, "-m", "mcpgateway.utils.create_jwt_token", *stated, stdout=subprocess.PIPE, env=os.environ | env
        )
        return (await making.communicate())[0].decode().split()[-1]

    async def test_every_call_is_evidence_with_the_digest_of_a_tap_behind(
        self, deployment: Deployment, tmp_path: Path
    ) -> None:
        """Under the server's own names. The feed lists nothing: what is bound comes from the tap."""
        needed("contextforge")
        await deployment.ready_worker()
        async with server_behind_tap(deployment) as url, self.gateway(deployment, tmp_path, {"docs": url}) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert {"docs-echo", "docs-slow"} <= names
            for number in range(CALLS - 1):
                await client.call_tool("docs-echo", {"message": f"{PLANTED}-{number}"})
            await client.call_tool("docs-slow", {"seconds": 0})
            seen = await evidence_of(deployment, {"gateway-1", "behind"}, CALLS)
        assert {observer: len(each) for observer, each in seen.items()} == {"gateway-1": CALLS, "behind": CALLS}
        for tool in ("echo", "slow"):
            ours, others = (
                [each for each in seen[observer] if each["tool"] == tool] for observer in ("gateway-1", "behind")
            )
            assert {each["tool_definition_digest"] for each in ours} == {
                each["tool_definition_digest"] for each in others
            }
            assert {(each["server_id"], each["shown_tool_name"]) for each in ours} == {("docs", f"docs-{tool}")}
            assert sorted(each["args_hash"] for each in ours) == sorted(each["args_hash"] for each in others)
        assert {each["binding"]["scope"] for each in seen["gateway-1"]} == {"server"}
        lists = [json.loads(each.value or b"")["data"] for each in await deployment.read(Role.SNAPSHOTS)]
        assert {each["observer_id"] for each in lists} == {"behind"}
        assert "observing failed" not in (tmp_path / "log").read_text()
        await assert_no_secret(deployment, tmp_path, *self.SECRETS)


@asynccontextmanager
async def server_behind_tap(deployment: Deployment) -> AsyncIterator[str]:
    """A server over HTTP behind a tap of its own, as ``docs``; gives the tap's address."""
    own, behind = free_port(), free_port()
    stated = ["--listen", f"127.0.0.1:{own}", "--server-id", "docs", "--observer-id", "behind"]
    tap = [sys.executable, "-m", "assay_stream", "tap", *stated, "--upstream", f"http://127.0.0.1:{behind}/mcp"]
    async with http_server(port=behind), listening(tap, own, env=deployment.env):
        yield f"http://127.0.0.1:{own}/mcp"


def changed_tools(findings: list[Record], *observers: str) -> dict[str, set[str]]:
    found = [json.loads(each.value or b"{}") for each in findings]
    changes = [each for each in found if each.get("kind") == "tool_changed" and each["observer_id"] in observers]
    return {each["tool_name"]: {path for _, path, _ in each["changes"]} for each in changes}


def kinds_of(findings: list[Record]) -> set[str]:
    return {json.loads(each.value or b"{}").get("kind") for each in findings}


async def refusal_of(client: Client) -> Any:
    with pytest.raises(MCPError) as caught:
        await client.call_tool(TOOL, {"timezone": PLANTED})
    return caught.value.error


async def until_passed(client: Client) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                await client.call_tool(TOOL, {"timezone": "UTC"})
            except MCPError:
                await asyncio.sleep(0.1)
            else:
                return
