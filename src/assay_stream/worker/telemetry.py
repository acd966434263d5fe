"""What a process tells those who run it: log lines, metrics for Prometheus, and whether it is alive and ready.

Log lines are JSON or readable text; those of libraries come from WARNING on, with repeats rate-limited.
"""

from __future__ import annotations

import logging
import math
import sys
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from typing import Any

import structlog
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from assay_stream import __version__
from assay_stream.config import Settings
from assay_stream.kafka.connection import GroupCoordinatorNotAvailableError, KafkaError, NotEnoughReplicasError
from assay_stream.kafka.part import Counted, Measured, Part, StageMetrics
from assay_stream.limits import EVIDENCE_LATENCY_MAX_S
from assay_stream.text.escaping import json_text, visible

_LIBRARIES = ("faust", "mode", "aiokafka", "aiohttp")
_OURS = "assay_stream"
_SERVICE = "[^"
_INTERVAL_S = 10.0
_KINDS_MAX = 256

_PASSING: dict[tuple[str, str], type[KafkaError] | None] = {
    # The broker makes its topic of offsets when the first group of all asks for its coordinator.
    ("aiokafka.consumer.group_coordinator", "Group Coordinator Request failed"): GroupCoordinatorNotAvailableError,
    # So does a coordinator that has just been made, or moved: the client looks for it anew. It names no error.
    ("aiokafka.consumer.group_coordinator", "Marking the coordinator dead"): None,
    # What brokers answer clients of this protocol while the markers of the last transaction are still written.
    ("aiokafka.producer.sender", "Got error produce response"): NotEnoughReplicasError,
}
"""Logger, start of a line and error (if it names one) of what a client logs as trouble on healthy brokers, and tries
again at once."""
_TROUBLE_COUNT = 50
"""So many of them within an interval are trouble all the same: a client that gets no other answer asks ten times a
second. Each of a worker's partitions may get one or two at its start."""


class RateLimitFilter(logging.Filter):
    """Rate-limit repeated library messages: clients log an absent broker hundreds of times a second.

    Suppressed lines are counted, and the next line of their kind has the count. Our own lines all pass. Messages that
    are normal with healthy brokers are logged at INFO.
    """

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[tuple[str, str], tuple[float, int]] = {}
        """When a line of each kind was last logged, and how many were left out since."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.partition(".")[0] == _OURS:
            # Faust's services log their starts and stops under the name of the module that inherits them.
            return record.levelno >= logging.WARNING or not str(record.msg).startswith(_SERVICE)
        kind = (record.name, str(record.msg))
        said_s, left_out = self._said.get(kind, (-math.inf, 0))
        if 0 <= record.created - said_s < _INTERVAL_S:
            self._said[kind] = said_s, left_out + 1
            return False
        if kind not in self._said and len(self._said) >= _KINDS_MAX:
            self._said.clear()
        self._said[kind] = record.created, 0
        if left_out:
            record.msg = f"{record.msg} (and {left_out} more times since last logged)"
        if left_out < _TROUBLE_COUNT and _is_passing(record):
            record.levelno, record.levelname = logging.INFO, logging.getLevelName(logging.INFO)
            return logging.getLogger(_OURS).isEnabledFor(logging.INFO)
        return True


def _is_passing(record: logging.LogRecord) -> bool:
    arguments = record.args if isinstance(record.args, tuple) else ()
    return any(
        record.name == name
        and record.msg.startswith(start)
        and (error is None or any(each is error or isinstance(each, error) for each in arguments))
        for (name, start), error in _PASSING.items()
    )


class _MemoryErrors(logging.Handler):
    """Notices a ``MemoryError`` that a library logs: its task has ended, and the process would wait for it.

    Args:
        act: what to do; called once.
    """

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__(level=logging.WARNING)
        self._act: Callable[[], object] | None = act

    def handle(self, record: logging.LogRecord) -> bool:
        if self._act is not None and record.exc_info and isinstance(record.exc_info[1], MemoryError):
            act, self._act = self._act, None
            act()
        return True


@contextmanager
def watching_memory(act: Callable[[], object]) -> Iterator[None]:
    """Act once a library logs that memory ran out, while the block runs."""
    handler = _MemoryErrors(act)
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)


def _inert_line(_logger: object, _method: str, line: object) -> str:
    """Escape in a line of JSON what a terminal would act on."""
    return json_text(str(line))


def _inert_values(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Write out in every value what a terminal would act on; only a stack trace keeps its lines."""
    return {visible(name): _inert_value(name, value) for name, value in event.items()}


def _inert_value(name: str, value: object) -> object:
    if isinstance(value, str):
        return visible(value, keep="\n" if name in ("exception", "stack") else "")
    return value if value is None or isinstance(value, int | float) else visible(repr(value))


def configure_logs(settings: Settings) -> None:
    """Send every log line to standard error in one format.

    Faust builds its debug lines even when nobody prints them, so its loggers are raised, not just filtered.
    """
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    renderers: list[structlog.typing.Processor] = (
        [structlog.processors.JSONRenderer(), _inert_line]
        if settings.log_format == "json"
        else [_inert_values, structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())]
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(RateLimitFilter())
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderers],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger(_OURS).setLevel(settings.log_level)
    for library in _LIBRARIES:
        logging.getLogger(library).setLevel(logging.WARNING)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


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
        self.clients_stale = gauge("clients_stale", "1 while ingest cannot use the changed file of clients.")
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


HttpPage = tuple[int, dict[str, Any]]
"""An HTTP status, and the body."""


class Health:
    """What the stages of a process report.

    Args:
        stall_limit_s: how long a stage may not move before it counts as hung, seconds.
    """

    def __init__(self, *, stall_limit_s: float = math.inf) -> None:
        self.failed = False
        self._stall_limit_s = stall_limit_s
        self.parts: list[tuple[str, Part]] = []
        self._alternatives: set[str] = set()

    def watch(self, name: str, part: Part, *, is_alternative: bool = False) -> None:
        """Watch a stage.

        Args:
            is_alternative: whether the process is ready as long as any such stage is.
        """
        self.parts.append((name, part))
        if is_alternative:
            self._alternatives.add(name)

    def liveness(self) -> HttpPage:
        stuck = self._stuck()
        is_ok = not self.failed and not stuck
        return (200 if is_ok else 503), {"ok": is_ok, "stuck": stuck}

    def readiness(self) -> HttpPage:
        stages = self.stages()
        needed = all(is_ready for name, is_ready in stages.items() if name not in self._alternatives)
        any_of = not self._alternatives or any(stages[name] for name in self._alternatives)
        is_ready = needed and any_of and not self.failed
        waiting_for = next(filter(None, (part.waiting_for for _, part in self.parts)), None)
        why = {} if waiting_for is None else {"waiting_for": waiting_for}
        return (200 if is_ready else 503), {"ready": is_ready, "stages": stages, **why}

    def stages(self) -> dict[str, bool]:
        stuck = self._stuck()
        return {name: part.ready and name not in stuck for name, part in self.parts}

    def _stuck(self) -> list[str]:
        return [name for name, part in self.parts if part.still_s > self._stall_limit_s]


_PAGES = {
    "/readyz": "ready: 200 while every stage does its work, 503 otherwise",
    "/healthz": "alive: 503 once something failed or hangs, and the process should be restarted",
    "/metrics": "metrics, for Prometheus",
}


def index_page(health: Health, version: str) -> str:
    """Return the page that says what this process is: plain HTML, of nothing that a stranger chose."""
    stages = "".join(
        f"<tr><td>{escape(name)}<td>{'ready' if is_ready else 'not ready'}"
        for name, is_ready in health.stages().items()
    )
    links = "".join(f'<li><a href="{path}">{path}</a> {escape(text)}' for path, text in _PAGES.items())
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>assay-stream</title>'
        '<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">'
        "<style>body{font:1rem/1.5 system-ui;margin:2rem;max-width:40rem}td{padding-right:2rem}</style>"
        f"<h1>assay-stream {escape(version)}</h1>"
        "<p>A process of assay-stream, which records which tool definition each MCP tool call used. It runs:</p>"
        f"<table><thead><tr><th align=left>part<th align=left>now<tbody>{stages}</table>"
        f"<p>Its pages:</p><ul>{links}</ul>"
        "<p>In a terminal: <code>assay-stream alerts list</code>, <code>assay-stream --help</code>.</p></html>"
    )


async def _nothing() -> dict[str, Any]:
    return {}


def health_pages(
    health: Health, metrics: Callable[[], bytes], *, look: Callable[[], Awaitable[dict[str, Any]]] = _nothing
) -> web.Application:
    """Return the pages, for aiohttp to serve.

    Args:
        metrics: the text of ``/metrics``.
        look: asked before every page but ``/healthz``; what it returns stands in ``/readyz`` too.
    """

    async def index(_: web.Request) -> web.Response:
        await look()
        return web.Response(text=index_page(health, __version__), content_type="text/html")

    async def healthz(_: web.Request) -> web.Response:
        status, body = health.liveness()
        return web.json_response(body, status=status)

    async def readyz(_: web.Request) -> web.Response:
        more = await look()
        status, body = health.readiness()
        return web.json_response({**body, **more}, status=status)

    async def text(_: web.Request) -> web.Response:
        await look()
        return web.Response(body=metrics(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    for path, page in {"/": index, "/healthz": healthz, "/readyz": readyz, "/metrics": text}.items():
        app.router.add_get(path, page)
    return app
