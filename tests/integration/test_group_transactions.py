"""Transactions with the group's generation, as brokers judge them: who may commit, and who sees what."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import IllegalGenerationError, NotLeaderForPartitionError, ProducerFenced

from assay_stream.kafka.connection import Consumer, KafkaClients
from assay_stream.kafka.group_producer import GroupProducer
from assay_stream.kafka.group_protocol import GroupMember, Produce
from assay_stream.model.record import Role
from tests.support.deployment import Deployment

pytestmark = pytest.mark.kafka


@asynccontextmanager
async def a_producer(deployment: Deployment, name: str = "one") -> AsyncIterator[GroupProducer]:
    """A producer that has its transactional id."""
    transactional_id = f"{deployment.settings.group_prefix}-{name}"
    producer = KafkaClients(deployment.settings).group_producer(transactional_id)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


@asynccontextmanager
async def a_member(deployment: Deployment) -> AsyncIterator[Consumer]:
    """A consumer that has its share of the calls."""
    consumer = KafkaClients(deployment.settings).consumer(
        group_id=f"{deployment.settings.group_prefix}-test", heartbeat_interval_ms=100, session_timeout_ms=1_500
    )
    consumer.subscribe([deployment.topics[Role.CALLS]])
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


def batches(deployment: Deployment, producer: GroupProducer, *, count: int = 1, partitions: int = 1) -> dict:  # type: ignore[type-arg]
    """Numbered records of evidence, each in a batch of its own."""
    made = {}
    for partition in range(partitions):
        builders = [producer.create_batch() for _ in range(count)]
        for number, builder in enumerate(builders):
            builder.append(timestamp=0, key=None, value=b"%d" % number)
        made[deployment.topics[Role.EVIDENCE], partition] = builders
    return made


def offsets(deployment: Deployment, offset: int) -> dict[TopicPartition, tuple[int, str]]:
    """A position in the first partition of calls."""
    return {TopicPartition(deployment.topics[Role.CALLS], 0): (offset, "mark")}


async def evidence(deployment: Deployment) -> list[tuple[int, bytes | None]]:
    """Committed evidence: partition and value."""
    return [(each.origin.partition, each.value) for each in await deployment.read(Role.EVIDENCE)]


async def test_records_of_several_partitions_and_their_offsets_are_one_transaction(deployment: Deployment) -> None:
    """More batches than requests may be under way arrive in order, and the offsets with them."""
    async with a_member(deployment) as consumer, a_producer(deployment) as producer:
        for first in (0, 1):
            sent = batches(deployment, producer, count=12, partitions=3)
            await producer.write(sent, offsets(deployment, 7 + first), consumer.member())
        found = await evidence(deployment)
        numbers = [b"%d" % number for number in range(12)]
        assert [[value for at, value in found if at == partition] for partition in range(3)] == [numbers * 2] * 3
        noted = await consumer.committed_with_metadata(offsets(deployment, 0))
        assert noted == offsets(deployment, 8)


async def test_batches_behind_a_first_one_that_was_not_taken_are_not_taken_in_its_place(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that has just become the leader knows nothing of a producer and takes whatever it sends first."""
    async with a_member(deployment) as consumer, a_producer(deployment) as producer:
        send = producer._client.send
        refused: list[object] = []

        async def refused_once(node: int, request: object, **more: object) -> object:
            if isinstance(request, Produce) and not refused:
                refused.append(request)
                raise NotLeaderForPartitionError
            return await send(node, request, **more)

        monkeypatch.setattr(producer._client, "send", refused_once)
        await producer.write(batches(deployment, producer, count=12), offsets(deployment, 7), consumer.member())
        assert refused
    assert await evidence(deployment) == [(0, b"%d" % number) for number in range(12)]


async def test_a_past_generation_writes_nothing(deployment: Deployment) -> None:
    """A member that has lost its partitions unnoticed: its records and its offsets are refused together."""
    async with a_member(deployment) as first, a_producer(deployment) as zombie:
        past = first.member()
        async with a_member(deployment):
            with pytest.raises(IllegalGenerationError):
                await zombie.write(batches(deployment, zombie), offsets(deployment, 5), past)
            await zombie.abort()
        assert await first.committed_with_metadata(offsets(deployment, 0)) == {
            TopicPartition(deployment.topics[Role.CALLS], 0): (None, "")
        }
    assert await evidence(deployment) == []


async def test_offsets_without_a_generation_are_not_even_sent(deployment: Deployment) -> None:
    """Brokers would take them from anybody."""
    async with a_producer(deployment) as producer:
        member = GroupMember(f"{deployment.settings.group_prefix}-test")
        with pytest.raises(IllegalGenerationError):
            await producer.write(batches(deployment, producer), offsets(deployment, 5), member)
    assert await evidence(deployment) == []


async def test_the_previous_producer_of_an_id_is_fenced(deployment: Deployment) -> None:
    """Even as a member of the present generation."""
    async with a_member(deployment) as consumer, a_producer(deployment) as zombie, a_producer(deployment):
        with pytest.raises(ProducerFenced):
            await zombie.write(batches(deployment, zombie), offsets(deployment, 5), consumer.member())
    assert await evidence(deployment) == []


@pytest.mark.parametrize("is_committed", [True, False])
async def test_positions_are_read_once_an_open_transaction_has_ended(
    deployment: Deployment, is_committed: bool
) -> None:
    """Its offsets are in force or they are not; before that nobody knows."""
    async with a_member(deployment) as consumer, a_producer(deployment) as producer:
        await producer._add_group(consumer.member().group_id)
        await producer._commit_offsets(offsets(deployment, 5), consumer.member())
        reading = asyncio.create_task(consumer.committed_with_metadata(offsets(deployment, 0)))
        await asyncio.sleep(0.5)
        assert not reading.done()
        await producer._end(is_committed=is_committed)
        (noted,) = (await asyncio.wait_for(reading, 10)).values()
        assert noted == ((5, "mark") if is_committed else (None, ""))
