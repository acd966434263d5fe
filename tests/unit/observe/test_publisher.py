"""The publishing client, with a producer that fails as Kafka does."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiokafka.errors import (
    InvalidTimestampError,
    InvalidTopicError,
    KafkaConnectionError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    TopicAuthorizationFailedError,
)

from assay_stream.model.record import LOSS_TYPE
from assay_stream.observe import Observation, ObservationPublisher, PublisherLimits, Spool
from tests.support.memory_cluster import until
from tests.unit.observe.test_events import a_call, a_snapshot

QUICK = {"backoff_min_s": 0.001, "backoff_max_s": 0.002}


class Cluster:
    def __init__(self) -> None:
        self.records: list[tuple[str, bytes]] = []
        self.start_faults: list[Exception] = []
        self.send_faults: list[Exception | None] = []
        self.delivery_faults: list[Exception | None] = []
        self.spares_reports = False
        """Whether only observations meet faults: a report of what was dropped may come between any two of them."""
        self.hangs = False
        self.hangs_sending: asyncio.Event | None = None
        self.waiting: list[Callable[[], object]] = []
        self.open = 0

    def release(self) -> None:
        for answer in self.waiting:
            answer()

    def producer(self) -> FakeProducer:
        return FakeProducer(self)


class FakeProducer:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    async def start(self) -> None:
        self.cluster.open += 1
        if self.cluster.hangs:
            await asyncio.Event().wait()
        if self.cluster.start_faults:
            raise self.cluster.start_faults.pop(0)

    async def stop(self) -> None:
        self.cluster.open -= 1

    async def partitions_for(self, _: str, /) -> set[int]:
        return {0}

    async def send(self, topic: str, *, value: bytes, **_: Any) -> Awaitable[Any]:
        may_fail = not (self.cluster.spares_reports and is_report(value))
        if may_fail and self.cluster.send_faults and (fault := self.cluster.send_faults.pop(0)):
            raise fault
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if may_fail and self.cluster.delivery_faults and (fault := self.cluster.delivery_faults.pop(0)):
            future.set_exception(fault)
        else:
            self.cluster.records.append((topic, value))
            if self.cluster.hangs_sending is None:
                future.set_result(None)
            else:
                loop = asyncio.get_running_loop()
                self.cluster.waiting.append(lambda: loop.call_soon_threadsafe(future.set_result, None))
        return future


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def a_publisher(cluster: Cluster, **limits: Any) -> ObservationPublisher:
    return ObservationPublisher({}, limits=PublisherLimits(**(QUICK | limits)), producer_factory=cluster.producer)


def numbered_calls(count: int) -> list[Observation]:
    return [a_call(tool_name=f"tool-{number}") for number in range(count)]


def is_report(value: bytes) -> bool:
    return LOSS_TYPE.encode() in value


def observed(cluster: Cluster) -> list[bytes]:
    return [value for _, value in cluster.records if not is_report(value)]


async def test_observations_arrive_in_order_on_their_topics(cluster: Cluster) -> None:
    observations = [a_snapshot([]), *numbered_calls(1_200)]
    async with a_publisher(cluster) as publisher:
        assert all(publisher.publish(observation) for observation in observations)
    assert [value for _, value in cluster.records] == [item.value for item in observations]
    assert {topic for topic, _ in cluster.records} == {"mcp.tools.list", "mcp.tools.call"}
    assert (publisher.stats.delivered, publisher.stats.queued, publisher.stats.queued_bytes) == (1_201, 0, 0)
    assert publisher.stats.dropped == {}
    assert cluster.open == 0


async def test_an_unreachable_broker_is_tried_until_it_is_there(cluster: Cluster) -> None:
    """Starting does not wait for it, and nothing is lost meanwhile."""
    cluster.start_faults = [KafkaConnectionError("away"), OSError("away"), TimeoutError()]
    publisher = a_publisher(cluster)
    publisher.publish(a_call())
    publisher.start()
    assert not publisher.stats.connected
    await until(lambda: publisher.stats.delivered == 1)
    assert publisher.stats.connected
    assert publisher.stats.retries == 3
    await publisher.aclose()
    assert cluster.open == 0, "every producer, failed or not, is let go"


@pytest.mark.parametrize("fault", [KafkaTimeoutError(), OSError(), TopicAuthorizationFailedError()])
@pytest.mark.parametrize("place", ["send_faults", "delivery_faults"])
async def test_what_may_mend_is_sent_again_in_order(cluster: Cluster, fault: Exception, place: str) -> None:
    setattr(cluster, place, [None, fault, None, fault])
    observations = numbered_calls(6)
    publisher = a_publisher(cluster, batch_records_max=2)
    # Queued before anything is sent, so that the faults meet the same batches every time.
    for observation in observations:
        publisher.publish(observation)
    async with publisher:
        pass
    assert [value for _, value in cluster.records] == [item.value for item in observations]
    assert publisher.stats.dropped == {}


async def test_what_kafka_finds_too_large_is_dropped_and_counted(cluster: Cluster) -> None:
    cluster.spares_reports = True
    cluster.send_faults = [MessageSizeTooLargeError()]
    cluster.delivery_faults = [MessageSizeTooLargeError()]
    async with a_publisher(cluster) as publisher:
        for observation in numbered_calls(3):
            publisher.publish(observation)
    assert len(observed(cluster)) == 1
    assert publisher.stats.dropped == {"too_large": 2}
    assert publisher.stats.retries == 0


async def test_a_record_refused_for_good_is_given_up_after_some_attempts(cluster: Cluster) -> None:
    """So that it does not block all others."""
    cluster.send_faults = [InvalidTopicError() for _ in range(3)]
    async with a_publisher(cluster, attempts_max=3) as publisher:
        for observation in numbered_calls(2):
            publisher.publish(observation)
    assert observed(cluster) == [numbered_calls(2)[1].value]
    assert publisher.stats.dropped == {"delivery_failed": 1}


async def test_what_is_refused_beside_a_refused_record_is_delivered(cluster: Cluster) -> None:
    """Kafka refuses what a producer sends together as a whole."""
    calls = numbered_calls(4)

    class Together(FakeProducer):
        async def send(self, topic: str, *, value: bytes, **_: Any) -> Awaitable[Any]:
            loop = asyncio.get_running_loop()
            if not cluster.waiting:
                loop.call_soon(self.flush)
            future: asyncio.Future[None] = loop.create_future()
            cluster.waiting.append(lambda: (future, topic, value))
            return future

        def flush(self) -> None:
            sent: list[Any] = [each() for each in cluster.waiting]
            cluster.waiting.clear()
            is_refused = any(value == calls[2].value for _, _, value in sent)
            for future, topic, value in sent:
                if is_refused:
                    future.set_exception(InvalidTimestampError())
                else:
                    cluster.records.append((topic, value))
                    future.set_result(None)

    limits = PublisherLimits(backoff_min_s=0.001, backoff_max_s=0.002)
    async with ObservationPublisher({}, limits=limits, producer_factory=lambda: Together(cluster)) as publisher:
        for call in calls:
            publisher.publish(call)
    assert observed(cluster) == [call.value for call in calls if call is not calls[2]]
    assert publisher.stats.dropped == {"delivery_failed": 1}


async def test_calls_leave_the_last_quarter_of_the_queue_to_snapshots(cluster: Cluster) -> None:
    """In records and in bytes; nothing raises and nothing waits."""
    publisher = a_publisher(cluster, queue_records_max=8)
    assert [publisher.publish(call) for call in numbered_calls(8)] == [True] * 6 + [False] * 2
    assert [publisher.publish(a_snapshot([])) for _ in range(3)] == [True, True, False]
    assert publisher.stats.dropped == {"queue_full": 3}
    size = a_call().size_bytes
    small = a_publisher(cluster, queue_bytes_max=4 * size)
    assert [small.publish(a_call()) for _ in range(4)] == [True, True, True, False]
    publisher.start()
    await publisher.aclose()
    assert len(observed(cluster)) == 8


async def test_a_record_over_the_limit_is_not_taken(cluster: Cluster) -> None:
    publisher = a_publisher(cluster, record_bytes_max=100)
    assert not publisher.publish(a_call())
    assert publisher.stats.dropped == {"too_large": 1}
    await publisher.aclose()


async def test_closing_ends_in_time_and_counts_what_it_could_not_deliver(cluster: Cluster) -> None:
    cluster.hangs = True
    publisher = a_publisher(cluster)
    publisher.start()
    publisher.publish(a_call())
    async with asyncio.timeout(3):
        await publisher.aclose(timeout_s=0.05)
    assert publisher.stats.dropped == {"delivery_failed": 1}
    assert not publisher.publish(a_call())
    assert publisher.stats.dropped == {"delivery_failed": 1, "closed": 1}
    assert cluster.open == 0


async def test_it_may_be_used_from_any_thread(cluster: Cluster) -> None:
    async with a_publisher(cluster) as publisher:
        threads = [threading.Thread(target=lambda: [publisher.publish(a_call()) for _ in range(500)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            await asyncio.to_thread(thread.join)
    assert len(cluster.records) == publisher.stats.delivered == 2_000


async def test_closing_with_nothing_queued_does_not_wait_for_a_broker(cluster: Cluster) -> None:
    cluster.hangs = True
    publisher = a_publisher(cluster)
    publisher.start()
    await asyncio.sleep(0)
    async with asyncio.timeout(1):
        await publisher.aclose(timeout_s=60)


def spooling(
    cluster: Cluster, folder: Path, *, spool_bytes_max: int = 1_000_000, **limits: Any
) -> ObservationPublisher:
    return ObservationPublisher(
        {},
        limits=PublisherLimits(**(QUICK | limits)),
        producer_factory=cluster.producer,
        spool=Spool(folder, bytes_max=spool_bytes_max),
    )


async def test_a_spool_keeps_what_the_queue_cannot_and_what_a_restart_would_lose(
    cluster: Cluster, tmp_path: Path
) -> None:
    """In order, through two processes, with the brokers away all the time."""
    observations = numbered_calls(40)
    cluster.start_faults = [OSError("away")] * 10_000
    first = spooling(cluster, tmp_path, queue_records_max=8)
    first.start()
    for start in range(0, 20, 5):
        assert all(first.publish(each) for each in observations[start : start + 5])
        await until(lambda: first.stats.queued == 0)
    assert (first.stats.spooled, first.stats.dropped) == (20, {})
    assert first.publish(observations[20])
    await first.aclose()
    assert cluster.records == []
    second = spooling(cluster, tmp_path)
    assert second.stats.spooled == 21
    second.start()
    assert all(second.publish(each) for each in observations[21:])
    cluster.start_faults.clear()
    await until(lambda: second.stats.delivered == 40)
    assert [value for _, value in cluster.records] == [each.value for each in observations]
    assert (second.stats.spooled, second.stats.queued, second.stats.queued_bytes) == (0, 0, 0)
    await second.aclose()


async def test_what_hangs_is_on_disk_before_it_is_delivered(cluster: Cluster, tmp_path: Path) -> None:
    """A kill loses nothing of it; what is delivered after all leaves the spool."""
    cluster.hangs_sending = asyncio.Event()
    publisher = spooling(cluster, tmp_path)
    publisher.start()
    observations = numbered_calls(6)
    for observation in observations[:3]:
        publisher.publish(observation)
    await until(lambda: publisher.stats.spooled == 3)
    for observation in observations[3:]:
        publisher.publish(observation)
    await until(lambda: publisher.stats.spooled == 6)
    assert (publisher.stats.queued, publisher.stats.queued_bytes) == (0, 0)
    cluster.hangs_sending = None
    cluster.release()
    await until(lambda: publisher.stats.delivered == 6)
    assert [value for _, value in cluster.records] == [each.value for each in observations]
    assert publisher.stats.spooled == 0
    await publisher.aclose()


@pytest.mark.parametrize("place", ["send_faults", "delivery_faults"])
async def test_what_fails_comes_back_in_order(cluster: Cluster, tmp_path: Path, place: str) -> None:
    """From memory and from disk; a record that was delivered behind one that failed may come twice."""
    setattr(cluster, place, [None, None, OSError("away"), None, None, None, OSError("away")])
    publisher = spooling(cluster, tmp_path)
    observations = numbered_calls(8)
    for observation in observations:
        publisher.publish(observation)
    publisher.start()
    await until(lambda: publisher.stats.queued == publisher.stats.spooled == 0 and publisher.stats.delivered > 7)
    values = [value for _, value in cluster.records]
    assert set(values) == {each.value for each in observations}
    if place == "send_faults":
        assert values == [each.value for each in observations]
    await publisher.aclose()


async def test_a_spool_with_nothing_but_damage_does_not_stop_delivery(cluster: Cluster, tmp_path: Path) -> None:
    """It is counted, and what is published from then on is delivered."""
    spool = Spool(tmp_path, bytes_max=1_000_000)
    spool.append(numbered_calls(1))
    spool.close()
    path = tmp_path / "queue.db"
    path.write_bytes(path.read_bytes().replace(b"mcp.tool", b"mcp,tool"))
    publisher = spooling(cluster, tmp_path)
    publisher.start()
    await until(lambda: publisher.stats.dropped == {"spool_damaged": 1})
    publisher.publish(numbered_calls(2)[1])
    await until(lambda: publisher.stats.delivered == 1)
    await publisher.aclose()


async def test_a_spool_that_cannot_be_read_does_not_stop_delivery(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What is on a failing disk waits for whoever can read it; what is published from then on is delivered at once."""
    cluster.start_faults = [OSError("away")] * 10_000
    publisher = spooling(cluster, tmp_path)
    publisher.start()
    publisher.publish(numbered_calls(1)[0])
    await until(lambda: publisher.stats.spooled == 1)

    def failing(*_: object) -> list[Observation]:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Spool, "head", failing)
    cluster.start_faults.clear()
    await until(lambda: publisher.stats.connected)
    publisher.publish(numbered_calls(2)[1])
    await until(lambda: publisher.stats.delivered == 1)
    assert "keeps 1 observation" in caplog.text
    with contextlib.closing(Spool(tmp_path, bytes_max=1_000_000)) as taken_over:
        assert taken_over.records == 1
    await publisher.aclose()


async def test_a_full_spool_drops_and_counts(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start_faults = [OSError("away")] * 10_000
    publisher = spooling(cluster, tmp_path, spool_bytes_max=70_000, queue_records_max=4)
    publisher.start()
    kept = 0
    for observation in numbered_calls(12):
        kept += publisher.publish(replace(observation, value=b"x" * 10_000))
        await asyncio.sleep(0.3)
    stats = publisher.stats
    assert (stats.spooled + stats.queued, stats.dropped) == (kept, {"queue_full": 12 - kept})
    assert stats.spooled_bytes <= 70_000
    await publisher.aclose()


async def test_what_was_dropped_is_published_by_server_once_the_brokers_are_there(cluster: Cluster) -> None:
    """Behind everything that was kept; a count that was published is not published again."""
    cluster.start_faults = [OSError("away")]
    publisher = a_publisher(cluster, queue_records_max=4, record_bytes_max=100_000)
    kept = [publisher.publish(each) for each in [*numbered_calls(5), a_snapshot(tools=[{"name": "n" * 200_000}])]]
    assert kept.count(False) == 3
    publisher.start()
    await until(lambda: publisher.stats.delivered == 4)
    last = json.loads(cluster.records[-1][1])
    assert cluster.records[-1][0] == "mcp.tools.list"
    assert (last["type"], last["source"]) == ("mcp.observer.loss.observed", "urn:assay-stream:observer:the-observer")
    assert last["data"] == {"server_id": "the-server", "observer_id": "the-observer", "lists": 1, "calls": 2}
    assert not publisher.publish(a_snapshot(tools=[{"name": "n" * 200_000}]))
    await until(lambda: publisher.stats.delivered == 5)
    assert json.loads(cluster.records[-1][1])["data"]["lists"] == 1
    await publisher.aclose()
    assert len(cluster.records) == 5


async def test_a_spool_hands_the_count_on_to_the_next_process(cluster: Cluster, tmp_path: Path) -> None:
    """So that nothing is lost that nobody hears of."""
    cluster.start_faults = [OSError("away")] * 10_000
    first = spooling(cluster, tmp_path, record_bytes_max=100_000)
    first.start()
    assert not first.publish(a_snapshot(tools=[{"name": "n" * 200_000}]))
    await first.aclose()
    cluster.start_faults.clear()
    second = spooling(cluster, tmp_path)
    second.start()
    await until(lambda: second.stats.delivered == 1)
    assert json.loads(cluster.records[0][1])["type"] == "mcp.observer.loss.observed"
    await second.aclose()


async def test_a_count_that_cannot_be_delivered_is_not_counted_again(cluster: Cluster) -> None:
    cluster.send_faults = [MessageSizeTooLargeError(), MessageSizeTooLargeError()]
    async with a_publisher(cluster) as publisher:
        publisher.publish(a_call())
        await until(lambda: publisher.stats.dropped == {"too_large": 2})
        publisher.publish(a_call())
    assert len(cluster.records) == 1
