"""When logs hold everything that was published: by the progress of the stages between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import TopicPartition

from assay_stream.config import Settings
from assay_stream.kafka.stage import Topology
from assay_stream.kafka.topics import topic_names
from assay_stream.model.record import Role
from assay_stream.worker.detections import UpstreamStages
from tests.support.memory_cluster import MemoryCluster, MemoryConsumer, running

TOPICS = topic_names(Settings())
STEPS = {"registry": (Role.SNAPSHOTS, Role.CONTROL), "alerts": (Role.FINDINGS,)}


@pytest.fixture
def cluster() -> MemoryCluster:
    """With one list that the registry has not read."""
    made = MemoryCluster(dict.fromkeys(TOPICS.values(), 2))
    made.append(TOPICS[Role.SNAPSHOTS], 1, b"", b"")
    return made


@asynccontextmanager
async def completing(cluster: MemoryCluster) -> AsyncIterator[asyncio.Task[None]]:
    topology = Topology(Settings(group_prefix="p"), dict.fromkeys(Role, 2), clients=cluster)
    upstream = UpstreamStages(STEPS, topology)
    async with running(upstream):
        yield asyncio.create_task(upstream.complete())


async def commit(cluster: MemoryCluster, stage: str, role: Role, partition: int, offset: int, *writes: Role) -> None:
    """Commit that a stage has read so far, and has written a record to each of some topics."""
    producer = cluster.producer(f"{stage}-{partition}")
    await producer.start()
    await producer.begin_transaction()
    for written in writes:
        batch = producer.create_batch()
        batch.append(timestamp=0, key=b"", value=b"")
        await producer.send_batch(batch, TOPICS[written], partition=partition)
    tp = TopicPartition(TOPICS[role], partition)
    await producer.send_offsets_to_transaction({tp: (offset, "")}, f"p-{stage}")
    await producer.commit_transaction()


async def test_logs_are_complete_once_every_stage_between_has_come_as_far(cluster: MemoryCluster) -> None:
    """A list before the registry, its finding before the alert stage."""
    async with completing(cluster) as complete:

        async def is_complete() -> bool:
            await asyncio.sleep(0.05)
            return complete.done()

        assert not await is_complete()
        await commit(cluster, "registry", Role.SNAPSHOTS, 1, 1, Role.FINDINGS)
        assert not await is_complete()
        await commit(cluster, "alerts", Role.FINDINGS, 1, 2, Role.ALERTS)
        assert await is_complete()


async def test_what_is_published_later_is_not_waited_for(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a busy log would never be complete."""
    have_ends, end_offsets = asyncio.Event(), MemoryConsumer.end_offsets

    async def asked(consumer: MemoryConsumer, places: Any) -> Any:
        ends = await end_offsets(consumer, places)
        have_ends.set()
        return ends

    monkeypatch.setattr(MemoryConsumer, "end_offsets", asked)
    async with completing(cluster) as complete:
        await have_ends.wait()
        cluster.append(TOPICS[Role.SNAPSHOTS], 1, b"", b"")
        await commit(cluster, "registry", Role.SNAPSHOTS, 1, 1)
        await asyncio.wait_for(complete, 1)
