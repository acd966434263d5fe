"""The sealer over a cluster in memory: ranges, going on, and the ways in which it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaConnectionError, OffsetOutOfRangeError, ProducerFenced
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from assay_stream.config import load_settings
from assay_stream.errors import ConfigurationError, InputError, IntegrityError, OperatingError
from assay_stream.kafka.connection import record_of
from assay_stream.kafka.part import StageMetrics
from assay_stream.kafka.stage import Topology
from assay_stream.model.checkpoint import decode
from assay_stream.model.record import Record, Role
from assay_stream.schemes import tlog
from assay_stream.worker.sealing import OpenRange, Sealer, SealPlan, check_siblings
from tests.support.errors import raises_code
from tests.support.memory_cluster import MemoryCluster, MemoryConsumer, MemoryProducer, running, until
from tests.support.seals import KEY, KEYS, OTHER_KEY, TOPIC, Fleet, checked, checkpoints_of, some_records

HOME = TopicPartition(TOPIC, 0)
CHECKPOINTS = "assay.evidence.checkpoint"
GROUP = "assay-stream-seal"
PLAN = SealPlan(key=KEY, trusted=KEYS, every_records=3, every_s=60.0, log_name="test")


pytestmark = pytest.mark.usefixtures("no_pauses")


def a_cluster(records: int) -> MemoryCluster:
    cluster = MemoryCluster({TOPIC: 1, CHECKPOINTS: 1})
    publish(cluster, records)
    return cluster


def topology(cluster: MemoryCluster) -> Topology:
    return Topology(load_settings(poll_timeout_ms=1), dict.fromkeys(Role, 1), clients=cluster)


def publish(cluster: MemoryCluster, records: int) -> None:
    for number in range(records):
        cluster.append(TOPIC, 0, b"s", b"v%d" % number)


def evidence(cluster: MemoryCluster) -> list[Record]:
    return [record_of(Role.EVIDENCE, message) for message in cluster.read(TOPIC)]


def checkpoints(cluster: MemoryCluster) -> list[bytes]:
    return [message.value or b"" for message in cluster.read(CHECKPOINTS)]


def failing(request: str, *errors: Exception) -> Callable[[str], None]:
    left = list(errors)

    def before(name: str) -> None:
        if name == request and left:
            raise left.pop(0)

    return before


async def seal(
    cluster: MemoryCluster,
    *,
    key: Ed25519PrivateKey = KEY,
    trusted: tlog.Keys = KEYS,
    act: Callable[[Sealer], None] = lambda _: None,
) -> None:
    plan = replace(PLAN, key=key, trusted=trusted, once=True)
    sealer = Sealer(topology(cluster), plan, now=lambda: datetime(2026, 3, 1, 10, tzinfo=UTC))
    act(sealer)
    await sealer.run()


async def test_everything_there_is_is_sealed_in_ranges() -> None:
    """None larger than asked for, the last as large as it comes; a check finds that all of it holds."""
    cluster = a_cluster(7)
    await seal(cluster)
    assert [decode(value, KEYS).checkpoint.records for value in checkpoints(cluster)] == [3, 3, 1]
    assert cluster.committed(GROUP) == {HOME: (7, "")}
    report = checked(checkpoints(cluster), evidence(cluster))
    assert (report.verified, report.unsealed, report.faults) == (7, 0, [])


async def test_the_next_run_goes_on_where_the_last_ended() -> None:
    """Nothing is sealed twice, and nothing new is written where nothing came."""
    cluster = a_cluster(3)
    await seal(cluster)
    await seal(cluster)
    assert len(checkpoints(cluster)) == 1
    publish(cluster, 2)
    await seal(cluster)
    assert [decode(value, KEYS).checkpoint.first_offset for value in checkpoints(cluster)] == [0, 3]
    assert checked(checkpoints(cluster), evidence(cluster)).verified == 5


async def test_a_new_key_continues_a_chain_that_it_is_told_to_trust() -> None:
    """Without being told it ends, and writes nothing."""
    cluster = a_cluster(1)
    await seal(cluster)
    publish(cluster, 1)
    own = tlog.keys_of([OTHER_KEY.public_key()])
    with pytest.raises(InputError, match=r"checkpoint_not_continued.*seal_key_unknown.*--also-trust"):
        await seal(cluster, key=OTHER_KEY, trusted=own)
    assert len(checkpoints(cluster)) == 1
    await seal(cluster, key=OTHER_KEY, trusted=KEYS | own)
    assert checked(checkpoints(cluster), evidence(cluster), keys=KEYS | own).verified == 2


@pytest.mark.parametrize("value", [b"{", *checkpoints_of(some_records(0), topic="other")])
async def test_what_is_no_checkpoint_of_this_log_is_not_continued(value: bytes) -> None:
    """Somebody else wrote it: the message has its place."""
    cluster = a_cluster(2)
    cluster.append(CHECKPOINTS, 0, None, value)
    with pytest.raises(InputError, match=rf"checkpoint_not_continued.*offset 0 of {CHECKPOINTS}"):
        await seal(cluster)


async def test_evidence_that_is_shorter_than_what_is_sealed_stops_it() -> None:
    """A log made anew must not get a chain that seems to continue the old one."""
    cluster = a_cluster(2)
    cluster.append(CHECKPOINTS, 0, None, checkpoints_of(some_records(*range(9)))[0])
    with pytest.raises(IntegrityError, match=r"evidence_cut_off.*ends at offset 2 and is sealed up to 8"):
        await seal(cluster)
    assert len(checkpoints(cluster)) == 1


async def test_what_expired_before_it_was_sealed_is_passed_over() -> None:
    """The chain goes on at the start of the log."""
    cluster = a_cluster(2)
    await seal(cluster)
    publish(cluster, 6)
    cluster.delete_before(TOPIC, 0, 7)
    await seal(cluster)
    assert decode(checkpoints(cluster)[-1], KEYS).checkpoint.first_offset == 7
    report = checked(checkpoints(cluster), evidence(cluster), log_start=7)
    assert (report.verified, report.expired, report.faults) == (1, 2, [])


async def test_what_expires_while_it_is_read_leaves_no_producer_open(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = a_cluster(4)
    errors = [OffsetOutOfRangeError({HOME: 0})]
    fetch, open_producers = MemoryConsumer.getmany, list[object]()
    start, stop = MemoryProducer.start, MemoryProducer.stop

    async def failing_once(consumer: MemoryConsumer, *places: Any, **how: Any) -> Any:
        if consumer.assignment() == {HOME} and errors:
            raise errors.pop()
        return await fetch(consumer, *places, **how)

    async def started(producer: MemoryProducer) -> None:
        open_producers.append(producer)
        await start(producer)

    async def stopped(producer: MemoryProducer) -> None:
        open_producers.remove(producer)
        await stop(producer)

    monkeypatch.setattr(MemoryConsumer, "getmany", failing_once)
    monkeypatch.setattr(MemoryProducer, "start", started)
    monkeypatch.setattr(MemoryProducer, "stop", stopped)
    await seal(cluster)
    assert (errors, open_producers) == ([], [])
    assert checked(checkpoints(cluster), evidence(cluster)).verified == 4


@pytest.mark.parametrize("request_", ["start", "begin", "send", "commit"])
async def test_what_fails_is_made_up_for(request_: str) -> None:
    """From the last checkpoint that stands, with a producer of its own."""
    cluster = a_cluster(7)
    cluster.before = failing(request_, KafkaConnectionError(), KafkaConnectionError())
    await seal(cluster)
    assert checked(checkpoints(cluster), evidence(cluster)).verified == 7
    assert len(checkpoints(cluster)) == 3


@pytest.mark.parametrize("quiet_polls", [0, 2])
async def test_brokers_that_fail_for_too_long_end_it(quiet_polls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a number of failed writes in a row, also with polls between them that found nothing."""
    cluster = a_cluster(1)
    make = cluster.consumer

    def quiet(**options: Any) -> Any:
        consumer, polls = make(**options), [quiet_polls]
        getmany = consumer.getmany

        async def fetch(*places: TopicPartition, **options: Any) -> Any:
            polls[0] -= 1
            return {} if polls[0] >= 0 else await getmany(*places, **options)

        consumer.getmany = fetch
        return consumer

    monkeypatch.setattr(cluster, "consumer", quiet)
    cluster.before = failing("commit", *[KafkaConnectionError()] * 20)
    with pytest.raises(OperatingError, match="brokers_failing"):
        await seal(cluster)
    assert cluster.epochs[f"{GROUP}-0"] == 11


class Lags(StageMetrics):
    now: Mapping[tuple[str, int], int] | None = None

    def lags(self, offsets: Mapping[tuple[str, int], int]) -> None:
        self.now = offsets


async def test_the_marker_behind_a_sealed_record_is_no_lag() -> None:
    """What waits for its checkpoint is. The group stays behind the record, as a check of the seal expects."""
    cluster, lags = a_cluster(0), Lags()
    await publish_transaction(cluster)
    sealer = Sealer(topology(cluster), replace(PLAN, every_s=0.0), metrics=lags)

    def lag() -> Mapping[tuple[str, int], int] | None:
        sealer.note_gauges()
        return lags.now

    async with running(sealer):
        await until(lambda: lag() == {HOME: 0})
        assert len(checkpoints(cluster)) == 1
        assert cluster.committed(GROUP) == {HOME: (1, "")}
        sealer.plan = PLAN
        await publish_transaction(cluster)
        await until(lambda: sealer._ranges[0].leaves != [])
        assert lag() == {HOME: 2}
    assert cluster.committed(GROUP) == {HOME: (3, "")}


async def publish_transaction(cluster: MemoryCluster) -> None:
    producer = cluster.producer("join")
    await producer.start()
    await producer.begin_transaction()
    batch = producer.create_batch()
    batch.append(timestamp=1, key=b"s", value=b"v", headers=())
    await producer.send_batch(batch, TOPIC, partition=0)
    await producer.commit_transaction()


async def test_a_failure_with_nothing_left_to_seal_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quiet deployment would be unready until the next call otherwise."""
    cluster, fetch = a_cluster(3), MemoryConsumer.getmany
    errors, reads_again = [KafkaConnectionError()], asyncio.Event()

    async def failing_once(consumer: MemoryConsumer, *places: Any, **how: Any) -> Any:
        if consumer.assignment() == {HOME} and checkpoints(cluster):
            if errors:
                raise errors.pop()
            reads_again.set()
        return await fetch(consumer, *places, **how)

    monkeypatch.setattr(MemoryConsumer, "getmany", failing_once)
    sealer = Sealer(topology(cluster), PLAN)
    async with running(sealer):
        await until(lambda: reads_again.is_set() and sealer.ready)


async def test_brokers_that_fail_while_it_stops_with_nothing_to_seal_are_no_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster, fetch = a_cluster(3), MemoryConsumer.getmany
    sealer = Sealer(topology(cluster), PLAN)

    async def failing_at_the_end(consumer: MemoryConsumer, *places: Any, **how: Any) -> Any:
        if consumer.assignment() == {HOME} and checkpoints(cluster):
            sealer.stop()
            raise KafkaConnectionError
        return await fetch(consumer, *places, **how)

    monkeypatch.setattr(MemoryConsumer, "getmany", failing_at_the_end)
    await sealer.run()
    assert sealer.failures == 1


async def test_what_cannot_be_sealed_while_it_stops_is_said() -> None:
    cluster = a_cluster(1)
    cluster.before = failing("commit", KafkaConnectionError())
    with pytest.raises(OperatingError, match=r"brokers_failing.*the next start seals it"):
        await seal(cluster, act=Sealer.stop)
    await seal(cluster)
    assert len(checkpoints(cluster)) == 1


async def test_a_sealer_that_was_shut_out_does_not_come_back() -> None:
    """It would shut the other one out in turn."""
    cluster = a_cluster(1)
    cluster.before = failing("commit", ProducerFenced())
    with pytest.raises(ConfigurationError, match="sealer_fenced"):
        await seal(cluster)
    assert (cluster.epochs[f"{GROUP}-0"], checkpoints(cluster)) == (1, [])


@pytest.mark.parametrize(("kept", "goes_on"), [(2, True), (1, False), (0, False)])
def test_a_sealer_does_not_go_on_where_a_sibling_knows_of_more(kept: int, goes_on: bool) -> None:
    """Sealing on would heal the cut over: it ends, and names both partitions."""
    fleet = Fleet(2)
    for partition in (0, 0, 1):
        fleet.grow(partition, 2)
        fleet.seal(partition)
    left = fleet.chains[0][:kept]
    writer: Any = None
    ranges = {
        0: OpenRange(partition=0, writer=writer, before=left[-1].checkpoint if left else None),
        1: OpenRange(partition=1, writer=writer, before=fleet.chains[1][-1].checkpoint),
    }
    if goes_on:
        check_siblings(ranges)
        return
    with raises_code(
        "checkpoints_cut_off", kind=IntegrityError, match="partition 1 was sealed after 4 records of partition 0"
    ):
        check_siblings(ranges)
