"""The alert stage without Kafka: where it goes on, and when it lets time come."""

from __future__ import annotations

import time

import pytest
from aiokafka import TopicPartition

from assay_stream.alerts.processor import process
from assay_stream.alerts.remembered import AlertTable
from assay_stream.config import Settings, load_settings
from assay_stream.kafka.stage import Stage, Topology
from assay_stream.kafka.topics import topic_names
from assay_stream.model.record import Origin, Record, Role
from assay_stream.worker.stages import AlertStageTable, SteadyClock, alert_stage
from tests.support.findings import PACING, RULES, a_finding, at
from tests.support.memory_cluster import MemoryCluster

SETTINGS = load_settings(alert_tick_s=5)
TOPICS = topic_names(SETTINGS)
FINDINGS = TopicPartition(TOPICS[Role.FINDINGS], 0)
DAY_US = 86_400_000_000


def found(offset: int = 0) -> Record:
    return Record(Role.FINDINGS, Origin(FINDINGS.topic, 0, offset), b"server", a_finding(offset).output().value)


def a_state_topic(*findings: Record) -> list[Record]:
    table = AlertTable(0, RULES)
    for finding in findings:
        process(table.alerts, finding)
    place = Origin("states", 0, 0)
    return [
        Record(Role.ALERT_STATES, place, output.key, output.value)
        for output in table.flush({FINDINGS.topic: len(findings)})
    ]


@pytest.fixture
def now() -> dict[str, float]:
    return {"s": 100.0, "us": at(0)}


@pytest.fixture
def states() -> list[Record]:
    return a_state_topic(found())


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch, now: dict[str, float], states: list[Record]) -> Stage[AlertStageTable]:
    monkeypatch.setattr(time, "monotonic", lambda: now["s"])
    return a_stage(SETTINGS, now, states)


def a_stage(settings: Settings, now: dict[str, float], states: list[Record]) -> Stage[AlertStageTable]:
    cluster = MemoryCluster(dict.fromkeys(TOPICS.values(), 1))
    for record in states:
        cluster.append(TOPICS[Role.ALERT_STATES], 0, record.key, record.value)
    topology = Topology(settings, {}, clients=cluster)
    return alert_stage(topology, rules=RULES, clock_us=lambda: int(now["us"]))


async def test_it_goes_on_from_where_its_table_is(stage: Stage[AlertStageTable]) -> None:
    """The table says which finding is next, whatever the group committed."""
    assert await stage.open(0) == {FINDINGS: 1}
    assert stage.entries == 2  # the alert, and what its record has begun
    stage.state(0).process(found(1))
    state, progress = stage.flush(0, {FINDINGS: 2})
    assert (state.key, progress.key) == (a_finding().uid().encode(), b"progress")


async def test_without_a_table_it_begins_with_the_first_finding(now: dict[str, float]) -> None:
    """Whatever the group committed: counts would start anew otherwise."""
    assert await a_stage(SETTINGS, now, []).open(0) == {FINDINGS: None}


async def test_a_closed_partition_is_forgotten(stage: Stage[AlertStageTable]) -> None:
    """Its states belong to whoever has it next."""
    await stage.open(0)
    stage.close(0)
    assert stage.entries == 0


async def test_a_tick_is_written_where_something_is_due(stage: Stage[AlertStageTable], now: dict[str, float]) -> None:
    """Not before, and no more often than the interval says."""
    await stage.open(0)
    assert stage.punctuate(0) == []
    now["us"] += PACING.repeat_interval_us
    now["s"] += 4.9
    assert stage.punctuate(0) == [], "it was asked within the interval"
    now["s"] += 0.1
    (tick,) = stage.punctuate(0)
    assert (tick.role, tick.partition) == (Role.FINDINGS, 0)
    assert stage.punctuate(0) == []


async def test_without_an_interval_time_never_comes(now: dict[str, float], states: list[Record]) -> None:
    """``ASSAY_STREAM_ALERT_TICK_S=0`` is for loading old records: nothing of them is due now."""
    stage = a_stage(load_settings(alert_tick_s=0), now, states)
    await stage.open(0)
    now["us"] += PACING.repeat_interval_us
    assert stage.punctuate(0) == []


def test_a_clock_that_jumps_ahead_by_a_day_brings_no_time_early() -> None:
    """Or alerts close whose findings are still to come; time that is late changes nothing that is written."""
    jump_us, passed_us = [0], [0]
    clock = SteadyClock(lambda: at(0) + jump_us[0] + passed_us[0], lambda: passed_us[0])
    early_us = []
    for jump, seconds in [(0, 10**8), (DAY_US, 600), (DAY_US, 600), (0, 600), (-DAY_US, 600), (0, 600)]:
        jump_us[0] = jump
        passed_us[0] += seconds * 1_000_000
        early_us.append(clock() - at(0) - passed_us[0])
    assert early_us == [0, 6_000_000, 12_000_000, 0, -DAY_US, 0]
