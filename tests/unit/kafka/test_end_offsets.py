"""Where logs end, while a broker that was frozen still takes itself for the leader of some."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaTimeoutError, NodeNotReadyError

from assay_stream.kafka import connection as module
from assay_stream.kafka.connection import Consumer

PLACE = TopicPartition("assay.control", 0)
OLD, NEW, THIRD = 1, 2, 3


class Brokers:
    """Three brokers as a client sees them; each has its own word of who leads, and of where the log ends.

    Args:
        leader_by: whom each broker takes for the leader; one that is left out does not answer.
        ends: where the log ends, by each that takes itself for the leader.
        known: whom the client takes for the leader at first.
    """

    def __init__(self, leader_by: Mapping[int, int], ends: Mapping[int, int], known: int = OLD) -> None:
        self.leader_by, self.ends, self.known = dict(leader_by), ends, known
        self.updates = 0
        self.cluster = SimpleNamespace(
            brokers=lambda: [SimpleNamespace(nodeId=node) for node in (OLD, NEW, THIRD)],
            leader_for_partition=lambda _: self.known,
        )

    async def send(self, node: int, _request: object) -> Any:
        """Answer a request for metadata."""
        if node not in self.leader_by:
            await asyncio.sleep(60)
        if self.leader_by[node] == 0:
            raise NodeNotReadyError
        return SimpleNamespace(topics=[(0, PLACE.topic, False, [(0, PLACE.partition, self.leader_by[node], [], [])])])

    async def force_metadata_update(self) -> None:
        """Ask any broker who leads: here the one that was frozen at first, and then another."""
        self.updates += 1
        self.known = self.leader_by[OLD if self.updates == 1 else THIRD]


async def ends_by(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> int:
    """Where a consumer says that the log ends."""

    async def end_offsets(_: object, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(places, brokers.ends[brokers.known])

    monkeypatch.setattr(AIOKafkaConsumer, "end_offsets", end_offsets)
    monkeypatch.setattr(module, "_LEADERS_PAUSE_S", 0.0)
    consumer = Consumer.__new__(Consumer)
    consumer._client = brokers
    monkeypatch.setattr(Consumer, "__del__", lambda _: None, raising=False)
    async with asyncio.timeout(10):
        return (await consumer.end_offsets([PLACE]))[PLACE]


async def test_a_leader_that_was_frozen_does_not_say_where_a_log_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its log ended before the control record that its successor took: a call would not wait for that."""
    brokers = Brokers({OLD: OLD, NEW: NEW, THIRD: NEW}, {OLD: 5, NEW: 6})
    assert await ends_by(brokers, monkeypatch) == 6
    assert brokers.updates == 2


async def test_a_leader_that_nobody_else_names_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its word about itself counts for one, and a broker that cannot be reached for nothing."""
    brokers = Brokers({OLD: OLD, NEW: 0, THIRD: NEW}, {OLD: 5, NEW: 6})
    with pytest.raises(KafkaTimeoutError):
        await ends_by(brokers, monkeypatch)
    brokers.leader_by[NEW] = NEW
    assert await ends_by(brokers, monkeypatch) == 6


async def test_another_broker_that_hangs_delays_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that names the leader is enough."""
    brokers = Brokers({NEW: NEW, THIRD: NEW}, {NEW: 6}, known=NEW)
    assert await ends_by(brokers, monkeypatch) == 6
    assert brokers.updates == 0
