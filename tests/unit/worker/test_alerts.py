"""The alert stage without Kafka: where it goes on, and when it lets time come."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiokafka import TopicPartition
from prometheus_client import CollectorRegistry

from assay_stream.alerts.table import AlertTable
from assay_stream.config import load_settings
from assay_stream.kafka.topics import topic_names
from assay_stream.model.record import Origin, Record, Role
from assay_stream.worker import alerts as module
from assay_stream.worker.alerts import AlertStage
from assay_stream.worker.metrics import Meter, StageMeter
from tests.support.findings import PACING, RULES, a_finding, at

SETTINGS = load_settings(alert_tick_s=5)
FINDINGS = TopicPartition(topic_names(SETTINGS)[Role.FINDINGS], 0)


def found(offset: int = 0) -> Record:
    """A finding as it is read."""
    return Record(Role.FINDINGS, Origin(FINDINGS.topic, 0, offset), b"server", a_finding(offset).output().value)


def a_state_topic(*findings: Record) -> list[Record]:
    """What the state topic holds after some findings."""
    table = AlertTable(0, RULES)
    for finding in findings:
        table.apply(finding)
    place = Origin("states", 0, 0)
    return [Record(Role.ALERT_STATES, place, output.key, output.value) for output in table.written(len(findings))]


@pytest.fixture
def now() -> dict[str, float]:
    """Both clocks: ``s`` since some moment, ``us`` of the day."""
    return {"s": 100.0, "us": at(0)}


@pytest.fixture
def states() -> list[Record]:
    """What the state topic holds."""
    return a_state_topic(found())


@pytest.fixture
async def stage(monkeypatch: pytest.MonkeyPatch, now: dict[str, float], states: list[Record]) -> AlertStage:
    """A stage whose state topic is a list and whose clocks stand."""

    async def read(*_: Any) -> AsyncIterator[Record]:
        for record in states:
            yield record

    monkeypatch.setattr(module, "read_to_end", read)
    monkeypatch.setattr(time, "monotonic", lambda: now["s"])
    return AlertStage(
        SETTINGS,
        topics=topic_names(SETTINGS),
        rules=RULES,
        clock_us=lambda: int(now["us"]),
        meter=StageMeter(Meter(CollectorRegistry()), "alerts"),
    )


async def test_it_goes_on_from_where_its_table_is(stage: AlertStage) -> None:
    """The table says which finding is next, whatever the group committed."""
    assert await stage.open(0) == {FINDINGS: 1}
    assert stage.entries == 2  # the alert, and what its record has begun
    stage.process(0, [found(1)])
    state, progress = stage.seal(0, {FINDINGS: 2})
    assert (state.key, progress.key) == (a_finding().uid().encode(), b"progress")


async def test_without_a_table_it_begins_with_the_first_finding(stage: AlertStage, states: list[Record]) -> None:
    """Whatever the group committed: counts would start anew otherwise."""
    states.clear()
    assert await stage.open(0) == {FINDINGS: None}


async def test_a_closed_partition_is_forgotten(stage: AlertStage) -> None:
    """Its states belong to whoever has it next."""
    await stage.open(0)
    stage.close(0)
    assert stage.entries == 0


async def test_a_tick_is_written_where_something_is_due(stage: AlertStage, now: dict[str, float]) -> None:
    """Not before, and no more often than the interval says."""
    await stage.open(0)
    assert stage.unasked(0) == []
    now["us"] += PACING.repeat_interval_us
    now["s"] += 4.9
    assert stage.unasked(0) == [], "it was asked within the interval"
    now["s"] += 0.1
    (tick,) = stage.unasked(0)
    assert (tick.role, tick.partition) == (Role.FINDINGS, 0)
    assert stage.unasked(0) == []


async def test_without_an_interval_time_never_comes(
    stage: AlertStage, now: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``ASSAY_STREAM_ALERT_TICK_S=0`` is for loading old records: nothing of them is due now."""
    monkeypatch.setattr(stage, "_settings", load_settings(alert_tick_s=0))
    await stage.open(0)
    now["us"] += PACING.repeat_interval_us
    assert stage.unasked(0) == []
