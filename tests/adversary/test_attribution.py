"""One junk byte under a server's key: it ends the force of what its own sender saw, and of nothing else."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from assay_stream.model.record import OBSERVER_HEADER, Headers, Record, Role
from tests.adversary.conftest import Arena
from tests.support.behind_tap import behind_tap
from tests.support.deployment import payload
from tests.support.ingest import a_call
from tests.support.neighbours import HOME, in_partition, watched

pytestmark = pytest.mark.kafka

OBSERVERS = ("proxy-1", "proxy-2")
TOOL: dict[str, Any] = {"name": "read_file_of_team", "description": "Reads a file.", "inputSchema": {"type": "object"}}


async def command(arena: Arena, *arguments: str) -> None:
    await arena.deployment.output_of(*arguments)


async def verdicts(arena: Arena, server: str) -> list[dict[str, Any]]:
    records = await arena.deployment.read(Role.VERDICTS)
    return [
        json.loads(record.value or b"null")
        for record in records
        if json.loads(record.key or b"[]") == [server, TOOL["name"]]
    ]


async def call_without_a_list(arena: Arena, server: str, when: str) -> dict[str, dict[str, Any]]:
    """Publish a call by each observer that names no list; returns the evidence by observer."""
    for observer in OBSERVERS:
        made = {"event_id": f"{when}-{observer}", "tool_call_id": f"{when}-{observer}", "tool_name": TOOL["name"]}
        event = a_call(0, observer=observer, server=server, observed_at=datetime.now(UTC), **made)
        await arena.deployment.send(Role.CALLS, [(event.key, event.value)])
    wanted = {f"{when}-{observer}": observer for observer in OBSERVERS}

    def by_observer(records: list[Record]) -> dict[str, dict[str, Any]]:
        found = [payload(record) for record in records]
        return {wanted[str(one["tool_call_id"])]: one for one in found if one["tool_call_id"] in wanted}

    records = await arena.deployment.wait_for(Role.EVIDENCE, lambda records: len(by_observer(records)) == 2)
    return by_observer(records)


async def send_junk(arena: Arena, key: bytes, *headers: Headers) -> None:
    """Publish one junk byte under a key for each of some headers, and wait until all are rejected."""

    def count(records: list[Record]) -> int:
        return sum(record.key == key for record in records)

    before = count(await arena.deployment.read(Role.REJECTED))
    await arena.deployment.send_with_headers(Role.SNAPSHOTS, [(key, b"\x00", header) for header in headers])
    await arena.deployment.wait_for(Role.REJECTED, lambda records: count(records) == before + len(headers))


async def test_one_junk_byte_under_a_servers_key(arena: Arena, tmp_path: Path) -> None:
    """By nobody or a stranger it changes nothing; by one of two observers the other keeps its digest."""
    server = in_partition(HOME, "team")
    key = server.encode()
    async with watched(arena.deployment, arena.worker):
        for observer in OBSERVERS:
            results = [{"tools": [TOOL]}]
            async with behind_tap(arena.deployment, server, results, tmp_path, observer_id=observer) as client:
                await client.list_tools()
        block = ("--enforcement", "block", "--unknown", "block", "--reason", "review")
        await command(arena, "policy", "set", "--server-id", server, *block)
        await command(arena, "pins", "approve", "--server-id", server, "--all", "--reason", "review")
        before = await call_without_a_list(arena, server, "before")
        given = await verdicts(arena, server)
        assert given[-1]["action"] == "allow", given

        await send_junk(arena, key, (), ((OBSERVER_HEADER, b"a-stranger"),))
        after = await call_without_a_list(arena, server, "after")
        for observer in OBSERVERS:
            assert after[observer]["tool_definition_digest"] == before[observer]["tool_definition_digest"]
        assert await verdicts(arena, server) == given

        await send_junk(arena, key, ((OBSERVER_HEADER, b"proxy-2"),))
        own = await call_without_a_list(arena, server, "own")
        assert "tool_definition_digest" in own["proxy-1"], own
        assert own["proxy-2"]["unbound_reason"] == "snapshot_rejected", own
