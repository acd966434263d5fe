"""The batch task: what it says of itself, and its patience with brokers that fail."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError

from assay_stream.config import Settings
from assay_stream.errors import ConfigurationError, OperatingError
from assay_stream.kafka import stage_task as module
from assay_stream.kafka.stage import NoState, Stage
from assay_stream.kafka.stage_task import StageTask
from assay_stream.kafka.topics import topic_names
from assay_stream.model.record import Origin, Role
from tests.support.memory_cluster import MemoryCluster


class NoConsumer:
    """A consumer of a worker without partitions, whose polls raise what they are told to."""

    def __init__(self, *errors: BaseException | None) -> None:
        self.errors = list(errors)

    async def getmany(self, **_: int) -> dict[Any, Any]:
        """Raise the next error, if there is one."""
        error = self.errors.pop(0)
        if error is not None:
            raise error
        return {}


async def no_agent(batch: object) -> None:
    """Never called: there is no partition."""


def a_task(**settings: Any) -> StageTask:
    """A task that has no partitions."""
    topics, clients = topic_names(Settings()), MemoryCluster({})
    stage = Stage("join", (Role.CALLS,), clients=clients, topics=topics, new_state=lambda _: NoState())
    counts = dict.fromkeys(Role, 1)
    return StageTask(Settings(**settings), stage, no_agent, topics=topics, partition_counts=counts, clients=clients)


@pytest.fixture
async def task(monkeypatch: pytest.MonkeyPatch) -> StageTask:
    """One that pauses for no time."""
    monkeypatch.setattr(module, "_REOPENING_PAUSE_S", 0.0)
    return a_task()


async def turns(task: StageTask, *errors: BaseException | None) -> None:
    """Let a task take turns that end so."""
    consumer: Any = NoConsumer(*errors)
    async with asyncio.timeout(10):
        while consumer.errors:
            await task._turn(consumer)


FAILED = KafkaError("the transaction failed")


async def test_brokers_that_fail_every_time_stop_the_worker(task: StageTask) -> None:
    """After a number of failures in a row the task ends with an operating error that says how many."""
    with pytest.raises(OperatingError, match="11 times in a row") as caught:
        await turns(task, *[FAILED] * 11)
    assert caught.value.code == "brokers_failing"


async def test_a_failure_now_and_then_is_stood(task: StageTask) -> None:
    """A few failures are retried, each with all partitions opened again; a batch that is written ends the count."""
    await turns(task, *[FAILED] * 10)
    task._note_commit(0)
    await turns(task, *[FAILED] * 10)


async def test_quiet_turns_do_not_hide_a_batch_that_always_fails(task: StageTask) -> None:
    """A batch that fails each time it is read ends the task, though empty polls lie between."""
    with pytest.raises(OperatingError):
        await turns(task, *[FAILED, None] * 30)


async def test_batches_of_others_do_not_hide_one_that_always_fails(task: StageTask) -> None:
    """What another partition commits says nothing of this one."""

    async def fail_in_one_and_commit_in_another() -> None:
        for _ in range(30):
            task._note_failure(1)
            await turns(task, FAILED)
            task._note_commit(0)

    with pytest.raises(OperatingError):
        await fail_in_one_and_commit_in_another()


async def test_a_task_is_ready_only_while_the_group_has_told_its_share(task: StageTask) -> None:
    """Before the first assignment and during a rebalance it is not; with no partition to do it is."""
    assert not task.ready
    await task.give_up()  # as the client asks of every member before it joins
    assert not task.ready
    task.take_over(set())
    assert task.ready
    task.take_over({0})
    assert not task.ready
    await task.give_up()
    assert not task.ready


async def test_what_a_user_may_not_do_stops_the_worker_at_once(task: StageTask) -> None:
    """Another attempt would be refused too: the error is the operator's to mend."""
    with pytest.raises(ConfigurationError) as caught:
        await turns(task, TopicAuthorizationFailedError("calls"))
    assert caught.value.code == "not_authorized"


async def test_a_turn_that_does_not_end_is_seen(task: StageTask) -> None:
    """Time without a turn counts from the last one's beginning."""
    task._moved_s -= 300.0
    assert task.still_s >= 300.0
    await turns(task, None)
    assert task.still_s < 300.0


async def test_partitions_that_were_added_have_an_error_of_their_own(task: StageTask) -> None:
    """Keys move away from what is known of them: no restart helps, and no guess does."""
    with pytest.raises(ConfigurationError, match="partition 1 now and had 1") as raised:
        task._tasks._inputs(1)
    assert raised.value.code == "partitions_added"


async def test_one_record_that_takes_too_long_stops_the_worker(task: StageTask) -> None:
    """A thread cannot be stopped, so the process is."""
    task = a_task(record_limit_s=1)
    run = StuckTask()
    with pytest.raises(OperatingError, match="at offset 7 of calls, partition 3") as raised:
        task._stop_if_stuck([run])  # type: ignore[list-item]
    assert raised.value.code == "record_stuck"
    run.busy_s = 0.5
    task._stop_if_stuck([run])  # type: ignore[list-item]


class StuckTask:
    """A partition task whose thread is busy."""

    busy_s = 1.5
    working_on = Origin("calls", 3, 7)


async def test_a_partition_is_not_opened_while_an_old_thread_is_at_its_state(task: StageTask) -> None:
    """The thread would go on with the new owner's."""
    busy = threading.Event()
    busy.set()

    class Dropped:
        busy_s = 0.0
        working_on = None

        partition = 0

        @property
        def is_in_thread(self) -> bool:
            return busy.is_set()

    opened: list[set[int]] = []

    async def open_tasks(consumer: object, missing: set[int], generation: int) -> None:
        opened.append(missing)

    task._open = open_tasks  # type: ignore[method-assign]
    task._tasks._dropped = [Dropped()]  # type: ignore[list-item]
    task.take_over({0, 1})
    await turns(task, None)
    assert opened == [{1}]
    busy.clear()
    await turns(task, None)
    assert opened == [{1}, {0, 1}]
