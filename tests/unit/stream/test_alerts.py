"""What the alert stage says of itself while Faust restores its table, and while an event is in hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import faust
import pytest
from prometheus_client import CollectorRegistry

from assay_stream.core.alert import AlertRules
from assay_stream.stream.alert_watch import Lease
from assay_stream.stream.alerts import AlertStage
from assay_stream.stream.meter import Meter, StageMeter

FINDINGS = "findings"


@pytest.fixture
def registry() -> CollectorRegistry:
    """A registry of its own."""
    return CollectorRegistry()


async def _nothing_to_do() -> None:
    pass


@pytest.fixture
def stage(registry: CollectorRegistry) -> AlertStage:
    """A stage on an application that is never started."""
    return AlertStage(
        faust.App("unit", broker="kafka://127.0.0.1:1", store="memory://"),
        findings_topic=FINDINGS,
        alerts_topic="alerts",
        partitions=2,
        alert_partitions=2,
        rules=AlertRules(version="1"),
        clock_us=lambda: 0,
        tick_s=0,
        meter=StageMeter(Meter(registry), "alerts"),
        lease=Lease(60.0),
        before_work=_nothing_to_do,
        fail=lambda _error: None,
    )


def a_consumer(**ends: int) -> Any:
    """An application whose consumer has partition 0 of the findings, and the changelog's."""
    partitions = [faust.types.TP(FINDINGS, 0), faust.types.TP("changelog", 0)]
    consumer = SimpleNamespace(
        stop_flow=lambda: None, assignment=lambda: partitions, highwater=lambda tp: ends.get(tp.topic)
    )
    return SimpleNamespace(consumer=consumer)


async def test_a_stage_that_restores_is_not_ready_and_its_time_counts(stage: AlertStage) -> None:
    """From the start, and from each time its partitions are taken away, until Faust says that it is done."""
    assert not stage.ready
    assert stage._restoring_since_s is not None
    stage._restoring_since_s -= 100
    assert stage.still_s >= 100
    await stage._on_rebalance_complete(a_consumer())
    assert (stage.ready, stage.still_s) == (True, 0.0)
    await stage._on_partitions_revoked()
    assert not stage.ready
    assert stage._restoring_since_s is not None


async def test_how_long_it_restored_is_measured(stage: AlertStage, registry: CollectorRegistry) -> None:
    """With the partitions of the findings alone: the changelog's are no input."""
    assert stage._restoring_since_s is not None
    stage._restoring_since_s -= 100
    await stage._on_rebalance_complete(a_consumer())
    assert (registry.get_sample_value("assay_stream_opening_seconds", {"stage": "alerts"}) or 0) >= 100
    assert registry.get_sample_value("assay_stream_partitions_opened", {"stage": "alerts"}) == 1


async def test_an_event_in_hand_counts_too(stage: AlertStage) -> None:
    """A stage that hangs in one event is as stuck as one that never restores."""
    await stage._on_rebalance_complete(a_consumer())
    stage._event_since_s = 0.0
    assert stage.still_s > 0


async def test_the_lag_is_told_once_something_was_read(stage: AlertStage, registry: CollectorRegistry) -> None:
    """Before that nobody knows where it stands."""
    stage._app = a_consumer(findings=10)
    await stage._on_rebalance_complete(stage._app)
    place = {"stage": "alerts", "topic": FINDINGS, "partition": "0"}
    stage.note_gauges()
    assert registry.get_sample_value("assay_stream_lag_records", place) is None
    stage._done[0] = 4
    stage.note_gauges()
    assert registry.get_sample_value("assay_stream_lag_records", place) == 6
