"""The watch over the alert stage: its lease, its table, and whether it moves. Faust and Kafka are doubles."""

# ruff: noqa: ARG002 - the signatures are the client's

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaConnectionError

from assay_stream.config import load_settings
from assay_stream.core.errors import OperatingError
from assay_stream.stream import alert_watch
from assay_stream.stream.alert_watch import AlertWatch, Lease

FINDINGS = "assay.tool.finding"
CHANGELOG = TopicPartition("assay-stream-alerts-alerts-changelog", 0)
PARTITION = TopicPartition(FINDINGS, 0)


class Clock:
    """A clock that a test sets."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Log:
    """A reader of one finding partition and of the change log, with what they hold and what is committed."""

    def __init__(self) -> None:
        self.ends = {PARTITION: 0, CHANGELOG: 0}
        self.markers: set[int] = set()
        self.position_now = 0
        self.committed_now: int | None = None
        self.away = False

    async def start(self) -> None:
        if self.away:
            raise KafkaConnectionError

    async def stop(self) -> None:
        pass

    def assign(self, partitions: list[TopicPartition]) -> None:
        pass

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.position_now = offset

    async def position(self, partition: TopicPartition) -> int:
        return self.position_now

    async def committed(self, partition: TopicPartition) -> int | None:
        return self.committed_now

    async def end_offsets(self, partitions: list[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {partition: self.ends[partition] for partition in partitions}

    async def beginning_offsets(self, partitions: list[TopicPartition]) -> Mapping[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    async def getmany(self, *_: TopicPartition, **__: int) -> Mapping[TopicPartition, list[object]]:
        here, self.position_now = self.position_now, self.position_now + 1
        return {} if here in self.markers else {PARTITION: [object()]}


class Coordinator:
    """What aiokafka's coordinator does of heartbeats."""

    confirms = True

    async def _do_heartbeat(self) -> bool:
        return self.confirms


def an_app(coordinator: Coordinator, *, restored: int | None = None) -> Any:
    """As much of a Faust application as the watch looks at."""
    recovery = SimpleNamespace(
        active_tps={CHANGELOG}, active_offsets={CHANGELOG: restored}, signal_recovery_start=asyncio.Event()
    )
    thread = SimpleNamespace(_ensure_consumer=lambda: SimpleNamespace(_coordinator=coordinator))
    consumer = SimpleNamespace(_thread=thread, assignment=lambda: {PARTITION})
    return SimpleNamespace(tables=SimpleNamespace(recovery=recovery), consumer=consumer, rebalancing=False)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    """The log that every reader of the watch reads."""
    made = Log()
    monkeypatch.setattr(alert_watch, "reading_consumer", lambda *_, **__: made)
    return made


def a_watch(app: Any, *, lease: Lease | None = None) -> AlertWatch:
    """A watch whose limit is five seconds, the shortest."""
    return AlertWatch(
        load_settings(alert_stall_limit_s=5),
        app,
        findings_topic=FINDINGS,
        lease=lease or Lease(10.0),
    )


def test_a_lease_holds_for_one_session() -> None:
    """Up to the session's length after the last sign of life the stage may write, from then on not."""
    clock = Clock()
    lease = Lease(10.0, clock_s=clock)
    clock.now_s += 9.9
    lease.check()
    clock.now_s += 0.1
    with pytest.raises(OperatingError, match=r"10\.0 s") as refused:
        lease.check()
    assert refused.value.code == "partitions_lost"


def test_a_lease_counts_from_when_the_sign_of_life_was_sent() -> None:
    """A heartbeat that was confirmed late renews from when it was sent, and an older one renews nothing."""
    clock = Clock()
    lease = Lease(10.0, clock_s=clock)
    lease.renew(108.0)
    lease.renew(103.0)
    clock.now_s = 117.9
    lease.check()
    clock.now_s = 118.0
    with pytest.raises(OperatingError):
        lease.check()


async def test_confirmed_heartbeats_renew_the_lease(log: Log) -> None:
    """After a rebalance every heartbeat that the coordinator confirms renews the lease; another one does not."""
    clock, coordinator = Clock(), Coordinator()
    lease = Lease(10.0, clock_s=clock)
    await a_watch(an_app(coordinator), lease=lease).before_work()
    clock.now_s = 109.0
    assert await coordinator._do_heartbeat()
    clock.now_s = 118.0
    lease.check()
    coordinator.confirms = False
    assert not await coordinator._do_heartbeat()
    clock.now_s = 119.0
    with pytest.raises(OperatingError):
        lease.check()


@pytest.mark.parametrize(("end", "restored"), [(0, None), (0, -1), (1, 0), (7, 6)])
async def test_a_table_read_to_its_end_is_worked_on(log: Log, end: int, restored: int | None) -> None:
    """Work begins where the last record of the change log was read, or where there is none."""
    log.ends[CHANGELOG] = end
    await a_watch(an_app(Coordinator(), restored=restored)).before_work()


@pytest.mark.parametrize(("end", "restored"), [(1, None), (1, -1), (7, 5)])
async def test_a_table_not_read_to_its_end_is_refused(log: Log, end: int, restored: int | None) -> None:
    """Where a record of the change log was not read, no work begins."""
    log.ends[CHANGELOG] = end
    with pytest.raises(OperatingError) as refused:
        await a_watch(an_app(Coordinator(), restored=restored)).before_work()
    assert refused.value.code == "alert_table_not_restored"


async def test_a_recovery_that_is_over_already_is_not_judged(log: Log) -> None:
    """Where another rebalance has begun, the table is looked at after the next recovery."""
    log.ends[CHANGELOG] = 7
    app = an_app(Coordinator())
    app.tables.recovery.signal_recovery_start.set()
    await a_watch(app).before_work()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock that a watch made after it looks at."""
    made = Clock()
    monkeypatch.setattr(alert_watch, "time", SimpleNamespace(monotonic=made))
    return made


async def watched(watch: AlertWatch, looks: int, clock: Clock) -> None:
    """Let a watch look so many times, four seconds apart."""
    for _ in range(looks):
        await watch._look(5.0)
        clock.now_s += 4.0


async def test_standing_still_while_findings_wait_ends_the_worker(log: Log, clock: Clock) -> None:
    """Where a finding waits and nothing moves for longer than the limit, the watch says so."""
    watch = a_watch(an_app(Coordinator()))
    await watch.before_work()
    log.ends[PARTITION] = 3
    with pytest.raises(OperatingError) as ended:
        await watched(watch, 4, clock)
    assert ended.value.code == "alerts_stalled"


async def test_waiting_before_the_first_assignment_ends_the_worker(log: Log, clock: Clock) -> None:
    """A stage that never comes to its first assignment, with brokers that answer, stands still."""
    with pytest.raises(OperatingError) as ended:
        await watched(a_watch(an_app(Coordinator())), 4, clock)
    assert ended.value.code == "alerts_stalled"


async def test_a_stage_with_nothing_to_do_is_left_alone(log: Log, clock: Clock) -> None:
    """Markers of transactions after the last finding are nothing that waits."""
    watch = a_watch(an_app(Coordinator()))
    await watch.before_work()
    log.ends[PARTITION], log.committed_now, log.markers = 4, 2, {2, 3}
    await watched(watch, 6, clock)


async def test_a_stage_that_moves_is_left_alone(log: Log, clock: Clock) -> None:
    """However much waits, a stage that commits one record within the limit is not ended."""
    watch = a_watch(an_app(Coordinator()))
    await watch.before_work()
    log.ends[PARTITION] = 100
    for offset in range(6):
        log.committed_now = offset + 1
        await watched(watch, 1, clock)


async def test_time_without_brokers_does_not_count(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """While no broker answers the watch waits with everybody else, and ends when told."""
    log.away = True
    monkeypatch.setattr(alert_watch, "_LOOKS_PER_LIMIT", 500)
    watch = a_watch(an_app(Coordinator()))
    watch._moved_s -= 1_000
    running = asyncio.create_task(watch.run())
    await asyncio.sleep(0.1)
    watch.stop()
    await running
