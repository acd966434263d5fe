"""When logs hold everything that was published: by the progress of the stages between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import TopicPartition

from assay_stream.config import Settings
from assay_stream.kafka.stage import Topology, UpstreamStages, steps_to
from assay_stream.kafka.topics import topic_names
from assay_stream.model.record import Role
from tests.support.memory_cluster import MemoryCluster, MemoryConsumer, running

TOPICS = topic_names(Settings())


@pytest.mark.parametrize(
    ("roles", "groups"),
    [
        ([Role.EVIDENCE], ["join"]),
        ([Role.FINDINGS], ["registry", "join"]),
        ([Role.ALERTS], ["registry", "join", "alerts"]),
        ([Role.EVIDENCE, Role.ALERTS], ["registry", "join", "alerts"]),
    ],
)
def test_what_a_topic_follows_from(roles: list[Role], groups: list[str]) -> None:
    """Findings come from lists and calls, so alerts do."""
    steps = [step for step in steps_to(roles) if step.reads != (Role.REROUTED,)]
    assert [step.stage for step in steps] == groups


@asynccontextmanager
async def following(cluster: MemoryCluster, *roles: Role) -> AsyncIterator[UpstreamStages]:
    topology = Topology(Settings(group_prefix="p"), dict.fromkeys(Role, 2), clients=cluster)
    upstream = UpstreamStages(steps_to(roles), topology)
    async with running(upstream):
        yield upstream


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


async def test_logs_are_complete_once_every_stage_between_has_come_as_far() -> None:
    """A call before the join, its finding before the alert stage."""
    cluster = MemoryCluster(dict.fromkeys(TOPICS.values(), 2))
    cluster.append(TOPICS[Role.CALLS], 1, b"", b"")
    async with following(cluster, Role.ALERTS) as upstream:
        complete = asyncio.create_task(upstream.complete())

        async def is_complete() -> bool:
            await asyncio.sleep(0.05)
            return complete.done()

        assert not await is_complete()
        await commit(cluster, "join", Role.CALLS, 1, 1, Role.FINDINGS)
        assert not await is_complete()
        await commit(cluster, "alerts", Role.FINDINGS, 1, 2, Role.ALERTS)
        assert await is_complete()


async def test_what_is_published_later_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a busy log would never be complete."""
    have_ends, end_offsets = asyncio.Event(), MemoryConsumer.end_offsets

    async def asked(consumer: MemoryConsumer, places: Any) -> Any:
        ends = await end_offsets(consumer, places)
        have_ends.set()
        return ends

    monkeypatch.setattr(MemoryConsumer, "end_offsets", asked)
    cluster = MemoryCluster(dict.fromkeys(TOPICS.values(), 2))
    cluster.append(TOPICS[Role.CALLS], 0, b"", b"")
    async with following(cluster, Role.EVIDENCE) as upstream:
        complete = asyncio.create_task(upstream.complete())
        await have_ends.wait()
        cluster.append(TOPICS[Role.CALLS], 0, b"", b"")
        await commit(cluster, "join", Role.CALLS, 0, 1, Role.EVIDENCE)
        await asyncio.wait_for(complete, 1)


async def test_re_routed_calls_are_waited_for() -> None:
    """Their evidence may come in any partition, after the call was read where it came."""
    cluster = MemoryCluster(dict.fromkeys(TOPICS.values(), 2))
    cluster.append(TOPICS[Role.CALLS], 1, b"", b"")
    async with following(cluster, Role.EVIDENCE) as upstream:
        complete = asyncio.create_task(upstream.complete())
        await commit(cluster, "join", Role.CALLS, 1, 1, Role.REROUTED)
        await asyncio.sleep(0.05)
        assert not complete.done()
        await commit(cluster, "join", Role.REROUTED, 1, 2, Role.EVIDENCE)
        await asyncio.wait_for(complete, 1)
