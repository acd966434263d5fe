"""A worker that is frozen beyond its session; tests/chaos freezes many, and counts what they join."""

import asyncio
import signal
from datetime import timedelta

import pytest
from aiokafka import TopicPartition

from assay_stream.kafka.connection import Consumer, KafkaClients
from assay_stream.kafka.runner import StickyAssignor
from assay_stream.model.record import Role
from tests.support.deployment import Deployment
from tests.support.fleet import START, a_call_by, a_listing

pytestmark = [pytest.mark.kafka, pytest.mark.tier(name="outages")]


async def dies_in_a_transaction(deployment: Deployment) -> None:
    """Own every partition as a worker does, and end with the offsets of one in an open transaction."""
    clients, group = KafkaClients(deployment.settings), f"{deployment.settings.group_prefix}-join"
    calls, partitions = deployment.topics[Role.CALLS], deployment.settings.call_partitions
    consumer: Consumer = clients.consumer(
        group_id=group,
        heartbeat_interval_ms=100,
        session_timeout_ms=1_500,
        partition_assignment_strategy=(StickyAssignor(list),),
    )
    consumer.subscribe([calls])
    producers = [clients.producer(f"{group}-{partition}") for partition in range(partitions)]
    await consumer.start()
    try:
        async with asyncio.timeout(10):
            while len(consumer.assignment()) < partitions:
                await consumer.getmany(timeout_ms=100)
        for producer in producers:
            await producer.start()
        await producers[0].begin_transaction()
        await producers[0].send_offsets_to_transaction({TopicPartition(calls, 0): (1_000, "")}, group)
    finally:
        for producer in producers:
            await producer.stop()
        await consumer.stop()


async def test_a_worker_that_wakes_need_not_wait_for_the_transaction_of_a_dead_one(deployment: Deployment) -> None:
    """The other had its partitions meanwhile, and died with the offsets of one in an open transaction."""
    await deployment.put(a_listing(0, 0, 0, 1, START))
    calls = [a_call_by(0, 0, number, START + timedelta(seconds=1), None)[2] for number in range(80)]
    worker = await deployment.ready_worker()
    await deployment.send(Role.CALLS, [(b"%d" % number, call) for number, call in enumerate(calls[:40])])
    await deployment.wait_for(Role.EVIDENCE, lambda records: len(records) == 40)
    worker.process.send_signal(signal.SIGSTOP)
    await dies_in_a_transaction(deployment)
    await deployment.send(Role.CALLS, [(b"%d" % number, call) for number, call in enumerate(calls[40:])])
    worker.process.send_signal(signal.SIGCONT)
    # A quarter of the limit after which brokers end an open transaction.
    await deployment.wait_for(Role.EVIDENCE, lambda records: len(records) == 80, limit_s=15)
