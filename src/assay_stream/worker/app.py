"""The worker: one Faust application that holds the stages, their health and their metrics."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import faust
from aiokafka import TopicPartition
from faust.app import BootStrategy
from mode import Service
from prometheus_client import CollectorRegistry, ProcessCollector

from assay_stream import __version__
from assay_stream.config import Settings
from assay_stream.join.processor import Join
from assay_stream.kafka.broker_watch import BrokerWatch
from assay_stream.kafka.stage import Stage
from assay_stream.kafka.stage_task import BatchTask
from assay_stream.kafka.topics import topic_names
from assay_stream.model.envelope import Producer
from assay_stream.model.record import Role
from assay_stream.worker.alerts import AlertStage
from assay_stream.worker.http import Health, add_pages
from assay_stream.worker.join import JoinStage
from assay_stream.worker.metrics import Meter, StageMeter
from assay_stream.worker.registry import RegistryStage
from assay_stream.worker.view import BindingView

ROLES_OF_STAGE: dict[str, frozenset[Role]] = {
    "registry": frozenset(
        {
            Role.SNAPSHOTS,
            Role.CONTROL,
            Role.BINDINGS,
            Role.DEFINITIONS,
            Role.FINDINGS,
            Role.CHANGES,
            Role.VERDICTS,
            Role.REJECTED,
        }
    ),
    "join": frozenset(
        {
            Role.CALLS,
            Role.EVIDENCE,
            Role.SNAPSHOTS,
            Role.CONTROL,
            Role.BINDINGS,
            Role.FINDINGS,
            Role.REJECTED,
        }
    ),
    "alerts": frozenset({Role.FINDINGS, Role.ALERTS, Role.ALERT_STATES, Role.REJECTED}),
}
"""Which topics each stage reads or writes."""


class Runnable(Protocol):
    """What a worker runs beside Faust's own services."""

    @property
    def ready(self) -> bool:
        """Whether it does its work now."""

    async def run(self) -> None:
        """Run until stopped."""

    def stop(self) -> None:
        """Ask it to finish what it has in hand."""


class _WithoutKafka(BootStrategy):  # type: ignore[misc]
    """Faust supervises the stages and serves pages; they reach Kafka by themselves."""

    enable_kafka = False


class _WorkerApp(faust.App):  # type: ignore[misc]
    """Starts the stages beside Faust's own services."""

    BootStrategy = _WithoutKafka

    def __init__(self, *args: Any, **options: Any) -> None:
        self.stage_services: list[Service] = []
        super().__init__(*args, **options)

    def on_init_dependencies(self) -> Iterable[Service]:
        return [*super().on_init_dependencies(), *self.stage_services]


class WorkerBuilder:
    """Puts the stages of one process together.

    Args:
        settings: the operator's settings.
        stages: which of ``registry``, ``join`` and ``alerts`` to run.
        partition_counts: how many partitions each role's topic has.
    """

    def __init__(self, settings: Settings, stages: frozenset[str], partition_counts: Mapping[Role, int]) -> None:
        self._settings = settings
        self._stages = stages
        self._counts = partition_counts
        self._topics = topic_names(settings)
        self._producer = Producer(version=__version__, git=settings.git_commit)
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._meter = Meter(registry)
        self._quarantine = asyncio.Lock()
        self.health = Health(stall_limit_s=settings.stall_limit_s)
        self.app = self._make_app()

    def build(self, fail: Callable[[BaseException], None]) -> faust.App:
        """Return the application with its stages and pages.

        Args:
            fail: called with the error that must stop the worker.
        """
        before_alerts: list[BatchTask] = []
        if "registry" in self._stages:
            registry = self._registry()
            before_alerts.append(registry)
            self._add("registry", registry, fail, still_s=lambda: registry.still_s)
            self._meter.on_scrape(registry.note_gauges)
        if "join" in self._stages:
            view, join = self._join()
            before_alerts.append(join)
            self._add("view", view, fail, still_s=lambda: view.still_s)
            self._add("join", join, fail, still_s=lambda: join.still_s)
            self._meter.on_scrape(join.note_gauges)
        if "alerts" in self._stages:
            alerts = self._alerts(before_alerts)
            self._add("alerts", alerts, fail, still_s=lambda: alerts.still_s)
            self._meter.on_scrape(alerts.note_gauges)
        self._add_brokers(fail)
        self._meter.on_scrape(self._note_ready)
        add_pages(self.app, self.health, self._meter)
        return self.app

    def _make_app(self) -> _WorkerApp:
        settings = self._settings
        return _WorkerApp(
            settings.group_prefix,
            store="memory://",
            datadir=str(settings.state_dir),
            web_bind=settings.web_host,
            web_host=settings.web_host,
            web_port=settings.web_port,
            web_in_thread=False,
        )

    def _registry(self) -> BatchTask:
        stage = RegistryStage(
            self._settings,
            topics=self._topics,
            partitions=self._counts[Role.SNAPSHOTS],
            producer=self._producer,
        )
        return self._task(stage)

    def _join(self) -> tuple[BindingView, BatchTask]:
        state = Join(
            producer=self._producer,
            redaction=self._settings.redaction(),
            call_profile=self._settings.call_profile,
        )
        inputs = [
            TopicPartition(self._topics[role], number)
            for role in (Role.SNAPSHOTS, Role.CONTROL)
            for number in range(self._counts[role])
        ]
        view = BindingView(
            self._settings,
            state,
            topic=self._topics[Role.BINDINGS],
            partitions=self._counts[Role.BINDINGS],
            inputs=inputs,
        )
        stage = JoinStage(self._settings, state, view, topics=self._topics)
        return view, self._task(stage)

    def _alerts(self, gives_way_to: Sequence[BatchTask]) -> BatchTask:
        stage = AlertStage(
            self._settings,
            topics=self._topics,
            rules=self._settings.alert_rules(__version__),
            clock_us=lambda: time.time_ns() // 1_000,
            meter=StageMeter(self._meter, AlertStage.name),
        )
        return self._task(stage, gives_way_to)

    def _task(self, stage: Stage, gives_way_to: Sequence[BatchTask] = ()) -> BatchTask:
        return BatchTask(
            self._settings,
            stage,
            topics=self._topics,
            partition_counts=self._counts,
            meter=StageMeter(self._meter, stage.name),
            quarantine=self._quarantine,
            gives_way_to=gives_way_to,
        )

    def _add_brokers(self, fail: Callable[[BaseException], None]) -> None:
        brokers = BrokerWatch(self._settings)
        self._add("brokers", brokers, fail)
        self._meter.on_scrape(lambda: self._meter.brokers_silent_seconds.set(brokers.silent_s))

    def _note_ready(self) -> None:
        for name, is_ready in self.health.readiness()[1]["stages"].items():
            self._meter.stage_ready.labels(name).set(is_ready)

    def _add(
        self,
        name: str,
        runnable: Runnable,
        fail: Callable[[BaseException], None],
        *,
        still_s: Callable[[], float] | None = None,
    ) -> None:
        self.health.watch(name, lambda: runnable.ready, still_s=still_s)
        self.app.stage_services.append(_StageService(name, runnable, fail))


class _StageService(Service):  # type: ignore[misc]
    """Runs one stage under Faust's supervision, and stops the worker when the stage fails."""

    def __init__(self, name: str, runnable: Runnable, fail: Callable[[BaseException], None]) -> None:
        self._name = name
        self._runnable = runnable
        self._fail = fail
        self._running: asyncio.Task[None] | None = None
        super().__init__()

    async def on_start(self) -> None:
        self._running = asyncio.create_task(self._runnable.run(), name=self._name)
        self._running.add_done_callback(self._ended)

    def _ended(self, running: asyncio.Task[None]) -> None:
        if not running.cancelled() and (error := running.exception()) is not None:
            self._fail(error)

    async def on_stop(self) -> None:
        self._runnable.stop()
        if self._running is not None:
            await asyncio.wait([self._running])
