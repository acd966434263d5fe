"""Where the change log of the alert table is gone, findings are read again; the brokers are a double."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import CommitFailedError, KafkaConnectionError, KafkaError

from assay_stream.config import load_settings
from assay_stream.core.errors import OperatingError
from assay_stream.stream import alert_table
from assay_stream.stream.alert_table import start_over_where_lost

FINDINGS = "assay.tool.finding"
CHANGELOG = "assay-stream-alerts-alerts-changelog"


class Group:
    """The alert group on two partitions: what it committed, and where the logs begin and end."""

    def __init__(self) -> None:
        self.committed_now: dict[TopicPartition, int | None] = {
            TopicPartition(FINDINGS, 0): 40,
            TopicPartition(FINDINGS, 1): 50,
        }
        self.beginnings = {TopicPartition(FINDINGS, 0): 5, TopicPartition(FINDINGS, 1): 0} | {
            TopicPartition(CHANGELOG, number): 0 for number in (0, 1)
        }
        self.ends = {TopicPartition(CHANGELOG, number): 7 for number in (0, 1)}
        self.error_at_start: KafkaError | None = None
        self.error_at_commit: KafkaError | None = None
        self.stopped = False

    async def start(self) -> None:
        if self.error_at_start:
            raise self.error_at_start

    async def stop(self) -> None:
        self.stopped = True

    def assign(self, partitions: list[TopicPartition]) -> None:
        pass

    async def committed(self, partition: TopicPartition) -> int | None:
        return self.committed_now[partition]

    async def commit(self, positions: Mapping[TopicPartition, int]) -> None:
        if self.error_at_commit:
            raise self.error_at_commit
        self.committed_now |= positions

    async def beginning_offsets(self, partitions: list[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {partition: self.beginnings[partition] for partition in partitions}

    async def end_offsets(self, partitions: list[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {partition: self.ends[partition] for partition in partitions}


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Group:
    """The group that every reader belongs to."""
    made = Group()
    monkeypatch.setattr(alert_table, "reading_consumer", lambda *_, **__: made)
    return made


async def test_a_whole_table_is_gone_on_from(group: Group) -> None:
    """Where every partition of the change log holds records, nothing is committed."""
    before = dict(group.committed_now)
    assert await start_over_where_lost(load_settings(), partitions=2) == []
    assert group.committed_now == before
    assert group.stopped


async def test_a_lost_partition_is_read_from_its_beginning(group: Group) -> None:
    """Findings whose part of the change log is empty are read again as far as they reach; others are not."""
    group.ends[TopicPartition(CHANGELOG, 0)] = 0
    assert await start_over_where_lost(load_settings(), partitions=2) == [0]
    assert group.committed_now == {TopicPartition(FINDINGS, 0): 5, TopicPartition(FINDINGS, 1): 50}


async def test_a_change_log_emptied_in_place_is_lost_too(group: Group) -> None:
    """What counts is that no record is left, not that none was ever written."""
    group.beginnings[TopicPartition(CHANGELOG, 1)] = 7
    assert await start_over_where_lost(load_settings(), partitions=2) == [1]


@pytest.mark.parametrize("committed", [None, 5])
async def test_a_new_deployment_is_not_a_lost_table(group: Group, committed: int | None) -> None:
    """A group that has not got beyond the beginning has nothing to start over from."""
    group.ends[TopicPartition(CHANGELOG, 0)] = 0
    group.committed_now[TopicPartition(FINDINGS, 0)] = committed
    assert await start_over_where_lost(load_settings(), partitions=2) == []


@pytest.mark.parametrize("at", ["start", "commit"])
async def test_workers_still_running_on_the_lost_table_are_named(group: Group, at: str) -> None:
    """While a group has members the broker takes no position from outside: the operator is told to stop them."""
    group.ends[TopicPartition(CHANGELOG, 0)] = 0
    setattr(group, f"error_at_{at}", KafkaConnectionError() if at == "start" else CommitFailedError())
    with pytest.raises(OperatingError, match="stop every worker") as refused:
        await start_over_where_lost(load_settings(), partitions=2)
    assert refused.value.code == "alert_table_lost"
    assert group.stopped
