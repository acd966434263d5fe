"""Partitions that are added under real workers."""

import asyncio

import pytest
from aiokafka.admin import NewPartitions

from assay_stream.kafka.connection import open_admin
from assay_stream.model.record import Role
from tests.support.deployment import Deployment
from tests.support.fleet import Fleet

pytestmark = pytest.mark.kafka

PARTITIONS = 6


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
