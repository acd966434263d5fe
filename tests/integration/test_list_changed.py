"""A server announces changes behind a real tap, on real Kafka; and junk under its key is put to who sent it."""

import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from assay_stream.model.record import OBSERVER_HEADER, Record, Role
from tests.support.deployment import Deployment, payload

pytestmark = pytest.mark.kafka

SERVER = Path(__file__).parents[1] / "support" / "changing_server.py"


@asynccontextmanager
async def tapped(deployment: Deployment, *options: str) -> AsyncIterator[Client]:
    arguments = ["-m", "assay_stream", "tap", "--server-id", "changing", "--observer-id", "proxy-1", *options]
    through_tap = StdioServerParameters(
        command=sys.executable,
        args=[*arguments, "--", sys.executable, str(SERVER)],
        env={**os.environ, **deployment.env},
    )
    async with Client(stdio_client(through_tap), mode="legacy") as client:
        yield client


async def evidence(deployment: Deployment, count: int) -> list[dict[str, Any]]:
    """The payloads of the evidence, by the time of their calls, once there are as many."""
    records = await deployment.wait_for(Role.EVIDENCE, lambda written: len(written) >= count)
    return [payload(record) for record in sorted(records, key=time_of)]


def time_of(record: Record) -> str:
    return str(json.loads(record.value or b"")["time"])


async def test_calls_between_an_announcement_and_the_next_list_claim_no_digest(deployment: Deployment) -> None:
    """Also by a worker that was killed and has restored what was announced from its facts."""
    worker = await deployment.ready_worker()
    async with tapped(deployment) as client:
        await client.list_tools()
        await client.call_tool("echo", {})
        await client.call_tool("change", {})
        await client.call_tool("echo", {})
        await evidence(deployment, 3)
        worker.kill()
        await deployment.ready_worker()
        await client.call_tool("echo", {})
        await evidence(deployment, 4)
        await client.list_tools()
        await client.call_tool("echo", {})
        written = [each for each in await evidence(deployment, 5) if each["tool"] == "echo"]
    first, *announced, last = written
    assert [each["binding"]["scope"] for each in written] == ["exact", "none", "none", "exact"]
    assert {each["unbound_reason"] for each in announced} == {"list_change_announced"}
    assert {each["binding"]["snapshot_id"] for each in announced} == {first["binding"]["snapshot_id"]}
    assert not any("tool_definition_digest" in each for each in announced)
    assert first["tool_definition_digest"] != last["tool_definition_digest"]
    observed = await deployment.read(Role.SNAPSHOTS)
    kinds = [json.loads(record.value or b"")["type"] for record in sorted(observed, key=time_of)]
    assert [kind.split(".")[2] for kind in kinds] == ["list", "list_changed", "list"]
    assert {dict(record.headers)[OBSERVER_HEADER] for record in observed} == {b"proxy-1"}
