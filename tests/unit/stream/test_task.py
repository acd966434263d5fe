"""The batch task: what it says of itself, and its patience with brokers that fail."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError
from prometheus_client import CollectorRegistry

from assay_stream.config import Settings
from assay_stream.core.engine import EngineState
from assay_stream.core.errors import ConfigurationError, OperatingError
from assay_stream.core.evidence import Producer
from assay_stream.core.record import Origin, Output, Record, Role
from assay_stream.stream import task as module
from assay_stream.stream.join import JoinStage
from assay_stream.stream.meter import Meter, StageMeter
from assay_stream.stream.task import BatchTask
from assay_stream.stream.topics import topic_names
from assay_stream.stream.view import BindingView
from tests.support.kept import Kept


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> BatchTask:
    """A task of the join that pauses for no time and has no partitions."""
    monkeypatch.setattr(module, "_REOPENING_PAUSE_S", 0.0)
    settings = Settings()
    state = EngineState(producer=Producer(version="1"))
    view = BindingView(settings, state, topic="b", partitions=1, inputs=[])
    return BatchTask(
        settings,
        JoinStage(state, view, control_topic="assay.control"),
        topics=topic_names(settings),
        partition_counts=dict.fromkeys(Role, 1),
        meter=StageMeter(Meter(CollectorRegistry()), "join"),
    )


async def turns(task: BatchTask, monkeypatch: pytest.MonkeyPatch, batches: list[dict[int, Any]]) -> None:
    """Let a task take turns in which these batches are fetched; one that is not empty fails to commit."""

    async def fetch(consumer: object) -> dict[int, Any]:
        return batches.pop(0)

    async def process(consumer: object, fetched: dict[int, Any], generation: int) -> None:
        if fetched:
            raise KafkaError("the transaction failed")

    monkeypatch.setattr(task, "_fetch", fetch)
    monkeypatch.setattr(task, "_process", process)
    async with asyncio.timeout(10):
        while batches:
            await task._turn(None)


FAILING: dict[int, Any] = {0: ["a record"]}


async def test_brokers_that_fail_every_time_stop_the_worker(
    task: BatchTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a number of failures in a row the task ends with an operating error that says how many."""
    with pytest.raises(OperatingError, match="11 times in a row") as caught:
        await turns(task, monkeypatch, [FAILING] * 11)
    assert caught.value.code == "brokers_failing"


async def test_a_failure_now_and_then_is_stood(task: BatchTask, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few failures are retried, each with the lanes opened anew."""
    await turns(task, monkeypatch, [FAILING] * 10)


async def test_quiet_turns_do_not_hide_a_batch_that_always_fails(
    task: BatchTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that fails each time it is read ends the task, though empty polls lie between."""
    with pytest.raises(OperatingError):
        await turns(task, monkeypatch, [FAILING, {}] * 30)


async def test_a_task_is_ready_only_while_the_group_has_told_its_share(task: BatchTask) -> None:
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


async def test_a_large_batch_leaves_turns_to_heartbeats(task: BatchTask, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stepped in one go it would outlast the session on a busy machine, be refused, and begin anew for ever."""

    def process(partition: int, records: list[Record]) -> list[Output]:
        return [Output(Role.EVIDENCE, None, record.value, partition=partition) for record in records]

    monkeypatch.setattr(task._stage, "process", process)
    batch = [Record(Role.CALLS, Origin("c", 3, number), None, b"%d" % number) for number in range(9_999)]
    turns = 0

    async def beat() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beating = asyncio.create_task(beat())
    gathered = Kept()
    await task._step(3, batch, gathered)  # type: ignore[arg-type]
    beating.cancel()
    assert [output.value for output in gathered.outputs] == [record.value for record in batch]
    assert turns >= 10


async def test_what_a_user_may_not_do_stops_the_worker_at_once(
    task: BatchTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another attempt would be refused too: the error is the operator's to mend."""

    async def fetch(consumer: object) -> dict[int, Any]:
        raise TopicAuthorizationFailedError("calls")

    monkeypatch.setattr(task, "_fetch", fetch)
    with pytest.raises(ConfigurationError) as caught:
        await task._turn(None)
    assert caught.value.code == "not_authorized"


async def test_a_turn_that_does_not_end_is_seen(task: BatchTask, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time without a turn counts from the last one's beginning."""

    async def fetch(consumer: object) -> dict[int, Any]:
        return {}

    async def process(consumer: object, fetched: dict[int, Any], generation: int) -> None:
        pass

    monkeypatch.setattr(task, "_fetch", fetch)
    monkeypatch.setattr(task, "_process", process)
    task._moved_s -= 300.0
    assert task.still_s >= 300.0
    await task._turn(None)
    assert task.still_s < 300.0
