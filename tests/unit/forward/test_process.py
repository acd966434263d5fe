"""What a forwarder counts, as metrics."""

from __future__ import annotations

from collections import Counter

from prometheus_client import CollectorRegistry

from assay_stream.forward.process import ForwardMetrics
from assay_stream.worker.metrics import Metrics, PrometheusStage


class Forwarder:
    """What is asked of a forwarder."""

    def __init__(self) -> None:
        self.counts = Counter(read=3, delivered=2, unavailable=4, dead=1, expired=5)
        self.is_waiting = True

    def lags(self) -> dict[tuple[str, int], int]:
        return {("alerts", 0): 9}


def test_counts_are_carried_over_once() -> None:
    """Each by its name, however often the metrics are read."""
    registry, forwarder = CollectorRegistry(), Forwarder()
    meter = ForwardMetrics(forwarder, PrometheusStage(Metrics(registry), "forward"))  # type: ignore[arg-type]
    meter.note()
    meter.note()
    forwarder.counts["delivered"] += 1
    forwarder.is_waiting = False
    meter.note()

    def value(name: str, **labels: str) -> float | None:
        sample: float | None = registry.get_sample_value(f"assay_stream_{name}", {"stage": "forward", **labels})
        return sample

    assert value("records_read_total") == 3
    assert value("outputs_total", what="attempt:delivered") == 3
    assert value("outputs_total", what="attempt:unavailable") == 4
    assert value("outputs_total", what="dead_letter") == 1
    assert value("input_expired_total") == 5
    assert value("records_buffered") == 0
    assert value("lag_records", topic="alerts", partition="0") == 9
