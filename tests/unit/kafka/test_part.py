"""A part's patience with brokers, and following a topic, over a cluster in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import (
    KafkaConnectionError,
    KafkaTimeoutError,
    NodeNotReadyError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
)

from assay_stream.config import Settings
from assay_stream.errors import ConfigurationError, OperatingError
from assay_stream.kafka import part as module
from assay_stream.kafka.part import SILENCE_LIMIT_S, BrokerWatch, Follower, PatientPart
from assay_stream.model.record import Record, Role
from tests.support.deployment import free_port
from tests.support.memory_cluster import MemoryCluster, running, until
from tests.unit.kafka.test_connection import HOME, filled

pytestmark = pytest.mark.usefixtures("no_pauses")


class Following:
    def __init__(self, cluster: MemoryCluster, *failures: Exception) -> None:
        self.cluster = cluster
        self.failures = list(failures)
        self.values: list[bytes | None] = []
        self.said: list[str] = []
        clients: Any = self
        self.follower = Follower(
            Settings(), Role.CALLS, self._starts, self._take, tell=self.said.append, clients=clients
        )

    async def _starts(self, _: Any) -> Mapping[TopicPartition, int]:
        return {HOME: 1, TopicPartition("t", 1): 0}

    def consumer(self, **_: Any) -> Any:
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


async def test_what_is_followed_comes_once_however_often_brokers_fail() -> None:
    """It goes on where it was; each failure is said. It is ready once what was there at first has been read."""
    following = Following(filled(5), KafkaConnectionError(), OSError(), KafkaTimeoutError("a transaction does not end"))
    async with running(following.follower):
        await until(lambda: following.follower.ready)
        following.cluster.append("t", 1, b"k", b"later")
        await until(lambda: len(following.values) == 5)
    assert following.values == [b"1", b"2", b"3", b"4", b"later"]
    assert following.said == [
        f"following the topic of calls failed {count} times in a row, last with {kind}: trying again"
        for count, kind in enumerate(
            ("KafkaConnectionError", "OSError", "KafkaTimeoutError (a transaction does not end)"), 1
        )
    ]


async def test_what_was_deleted_unread_is_passed_over_and_said() -> None:
    """Reading goes on with the earliest record there is."""
    following = Following(filled(7), OffsetOutOfRangeError({}))
    async with running(following.follower):
        await until(lambda: b"6" in following.values)
    assert following.values == [b"1", b"2", b"5", b"6"]
    assert following.said == ["records were deleted before they could be read: going on with the earliest there are"]


async def test_offsets_that_stay_out_of_range_end_it() -> None:
    """A log that ends before the position: opening it again changes nothing, and must not be tried without a pause."""
    following = Following(filled(7), *[OffsetOutOfRangeError({})] * 100)
    with pytest.raises(OperatingError, match=r"brokers_failing.*11 times in a row, last with OffsetOutOfRangeError"):
        await following.follower.run()
    following = Following(filled(7), *[OffsetOutOfRangeError({})] * 100)
    following.follower.stop()
    await following.follower.run()
    assert following.failures


async def test_a_topic_that_is_deleted_ends_what_follows_it() -> None:
    """After a while: it would go on looking for a leader, ready and silent."""
    cluster = filled(5)
    following = Following(cluster)
    running_on = asyncio.create_task(following.follower.run())
    await until(lambda: following.follower.ready)
    cluster.deleted.add("t")
    with pytest.raises(OperatingError, match=r"brokers_failing.*last with UnknownTopicOrPartitionError"):
        await asyncio.wait_for(running_on, 10)


async def test_what_cannot_be_handled_ends_it() -> None:
    following = Following(filled(5), ValueError("no call"))
    with pytest.raises(ValueError, match="no call"):
        await following.follower.run()


async def test_brokers_that_are_away_are_waited_for() -> None:
    """Without a limit, by a process that goes on; a run that ends gives up. Half an hour takes no time here."""
    settings = Settings(bootstrap_servers=f"127.0.0.1:{free_port()}")
    away = [KafkaConnectionError(), NodeNotReadyError(), OperatingError("token_unavailable", "away")]
    part = PatientPart("reading", settings)
    assert all([await part.endure(away[number % 3]) for number in range(60)])
    once = PatientPart("reading", settings, waits=False)
    assert all([await once.endure(KafkaConnectionError()) for _ in range(10)])
    with pytest.raises(OperatingError, match="brokers_failing"):
        await once.endure(KafkaConnectionError())


async def test_brokers_that_refuse_us_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """To a client they look as if they were away, so a process asks why once it has waited for a while."""

    async def refuse(_connection: object) -> ConfigurationError:
        return ConfigurationError("sasl_refused", "another password")

    monkeypatch.setattr(module, "why_refused", refuse)
    part = PatientPart("reading", Settings())
    assert all([await part.endure(KafkaConnectionError()) for _ in range(10)])
    with pytest.raises(ConfigurationError, match="sasl_refused"):
        await part.endure(KafkaConnectionError())


async def test_other_failures_in_a_row_are_endured_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever makes progress sets them back. A stop ends a pause; what brokers do not allow is raised at once."""
    part = PatientPart("reading", Settings())
    assert all([await part.endure(OSError()) for _ in range(10)])
    with pytest.raises(OperatingError, match=r"brokers_failing.*reading failed 11 times in a row, last with OSError"):
        await part.endure(OSError())
    part.failures = 0
    part.stop()
    monkeypatch.setattr(module, "_PAUSE_S", 3_600.0)
    assert not await part.endure(OSError())
    with pytest.raises(ConfigurationError, match="not_authorized"):
        await part.endure(TopicAuthorizationFailedError())


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


async def test_silence_grows_from_the_last_answer() -> None:
    """Ready with an answer, for as long as the limit; not before the first."""
    clock = Clock()
    watch = BrokerWatch(Settings(), monotonic_s=clock)
    clock.now_s += 3
    assert (watch.ready, watch.silent_s) == (False, 3.0)
    watch._answered_s = clock()
    clock.now_s += SILENCE_LIMIT_S
    assert watch.ready
    clock.now_s += 0.1
    assert not watch.ready


async def test_brokers_that_are_away_are_only_silence() -> None:
    """It goes on asking, raises nothing, and stops when told."""
    watch = BrokerWatch(Settings(bootstrap_servers=f"127.0.0.1:{free_port()}"))
    asking = asyncio.create_task(watch.run())
    await asyncio.sleep(0.5)
    assert not asking.done()
    assert not watch.ready
    watch.stop()
    async with asyncio.timeout(30):
        await asking
