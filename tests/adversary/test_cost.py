"""Lists made to take time or memory, served through a real tap: what neighbours and worker go through meanwhile.

Work is counted in units, writing and memory in bytes. What each class costs in seconds is measured by
``bench/bench_hostile.py``.
"""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from assay_stream.model.record import Record, Role
from tests.adversary.conftest import Arena
from tests.adversary.spent import BURST_UNITS, charges, writing_in_proportion
from tests.support.behind_tap import behind_tap
from tests.support.deployment import payload
from tests.support.events import event_at
from tests.support.hostile_lists import CLASSES, OBSERVERS, TOOLS, shown_by_tap
from tests.support.neighbours import HOME, in_partition, watched

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900)]

WAIT_S = 240.0
"""For what has to come at all: no bound of the product."""

LOW, MEDIUM, HIGH = 2, 3, 4
UNITS_MAX = {f"{TOOLS:,} new tools": BURST_UNITS}
"""What one list of these may cost: as much as a server may save up."""
ONE_TOOL_UNITS_MAX = 8_000_000
"""One list of another class, which has one tool: half of what a record may."""
UPGRADE_UNITS_MAX = 100_000
"""What an upgrade that thousands of observers see may cost: once for all of them."""
ANALYSED = {f"{TOOLS:,} new tools": LOW, "1 against true at every level": MEDIUM}
"""These are analysed in full; nothing graver is found. The others widen what a tool takes, or are cut short."""


async def attack(arena: Arena, row: str, folder: Path) -> None:
    """Serve every class of a row, each by a server of its own, and call each of them after each list."""
    servers: dict[str, int] = {}
    levels: dict[str, int] = {}
    units_max: dict[str, int] = {}
    for name in (name for name, (its_row, _) in CLASSES.items() if its_row == row and "observers" not in name):
        server = in_partition(HOME, f"hostile-{row}-{len(servers)}")
        lists = shown_by_tap(name)
        servers[server] = len(lists)
        levels[server] = ANALYSED.get(name, HIGH)
        units_max[server] = UNITS_MAX.get(name, ONE_TOOL_UNITS_MAX)
        async with behind_tap(arena.deployment, server, [{"tools": tools} for tools in lists], folder) as client:
            for tools in lists:
                await client.list_tools()
                await client.call(tools[0]["name"])
    await are_bound(arena, servers)
    await are_alerted(arena, levels)
    spent = {server: [each.units for each in await charges(arena.deployment, server)] for server in servers}
    print(spent)
    assert {server: units for server, units in spent.items() if not 0 < max(units) <= units_max[server]} == {}


async def are_bound(arena: Arena, servers: dict[str, int]) -> None:
    """Every call of the hostile servers has its digest too: lists that cost much are still applied."""

    def digests(records: list[Record]) -> dict[str, int]:
        found = [payload(record) for record in records]
        return {
            server: sum(one["server_id"] == server and "tool_definition_digest" in one for one in found)
            for server in servers
        }

    records = await arena.deployment.wait_for(
        Role.EVIDENCE,
        lambda records: sum(payload(one)["server_id"] in servers for one in records) >= sum(servers.values()),
        limit_s=WAIT_S,
    )
    assert digests(records) == servers


async def are_alerted(arena: Arena, levels: dict[str, int]) -> None:
    """Each of the servers has an alert of its level or above: what was cut short must not look harmless."""
    highest: dict[str, int] = {}

    def all_told(records: list[Record]) -> bool:
        for alert in (json.loads(record.value or b"{}") for record in records):
            server = alert["unmapped"]["mcp_server_id"]
            highest[server] = max(alert["severity_id"], highest.get(server, 0))
        return all(highest.get(server, 0) >= level for server, level in levels.items())

    try:
        await arena.deployment.wait_for(Role.ALERTS, all_told, limit_s=WAIT_S)
    except AssertionError as error:
        raise AssertionError(f"levels {highest}, not {levels}") from error


@pytest.mark.parametrize("what", ["CPU", "memory", "quadratic"])
async def test_lists_that_take_much_delay_no_other_server(arena: Arena, tmp_path: Path, what: str) -> None:
    """Each once cost gigabytes, or a partition that never committed again."""
    async with writing_in_proportion(arena.deployment), watched(arena.deployment, arena.worker):
        await attack(arena, what, tmp_path)


async def test_four_thousand_observers_of_one_server(arena: Arena) -> None:
    """Each sees two lists; a call by each tenth of them has its digest. The upgrade is analysed once."""
    server = in_partition(HOME, "hostile-observers")
    async with writing_in_proportion(arena.deployment), watched(arena.deployment, arena.worker):
        await publish_observers(arena, server)
        await are_bound(arena, {server: OBSERVERS // 10})
    await are_alerted(arena, {server: LOW})
    spent = [each.units for each in await charges(arena.deployment, server)]
    print(spent[:9])
    assert 0 < sum(spent) <= UPGRADE_UNITS_MAX


async def publish_observers(arena: Arena, server: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=arena.deployment.bootstrap, linger_ms=5) as producer:
        topics = arena.deployment.topics
        for number, (observer, tools) in enumerate(CLASSES[f"{OBSERVERS:,} observers"][1]()):
            place = {"server_id": server, "observer_id": observer, "snapshot_id": f"s-{number}"}
            data = {**place, "tools": tools, "server_scoped": True, "completeness": "complete"}
            value = event("list", number, data)
            await producer.send(topics[Role.SNAPSHOTS], value, key=server.encode())
        await producer.flush()
        for number in range(0, OBSERVERS, 10):
            data = {"server_id": server, "observer_id": f"proxy-{number}", "tool_name": "action_0"}
            data |= {"tool_call_id": f"{server}-{number}", "decision": "allow", "reason_code": "P_POLICY_ALLOW"}
            await producer.send(topics[Role.CALLS], event("call", number, data), key=server.encode())
        await producer.flush()


def event(what: str, number: int, data: dict[str, Any]) -> bytes:
    return event_at(datetime.now(UTC), f"mcp.tools.{what}.observed", f"{what}-{number}", data)
