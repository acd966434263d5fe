"""A tool name drawn like another server's, on real Kafka: raised, shown, approved, and closed."""

import asyncio
import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from assay_stream.model.record import Record, Role, murmur2_partition
from tests.support.deployment import Deployment
from tests.support.events import TYPES, event_at, snapshot_data

pytestmark = pytest.mark.kafka

QUICK = {"ASSAY_STREAM_ALERT_TICK_S": "1", "ASSAY_STREAM_ALERT_SETTLE_S": "1"}
HOLDER, NEWCOMER = "files", "git"
HOMOGLYPH = "re\u0430d_file"


def listing(server_id: str, second: int, *names: str) -> tuple[bytes, bytes]:
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in names]
    data = snapshot_data(*tools, server_id=server_id, snapshot_id=f"{server_id}-{second}")
    at = datetime.now(UTC) - timedelta(seconds=60 - second)
    return server_id.encode(), event_at(at, TYPES[Role.SNAPSHOTS], data["snapshot_id"], data)


def shadowed(records: list[Record]) -> list[dict[str, Any]]:
    bodies = [json.loads(record.value or b"") for record in records]
    return [body for body in bodies if body["finding_info"]["types"] == ["tool_shadowed"]]


async def told(deployment: Deployment, count: int) -> list[dict[str, Any]]:
    enough = await deployment.wait_for(Role.ALERTS, lambda records: len(shadowed(records)) >= count)
    return shadowed(enough)


async def test_a_look_alike_of_a_server_in_another_partition(deployment: Deployment) -> None:
    """Two registries never see one another's servers; the alert names both, can be shown, and ends by approval."""
    assert murmur2_partition(HOLDER.encode(), 2) != murmur2_partition(NEWCOMER.encode(), 2)
    worker = await deployment.ready_worker(**QUICK)
    await deployment.send(Role.SNAPSHOTS, [listing(HOLDER, 0, "read_file"), listing(NEWCOMER, 1, HOMOGLYPH)])
    [raised] = await told(deployment, 1)
    flat = raised["unmapped"]
    assert (raised["activity_name"], raised["severity"], flat["mcp_reason"]) == ("Create", "High", "confusable_name")
    assert (flat["mcp_server_id"], flat["mcp_pin_observed"]) == (NEWCOMER, HOLDER)

    uid = raised["finding_info"]["uid"]
    page = await deployment.output_of("alerts", "show", uid[:8])
    assert "⟦U+0430" in page
    assert re.search(f"held before by +{HOLDER}\\n", page)
    await deployment.output_of("pins", "approve", "--alert", uid, "--author", "ann", "--reason", "it is ours")
    _, closed = await told(deployment, 2)
    assert (closed["activity_name"], closed["unmapped"]["mcp_resolved_by"]) == ("Close", "decided")
    assert await asyncio.to_thread(worker.terminate) == 0
