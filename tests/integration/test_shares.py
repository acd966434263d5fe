"""Each join worker its share, on real Kafka: misplaced calls and kill -9."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from assay_stream.model.record import Record, Role, murmur2_partition
from deploy.local.kafka import Broker
from tests.integration.test_exactly_once import undisturbed, values
from tests.support.deployment import Deployment, Worker
from tests.support.fleet import Fleet

pytestmark = pytest.mark.kafka

FEW, MANY = 4, 8
COUNTS = {"ASSAY_STREAM_INPUT_PARTITIONS": str(FEW), "ASSAY_STREAM_CALL_PARTITIONS": str(MANY)}


@pytest.fixture
async def wide(broker: Broker, request: pytest.FixtureRequest) -> AsyncIterator[Deployment]:
    with Deployment(broker.bootstrap, name=request.node.name[:40].replace("[", "-").rstrip("]"), env=COUNTS) as made:
        await made.apply_topics()
        yield made


async def publish_misplaced(deployment: Deployment, fleet: Fleet) -> int:
    """Publish a fleet's history; a third of its calls under keys that say nothing of their server."""
    choose = random.Random(7)
    return await deployment.publish(
        (role, b"%d" % choose.randrange(99) if role is Role.CALLS and choose.random() < 1 / 3 else key, value)
        for role, key, value in fleet.history()
    )


def loaded(worker: Worker) -> float:
    return worker.metric("assay_stream_state_entries", stage="join") or 0


async def evidence_of(deployment: Deployment, count: int) -> list[Record]:
    """All evidence, once there is enough, and a little later: what comes twice shows."""
    await deployment.wait_for(Role.EVIDENCE, lambda records: len(records) >= count, limit_s=120)
    await asyncio.sleep(1)
    return await deployment.read(Role.EVIDENCE, settled=True)


@pytest.mark.tier(name="outages")
async def test_two_workers_a_kill_and_misplaced_calls_give_the_evidence_of_a_replay(wide: Deployment) -> None:
    """Nothing lost or doubled, byte for byte; `verify` finds nothing missing; both hold less than all servers."""
    fleet = Fleet(servers=40, observers=1, calls=6_000, changes=0)
    registry = wide.start_worker("--role", "registry", "--role", "alerts")
    small = {"ASSAY_STREAM_BATCH_RECORDS_MAX": "60"}
    # By rounds, the first of two takes even numbers, and so half of the bindings.
    workers = [wide.start_worker("--role", "join", **small) for _ in range(2)]
    for worker in (registry, *workers):
        await worker.wait_ready()
    calls = await publish_misplaced(wide, fleet)
    await wide.wait_until_written(Role.EVIDENCE, calls // 3, limit_s=180)
    workers[0].kill()
    killed_at = len(await wide.read(Role.EVIDENCE))
    assert killed_at < calls, "the kill came after the last call: the test proves too little"
    workers[0] = wide.start_worker("--role", "join", **small)
    evidence = await evidence_of(wide, calls)
    assert set(Counter(json.loads(value)["data"]["tool_call_id"] for value in values(evidence)).values()) == {1}
    assert sorted(values(evidence)) == sorted((await undisturbed(wide))[Role.EVIDENCE])
    for record in evidence:
        assert record.origin.partition == json.loads(record.value or b"")["data"]["origin"]["partition"]
    copies = await wide.read(Role.REROUTED)
    assert all(copy.origin.partition % FEW == server_partition(copy) for copy in copies)
    assert len(copies) > calls // 6
    verified = wide.run("verify", "--from-kafka", "--expect", "joined")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    # What a rebalance took away is dropped half a minute later.
    async with asyncio.timeout(120):
        while not all(0 < loaded(worker) < fleet.servers for worker in workers):
            await asyncio.sleep(0.5)


def server_partition(record: Record) -> int:
    return murmur2_partition(json.loads(record.value or b"")["data"]["server_id"].encode(), FEW)
