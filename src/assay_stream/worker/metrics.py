"""What the stages count, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_BATCH_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Meter:
    """All metrics of one process.

    Args:
        registry: where they are registered; a new one for every application.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._on_scrape: list[Callable[[], None]] = []
        self.read = Counter("assay_stream_records_read", "Input records processed.", ["stage"], registry=registry)
        self.outputs = Counter(
            "assay_stream_outputs",
            "Records written, by what happened: bound by scope, unbound by reason, rejected by code.",
            ["stage", "what"],
            registry=registry,
        )
        self.held = Gauge(
            "assay_stream_calls_held", "Records that wait for the registry.", ["stage"], registry=registry
        )
        self.batch_seconds = Histogram(
            "assay_stream_batch_seconds",
            "From the start of a batch to its commit.",
            ["stage"],
            registry=registry,
            buckets=_BATCH_BUCKETS_S,
        )
        self.lost = Counter(
            "assay_stream_input_expired",
            "Offsets that retention deleted before they were read.",
            ["stage"],
            registry=registry,
        )
        self.claims_left_out = Counter(
            "assay_stream_name_claims_left_out",
            "Claims to tool names compared once and not remembered: too many look-alikes.",
            ["stage"],
            registry=registry,
        )
        self.reopened = Counter(
            "assay_stream_lanes_reopened", "Times a failed batch was undone.", ["stage"], registry=registry
        )
        self.opening_seconds = Gauge(
            "assay_stream_opening_seconds",
            "How long the last take-over of partitions took, restoring included.",
            ["stage"],
            registry=registry,
        )
        self.lanes = Gauge(
            "assay_stream_partitions_opened", "Partitions taken over last.", ["stage"], registry=registry
        )
        self.transaction_seconds = Histogram(
            "assay_stream_transaction_seconds",
            "From the begin of a transaction to its commit.",
            ["stage"],
            registry=registry,
            buckets=_BATCH_BUCKETS_S,
        )
        self.lag = Gauge(
            "assay_stream_lag_records",
            "Offsets of a partition that are not processed yet.",
            ["stage", "topic", "partition"],
            registry=registry,
        )
        self.state_entries = Gauge(
            "assay_stream_state_entries", "What a stage keeps in memory.", ["stage"], registry=registry
        )
        self.brokers_silent_seconds = Gauge(
            "assay_stream_brokers_silent_seconds", "Since a broker last answered.", registry=registry
        )
        self.stage_ready = Gauge(
            "assay_stream_stage_ready",
            "1 while a stage does its work, as /readyz says.",
            ["stage"],
            registry=registry,
        )

    def on_scrape(self, note: Callable[[], None]) -> None:
        """Have something noted just before the metrics are read.

        Args:
            note: sets gauges.
        """
        self._on_scrape.append(note)

    def text(self) -> bytes:
        """Return all metrics as Prometheus reads them."""
        for note in self._on_scrape:
            note()
        text: bytes = generate_latest(self.registry)
        return text


class StageMeter:
    """The part of the metrics that one stage counts.

    Args:
        meter: all metrics.
        stage: the stage's name.
    """

    def __init__(self, meter: Meter, stage: str) -> None:
        self._meter = meter
        self._stage = stage
        self._lagging: set[tuple[str, int]] = set()

    def batch(self, count: int, labels: Mapping[str, int], *, seconds: float) -> None:
        """Count a committed batch.

        Args:
            count: records read.
            labels: what was written: how many outputs of each label.
            seconds: how long it took.
        """
        self._meter.batch_seconds.labels(self._stage).observe(seconds)
        self.done(count, labels)

    def done(self, count: int, labels: Mapping[str, int]) -> None:
        """Count records processed and what came of them.

        Args:
            count: records processed.
            labels: what was written: how many outputs of each label.
        """
        self._meter.read.labels(self._stage).inc(count)
        for what, written in labels.items():
            self._meter.outputs.labels(self._stage, what).inc(written)

    def transaction(self, seconds: float) -> None:
        """Time a committed transaction.

        Args:
            seconds: how long it took.
        """
        self._meter.transaction_seconds.labels(self._stage).observe(seconds)

    def lags(self, records: Mapping[tuple[str, int], int]) -> None:
        """Note how far behind each partition is; those of others are forgotten.

        Args:
            records: topic and partition to offsets that are not processed yet.
        """
        for topic, partition in self._lagging - records.keys():
            self._meter.lag.remove(self._stage, topic, str(partition))
        self._lagging = set(records)
        for (topic, partition), count in records.items():
            self._meter.lag.labels(self._stage, topic, str(partition)).set(max(count, 0))

    def state(self, entries: int) -> None:
        """Note how much is kept in memory.

        Args:
            entries: servers, or alerts.
        """
        self._meter.state_entries.labels(self._stage).set(entries)

    def held(self, count: int) -> None:
        """Note how many records wait now.

        Args:
            count: records held.
        """
        self._meter.held.labels(self._stage).set(count)

    def lost(self, count: int) -> None:
        """Count offsets that expired unread.

        Args:
            count: how many.
        """
        self._meter.lost.labels(self._stage).inc(count)

    def claim_left_out(self) -> None:
        """Count a claim to a tool name that is not remembered."""
        self._meter.claims_left_out.labels(self._stage).inc()

    def reopened(self) -> None:
        """Count a failed batch that was undone."""
        self._meter.reopened.labels(self._stage).inc()

    def opened(self, count: int, *, seconds: float) -> None:
        """Note a take-over of partitions.

        Args:
            count: partitions opened.
            seconds: how long it took, restoring included.
        """
        self._meter.lanes.labels(self._stage).set(count)
        self._meter.opening_seconds.labels(self._stage).set(seconds)
