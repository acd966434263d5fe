"""Reading up to an end, and following on and on, over a cluster in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import (
    KafkaConnectionError,
    NodeNotReadyError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
)

from assay_stream.config import Settings
from assay_stream.errors import ConfigurationError, OperatingError
from assay_stream.kafka import log
from assay_stream.kafka.log import Follower, Patience, read, read_last, read_partition
from assay_stream.model.record import Record, Role
from tests.support.deployment import free_port
from tests.support.memory_cluster import MemoryCluster, until

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


class Following:
    def __init__(self, cluster: MemoryCluster, *failures: Exception) -> None:
        self.cluster = cluster
        self.failures = list(failures)
        self.values: list[bytes | None] = []
        self.said: list[str] = []
        self.follower = Follower(self._consumer, Role.CALLS, self._starts, self._take, failed=self.said.append)

    async def _starts(self, _: Any) -> Mapping[TopicPartition, int]:
        return {HOME: 1, TopicPartition("t", 1): 0}

    def _consumer(self) -> Any:
        consumer = self.cluster.consumer()
        getmany = consumer.getmany

        async def failing(*partitions: TopicPartition, **options: Any) -> Any:
            if self.failures and len(self.values) >= 2:
                error = self.failures.pop(0)
                if isinstance(error, OffsetOutOfRangeError):
                    self.cluster.delete_before("t", 0, 5)
                raise error
            return await getmany(*partitions, **options | {"max_records": 2})

        consumer.getmany = failing
        return consumer

    def _take(self, records: Sequence[Record]) -> None:
        self.values += [record.value for record in records]


async def test_what_is_followed_comes_once_however_often_brokers_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on where it was; each failure is said. It is ready once what was there at first has been read."""
    monkeypatch.setattr(log, "_PAUSE_S", 0.0)
    following = Following(filled(5), KafkaConnectionError(), OSError())
    running = asyncio.create_task(following.follower.run())
    await until(lambda: following.follower.ready)
    following.cluster.append("t", 1, b"k", b"later")
    await until(lambda: len(following.values) == 5)
    following.follower.stop()
    await running
    assert following.values == [b"1", b"2", b"3", b"4", b"later"]
    assert following.said == [
        f"the brokers fail ({kind}), trying again" for kind in ("KafkaConnectionError", "OSError")
    ]


async def test_what_was_deleted_unread_is_passed_over_and_said() -> None:
    """Reading goes on with the earliest record there is."""
    following = Following(filled(7), OffsetOutOfRangeError({}))
    running = asyncio.create_task(following.follower.run())
    await until(lambda: b"6" in following.values)
    following.follower.stop()
    await running
    assert following.values == [b"1", b"2", b"5", b"6"]
    assert following.said == ["records were deleted before they could be read: going on with the earliest there are"]


async def test_what_cannot_be_handled_ends_it() -> None:
    following = Following(filled(5), ValueError("no call"))
    with pytest.raises(ValueError, match="no call"):
        await following.follower.run()


async def test_brokers_that_are_away_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a limit, by a process that goes on; a run that ends gives up. Half an hour takes no time here."""
    monkeypatch.setattr(log, "_PAUSE_S", 0.0)
    settings = Settings(bootstrap_servers=f"127.0.0.1:{free_port()}")
    away = [KafkaConnectionError(), NodeNotReadyError(), OperatingError("token_unavailable", "away")]
    patience = Patience("reading", asyncio.Event(), settings)
    assert all([await patience.endure(away[number % 3]) for number in range(60)])
    once = Patience("reading", asyncio.Event(), settings, waits=False)
    assert all([await once.endure(KafkaConnectionError()) for _ in range(10)])
    with pytest.raises(OperatingError, match="brokers_failing"):
        await once.endure(KafkaConnectionError())


async def test_brokers_that_refuse_us_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """To a client they look as if they were away, so a process asks why once it has waited for a while."""
    monkeypatch.setattr(log, "_PAUSE_S", 0.0)

    async def refuse(_connection: object) -> ConfigurationError:
        return ConfigurationError("sasl_refused", "another password")

    monkeypatch.setattr(log, "why_refused", refuse)
    patience = Patience("reading", asyncio.Event(), Settings())
    assert all([await patience.endure(KafkaConnectionError()) for _ in range(10)])
    with pytest.raises(ConfigurationError, match="sasl_refused"):
        await patience.endure(KafkaConnectionError())


async def test_other_failures_in_a_row_are_endured_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever makes progress sets them back. A stop ends a pause; what brokers do not allow is raised at once."""
    monkeypatch.setattr(log, "_PAUSE_S", 0.0)
    stopping = asyncio.Event()
    patience = Patience("reading", stopping, Settings())
    assert all([await patience.endure(OSError()) for _ in range(10)])
    with pytest.raises(OperatingError, match=r"brokers_failing.*reading failed 11 times in a row, last with OSError"):
        await patience.endure(OSError())
    patience.failures = 0
    stopping.set()
    monkeypatch.setattr(log, "_PAUSE_S", 3_600.0)
    assert not await patience.endure(OSError())
    with pytest.raises(ConfigurationError, match="not_authorized"):
        await patience.endure(TopicAuthorizationFailedError())
