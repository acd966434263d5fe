"""What the stages count, and what they say of themselves."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from assay_stream.worker.metrics import Metrics, PrometheusStage


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def test_outputs_are_counted_by_what_happened(registry: CollectorRegistry) -> None:
    """Each label has a counter of its own, and records read are counted too."""
    meter = PrometheusStage(Metrics(registry), "join")
    meter.done(3, {"bound:exact": 2, "rejected:not_json": 1})
    read = registry.get_sample_value("assay_stream_records_read_total", {"stage": "join"})
    exact = registry.get_sample_value("assay_stream_outputs_total", {"stage": "join", "what": "bound:exact"})
    assert (read, exact) == (3, 2)


def test_stages_are_counted_apart(registry: CollectorRegistry) -> None:
    """Two stages of one process share the metrics, not the counts."""
    meter = Metrics(registry)
    PrometheusStage(meter, "join").measure("buffered", 5)
    PrometheusStage(meter, "registry").count("lost", 7)
    assert registry.get_sample_value("assay_stream_records_buffered", {"stage": "join"}) == 5
    assert registry.get_sample_value("assay_stream_records_buffered", {"stage": "registry"}) is None
    assert registry.get_sample_value("assay_stream_input_expired_total", {"stage": "registry"}) == 7


def test_claims_that_are_not_remembered_are_counted(registry: CollectorRegistry) -> None:
    """So that an operator sees that a name has more look-alikes than are compared."""
    PrometheusStage(Metrics(registry), "alerts").count("claims_left_out")
    assert registry.get_sample_value("assay_stream_name_claims_left_out_total", {"stage": "alerts"}) == 1


def test_a_batch_is_timed(registry: CollectorRegistry) -> None:
    """A batch counts its records and how long it took; a take-over how many partitions."""
    meter = PrometheusStage(Metrics(registry), "join")
    meter.batch(1, {"bound:exact": 1}, seconds=0.5)
    meter.measure("opened", 3)
    meter.measure("opening_seconds", 1.5)
    meter.count("reopened")
    stage = {"stage": "join"}
    assert registry.get_sample_value("assay_stream_batch_seconds_sum", stage) == 0.5
    assert registry.get_sample_value("assay_stream_partitions_opened", stage) == 3
    assert registry.get_sample_value("assay_stream_opening_seconds", stage) == 1.5
    assert registry.get_sample_value("assay_stream_partitions_reopened_total", stage) == 1


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
