"""What brokers forget of transactions that end while partitions have no leader (KAFKA-20734), on real Kafka."""

import asyncio
from contextlib import suppress

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import NewTopic

from assay_stream.config import Settings
from assay_stream.kafka.connection import KafkaClients, open_admin, read, reading_consumer
from deploy.local.kafka import QUICK_START, Broker

pytestmark = [pytest.mark.kafka, pytest.mark.tier(name="outages")]

DECIDING, OPEN = range(20), range(20, 23)
TIMEOUT_MS = 6_000


class SlowToReturn(Broker):
    """A broker that aborts what is past its time limit while its partitions still wait for a leader."""

    def properties(self) -> str:
        late = "broker.session.timeout.ms=8000\ntransaction.abort.timed.out.transaction.cleanup.interval.ms=50\n"
        return super().properties() + late


def output(number: int) -> TopicPartition:
    return TopicPartition("outputs", number)


def place(number: int) -> TopicPartition:
    return TopicPartition("inputs", number)


async def left_behind(broker: Broker) -> None:
    """Kill the only broker while it tells partitions of some commits, and outlast the time limit of others."""
    producers = []
    for number in (*DECIDING, *OPEN):
        producer = AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap,
            transactional_id=f"id-{number}",
            transaction_timeout_ms=60_000 if number in DECIDING else TIMEOUT_MS,
        )
        producers.append(producer)
        await producer.start()
    for number, producer in enumerate(producers):
        await producer.begin_transaction()
        await producer.send(output(number).topic, b"before", partition=number)
        await producer.send_offsets_to_transaction({place(number): 5}, f"group-{number}")
        await producer.flush()
    commits = [asyncio.create_task(producers[number].commit_transaction()) for number in DECIDING]
    await asyncio.wait(commits, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.to_thread(broker.kill)
    for commit in commits:
        commit.cancel()
    await asyncio.gather(*commits, return_exceptions=True)
    for producer in producers:
        with suppress(TimeoutError):
            await asyncio.wait_for(producer.stop(), 0.1)
    await asyncio.sleep(TIMEOUT_MS / 1_000)


async def test_a_transaction_stays_as_it_was_decided_through_an_outage_of_all_brokers() -> None:
    """Its records and its offsets are committed, or neither; and the next one decides over itself alone."""
    with SlowToReturn(options=QUICK_START) as broker:
        settings = Settings(bootstrap_servers=broker.bootstrap)
        count = len(DECIDING) + len(OPEN)
        async with open_admin(settings) as admin:
            await admin.create_topics([NewTopic("inputs", count, 1), NewTopic("outputs", count, 1)])
        await left_behind(broker)
        await asyncio.to_thread(broker.start)
        clients, kept = KafkaClients(settings), {}
        for number in range(count):
            producer, group = clients.producer(f"id-{number}"), f"group-{number}"
            consumer = reading_consumer(settings, group_id=group)
            await consumer.start()
            await producer.take_over(group, [place(number)], [output(number)])
            [(committed, _)] = (await consumer.committed_with_metadata([place(number)])).values()
            kept[number] = committed is not None
            await producer.begin_transaction()
            await producer.send_and_wait("outputs", b"after", partition=number)
            await producer.send_offsets_to_transaction({place(number): 6}, group)
            await producer.commit_transaction()
            assert await consumer.committed_with_metadata([place(number)]) == {place(number): (6, "")}
            [end] = (await consumer.end_offsets([output(number)])).values()
            found = [each.value async for batch in read(consumer, output(number), 0, end) for each in batch]
            assert found == [*[b"before"] * kept[number], b"after"], number
            await consumer.stop()
            await producer.stop()
        assert any(kept[number] for number in DECIDING)
        assert not any(kept[number] for number in OPEN)
