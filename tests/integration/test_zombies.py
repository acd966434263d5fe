"""Workers that are frozen beyond their session, lose their partitions, and wake with a batch in hand."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from datetime import timedelta

import pytest

from assay_stream.model.record import Role
from tests.support.deployment import Deployment
from tests.support.fleet import START, a_call_by, a_listing

pytestmark = pytest.mark.kafka

CALLS = 9_000
FREEZES = 3


async def test_a_frozen_worker_that_wakes_joins_nothing_twice(deployment: Deployment) -> None:
    """Its partitions are another's; what it had in hand, in open transactions or before, is written once."""
    role, key, value = a_listing(0, 0, 0, 1, START)
    await deployment.send(role, [(key, value)])
    small = {"ASSAY_STREAM_BATCH_RECORDS_MAX": "30"}
    workers = [deployment.start_worker(**small) for _ in range(2)]
    for worker in workers:
        await worker.wait_ready()
    calls = [a_call_by(0, 0, number, START + timedelta(seconds=1), None) for number in range(CALLS)]
    await deployment.send(Role.CALLS, [(b"%d" % number, call[2]) for number, call in enumerate(calls)])
    for frozen in range(FREEZES):
        zombie = workers[frozen % 2].process
        await deployment.wait_until_written(Role.EVIDENCE, (frozen + 1) * 400)
        zombie.send_signal(signal.SIGSTOP)
        done = len(await deployment.read(Role.EVIDENCE))
        # Beyond the session: the other has it all, and is at work when the zombie wakes.
        await asyncio.sleep(2.5)
        await deployment.wait_until_written(Role.EVIDENCE, min(done + 300, CALLS))
        zombie.send_signal(signal.SIGCONT)
    evidence = await deployment.wait_for(Role.EVIDENCE, lambda records: len(records) >= CALLS, limit_s=90)
    per_call = Counter(json.loads(record.value or b"")["data"]["tool_call_id"] for record in evidence)
    assert len(per_call) == CALLS
    assert set(per_call.values()) == {1}
    assert all(worker.process.poll() is None for worker in workers)
