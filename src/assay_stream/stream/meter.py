"""What the stages count, for Prometheus."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from assay_stream.core.record import Output, Record

_BATCH_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Meter:
    """All metrics of one process.

    Args:
        registry: where they are registered; a new one for every application.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
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


class StageMeter:
    """The part of the metrics that one stage counts.

    Args:
        meter: all metrics.
        stage: the stage's name.
    """

    def __init__(self, meter: Meter, stage: str) -> None:
        self._meter = meter
        self._stage = stage

    def batch(self, records: Sequence[Record], outputs: Sequence[Output], *, seconds: float) -> None:
        """Count a committed batch.

        Args:
            records: what was read.
            outputs: what was written.
            seconds: how long it took.
        """
        self._meter.batch_seconds.labels(self._stage).observe(seconds)
        self.done(len(records), outputs)

    def done(self, count: int, outputs: Sequence[Output]) -> None:
        """Count records processed and what came of them.

        Args:
            count: records processed.
            outputs: what was written.
        """
        self._meter.read.labels(self._stage).inc(count)
        for what, count in Tally(output.label for output in outputs).items():
            self._meter.outputs.labels(self._stage, what).inc(count)

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
