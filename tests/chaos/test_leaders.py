"""Where logs end, as a broker says that has just woken from a freeze."""

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from assay_stream.config import load_settings
from assay_stream.kafka.connection import Consumer, reading_consumer
from tests.chaos.world import Ground

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

TOPIC = "leaders"
PLACES = [TopicPartition(TOPIC, number) for number in range(6)]
SUCCEEDED_S = 14.0
"""Longer than the controller takes a broker for alive, and a successor to lead."""
LOOKS = 20


async def test_a_broker_that_wakes_does_not_hide_what_its_successor_took(ground: Ground) -> None:
    """Its own answers do: a call that was read then would be joined without a control record before it."""
    settings = load_settings(bootstrap_servers=ground.cluster.bootstrap)
    admin = AIOKafkaAdminClient(bootstrap_servers=ground.cluster.bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(TOPIC, len(PLACES), 3)])
    await admin.close()
    await asyncio.sleep(3)
    readers = [reading_consumer(settings) for _ in range(2)]
    for reader in readers:
        await reader.start()
        await reader.end_offsets(PLACES)
    victim = readers[0]._client.cluster.leader_for_partition(PLACES[0])
    taken = [tp for tp in PLACES if readers[0]._client.cluster.leader_for_partition(tp) == victim]
    ground.cluster.brokers[victim].pause()
    try:
        await asyncio.sleep(SUCCEEDED_S)
        sent = await publish(ground, victim, taken)
    finally:
        ground.cluster.brokers[victim].resume()
    ours, its_own = await asyncio.gather(looks(readers[0], Consumer), looks(readers[1], AIOKafkaConsumer))
    for reader in readers:
        await reader.stop()
    assert all(ends[tp] >= sent[tp] for ends in ours for tp in taken)
    assert any(ends[tp] < sent[tp] for ends in its_own for tp in taken), "it woke too late: the test proves nothing"


async def publish(ground: Ground, victim: int, places: list[TopicPartition]) -> dict[TopicPartition, int]:
    others = [broker.bootstrap for node, broker in ground.cluster.brokers.items() if node != victim]
    async with AIOKafkaProducer(bootstrap_servers=",".join(others), acks="all") as producer:
        sent = [await producer.send_and_wait(TOPIC, b"x", partition=tp.partition) for tp in places]
    return {tp: one.offset + 1 for tp, one in zip(places, sent, strict=True)}


async def looks(reader: Consumer, by: type[AIOKafkaConsumer]) -> list[dict[TopicPartition, int]]:
    told = []
    for _ in range(LOOKS):
        told.append(await by.end_offsets(reader, PLACES))
        await asyncio.sleep(0.005)
    return told
