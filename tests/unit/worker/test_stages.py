"""The stages of the registry and the join, without Kafka."""

from __future__ import annotations

import asyncio
from functools import partial

import orjson
import pytest
from aiokafka import TopicPartition

from assay_stream.config import Settings
from assay_stream.join import Join
from assay_stream.kafka.connection import FetchedRecord, record_of
from assay_stream.kafka.stage import Topology
from assay_stream.kafka.topics import topic_names
from assay_stream.model.evidence import Producer
from assay_stream.model.facts import Progress
from assay_stream.model.record import Origin, Output, Record, Role
from assay_stream.registry.processor import Registry, process
from assay_stream.worker.stages import (
    BindingView,
    EvidenceLatency,
    JoinStage,
    RecentObservers,
    RegistryState,
    join_calls,
    registry_stage,
)
from tests.support.fleet import START, a_call_by, a_listing
from tests.support.memory_cluster import MemoryCluster

PRODUCER = Producer(version="1")
TOPICS = topic_names(Settings())
CLUSTER = MemoryCluster(dict.fromkeys(TOPICS.values(), 2))
COUNTS = dict.fromkeys(Role, 1) | {Role.CALLS: 2}
TOPOLOGY = Topology(Settings(), COUNTS, clients=CLUSTER)
SNAPSHOTS = TopicPartition("mcp.tools.list", 0)
CONTROL = TopicPartition("assay.control", 0)


def a_view(state: Join) -> BindingView:
    return BindingView(TOPOLOGY, lambda: state)


@pytest.fixture
def state() -> Join:
    state = Join(producer=PRODUCER)
    role, key, value = a_listing(0, 0, 0, 1, START)
    for output in process(Registry(producer=PRODUCER), at(Role.SNAPSHOTS, 0, key, value)):
        if output.role is Role.BINDINGS:
            state.bindings.take(at(Role.BINDINGS, 0, output.key, output.value))
    assert role is Role.SNAPSHOTS
    return state


NO_LATENCY = partial(EvidenceLatency, lambda *_: None, RecentObservers())


@pytest.fixture
async def join(state: Join) -> JoinStage:
    return await a_join(state)


async def a_join(state: Join) -> JoinStage:
    stage = JoinStage(a_view(state), TOPOLOGY, latency=NO_LATENCY)
    await stage.open(0)
    return stage


def at(role: Role, offset: int, key: bytes | None, value: bytes | None) -> Record:
    return Record(role=role, origin=Origin(topic=role.value, partition=0, offset=offset), key=key, value=value)


def calls(*names: str | None) -> list[Record]:
    return [at(*call(number, name)) for number, name in enumerate(names)]


def call(number: int, name: str | None) -> tuple[Role, int, bytes, bytes]:
    role, key, value = a_call_by(0, 0, number, START, name)
    return role, number, key, value


def reach(state: Join, **positions: int) -> None:
    for tp, position in ((SNAPSHOTS, positions.get("snapshots")), (CONTROL, positions.get("control"))):
        if position is not None:
            state.bindings.apply(Progress(topic=tp.topic, partition=tp.partition, position=position))


def joined(stage: JoinStage, records: list[Record]) -> list[Output]:
    return join_calls(stage.state(0), records)


ENDS = {SNAPSHOTS: 5, CONTROL: 2}


def test_calls_wait_until_everything_before_them_is_applied(join: JoinStage, state: Join) -> None:
    """Unnamed calls are admitted once the registry has reached both ends, and not one record before."""
    waiting = calls(None, None)
    assert join.admit(waiting, ENDS) == 0
    reach(state, snapshots=4, control=2)
    assert join.admit(waiting, ENDS) == 0
    reach(state, snapshots=5, control=1)
    assert join.admit(waiting, ENDS) == 0
    reach(state, control=2)
    assert join.admit(waiting, ENDS) == 2


async def test_ends_that_are_asked_for_together_are_asked_once(join: JoinStage) -> None:
    """But never are those handed out that somebody had asked for before."""
    asked = 0
    release = asyncio.Event()

    async def input_ends() -> dict[TopicPartition, int]:
        nonlocal asked
        asked += 1
        number = asked
        await release.wait()
        return {SNAPSHOTS: number}

    join._view.input_ends = input_ends  # type: ignore[method-assign]
    first = asyncio.create_task(join.upstream_ends())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    later = [asyncio.create_task(join.upstream_ends()) for _ in range(3)]
    await asyncio.sleep(0)
    release.set()
    assert await first == {SNAPSHOTS: 1}
    assert [await one for one in later] == [{SNAPSHOTS: 2}] * 3
    assert asked == 2


async def test_an_empty_log_holds_nobody() -> None:
    """Where nothing was ever published there is nothing to wait for."""
    join = await a_join(Join(producer=PRODUCER))
    assert join.admit(calls(None), {SNAPSHOTS: 0, CONTROL: 0}) == 1


def test_a_call_that_names_a_known_snapshot_waits_for_control_alone(join: JoinStage, state: Join) -> None:
    """Its definition is final, but a pin might still come."""
    assert join.admit(calls("snapshot-1"), ENDS) == 0
    reach(state, control=2)
    assert join.admit(calls("snapshot-1"), ENDS) == 1


def test_a_call_that_waits_is_read_once(join: JoinStage, state: Join, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often the stage looks whether it is ready; once it is joined nothing of it is kept."""
    waiting, reads, read = calls("snapshot-1"), list[Record](), Join.read

    def counted(join: Join, record: Record) -> object:
        reads.append(record)
        return read(join, record)

    monkeypatch.setattr(Join, "read", counted)
    assert (join.admit(waiting, ENDS), join.admit(waiting, ENDS)) == (0, 0)
    reach(state, control=2)
    assert join.admit(waiting, ENDS) == 1
    assert reads == waiting
    assert [output.label for output in joined(join, waiting)] == ["bound:exact"]
    assert not join.state(0).waiting


async def test_a_call_that_waited_is_forgotten_with_its_partition(join: JoinStage) -> None:
    """Whoever owns the partition next reads it again."""
    assert join.admit(calls("snapshot-1"), ENDS) == 0
    join.close(1)
    assert join.state(0).waiting
    join.close(0)
    await join.open(0)
    assert not join.state(0).waiting


def test_the_order_of_a_partition_is_kept(join: JoinStage, state: Join) -> None:
    """A call that is ready waits behind one that is not."""
    reach(state, control=2)
    assert join.admit(calls("snapshot-1", None, "snapshot-1"), ENDS) == 1


def test_a_call_whose_hold_ended_is_admitted(join: JoinStage) -> None:
    """The operator's limit ends the wait, for these records and no others."""
    first, second = calls(None, None)
    assert join.admit([first._replace(hold_expired=True), second], ENDS) == 1


async def test_waiting_for_the_registry_has_a_limit(state: Join) -> None:
    """The view wakes a waiter when facts came, and else after the limit."""
    view = a_view(state)
    async with asyncio.timeout(5):
        await view.wait_for_change(0.01, since=view.changes)


async def test_the_registry_s_state_belongs_to_its_partition() -> None:
    """Each partition has a state of its own; closing drops it."""
    stage = registry_stage(Topology(Settings(), dict.fromkeys(Role, 2), clients=CLUSTER))
    assert await stage.open(0) == {SNAPSHOTS: None, CONTROL: None}
    _, key, value = a_listing(0, 0, 0, 1, START)
    listing = [at(Role.SNAPSHOTS, offset, key, value) for offset in (0, 1)]
    outputs = [output for record in listing for output in process(stage.state(0), record)]
    assert [output.label for output in outputs].count("fact:seen") == 1
    assert stage.entries == 1
    stage.close(0)
    stage.close(0)
    assert stage.entries == 0
    assert await stage.upstream_ends() == {}
    assert stage.admit(calls(None, None), {}) == 2


async def test_the_registry_is_restored_from_its_facts() -> None:
    """And goes on from the progress that stands among them."""
    cluster = MemoryCluster(dict.fromkeys(TOPICS.values(), 2))
    stage = registry_stage(Topology(Settings(), dict.fromkeys(Role, 2), clients=cluster))
    await stage.open(0)
    _, key, value = a_listing(0, 0, 0, 1, START)
    written = process(stage.state(0), at(Role.SNAPSHOTS, 0, key, value)) + stage.flush(0, {SNAPSHOTS: 1, CONTROL: 0})
    for output in written:
        if output.role is Role.BINDINGS:
            cluster.append(TOPICS[Role.BINDINGS], 0, output.key, output.value)
    stage.close(0)
    assert await stage.open(0) == {SNAPSHOTS: 1, CONTROL: 0}
    assert stage.entries == 1


def test_the_registry_flushes_its_progress() -> None:
    """With every batch go records of how far it came, one per input topic, behind the facts."""
    state = RegistryState(TOPOLOGY, 0)
    outputs = state.flush({SNAPSHOTS.topic: 3, CONTROL.topic: 1})
    assert [orjson.loads(output.key or b"") for output in outputs] == [
        ["progress", "mcp.tools.list", 0],
        ["progress", "assay.control", 0],
    ]
    assert {output.partition for output in outputs} == {0}


def test_a_record_is_what_kafka_gave() -> None:
    """Place, key, value and headers are kept; a record without a time has time 0."""
    record = record_of(Role.CALLS, FetchedRecord("t", 1, 2, -1, b"k", None, (("h", b"1"),)))
    assert record == Record(
        role=Role.CALLS,
        origin=Origin(topic="t", partition=1, offset=2),
        key=b"k",
        value=None,
        headers=(("h", b"1"),),
        timestamp_ms=0,
    )
