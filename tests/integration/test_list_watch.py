"""Real servers listed by ``list-watch``, in both eras, beside what the taps observe of them; and on real Kafka."""

import asyncio
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from assay_stream.limits import LISTING_LIMITS
from assay_stream.model.record import Record, Role
from deploy.local.servers import node_server, python_server
from tests.support.deployment import Deployment, free_port
from tests.support.http_tap import http_server, http_tap, listening
from tests.support.listing import SURFACE, following, listed_once
from tests.support.mcp_session import data_of, read_events, tapped_client
from tests.support.toml import toml_of

SUPPORT = Path(__file__).parents[1] / "support"
TOKEN = "planted-token-7f3a"
EVERYTHING = ("@modelcontextprotocol/server-everything", "2026.8.31")


def commands() -> Iterator[tuple[str, list[str], str]]:
    yield "old", [*python_server("mcp-server-time", "0.6.2"), "--local-timezone", "UTC"], "legacy"
    yield "new", [*python_server("mcp-server-time", "2026.10.19"), "--local-timezone", "UTC"], "auto"
    yield "node", node_server(*EVERYTHING), "legacy"
    yield "pages", [sys.executable, str(SUPPORT / "paginating_server.py")], "auto"


async def list_everything(client: Client) -> None:
    capabilities = client.server_capabilities
    for is_offered, lists in (
        (capabilities.prompts, client.list_prompts),
        (capabilities.resources, client.list_resource_templates),
        (True, client.list_tools),
    ):
        cursor: str | None = None
        while is_offered:
            page: Any = await lists(cursor=cursor)
            cursor = page.next_cursor
            if cursor is None:
                break


def surface(snapshot: dict[str, Any]) -> dict[str, Any]:
    return {name: snapshot.get(name) for name in SURFACE}


@pytest.mark.servers
async def test_a_stdio_server_is_observed_as_the_tap_observes_it(tmp_path: Path) -> None:
    """Byte for byte the same definitions, in one snapshot."""

    async def observe(name: str, command: list[str], mode: str) -> None:
        output = tmp_path / f"{name}.ndjson"
        async with tapped_client(command, output, mode=mode) as client:
            await list_everything(client)
        listing = await listed_once({"command": command})
        [snapshot] = listing.data()
        assert surface(snapshot) == surface(data_of(read_events(output), "list")[-1]), name
        assert snapshot["observer_id"] == "lister"

    await asyncio.gather(*(observe(*each) for each in commands()))


@pytest.mark.servers
@pytest.mark.parametrize("kind", ["sdk", "json", "stateless", "node"])
async def test_an_http_server_is_observed_as_the_tap_observes_it(kind: str) -> None:
    """In both eras: sessions with event streams, JSON answers, and no session at all."""
    port = free_port()
    command = [*node_server(*EVERYTHING), "streamableHttp"]
    is_node = kind == "node"
    server = listening(command, port, env={"PORT": str(port)}) if is_node else http_server(kind, port=port)
    mode = "legacy" if is_node else "auto"
    url = f"http://127.0.0.1:{port}/mcp"
    async with server, http_tap(url) as tap:
        async with Client(streamable_http_client(tap.url), mode=mode) as client:
            await list_everything(client)
        listing = await listed_once({"url": url})
    [snapshot] = listing.data()
    assert surface(snapshot) == surface(tap.data("list")[-1])


@pytest.mark.servers
async def test_an_announced_change_is_listed_at_once() -> None:
    """On a stream of subscriptions/listen; the interval is an hour."""
    quick = replace(LISTING_LIMITS, announced_gap_s=0.1)
    async with http_server() as url, following({"url": url}, limits=quick) as listing:
        await listing.wait_for(1)
        await asyncio.sleep(0.5)  # until the stream is open
        async with Client(streamable_http_client(url), mode="auto") as client:
            await client.call_tool("grow", {})
        snapshots = await listing.wait_for(2)
        assert len(listing.data("list_changed")) == 1
    assert ["further" in [tool["name"] for tool in each["tools"]] for each in snapshots] == [False, True]


@pytest.mark.kafka
async def test_drift_is_noticed_before_an_agent_meets_it(deployment: Deployment, tmp_path: Path) -> None:
    """The server behind an address is swapped: an alert, without any call, and the token is nowhere."""
    port = free_port()
    token = tmp_path / "token"
    token.write_text(f"{TOKEN}\n")
    config = tmp_path / "servers.toml"
    entry = {"server_id": "docs", "url": f"http://127.0.0.1:{port}/mcp", "token_file": str(token), "interval_s": 1}
    dead = {"server_id": "dead", "url": f"http://127.0.0.1:{free_port()}/mcp", "interval_s": 1}
    config.write_text(toml_of({"servers": [{**entry, "listen": False}, dead]}))
    await deployment.ready_worker()
    lister = deployment.start("list-watch", "--config", str(config))
    async with http_server("token", port=port):
        await deployment.wait_for(Role.SNAPSHOTS, lambda records: len(records) >= 2)
    async with http_server("token", "swapped", port=port):
        alerts = await deployment.wait_for(Role.ALERTS, lambda alerts: bool(changes(alerts)))
    _, metrics = await asyncio.to_thread(lister.get, "/metrics")
    _, ready = await asyncio.to_thread(lister.get, "/readyz")
    assert await asyncio.to_thread(lister.terminate) == 0, lister.tail()
    assert changes(alerts)[0]["unmapped"]["mcp_tool_name"] == "echo"
    assert await deployment.read(Role.CALLS) == []
    assert json.loads(ready)["ready"] is True
    assert 'assay_stream_list_age_seconds{server="docs"}' in metrics
    assert 'failed:unreachable"' in metrics
    assert "dead: cannot be listed: unreachable" in lister.tail()
    written = [
        record for role in (Role.SNAPSHOTS, Role.FINDINGS, Role.ALERTS) for record in await deployment.read(role)
    ]
    everything = b"".join((record.value or b"") + str(record.headers).encode() for record in written)
    assert TOKEN.encode() not in everything + lister.log.read_bytes() + metrics.encode()


def changes(alerts: list[Record]) -> list[dict[str, Any]]:
    read = [json.loads(alert.value or b"") for alert in alerts]
    return [alert for alert in read if alert["unmapped"]["mcp_finding_kind"] == "tool_changed"]
