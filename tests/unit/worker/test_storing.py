"""Filling a store from a cluster in memory: what a wrong clock may cost."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition

from assay_stream.config import Settings, load_settings
from assay_stream.kafka.topics import topic_names
from assay_stream.model.record import Record, Role
from assay_stream.readmodel import schema
from assay_stream.readmodel.filling import ROLES, Filler
from assay_stream.worker import storing
from assay_stream.worker.storing import StoreFilling
from tests.support.memory_cluster import MemoryCluster, MemoryConsumer
from tests.support.readmodel import NOW_US, history, of_role

SETTINGS = load_settings(poll_timeout_ms=1)
TOPICS = topic_names(SETTINGS)
YEAR_US = 365 * 86_400 * 1_000_000
EVIDENCE = of_role(history(), Role.EVIDENCE)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> MemoryCluster:
    @asynccontextmanager
    async def open_admin(_: Settings) -> AsyncIterator[Any]:
        async def describe_cluster() -> dict[str, str]:
            return {"cluster_id": "memory"}

        yield SimpleNamespace(describe_cluster=describe_cluster)

    async def places_of(_: Settings, topics: Sequence[str]) -> list[list[TopicPartition]]:
        return [[TopicPartition(topic, 0)] for topic in topics]

    async def finalised_level(_: Settings) -> None:
        pass

    monkeypatch.setattr(storing, "open_admin", open_admin)
    monkeypatch.setattr(storing, "places_of", places_of)
    monkeypatch.setattr(storing, "finalised_level", finalised_level)
    monkeypatch.setattr(MemoryConsumer, "last_poll_timestamp", lambda *_: None, raising=False)
    return MemoryCluster({TOPICS[role]: 1 for role in ROLES})


def publish(cluster: MemoryCluster, records: Sequence[Record]) -> None:
    for record in records:
        cluster.append(TOPICS[record.role], 0, record.key, record.value, timestamp_ms=record.timestamp_ms)


async def fill(cluster: MemoryCluster, filler: Filler, *, now_us: int) -> int:
    """Take in what there is, and return how many records of evidence the store has then."""
    filling = StoreFilling(SETTINGS, filler, once=True, now_us=lambda: now_us)
    filling.clients = cluster
    await filling.run()
    assert filling.status is not None
    return filling.status.counts["evidence"]


@pytest.mark.parametrize("read_before", [0, 20])
async def test_a_clock_that_was_ahead_once_costs_no_evidence(cluster: MemoryCluster, read_before: int) -> None:
    """No record is as young as that clock says, so age is counted from the latest."""
    filler = Filler(schema.temporary())
    publish(cluster, EVIDENCE[:read_before])
    assert await fill(cluster, filler, now_us=NOW_US) == read_before
    publish(cluster, EVIDENCE[read_before:40])
    assert await fill(cluster, filler, now_us=NOW_US + 5 * YEAR_US) == 40
    publish(cluster, EVIDENCE[40:])
    assert await fill(cluster, filler, now_us=NOW_US) == len(EVIDENCE)


async def test_old_evidence_goes_once_younger_records_are_there(cluster: MemoryCluster) -> None:
    """A record dated ahead changes nothing: the clock is the upper bound."""
    filler = Filler(schema.temporary())
    publish(cluster, EVIDENCE)
    assert await fill(cluster, filler, now_us=NOW_US + YEAR_US) == len(EVIDENCE)
    young = EVIDENCE[-1]._replace(timestamp_ms=(NOW_US + 9 * YEAR_US) // 1_000)
    publish(cluster, [young])
    assert await fill(cluster, filler, now_us=NOW_US) == len(EVIDENCE) + 1
    assert await fill(cluster, filler, now_us=NOW_US + YEAR_US) == 0
