"""Agents that fail, on real Kafka with real worker processes."""

from __future__ import annotations

import asyncio

import pytest

from assay_stream.model.record import Role
from tests.integration.test_exactly_once import publish
from tests.support.deployment import Deployment, payload
from tests.support.fleet import Fleet

pytestmark = pytest.mark.kafka


async def test_an_agent_that_raises_on_every_batch_stops_its_worker(deployment: Deployment) -> None:
    """With its name and the cause, which quotes no record; a healthy worker then does all, once each."""
    calls = await publish(deployment, Fleet(servers=3, calls=200, changes=5))
    deployment.program = ("-m", "tests.support.raising_worker")
    broken = deployment.start_worker()
    assert await asyncio.to_thread(broken.process.wait, 90) == 3, broken.tail()
    reason = broken.reason()
    assert reason.startswith("assay-stream: agent_failed: the join agent failed 4 times in a row"), reason
    assert "ValueError at" in reason
    assert "raising_worker.py" in reason
    assert "tool_call_id" not in broken.tail()
    assert await deployment.read(Role.EVIDENCE) == []

    deployment.program = ("-m", "assay_stream")
    deployment.workers.clear()
    deployment.start_worker()
    evidence = await deployment.wait_for(Role.EVIDENCE, lambda records: len(records) >= calls)
    ids = [payload(record)["tool_call_id"] for record in evidence]
    assert (len(ids), len(set(ids))) == (calls, calls)
    assert await deployment.read(Role.REJECTED) == []
