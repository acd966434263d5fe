"""What the stages count, and what they say of themselves."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from prometheus_client import CollectorRegistry

from assay_stream.worker.telemetry import Metrics, PrometheusStage


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.mark.parametrize(
    ("counted", "wanted"),
    [
        (
            lambda stage: stage.done(3, {"bound:exact": 2, "rejected:not_json": 1}),
            {"records_read_total": 3, "outputs_total bound:exact": 2, "outputs_total rejected:not_json": 1},
        ),
        (
            lambda stage: stage.batch(1, {"bound:exact": 1}, seconds=0.5),
            {"records_read_total": 1, "outputs_total bound:exact": 1, "batch_seconds_sum": 0.5},
        ),
        (lambda stage: stage.count("claims_left_out"), {"name_claims_left_out_total": 1}),
        (lambda stage: stage.count("lost", 7), {"input_expired_total": 7}),
        (lambda stage: stage.count("reopened"), {"partitions_reopened_total": 1}),
        (lambda stage: stage.measure("buffered", 5), {"records_buffered": 5}),
        (lambda stage: stage.measure("opened", 3), {"partitions_opened": 3}),
        (lambda stage: stage.measure("opening_seconds", 1.5), {"opening_seconds": 1.5}),
    ],
)
def test_what_a_stage_counts_has_its_name(
    registry: CollectorRegistry, counted: Callable[[PrometheusStage], None], wanted: dict[str, float]
) -> None:
    """Each label of outputs has a counter of its own. Two stages of one process share the metrics, not the counts."""
    metrics = Metrics(registry)
    join = PrometheusStage(metrics, "join")
    PrometheusStage(metrics, "registry")
    counted(join)
    for sample, value in wanted.items():
        name, _, what = sample.partition(" ")
        labels = {"what": what} if what else {}
        for stage in ("join", "registry"):
            found = registry.get_sample_value(f"assay_stream_{name}", {"stage": stage, **labels})
            assert (found or 0) == (value if stage == "join" else 0), sample


def test_the_lag_of_a_partition_that_went_elsewhere_is_forgotten(registry: CollectorRegistry) -> None:
    """Its last value would stand for ever otherwise, and wake somebody."""
    meter = PrometheusStage(Metrics(registry), "join")
    meter.lags({("calls", 0): 5, ("calls", 1): -1})
    place = {"stage": "join", "topic": "calls"}
    assert registry.get_sample_value("assay_stream_lag_records", place | {"partition": "0"}) == 5
    assert registry.get_sample_value("assay_stream_lag_records", place | {"partition": "1"}) == 0
    meter.lags({("calls", 1): 2})
    assert registry.get_sample_value("assay_stream_lag_records", place | {"partition": "0"}) is None
    assert registry.get_sample_value("assay_stream_lag_records", place | {"partition": "1"}) == 2


def test_gauges_are_noted_when_the_metrics_are_read(registry: CollectorRegistry) -> None:
    meter = Metrics(registry)
    meter.on_scrape(lambda: PrometheusStage(meter, "registry").measure("state_entries", 3))
    PrometheusStage(meter, "join").measure("transaction_seconds", 0.2)
    text = meter.text().decode()
    assert 'assay_stream_state_entries{stage="registry"} 3.0' in text
    assert 'assay_stream_transaction_seconds_sum{stage="join"} 0.2' in text


def test_latencies_of_a_batch_are_observed_at_once(registry: CollectorRegistry) -> None:
    """Buckets include their upper bound, as Prometheus has it, and hold what the ones before them do."""
    metrics = Metrics(registry)
    now_ms = 1_800_000_000_000
    # The last two are of a clock that is an hour behind or more, and of one that is ahead.
    elapsed_ms = (25, 26, 25, 26, 25, 4_000_000, -9_000_000)
    metrics.evidence_latency.observe("logged", now_ms, [now_ms - each for each in elapsed_ms])

    def value(name: str, **labels: str) -> float:
        return float(
            registry.get_sample_value(f"assay_stream_evidence_latency_seconds_{name}", {"since": "logged", **labels})
        )

    assert [value("bucket", le=bound) for bound in ("0.025", "0.05", "3600.0", "+Inf")] == [4, 6, 7, 7]
    assert value("count") == 7
    assert value("sum") == pytest.approx(3 * 0.025 + 2 * 0.026 + 3_600)
