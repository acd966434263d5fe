"""Logs in Kafka for code that is not asynchronous, over a consumer in memory."""

# ruff: noqa: ARG002 - the signatures are the client's

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaConnectionError

from assay_stream.config import Settings, load_settings
from assay_stream.core.errors import OperatingError
from assay_stream.core.record import Role
from assay_stream.forensics.seal_files import LogName
from assay_stream.stream import seal_logs
from assay_stream.stream.seal_logs import KafkaLogs
from tests.support.seals import TOPIC, some_records
from tests.unit.stream.test_sealing import Message

RECORDS = some_records(*range(3, 10))


class Consumer:
    """Reads partition 0, two records a poll; partition 1 is empty."""

    error: Exception | None = None
    is_stuck = False
    running = 0

    def __init__(self, settings: Settings) -> None:
        self.position_ = 0

    async def start(self) -> None:
        """Count it."""
        Consumer.running += 1

    async def stop(self) -> None:
        """Count it."""
        Consumer.running -= 1

    def assign(self, partitions: list[TopicPartition]) -> None:
        """One at a time."""
        assert len(partitions) == 1

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go there."""
        self.position_ = offset

    async def position(self, partition: TopicPartition) -> int:
        """Where it is."""
        return self.position_

    async def beginning_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Retention has cut the first."""
        return {partition: 3 if partition.partition == 0 else 0 for partition in partitions}

    async def end_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """The last record came after the start."""
        return {partition: 9 if partition.partition == 0 else 0 for partition in partitions}

    async def getmany(self, partition: TopicPartition, *, timeout_ms: int) -> dict[TopicPartition, list[Any]]:
        """Two records."""
        if Consumer.error is not None:
            raise Consumer.error
        if Consumer.is_stuck:
            return {}
        found = [record for record in RECORDS if record.origin.offset >= self.position_][:2]
        self.position_ = found[-1].origin.offset + 1
        return {partition: [Message(*r.origin, r.key, r.value, r.headers, r.timestamp_ms) for r in found]}


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> Iterator[KafkaLogs]:
    """The evidence of two partitions."""

    async def two(settings: Settings, topic: str) -> int:
        return 2

    monkeypatch.setattr(seal_logs, "reading_consumer", Consumer)
    monkeypatch.setattr(seal_logs, "partition_count", two)
    monkeypatch.setattr(Consumer, "error", None)
    monkeypatch.setattr(Consumer, "is_stuck", False)
    with asyncio.Runner() as runner:
        yield KafkaLogs(load_settings(connect_limit_s=1), Role.EVIDENCE, runner)
    assert Consumer.running == 0


def test_a_log_is_read_to_where_it_ended_at_the_start(logs: KafkaLogs) -> None:
    """As often as asked for."""
    assert logs.names() == [LogName(TOPIC, 0), LogName(TOPIC, 1)]
    for _ in range(2):
        assert list(logs.records(LogName(TOPIC, 0))) == RECORDS[:6]
    assert (logs.start(LogName(TOPIC, 0)), logs.start(LogName(TOPIC, 1))) == (3, 0)


def test_a_log_that_is_empty_or_not_there_has_no_records(logs: KafkaLogs) -> None:
    """Nobody is asked for them."""
    assert list(logs.records(LogName(TOPIC, 1))) == []
    assert list(logs.records(LogName("other", 0))) == []


def test_a_log_that_is_left_early_leaves_nothing_open(logs: KafkaLogs) -> None:
    """The fixture counts consumers."""
    records = logs.records(LogName(TOPIC, 0))
    assert next(records) == RECORDS[0]
    assert Consumer.running == 1
    records.close()  # type: ignore[attr-defined]


def test_a_broker_that_fails_is_an_error_of_ours(logs: KafkaLogs, monkeypatch: pytest.MonkeyPatch) -> None:
    """So is one that gives nothing for too long."""
    monkeypatch.setattr(Consumer, "error", KafkaConnectionError())
    with pytest.raises(OperatingError, match="brokers_failing"):
        list(logs.records(LogName(TOPIC, 0)))
    times = iter(range(0, 1_000, 5))
    monkeypatch.setattr(seal_logs, "time", SimpleNamespace(monotonic=lambda: next(times)))
    monkeypatch.setattr(Consumer, "error", None)
    monkeypatch.setattr(Consumer, "is_stuck", True)
    with pytest.raises(OperatingError, match="brokers_failing"):
        list(logs.records(LogName(TOPIC, 0)))
