"""Health and metrics of the console, on a separate port.

Every label value is from a fixed set, never from a browser.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector, generate_latest

from assay_stream import __version__
from assay_stream.console.authentication import CALLBACK, SIGN_IN, SIGN_OUT, START, now_us
from assay_stream.console.deciding import ACTIONS
from assay_stream.console.forms import Decision
from assay_stream.console.pages import PAGES
from assay_stream.console.posting import Publish
from assay_stream.console.reader import StoreReader
from assay_stream.console.service import STATIC
from assay_stream.errors import AssayStreamError
from assay_stream.model.envelope import Producer
from assay_stream.worker.http import Health, health_pages

PUBLISHED, FAILED, SIGNED_IN, REFUSED = "published", "failed", "ok", "failed"

_BUSY = frozenset({"console_busy", "store_slow"})
"""The store opens, and others use it."""

_KNOWN = frozenset({*PAGES, *ACTIONS, *STATIC, SIGN_IN, SIGN_OUT, START, CALLBACK, "/events"})
_ELSE = "other"


class ConsoleMetrics:
    def __init__(self, registry: CollectorRegistry, producer: Producer | None = None) -> None:
        self.registry = registry
        self.requests = Counter(
            "assay_stream_console_requests", "Requests answered.", ["page", "status"], registry=registry
        )
        self.sign_ins = Counter("assay_stream_console_sign_ins", "Attempts to sign in.", ["outcome"], registry=registry)
        self.decisions = Counter(
            "assay_stream_console_decisions", "Decisions sent to Kafka.", ["outcome"], registry=registry
        )
        self.streams = Gauge("assay_stream_console_streams", "Pages kept up to date now.", registry=registry)
        self.store_age = Gauge(
            "assay_stream_console_store_age_seconds",
            "Since it was last seen how far the store's topics go.",
            registry=registry,
        )
        self.stage_ready = Gauge(
            "assay_stream_stage_ready", "1 while a stage does its work, as /readyz says.", ["stage"], registry=registry
        )
        build = Gauge(
            "assay_stream_build_info", "1, with the version and the commit of this process.", ["version", "git"],
            registry=registry,
        )  # fmt: skip
        made = producer or Producer(version=__version__)
        build.labels(made.version, made.git).set(1)
        # There from the start, at 0: an increase from nothing to 1 is none for Prometheus.
        for outcome in (SIGNED_IN, REFUSED):
            self.sign_ins.labels(outcome)
        for outcome in (PUBLISHED, FAILED):
            self.decisions.labels(outcome)

    def answered(self, method: str, path: str, status: int) -> None:
        self.requests.labels(path if path in _KNOWN else _ELSE, str(status)).inc()
        if (method, path) in (("POST", SIGN_IN), ("GET", CALLBACK)):
            self.sign_ins.labels(SIGNED_IN if status == 303 else REFUSED).inc()

    def counting(self, publish: Publish) -> Publish:
        """Wrap a publisher to count its results."""

        async def counted(decisions: Sequence[Decision], author: str) -> None:
            outcome = FAILED
            try:
                await publish(decisions, author)
                outcome = PUBLISHED
            finally:
                self.decisions.labels(outcome).inc(len(decisions))

        return counted


class ConsoleWatch:
    """Serve health and metrics.

    Args:
        streams: number of pages receiving live updates.
        is_filled: whether the store filler is running; ``None`` if this console has none.
        clock: current time, microseconds since the epoch.
    """

    def __init__(
        self,
        reader: StoreReader,
        metrics: ConsoleMetrics,
        *,
        streams: Callable[[], int],
        is_filled: Callable[[], bool] | None = None,
        clock: Callable[[], int] = now_us,
    ) -> None:
        self._reader = reader
        self._metrics = metrics
        self._streams = streams
        self._clock = clock
        self._opens = False
        self._looked_us: int | None = None
        self._health = Health()
        self._health.watch("console", lambda: self._opens)
        self._is_filled = is_filled

    def application(self) -> web.Application:
        return health_pages(self._health, self._text, look=self._look)

    def _text(self) -> bytes:
        metrics, age_s = self._metrics, self._age_s()
        metrics.streams.set(self._streams())
        metrics.store_age.set(float("nan") if age_s is None else age_s)
        metrics.stage_ready.labels("console").set(self._opens)
        if self._is_filled is not None:
            metrics.stage_ready.labels("filling").set(self._is_filled())
        text: bytes = generate_latest(metrics.registry)
        return text

    def _age_s(self) -> float | None:
        """Return the age of the last end-offset check in seconds, ``None`` if there was none."""
        return None if self._looked_us is None else max(0, self._clock() - self._looked_us) / 1e6

    async def _look(self) -> dict[str, Any]:
        """Try the store, and return its age and, if it does not open, why."""
        code = None
        try:
            self._looked_us = await self._reader.ask(lambda store: store.looked_us())
            self._opens = True
        except AssayStreamError as error:
            self._opens = error.code in _BUSY
            if not self._opens:
                self._looked_us, code = None, error.code
        filled = {} if self._is_filled is None else {"filled": self._is_filled()}
        return {**filled, "store_age_s": self._age_s(), "error": code}


def process_metrics(producer: Producer) -> ConsoleMetrics:
    """Return the metrics of this process, including resource use."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return ConsoleMetrics(registry, producer)
