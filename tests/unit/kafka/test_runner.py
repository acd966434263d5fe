"""What a runner makes known of itself, and its patience with brokers, records and agents, on the in-memory cluster."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError

from assay_stream.config import Settings
from assay_stream.errors import ConfigurationError, OperatingError
from assay_stream.kafka import part
from assay_stream.kafka.partition import Batch, BatchDropped
from assay_stream.kafka.runner import Runner
from assay_stream.kafka.stage import NoState, Stage, Topology
from assay_stream.kafka.topics import topic_names
from assay_stream.model.record import Output, Record, Role
from tests.support.errors import raises_code
from tests.support.memory_cluster import MemoryCluster, MemoryConsumer, running, until

TOPICS = topic_names(Settings())
INPUT, OUTPUT = TOPICS[Role.CALLS], TOPICS[Role.EVIDENCE]
GROUP = "assay-stream-pass"

pytestmark = pytest.mark.usefixtures("no_pauses")


@pytest.fixture
def cluster() -> MemoryCluster:
    made = MemoryCluster(dict.fromkeys(TOPICS.values(), 2))
    for partition in (0, 1):
        made.append(INPUT, partition, b"key", b"record")
    return made


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """Until it is set, ``Stuck`` works on; it is set at the end, so that no thread is left."""
    made = threading.Event()
    yield made
    made.set()


def pass_on(_: NoState, record: Record) -> list[Output]:
    return [Output(Role.EVIDENCE, record.key, record.value, partition=record.origin.partition)]


class Stuck:
    """Passes records on, but works on those of the first partition until released."""

    def __init__(self, release: threading.Event) -> None:
        self.release = release
        self.began = threading.Event()

    def __call__(self, state: NoState, record: Record) -> list[Output]:
        if record.origin.partition == 0:
            self.began.set()
            self.release.wait(20)
        return pass_on(state, record)


def a_runner(
    cluster: MemoryCluster,
    step: Callable[[NoState, Record], list[Output]] = pass_on,
    gives_way_to: tuple[Runner, ...] = (),
    roles: tuple[Role, ...] = (Role.CALLS,),
    **settings: Any,
) -> Runner:
    async def agent(batch: Batch[NoState]) -> None:
        await batch.process(step)

    topology = Topology(Settings(poll_timeout_ms=5, **settings), dict.fromkeys(Role, 2), clients=cluster)
    return Runner(Stage("pass", roles, topology, new_state=lambda _: NoState()), agent, gives_way_to=gives_way_to)


def written(cluster: MemoryCluster, partition: int) -> int:
    return sum(each.partition == partition for each in cluster.read(OUTPUT))


def always(error: Exception, request: str) -> Callable[[str], None]:
    def before(asked: str) -> None:
        if asked == request:
            raise error

    return before


@pytest.mark.parametrize("request_name", ["start", "begin", "send", "offsets", "commit"])
async def test_brokers_that_fail_every_time_stop_the_worker(cluster: MemoryCluster, request_name: str) -> None:
    """After so many failures in a row, whatever fails."""
    cluster.before = always(KafkaError("away"), request_name)
    with raises_code("brokers_failing", kind=OperatingError, match="11 times in a row"):
        await asyncio.wait_for(a_runner(cluster).run(), 10)


async def test_a_worker_with_a_name_of_its_own_is_told_that_another_may_have_it(cluster: MemoryCluster) -> None:
    """Two of one name fence each other, and clients see an error that they do not know."""
    cluster.before = always(KafkaError("unknown"), "begin")
    with pytest.raises(OperatingError, match="another worker is called first"):
        await asyncio.wait_for(a_runner(cluster, group_instance_id="first").run(), 10)


async def test_a_failure_now_and_then_is_stood(cluster: MemoryCluster) -> None:
    """A batch that is written ends the count."""
    left = 0

    def before(request: str) -> None:
        nonlocal left
        if request == "commit" and left:
            left -= 1
            raise KafkaError("away")

    cluster.before = before
    async with running(a_runner(cluster)), asyncio.timeout(10):
        for count in (1, 2, 3):
            while written(cluster, 0) < count:
                await asyncio.sleep(0.002)
            left = 6
            cluster.append(INPUT, 0, b"key", b"record")


async def test_a_partition_whose_task_was_cancelled_is_opened_again(cluster: MemoryCluster) -> None:
    """A client may cancel what waits for it, as aiokafka does in an outage: nobody else would look at it again."""
    runner = a_runner(cluster)
    async with running(runner):
        await until(lambda: written(cluster, 0) == written(cluster, 1) == 1)
        (cancelled,) = (task for task in asyncio.all_tasks() if task.get_name() == "pass-0")
        cancelled.cancel()
        cluster.append(INPUT, 0, b"key", b"record")
        await until(lambda: written(cluster, 0) == 2)
    assert cluster.epochs[f"{GROUP}-0"] == 2
    assert cluster.epochs[f"{GROUP}-1"] == 1


async def test_batches_of_others_do_not_hide_one_that_always_fails(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another partition commits meanwhile does not help this one."""
    monkeypatch.setattr(part, "_PAUSE_S", 0.01)
    cluster.failing.add(f"{GROUP}-0")
    task = asyncio.create_task(a_runner(cluster).run())
    async with asyncio.timeout(10):
        while not task.done():
            cluster.append(INPUT, 1, b"key", b"record")
            await asyncio.sleep(0.002)
    with pytest.raises(OperatingError, match="11 times in a row"):
        task.result()
    assert written(cluster, 1) > 1


async def test_what_a_user_may_not_do_stops_the_worker_at_once(cluster: MemoryCluster) -> None:
    """Another attempt would be refused too: the operator has to change it."""
    cluster.before = always(TopicAuthorizationFailedError("calls"), "send")
    with raises_code("not_authorized", kind=ConfigurationError):
        await asyncio.wait_for(a_runner(cluster).run(), 10)
    assert cluster.epochs[f"{GROUP}-0"] == 1


async def test_a_runner_is_ready_only_while_the_group_has_told_its_share(cluster: MemoryCluster) -> None:
    """Before the first assignment and during a rebalance it is not; with no partition to do it is."""
    runner = a_runner(cluster)
    assert not runner.ready
    await runner.on_partitions_revoked([])  # as the client asks of every member before it joins
    assert not runner.ready
    await runner.on_partitions_assigned([])
    assert runner.ready
    await runner.on_partitions_assigned([TopicPartition(INPUT, 0)])
    assert not runner.ready
    await runner.on_partitions_revoked([TopicPartition(INPUT, 0)])
    assert not runner.ready


async def test_partitions_that_were_added_have_an_error_of_their_own() -> None:
    """Keys move away from what is known of them: no restart helps, and no guess does."""
    cluster = MemoryCluster(dict.fromkeys(TOPICS.values(), 3))
    with raises_code("partitions_added", kind=ConfigurationError, match="partition 2 now and had 2"):
        await asyncio.wait_for(a_runner(cluster).run(), 10)


@pytest.mark.parametrize("deleted", [Role.CALLS, Role.REROUTED])
async def test_a_stage_whose_input_was_deleted_is_not_ready_and_ends(cluster: MemoryCluster, deleted: Role) -> None:
    """It has no partitions then, as a worker that others leave nothing to do, and no lag."""
    runner = a_runner(cluster, roles=(Role.REROUTED, Role.CALLS))
    working = asyncio.create_task(runner.run())
    await until(lambda: written(cluster, 0) == written(cluster, 1) == 1)
    cluster.deleted.add(TOPICS[deleted])
    await cluster.rebalance(GROUP)
    assert not runner.ready
    assert runner.waiting_for == f"topics that it reads are missing: {TOPICS[deleted]}"
    with raises_code("brokers_failing", kind=OperatingError, match="UnknownTopicOrPartitionError"):
        await asyncio.wait_for(working, 10)


async def test_a_record_that_takes_long_is_seen(cluster: MemoryCluster, release: threading.Event) -> None:
    """Though the other partition goes on; what gives way to the runner knows that it has work."""
    runner = a_runner(cluster, Stuck(release))
    other = a_runner(cluster, gives_way_to=(runner,))
    assert not other.gives_way
    async with running(runner):
        await until(lambda: written(cluster, 1) == 1 and runner.still_s > 0.2)
        assert other.gives_way
        release.set()
        await until(lambda: written(cluster, 0) == 1 and runner.still_s < 0.2 and not other.gives_way)


async def test_one_record_that_takes_too_long_stops_the_worker(
    cluster: MemoryCluster, release: threading.Event
) -> None:
    """A thread cannot be stopped, so the process is."""
    with raises_code("record_stuck", kind=OperatingError, match=f"at offset 0 of {INPUT}, partition 0"):
        await asyncio.wait_for(a_runner(cluster, Stuck(release), record_limit_s=1).run(), 10)


async def test_an_agent_that_waits_for_a_thread_is_freed_when_its_batch_is_dropped(
    cluster: MemoryCluster, release: threading.Event
) -> None:
    """It works in a task of its own, as Faust's agents do, and nobody cancels that."""
    stuck, given = Stuck(release), list[asyncio.Task[None]]()

    async def agent(batch: Batch[NoState]) -> None:
        given.append(asyncio.create_task(batch.process(stuck)))
        await asyncio.shield(given[-1])

    runner = a_runner(cluster, session_timeout_ms=1_000)
    runner.agent = agent
    async with running(runner):
        await until(lambda: written(cluster, 1) == 1 and stuck.began.is_set())
        await cluster.rebalance(GROUP)
        ended, waiting = await asyncio.wait(given, timeout=5)
        assert not waiting
        assert any(isinstance(task.exception(), BatchDropped) for task in ended)
        release.set()


async def test_a_partition_is_not_opened_while_an_old_thread_is_at_its_state(
    cluster: MemoryCluster, release: threading.Event
) -> None:
    """The thread would go on with the new owner's; other partitions are."""
    stuck = Stuck(release)
    async with running(a_runner(cluster, stuck, session_timeout_ms=1_000)):
        await until(lambda: written(cluster, 1) == 1 and stuck.began.is_set())
        await cluster.rebalance(GROUP)
        cluster.append(INPUT, 1, b"key", b"record")
        await until(lambda: written(cluster, 1) == 2)
        assert cluster.epochs[f"{GROUP}-0"] == 1
        release.set()
        await until(lambda: written(cluster, 0) == 1)
        assert cluster.epochs[f"{GROUP}-0"] == 2


async def test_records_of_an_earlier_input_do_not_wait_behind_a_backlog_of_a_later_one(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client gives what it has fetched first, up to the limit: here always the calls."""
    give = MemoryConsumer._fetch
    monkeypatch.setattr(MemoryConsumer, "_fetch", lambda self, places, most: give(self, [*places][::-1], most))
    for _ in range(50):
        cluster.append(INPUT, 0, b"key", b"record")
    for _ in range(3):
        cluster.append(TOPICS[Role.REROUTED], 0, b"key", b"first")
    async with running(a_runner(cluster, roles=(Role.REROUTED, Role.CALLS), batch_records_max=8)), asyncio.timeout(10):
        await until(lambda: written(cluster, 0) == 54)
    values = [each.value for each in cluster.read(OUTPUT) if each.partition == 0]
    assert values[:8].count(b"first") == 3
