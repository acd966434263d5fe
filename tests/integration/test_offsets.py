"""Offsets that are lost or set back, and partitions that are added, under real workers."""

import asyncio
from datetime import timedelta

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import NewPartitions

from assay_stream.kafka.connection import open_admin
from assay_stream.model.record import Role
from tests.support.deployment import Deployment, payload
from tests.support.fleet import START, Fleet, a_call_by, a_listing

pytestmark = pytest.mark.kafka

PARTITIONS = 6


async def put_calls(deployment: Deployment, first: int, count: int) -> None:
    at = START + timedelta(seconds=1)
    await deployment.put(*(a_call_by(0, 0, number, at, None) for number in range(first, first + count)))


async def test_a_group_that_was_set_back_joins_no_call_twice(deployment: Deployment) -> None:
    """It goes on where the join noted that it was, and says so."""
    await deployment.put(a_listing(0, 0, 0, 1, START))
    await put_calls(deployment, 0, 20)
    worker = deployment.start_worker()
    await deployment.wait_for(Role.EVIDENCE, lambda records: len(records) == 20)
    assert await asyncio.to_thread(worker.terminate) == 0
    await set_back(deployment)
    await put_calls(deployment, 20, 5)
    worker = deployment.start_worker()
    evidence = await deployment.wait_for(Role.EVIDENCE, lambda records: len(records) >= 25)
    assert sorted(int(str(payload(one)["tool_call_id"])[5:]) for one in evidence) == list(range(25))
    assert '"offsets_reset"' in worker.log.read_text()


async def set_back(deployment: Deployment) -> None:
    topic = deployment.topics[Role.CALLS]
    group = f"{deployment.settings.group_prefix}-join"
    async with AIOKafkaConsumer(
        bootstrap_servers=deployment.bootstrap, group_id=group, enable_auto_commit=False
    ) as consumer:
        partitions = [TopicPartition(topic, number) for number in range(deployment.settings.call_partitions)]
        consumer.assign(partitions)
        await consumer.commit(dict.fromkeys(partitions, 0))


@pytest.mark.tier(name="outages")
async def test_a_call_topic_that_grows_alone_stops_no_worker(deployment: Deployment) -> None:
    """Workers stay alive and not ready, name the topics that must grow, and join calls of all partitions afterwards."""
    workers = [deployment.start_worker() for _ in range(2)]
    for worker in workers:
        await worker.wait_ready()
    await add_partitions(deployment, Role.CALLS)
    others = (Role.EVIDENCE, Role.REROUTED, Role.JOIN_PROGRESS)
    commands = [f"--alter --topic {deployment.topics[role]} --partitions {PARTITIONS}" for role in others]
    async with asyncio.timeout(90):
        while not all(command in worker.get("/readyz")[1] for worker in workers for command in commands):
            assert [worker.process.poll() for worker in workers] == [None, None], workers[0].tail()
            await asyncio.sleep(0.2)
    assert [worker.get("/healthz")[0] for worker in workers] == [200, 200]
    for role in others:
        await add_partitions(deployment, role)
    for worker in workers:
        await worker.wait_ready()
    calls = await deployment.publish(Fleet(servers=5, calls=60).history())
    added = PARTITIONS - deployment.settings.call_partitions
    async with asyncio.timeout(60):
        while len(await deployment.read(Role.EVIDENCE, partitions_added=added)) < calls:
            await asyncio.sleep(0.2)
    assert [worker.terminate() for worker in workers] == [0, 0]


async def add_partitions(deployment: Deployment, role: Role) -> None:
    async with open_admin(deployment.settings) as admin:
        await admin.create_partitions({deployment.topics[role]: NewPartitions(PARTITIONS)})
