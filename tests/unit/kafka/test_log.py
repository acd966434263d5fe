"""Reading up to an end, over a cluster in memory."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import TopicPartition

from assay_stream.kafka.log import read, read_last, read_partition
from assay_stream.model.record import Role
from tests.support.memory_cluster import MemoryCluster

HOME = TopicPartition("t", 0)


def filled(count: int) -> MemoryCluster:
    cluster = MemoryCluster({"t": 2})
    for number in range(count):
        cluster.append("t", 0, b"k", b"%d" % number)
    return cluster


async def test_a_part_is_read_from_an_offset_to_before_another() -> None:
    """And what is behind it stays unread."""
    consumer = filled(9).consumer()
    batches = [batch async for batch in read(consumer, HOME, 3, 6)]
    assert [message.offset for batch in batches for message in batch] == [3, 4, 5]
    assert [batch async for batch in read(consumer, HOME, 6, 6)] == []


async def test_reading_a_long_log_leaves_turns_to_others() -> None:
    """A restore that never paused would starve the heartbeats, and lose the partition that is being restored."""
    turns = 0

    async def beat() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beating = asyncio.create_task(beat())
    count = 0
    async for _ in read_partition(filled(20_000).consumer(), Role.BINDINGS, HOME):
        count += 1
    beating.cancel()
    assert count == 20_000
    assert turns >= 10


@pytest.mark.parametrize("aborted", [0, 50])
async def test_the_last_record_is_found_behind_markers_and_aborted_ones(aborted: int) -> None:
    """They take offsets too; an empty log has none."""
    cluster = filled(3)
    for _ in range(aborted):
        producer = cluster.producer("id")
        await producer.start()
        await producer.begin_transaction()
        batch = producer.create_batch()
        batch.append(timestamp=0, key=b"k", value=b"aborted")
        await producer.send_batch(batch, "t", partition=0)
        await producer.abort_transaction()
    found = await read_last(cluster.consumer(), Role.CALLS, HOME)
    assert found is not None
    assert found.value == b"2"
    assert await read_last(cluster.consumer(), Role.CALLS, TopicPartition("t", 1)) is None
