"""The join on the in-memory cluster: each worker its share, misplaced calls joined where they belong."""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaConnectionError, OffsetOutOfRangeError

from assay_stream.config import Settings
from assay_stream.errors import ConfigurationError
from assay_stream.join import FIRST_ORIGIN, Join, Routing
from assay_stream.kafka.connection import record_of
from assay_stream.kafka.partition import Batch
from assay_stream.kafka.runner import Runner
from assay_stream.kafka.stage import Topology
from assay_stream.kafka.topics import topic_names
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.evidence import Producer
from assay_stream.model.record import Record, Role, murmur2_partition
from assay_stream.registry.processor import Registry, process
from assay_stream.registry.step import progress
from assay_stream.worker import stages as view_module
from assay_stream.worker.stages import BindingView, EvidenceLatency, JoinStage, JoinState, RecentObservers, join_calls
from tests.support.errors import raises_code
from tests.support.fleet import START, Fleet, a_call_by
from tests.support.memory_cluster import MemoryCluster, MemoryConsumer, until
from tests.support.replaying import replay

TOPICS = topic_names(Settings())
ROUTING = Routing(calls=8, bindings=4)
COUNTS = dict.fromkeys(Role, ROUTING.bindings) | dict.fromkeys(
    (Role.CALLS, Role.EVIDENCE, Role.REROUTED, Role.JOIN_PROGRESS), ROUTING.calls
)
PRODUCER = Producer(version="1")
GROUP = "assay-stream-join"
CALLS = 160
FLEET = Fleet(servers=9, calls=CALLS, changes=5)


@pytest.fixture(autouse=True)
def never_waits(no_pauses: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_module, "_POLL_MS", 5)


@pytest.fixture
def cluster() -> MemoryCluster:
    """A fleet's lists, applied by its registries, and its calls, a third of them in partitions of other servers."""
    return a_cluster()


def a_cluster(*, misplaced_lists: float = 0.0) -> MemoryCluster:
    made = MemoryCluster({TOPICS[role]: count for role, count in COUNTS.items()})
    choose = random.Random(3)
    shares = {Role.CALLS: 1 / 3, Role.SNAPSHOTS: misplaced_lists}
    for role, key, value in FLEET.history():
        is_misplaced = choose.random() < shares[role]
        home = murmur2_partition(key, COUNTS[role])
        made.append(TOPICS[role], choose.randrange(COUNTS[role]) if is_misplaced else home, key, value)
    for number in range(4):
        registry = Registry(producer=PRODUCER, partitions=4)
        listings = [m for m in made.read(TOPICS[Role.SNAPSHOTS]) if m.partition == number]
        outputs = [output for m in listings for output in process(registry, record_of(Role.SNAPSHOTS, m))]
        outputs += [
            progress(topic=TOPICS[role], partition=number, position=len(listings) if role is Role.SNAPSHOTS else 0)
            for role in (Role.SNAPSHOTS, Role.CONTROL)
        ]
        for output in outputs:
            if output.role is Role.BINDINGS:
                made.append(TOPICS[Role.BINDINGS], number, output.key, output.value)
    return made


class Worker:
    def __init__(self, cluster: MemoryCluster, **settings: Any):
        topology = Topology(Settings(poll_timeout_ms=5, **settings), COUNTS, clients=cluster)
        self.view = BindingView(topology, lambda: Join(producer=PRODUCER))
        latency = partial(EvidenceLatency, lambda *_: None, RecentObservers())
        self.stage = JoinStage(self.view, topology, latency=latency)
        self.task = Runner(self.stage, joining)

    async def __aenter__(self) -> Worker:
        self.running = [asyncio.create_task(self.view.run()), asyncio.create_task(self.task.run())]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.task.stop()
        self.view.stop()
        await asyncio.gather(*self.running, return_exceptions=True)

    async def kill(self) -> None:
        while not all(running.done() for running in self.running):
            for running in self.running:
                running.cancel()
            # Again: ``asyncio.wait_for`` may swallow it where what it waits for is done in the same turn.
            await asyncio.wait(self.running, timeout=0.1)

    @property
    def loaded(self) -> set[int]:
        return set(self.view._joins)


async def joining(batch: Batch[JoinState]) -> None:
    await batch.process_pieces(join_calls)


def evidence(cluster: MemoryCluster) -> list[tuple[int, bytes]]:
    return sorted((each.partition, each.value or b"") for each in cluster.read(TOPICS[Role.EVIDENCE]))


def replayed(cluster: MemoryCluster, *, partitions: int | None = 4) -> list[tuple[int, bytes]]:
    """What a replay of the same logs writes, which knows how many partitions the lists have."""
    records = [record_of(role, m) for role in (Role.SNAPSHOTS, Role.CALLS) for m in cluster.read(TOPICS[role])]
    outputs = replay(records, producer=PRODUCER, snapshot_partitions=partitions)
    return sorted((each.partition or 0, each.value or b"") for each in outputs if each.role is Role.EVIDENCE)


async def test_evidence_is_that_of_a_replay(cluster: MemoryCluster) -> None:
    """Byte for byte and partition for partition, origin included, wherever calls came."""
    async with Worker(cluster):
        await until(lambda: len(evidence(cluster)) >= CALLS)
    assert evidence(cluster) == replayed(cluster)
    copies = cluster.read(TOPICS[Role.REROUTED])
    assert copies
    assert all(copy.partition % 4 == murmur2_partition(copy.key or b"", 4) for copy in copies)


async def test_lists_in_a_wrong_partition_count_for_nobody() -> None:
    """Neither for a join, which does not load them, nor for a replay that knows how many partitions there are."""
    cluster = a_cluster(misplaced_lists=0.5)
    async with Worker(cluster):
        await until(lambda: len(evidence(cluster)) >= CALLS)
    assert evidence(cluster) == replayed(cluster)
    assert evidence(cluster) != replayed(cluster, partitions=None)


async def test_a_view_outlives_brokers_that_fail(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on where it was, and keeps what it has read: the other stages of the process run on."""
    fetch, failures = MemoryConsumer.getmany, [KafkaConnectionError(), OffsetOutOfRangeError({}), OSError()]

    async def failing(consumer: MemoryConsumer, *places: TopicPartition, **how: Any) -> Any:
        if failures and any(place.topic == TOPICS[Role.BINDINGS] for place in consumer.assignment()):
            raise failures.pop()
        return await fetch(consumer, *places, **how)

    monkeypatch.setattr(MemoryConsumer, "getmany", failing)
    async with Worker(cluster) as worker:
        await until(lambda: len(evidence(cluster)) >= CALLS and worker.view.ready)
        assert worker.view.failures == 0
    assert not failures
    assert evidence(cluster) == replayed(cluster)


async def test_a_view_ends_where_the_bindings_were_made_anew(cluster: MemoryCluster) -> None:
    """What it knows is of a log that is gone: a worker that starts again reads the new one."""
    async with Worker(cluster) as worker:
        await until(lambda: worker.view.ready)
        cluster.recreate(TOPICS[Role.BINDINGS])
        with raises_code("topic_recreated", kind=ConfigurationError):
            await asyncio.wait_for(asyncio.shield(worker.running[0]), 10)


async def test_a_kill_in_the_middle_loses_and_doubles_nothing(cluster: MemoryCluster) -> None:
    """Copies of the killed worker that were not committed are made anew by the next owner."""
    async with Worker(cluster, batch_records_max=8), Worker(cluster, batch_records_max=8):
        killed = Worker(cluster, batch_records_max=8)
        await killed.__aenter__()
        await until(lambda: len(evidence(cluster)) >= CALLS // 4)
        await killed.kill()
        await until(lambda: len(evidence(cluster)) >= CALLS)
    assert evidence(cluster) == replayed(cluster)


async def test_a_worker_of_half_the_partitions_loads_half_of_the_servers(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a rebalance takes away is dropped after a while."""
    monkeypatch.setattr(view_module, "KEPT_UNNEEDED_S", 0.0)
    async with Worker(cluster) as first:
        await until(lambda: first.loaded == {0, 1, 2, 3} and first.view.servers == FLEET.servers)
        # By range, the first of four workers has two of eight partitions of calls.
        async with Worker(cluster), Worker(cluster), Worker(cluster):
            await until(lambda: first.loaded == {0, 1} and first.view.ready)
            assert 0 < first.view.servers < FLEET.servers
        await until(lambda: first.loaded == {0, 1, 2, 3} and first.view.servers == FLEET.servers)


async def test_a_worker_that_keeps_some_of_its_partitions_keeps_those_of_the_same_servers(
    cluster: MemoryCluster,
) -> None:
    """What it claims first needs the fewest partitions of the bindings, whichever part of it the group leaves to it."""
    async with Worker(cluster) as worker:
        await until(lambda: worker.task.ready)
        await worker.task.on_partitions_revoked(())
        assert worker.task.claims() == [0, 4, 1, 5, 2, 6, 3, 7]


async def test_offsets_that_are_lost_double_nothing(cluster: MemoryCluster, capfd: pytest.CaptureFixture[str]) -> None:
    """The join goes by the progress that it wrote with its evidence, and says so."""
    async with Worker(cluster):
        await until(lambda: len(evidence(cluster)) >= CALLS)
    cluster.forget_offsets(GROUP)
    key, value = a_call_by(0, 0, CALLS, START, None)[1:]
    cluster.append(TOPICS[Role.CALLS], 0, key, value)
    async with Worker(cluster):
        await until(lambda: len(evidence(cluster)) > CALLS)
        await asyncio.sleep(0.1)
    assert len(evidence(cluster)) == CALLS + 1
    assert "offsets_reset" in "".join(capfd.readouterr())


async def test_a_copy_in_a_wrong_partition_is_refused_and_goes_nowhere_else(cluster: MemoryCluster) -> None:
    """Whoever wrote it: it would be copied for ever."""
    key, value = a_call_by(0, 0, 1, START, None)[1:]
    wrong = (murmur2_partition(key, 4) + 1) % 4
    header = (FIRST_ORIGIN, b'{"offset":0,"partition":0,"timestamp_ms":0,"topic":"mcp.tools.call"}')
    cluster.append(TOPICS[Role.REROUTED], wrong, key, value, headers=[header])
    cluster.append(TOPICS[Role.REROUTED], wrong, key, value)
    async with Worker(cluster):
        await until(lambda: len(cluster.read(TOPICS[Role.REJECTED])) >= 2)
        await until(lambda: len(evidence(cluster)) >= CALLS)
    codes = {dict(each.headers)["error.code"] for each in cluster.read(TOPICS[Role.REJECTED])}
    assert codes == {b"rerouted_twice", b"bad_reroute"}
    assert evidence(cluster) == replayed(cluster)


async def test_a_call_that_is_too_large_to_be_copied_is_refused_where_it_stands(cluster: MemoryCluster) -> None:
    """And what comes behind it is joined."""
    key, value = a_call_by(0, 0, CALLS, START, None)[1:]
    wrong = (murmur2_partition(key, 4) + 1) % 4
    header = ("filler", b"x" * DEFAULT_LIMITS.rerouted_bytes_max)
    cluster.append(TOPICS[Role.CALLS], wrong, key, value, headers=[header])
    cluster.append(TOPICS[Role.CALLS], wrong, key, value)
    async with Worker(cluster):
        await until(lambda: len(evidence(cluster)) > CALLS)
    [rejected] = cluster.read(TOPICS[Role.REJECTED])
    assert dict(rejected.headers)["error.code"] == b"too_large"


async def test_a_header_of_a_producer_forges_no_origin(cluster: MemoryCluster) -> None:
    """Only the topic of re-routed calls is believed, where only the join writes."""
    key, value = a_call_by(0, 0, CALLS, START, None)[1:]
    header = (FIRST_ORIGIN, b'{"offset":0,"partition":0,"timestamp_ms":0,"topic":"mcp.tools.call"}')
    for partition in range(ROUTING.calls):
        cluster.append(TOPICS[Role.CALLS], partition, key, value, headers=[header])
    async with Worker(cluster):
        await until(lambda: len(evidence(cluster)) >= CALLS + ROUTING.calls)
    assert evidence(cluster) == replayed(cluster)


async def opened_with_a_call(cluster: MemoryCluster, *, is_at_home: bool) -> tuple[JoinStage, list[Record]]:
    """A stage that has partition 0 of the calls, and a call in it of a server that belongs there, or elsewhere."""
    stage = Worker(cluster).stage
    await stage.open(0)
    homes = (murmur2_partition(f"server-{number}".encode(), 4) == 0 for number in range(99))
    server = next(number for number, is_home in enumerate(homes) if is_home is is_at_home)
    _, key, value = a_call_by(server, 0, 1, START, None)
    offset = cluster.append(TOPICS[Role.CALLS], 0, key, value)
    found = (m for m in cluster.read(TOPICS[Role.CALLS]) if (m.partition, m.offset) == (0, offset))
    return stage, [record_of(Role.CALLS, message) for message in found]


async def test_a_misplaced_call_waits_for_nothing_where_it_came(cluster: MemoryCluster) -> None:
    """A partition whose own registry hangs passes on what belongs elsewhere."""
    stage, records = await opened_with_a_call(cluster, is_at_home=False)
    ends = {TopicPartition(TOPICS[role], 0): 10**6 for role in (Role.SNAPSHOTS, Role.CONTROL)}
    assert stage.admit(records, ends) == 1


async def test_a_call_waits_for_its_own_registry_only(cluster: MemoryCluster) -> None:
    """What another partition of the bindings lacks is no concern of it, even if it is not followed here."""
    stage, records = await opened_with_a_call(cluster, is_at_home=True)
    assert stage.admit(records, {TopicPartition(TOPICS[Role.SNAPSHOTS], 1): 10**6}) == 1
    assert stage.admit(records, {TopicPartition(TOPICS[Role.SNAPSHOTS], 0): 10**6}) == 0


async def test_a_record_behind_a_stranger_s_open_transaction_is_waited_for(cluster: MemoryCluster) -> None:
    """It was acknowledged before the call was read, and a replay has it."""
    topic, worker = TOPICS[Role.CONTROL], Worker(cluster)
    stranger = cluster.producer("a proxy's own")
    await stranger.start()
    await stranger.begin_transaction()
    batch = stranger.create_batch()
    batch.append(timestamp=0, key=b"server-0", value=b"{}")
    await stranger.send_batch(batch, topic, partition=1)
    cluster.append(topic, 1, b"server-0", b"{}")
    async with worker:
        assert (await worker.view.input_ends())[TopicPartition(topic, 1)] == 2
        await stranger.abort_transaction()
