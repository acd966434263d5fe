"""Exactly once without a broker: a stage on the in-memory cluster, under failures, kills and zombies.

The agent numbers the records of a partition: each output holds its record and how many there were so far. So an
output that is lost, doubled or made from a lost state shows.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from assay_stream.config import Settings
from assay_stream.errors import IntegrityError, OperatingError
from assay_stream.kafka.partition import Batch, BatchHandler
from assay_stream.kafka.runner import Runner
from assay_stream.kafka.stage import Stage, Topology
from assay_stream.kafka.topics import topic_names
from assay_stream.model.record import Output, Record, Role
from assay_stream.model.state_table import Table
from tests.support.errors import raises_code
from tests.support.memory_cluster import MemoryCluster, MemoryConsumer, running, until

TOPICS = topic_names(Settings())
INPUT, OUTPUT, STATES = (TOPICS[role] for role in (Role.CALLS, Role.EVIDENCE, Role.ALERT_STATES))
GROUP = "assay-stream-number"
RECORDS = 7


pytestmark = pytest.mark.usefixtures("no_pauses")


class KilledError(BaseException):
    """What ends a process without another word."""


@pytest.fixture
def cluster() -> MemoryCluster:
    cluster = MemoryCluster(dict.fromkeys(TOPICS.values(), 2))
    publish(cluster, range(RECORDS))
    return cluster


def publish(cluster: MemoryCluster, numbers: Sequence[int], partition: int = 0) -> None:
    for number in numbers:
        cluster.append(INPUT, partition, b"key", f"record-{number}".encode())


NumberTable = Table[dict[str, Any]]


def number(state: NumberTable, record: Record) -> list[Output]:
    count = state.get("count", {"n": 0})["n"] + 1
    state["count"] = {"n": count}
    value = b"set aside" if record.set_aside else record.value or b""
    return [Output(Role.EVIDENCE, b"key", b"%s:%d" % (value, count), partition=record.origin.partition)]


async def numbering(batch: Batch[NumberTable]) -> None:
    await batch.process(number)


class NumberStage(Stage[NumberTable]):
    """A stage that keeps how many records there were, and may find only some of them ready."""

    ready_records = RECORDS

    def __init__(self, cluster: MemoryCluster, **settings: Any) -> None:
        self.may_open = asyncio.Event()
        self.may_open.set()
        super().__init__(
            "number",
            (Role.CALLS,),
            Topology(Settings(poll_timeout_ms=5, **settings), dict.fromkeys(Role, 2), clients=cluster),
            state_role=Role.ALERT_STATES,
            new_state=lambda partition: NumberTable(Role.ALERT_STATES, partition, INPUT),
        )

    def admit(self, records: Sequence[Record], _: object) -> int:
        return min(self.ready_records, len(records))

    async def open(self, partition: int) -> Mapping[TopicPartition, int | None]:
        await self.may_open.wait()
        return await super().open(partition)


def a_runner(
    cluster: MemoryCluster, agent: BatchHandler = numbering, *, stage: NumberStage | None = None, **settings: Any
) -> Runner:
    return Runner(stage or NumberStage(cluster, **settings), agent)


def written(cluster: MemoryCluster, partition: int = 0) -> list[str]:
    return [(each.value or b"").decode() for each in cluster.read(OUTPUT) if each.partition == partition]


def expected(count: int = RECORDS) -> list[str]:
    return [f"record-{number}:{number + 1}" for number in range(count)]


async def run_until(task: Runner, condition: Callable[[], bool]) -> None:
    async with running(task) as run:
        await until(lambda: condition() or run.done())


@asynccontextmanager
async def killed(task: Runner) -> AsyncIterator[None]:
    run = asyncio.create_task(task.run())
    yield
    run.cancel()
    await asyncio.wait([run])


async def finish(cluster: MemoryCluster) -> None:
    """Run a healthy worker until everything is committed, and look for what comes twice."""
    await run_until(a_runner(cluster), lambda: committed(cluster) == RECORDS and not uncommitted(cluster))


def committed(cluster: MemoryCluster, partition: int = 0) -> int:
    return cluster.committed(GROUP).get(TopicPartition(INPUT, partition), (0, ""))[0]


def uncommitted(cluster: MemoryCluster) -> bool:
    return len(written(cluster)) < RECORDS


async def test_each_record_is_written_once(cluster: MemoryCluster) -> None:
    """With the state that all before it led to, and with its offset; no mark is left."""
    await finish(cluster)
    assert written(cluster) == expected()
    assert cluster.committed(GROUP)[TopicPartition(INPUT, 0)] == (RECORDS, "")


async def test_another_worker_goes_on_where_one_stopped(cluster: MemoryCluster) -> None:
    """Offsets and state are those of the last transaction."""
    await finish(cluster)
    publish(cluster, range(RECORDS, RECORDS + 3))
    await run_until(a_runner(cluster), lambda: committed(cluster) == RECORDS + 3)
    assert written(cluster) == expected(RECORDS + 3)


@contextmanager
def fault(cluster: MemoryCluster, at_request: int, error: BaseException) -> Iterator[list[str]]:
    yield cluster.fail_at(at_request, error)
    cluster.before = lambda _: None


REQUESTS = range(1, 31)
"""Starting two producers, a marked batch of few records and the batches behind it."""


@pytest.mark.parametrize("at_request", REQUESTS)
async def test_a_request_that_fails_loses_and_doubles_nothing(cluster: MemoryCluster, at_request: int) -> None:
    """Whichever it is: the transaction is undone, and the batch done again."""
    with fault(cluster, at_request, KafkaError("the broker is away")) as asked:
        NumberStage.ready_records = 2
        await finish(cluster)
    assert written(cluster) == expected()
    assert len(asked) >= at_request


@pytest.mark.parametrize("at_request", REQUESTS)
async def test_a_worker_that_is_killed_loses_and_doubles_nothing(cluster: MemoryCluster, at_request: int) -> None:
    """At whichever request it dies, the next one restores and goes on."""
    with fault(cluster, at_request, KilledError()):
        NumberStage.ready_records = 2
        with pytest.raises(KilledError):
            await finish(cluster)
    await finish(cluster)
    assert written(cluster) == expected()


@pytest.fixture(autouse=True)
def all_ready() -> Iterator[None]:
    yield
    NumberStage.ready_records = RECORDS


async def test_buffered_records_are_not_committed(cluster: MemoryCluster) -> None:
    """Records that were fetched and had to wait are read again by the next owner."""
    NumberStage.ready_records = 2
    done = asyncio.Event()

    async def first_batch_only(batch: Batch[NumberTable]) -> None:
        if done.is_set():
            await asyncio.Event().wait()
        await batch.process(number)
        done.set()

    async with killed(a_runner(cluster, first_batch_only)):
        await until(lambda: len(written(cluster)) == 2)
        assert committed(cluster) == 2
    await finish(cluster)
    assert written(cluster) == expected()


async def test_a_batch_whose_time_is_over_is_committed_as_far_as_it_is_done(cluster: MemoryCluster) -> None:
    """What is left comes in the next batch."""
    sizes: list[int] = []

    def slow(state: NumberTable, record: Record) -> list[Output]:
        time.sleep(0.004)
        return number(state, record)

    async def agent(batch: Batch[NumberTable]) -> None:
        await batch.process(slow)
        sizes.append(batch.done)

    await run_until(a_runner(cluster, agent, batch_ms_max=1), lambda: committed(cluster) == RECORDS)
    assert sizes == [1] * RECORDS
    assert written(cluster) == expected()


async def test_a_zombie_can_write_nothing(cluster: MemoryCluster) -> None:
    """A worker that was frozen with a batch in hand, and lost its partitions unnoticed, is fenced."""
    frozen, thaw = asyncio.Event(), asyncio.Event()

    async def freezing(batch: Batch[NumberTable]) -> None:
        await batch.process(number)
        frozen.set()
        await thaw.wait()

    zombie = a_runner(cluster, freezing)
    async with running(zombie):
        await asyncio.wait_for(frozen.wait(), 10)
        await cluster.members(GROUP)[0].fall_silent()
        await finish(cluster)
        taken = producers_started(cluster, 0)
        thaw.set()
        await until(lambda: producers_started(cluster, 0) > taken)
    assert written(cluster) == expected()


async def test_a_rebalance_hands_partitions_over(cluster: MemoryCluster) -> None:
    """A second worker takes its share while the first works; each record is done once."""
    publish(cluster, range(RECORDS), partition=1)

    def is_done() -> bool:
        return all(len(written(cluster, partition)) == RECORDS + 20 for partition in (0, 1))

    first, second = a_runner(cluster), a_runner(cluster)
    async with running(first):
        await until(lambda: len(written(cluster)) > 0)
        async with running(second):
            for more in range(20):
                for partition in (0, 1):
                    publish(cluster, [RECORDS + more], partition)
                await asyncio.sleep(0.001)
            await until(is_done)
            assert (set(first._open), set(second._open)) == ({0}, {1})
    for partition in (0, 1):
        assert written(cluster, partition) == expected(RECORDS + 20)


def producers_started(cluster: MemoryCluster, partition: int) -> int:
    """How often the transactional id of a partition was taken: its producers' epochs."""
    return cluster.epochs[f"{GROUP}-{partition}"]


async def test_a_partition_that_stays_over_a_rebalance_keeps_its_producer_and_state(cluster: MemoryCluster) -> None:
    """Only what moves is opened anew, when a worker comes and when it goes."""
    publish(cluster, range(RECORDS), partition=1)
    first, second = a_runner(cluster), a_runner(cluster)
    async with running(first):
        await until(lambda: committed(cluster) == committed(cluster, 1) == RECORDS)
        async with running(second):
            await until(lambda: second.ready and first.ready)
            publish(cluster, [RECORDS], partition=0)
            publish(cluster, [RECORDS], partition=1)
            await until(lambda: committed(cluster) == committed(cluster, 1) == RECORDS + 1)
        await until(lambda: first.ready)
        publish(cluster, [RECORDS + 1], partition=0)
        await until(lambda: committed(cluster) >= RECORDS + 2)
        assert (producers_started(cluster, 0), producers_started(cluster, 1)) == (1, 3)
        assert written(cluster) == expected(RECORDS + 2)
        assert written(cluster, 1) == expected(RECORDS + 1)


async def test_a_partition_that_stays_is_worked_on_while_others_are_opened(cluster: MemoryCluster) -> None:
    """To restore the state of what a worker takes over takes long where there is much."""
    stage = NumberStage(cluster)
    first, second = a_runner(cluster, stage=stage), a_runner(cluster)
    async with running(first):
        async with running(second):
            await until(lambda: first.ready and second.ready and committed(cluster) == RECORDS)
            stage.may_open.clear()
        publish(cluster, [RECORDS])
        await until(lambda: committed(cluster) == RECORDS + 1)
        assert not first.ready
        stage.may_open.set()
        await until(lambda: first.ready)


async def test_a_partition_that_stays_over_two_rebalances_in_a_row_is_kept(cluster: MemoryCluster) -> None:
    """The second may come before it could be resumed after the first; it was nobody else's all the time."""
    await check_kept(cluster, rebalances=2)


async def check_kept(cluster: MemoryCluster, rebalances: int) -> None:
    async with running(a_runner(cluster)):
        await until(lambda: committed(cluster) == RECORDS)
        for _ in range(rebalances):
            await cluster.rebalance(GROUP)
        publish(cluster, [RECORDS])
        await until(lambda: committed(cluster) == RECORDS + 1)
        assert producers_started(cluster, 0) == 1


async def test_a_partition_stays_though_a_client_swallowed_that_its_task_was_cancelled(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``asyncio.wait_for`` loses a cancellation, up to Python 3.11, if what it waits for comes at the same time."""
    fetch = MemoryConsumer.getmany

    async def swallowing(consumer: MemoryConsumer, *partitions: TopicPartition, **limits: int) -> Any:
        try:
            return await fetch(consumer, *partitions, **limits)
        except asyncio.CancelledError:
            return {}

    monkeypatch.setattr(MemoryConsumer, "getmany", swallowing)
    await check_kept(cluster, rebalances=1)


@asynccontextmanager
async def a_frozen_owner(cluster: MemoryCluster, *more: int) -> AsyncIterator[MemoryConsumer]:
    """A runner that was done with partition 0 and ``more`` when it fell silent, and works on nothing any more."""
    old = a_runner(cluster)
    async with running(old):
        await until(lambda: all(committed(cluster, partition) == RECORDS for partition in (0, *more)))
        [frozen] = cluster.members(GROUP)
        await frozen.fall_silent()
        await old.on_partitions_revoked(())
        yield frozen


async def test_a_partition_that_had_another_owner_meanwhile_is_opened_anew(cluster: MemoryCluster) -> None:
    """The task that was kept for it missed a generation: its position and its state are of long ago."""
    async with a_frozen_owner(cluster) as frozen:
        publish(cluster, range(RECORDS, RECORDS + 3))
        await run_until(a_runner(cluster), lambda: committed(cluster) >= RECORDS + 3)
        await frozen.wake()
        publish(cluster, range(RECORDS + 3, RECORDS + 5))
        await until(lambda: len(written(cluster)) == RECORDS + 5)
        assert written(cluster) == expected(RECORDS + 5)
        assert producers_started(cluster, 0) >= 3


async def test_a_partition_that_alone_had_another_owner_is_opened_anew(cluster: MemoryCluster) -> None:
    """Even where nobody has taken the transactional id that the worker's producer has."""
    publish(cluster, range(RECORDS), partition=1)
    async with a_frozen_owner(cluster, 1) as frozen:
        taken = producers_started(cluster, 0)
        publish(cluster, range(RECORDS, RECORDS + 3), partition=1)
        await run_until(a_runner(cluster), lambda: committed(cluster, 1) >= RECORDS + 3)
        cluster.epochs[f"{GROUP}-0"] = taken  # as if the other worker had owned the second partition only
        await frozen.wake()
        publish(cluster, range(RECORDS + 3, RECORDS + 5), partition=1)
        await until(lambda: len(written(cluster, 1)) >= RECORDS + 5)
        assert written(cluster, 1) == expected(RECORDS + 5)


async def test_an_owner_in_between_that_died_in_its_transaction_holds_nothing_up(cluster: MemoryCluster) -> None:
    """What a woken worker kept is fenced like what it takes over: nobody else ends that transaction."""
    async with a_frozen_owner(cluster) as frozen:
        dead = cluster.producer(f"{GROUP}-0")
        await dead.start()
        await dead.begin_transaction()
        await dead.send_offsets_to_transaction({TopicPartition(INPUT, 0): (RECORDS + 1, "")}, GROUP)
        await frozen.wake()
        await until(lambda: not cluster.has_open_transactions)
        publish(cluster, [RECORDS])
        await until(lambda: len(written(cluster)) == RECORDS + 1)
        assert written(cluster) == expected(RECORDS + 1)


async def test_a_partition_that_fails_stops_no_other(cluster: MemoryCluster) -> None:
    """Its task alone is closed and opened again, as often as it fails."""
    publish(cluster, range(RECORDS), partition=1)
    failures_left = 2

    async def failing_in_one(batch: Batch[NumberTable]) -> None:
        nonlocal failures_left
        if batch.partition == 1 and failures_left:
            failures_left -= 1
            raise OSError("an agent's own")
        await batch.process(number)

    async with running(a_runner(cluster, failing_in_one)):
        await until(lambda: committed(cluster) == committed(cluster, 1) == RECORDS)
        assert (producers_started(cluster, 0), producers_started(cluster, 1)) == (1, 3)
        assert written(cluster, 1) == expected()


async def test_a_state_topic_that_lost_records_starts_over(cluster: MemoryCluster) -> None:
    """The count of its progress shows it; the input is read from its beginning, with an empty state."""
    await finish(cluster)
    lost = next(each.offset for each in reversed(cluster.read(STATES)) if each.key == b"count")
    cluster.delete_before(STATES, 0, lost + 1)
    await run_until(a_runner(cluster), lambda: len(written(cluster)) == 2 * RECORDS)
    assert written(cluster) == expected() * 2


async def test_an_input_that_was_recreated_is_not_read_on(cluster: MemoryCluster) -> None:
    """As many of its records as the old log had would be skipped without a word."""
    await finish(cluster)
    cluster.recreate(INPUT)
    publish(cluster, range(RECORDS - 1))
    why = rf"up to offset {RECORDS} of {INPUT}, partition 0, which ends at {RECORDS - 1}"
    with raises_code("outputs_ahead", kind=IntegrityError, match=why):
        await asyncio.wait_for(a_runner(cluster).run(), 10)
    assert written(cluster) == expected()


# Agents that fail


Failing = Callable[[Batch[NumberTable]], Awaitable[None]]


async def raises_before(batch: Batch[NumberTable]) -> None:
    raise ValueError("secret text of a record")


async def raises_after(batch: Batch[NumberTable]) -> None:
    await batch.process(number)
    raise ValueError("secret text of a record")


async def raises_in_a_record(batch: Batch[NumberTable]) -> None:
    def step(state: NumberTable, record: Record) -> list[Output]:
        number(state, record)
        raise ValueError("secret text of a record")

    await batch.process(step)


@pytest.mark.parametrize("agent", [raises_before, raises_after, raises_in_a_record])
async def test_an_agent_that_raises_on_every_batch_stops_its_worker(cluster: MemoryCluster, agent: Failing) -> None:
    """With its name and the cause, which quotes no record; then nothing is lost, doubled or set aside."""
    with raises_code(
        "agent_failed", kind=OperatingError, match=r"the number agent failed 4 times in a row.*ValueError at"
    ) as stopped:
        await asyncio.wait_for(a_runner(cluster, agent).run(), 10)
    assert "secret" not in str(stopped.value)
    assert written(cluster) == []
    await finish(cluster)
    assert written(cluster) == expected()


async def test_an_agent_that_raises_now_and_then_does_not(cluster: MemoryCluster) -> None:
    """The batch comes again, with the state as it was before."""
    attempts = 0

    async def agent(batch: Batch[NumberTable]) -> None:
        nonlocal attempts
        attempts += 1
        await batch.process(number)
        if attempts % 4:
            raise OSError("an agent's own")

    await run_until(a_runner(cluster, agent, batch_records_max=4), lambda: committed(cluster) == RECORDS)
    assert written(cluster) == expected()


async def test_an_agent_that_ignores_its_batch_is_done_with_it(cluster: MemoryCluster) -> None:
    """Records that an agent does not care for are read."""

    async def agent(batch: Batch[NumberTable]) -> None:
        batch.outputs.add([Output(Role.EVIDENCE, b"key", b"%d" % len(batch.records), partition=0)])

    await run_until(a_runner(cluster, agent), lambda: committed(cluster) == RECORDS)
    assert written(cluster) == [str(RECORDS)]


async def test_an_agent_that_waits_for_ever_holds_up_nobody_on_a_rebalance(cluster: MemoryCluster) -> None:
    """Its batch is taken away, and whoever owns the partition next does it."""

    async def waiting(batch: Batch[NumberTable]) -> None:
        await asyncio.Event().wait()

    async with killed(a_runner(cluster, waiting, session_timeout_ms=1_000)):
        await asyncio.sleep(0.05)
    await finish(cluster)
    assert written(cluster) == expected()
