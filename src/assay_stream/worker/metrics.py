"""What a process counts, for Prometheus."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from assay_stream.kafka.part import Counted, Measured, StageMetrics
from assay_stream.limits import EVIDENCE_LATENCY_MAX_S

_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)

_LATENCY_BUCKETS_S = (0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, EVIDENCE_LATENCY_MAX_S)
_LATENCY_BUCKETS_MS = [round(bound_s * 1_000) for bound_s in _LATENCY_BUCKETS_S]
_LATENCY_MAX_MS = _LATENCY_BUCKETS_MS[-1]


class LatencyHistogram(Collector):  # type: ignore[misc]
    """A histogram that takes the calls of a batch at once: one observation each would cost a tenth of the join.

    Args:
        sinces: what times are counted from, the values of its label ``since``.
    """

    def __init__(self, name: str, text: str, sinces: Sequence[str]) -> None:
        self._name, self._text = name, text
        self._counts = {since: [0] * len(_LATENCY_BUCKETS_S) for since in sinces}
        """How many calls took as long as each bound, or less."""
        self._sums_ms = dict.fromkeys(sinces, 0)

    def observe(self, since: str, now_ms: int, times_ms: Sequence[int]) -> None:
        """Add how long ago some times are: at least nothing, and at most ``EVIDENCE_LATENCY_MAX_S``.

        Args:
            now_ms: the time now, milliseconds since the epoch, as are the others.
        """
        times = sorted(times_ms)
        counts = self._counts[since]
        for index, bound_ms in enumerate(_LATENCY_BUCKETS_MS):
            counts[index] += len(times) - bisect_left(times, now_ms - bound_ms)
        first, end = bisect_left(times, now_ms - _LATENCY_MAX_MS), bisect_left(times, now_ms)
        # What counts as longest took no longer than the last bound.
        counts[-1] += first
        self._sums_ms[since] += first * _LATENCY_MAX_MS + (end - first) * now_ms - sum(times[first:end])

    def collect(self) -> Iterable[Metric]:
        family = HistogramMetricFamily(self._name, self._text, labels=["since"])
        for since, counts in self._counts.items():
            bounds = [*map(floatToGoString, _LATENCY_BUCKETS_S), "+Inf"]
            buckets = list(zip(bounds, [*counts, counts[-1]], strict=True))
            family.add_metric([since], buckets, self._sums_ms[since] / 1_000)
        yield family


class Metrics:
    """All metrics of one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._on_scrape: list[Callable[[], None]] = []

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"assay_stream_{name}", text, ["stage", *labels], registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"assay_stream_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str) -> Histogram:
            return Histogram(f"assay_stream_{name}", text, ["stage"], registry=registry, buckets=_BUCKETS_S)

        self.read = counter("records_read", "Input records processed.")
        self.outputs = counter(
            "outputs", "Records written, by what happened: bound by scope, unbound by reason, rejected by code.", "what"
        )
        self.buffered = gauge("records_buffered", "Records that wait for the registry.", "stage")
        self.batch_seconds = histogram("batch_seconds", "From the start of a batch to its commit.")
        self.lost = counter("input_expired", "Offsets that retention deleted before they were read.")
        self.claims_left_out = counter(
            "name_claims_left_out", "Claims to tool names compared once and not remembered: too many look-alikes."
        )
        self.reopened = counter("partitions_reopened", "Failed batches that were undone.")
        self.opening_seconds = gauge(
            "opening_seconds", "How long the last take-over of partitions took, restoring included.", "stage"
        )
        self.opened = gauge("partitions_opened", "Partitions taken over last.", "stage")
        self.transaction_seconds = histogram("transaction_seconds", "From the begin of a transaction to its commit.")
        self.lag = gauge(
            "lag_records", "Offsets of a partition that are not processed yet.", "stage", "topic", "partition"
        )
        self.state_entries = gauge("state_entries", "What a stage keeps in memory.", "stage")
        self.brokers_silent_seconds = gauge("brokers_silent_seconds", "Since a broker last answered.")
        self.alerts_open = gauge("alerts_open", "Open alerts of this process's partitions.", "severity")
        self.unreviewed_age = gauge(
            "alert_unreviewed_age_seconds", "Of the oldest open alert that nobody acknowledged or took.", "severity"
        )
        self.evidence_latency = LatencyHistogram(
            "assay_stream_evidence_latency_seconds",
            "From a call to the commit of its evidence.",
            ("observed", "logged"),
        )
        registry.register(self.evidence_latency)
        self.observers_alive = gauge("observers_alive", "Observers heard of in the last 15 minutes.", "stage")
        self.build_info = gauge("build_info", "1, with the version and the commit of this process.", "version", "git")
        self.list_age = gauge("list_age_seconds", "Since list-watch listed a server.", "server")
        self.servers_failing = gauge("servers_failing", "Servers that list-watch could not list when it last tried.")
        self.store_rows = gauge("store_rows", "Rows of the store, by kind.", "stage", "kind")
        self.store_bytes = gauge("store_bytes", "What the store holds, without free pages of its file.", "stage")
        self.store_refused = gauge("store_records_refused", "Records read that are none of ours.", "stage", "role")
        self.store_behind = gauge("store_behind_seconds", "For how long the store has lacked records.", "stage")
        self.store_committed = gauge("store_last_commit_seconds", "When records were last committed.", "stage")
        self.stage_ready = gauge("stage_ready", "1 while a stage does its work, as /readyz says.", "stage")

    def on_scrape(self, note: Callable[[], None]) -> None:
        """Call a function that sets gauges just before the metrics are read."""
        self._on_scrape.append(note)

    def text(self) -> bytes:
        for note in self._on_scrape:
            note()
        text: bytes = generate_latest(self.registry)
        return text


class PrometheusStage(StageMetrics):
    """What one stage counts."""

    def __init__(self, metrics: Metrics, stage: str) -> None:
        self._metrics = metrics
        self._stage = stage
        self._lagging: set[tuple[str, int]] = set()
        # There from the start, at 0: an increase from nothing to 1 is none for Prometheus.
        for counter in (metrics.read, metrics.lost, metrics.reopened):
            counter.labels(stage)

    def count(self, name: Counted, more: int = 1, *labels: str) -> None:
        getattr(self._metrics, name).labels(self._stage, *labels).inc(more)

    def measure(self, name: Measured, value: float, *labels: str) -> None:
        metric = getattr(self._metrics, name).labels(self._stage, *labels)
        (metric.set if isinstance(metric, Gauge) else metric.observe)(value)

    def lags(self, offsets: Mapping[tuple[str, int], int]) -> None:
        for topic, partition in self._lagging - offsets.keys():
            self._metrics.lag.remove(self._stage, topic, str(partition))
        self._lagging = set(offsets)
        for (topic, partition), count in offsets.items():
            self._metrics.lag.labels(self._stage, topic, str(partition)).set(max(count, 0))
