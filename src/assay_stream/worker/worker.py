"""The worker: the stages, their tasks and their agents in one process. Read this first.

Each stage is a Faust agent that iterates over batches: records of one input partition, in order. ``batch.process``
applies a pure function to each record, ``batch.process_pieces`` to some records at a time, in a thread of its own.
When the agent asks for its next batch, what it wrote, the state that changed and the input offsets are committed in
one Kafka transaction. When it raises, all of that is aborted, the state is restored from its topic, and the batch
comes again; after some failures in a row the worker stops with the agent's name and the cause. So no record is lost
and none counts twice.

``worker.stages`` declares what a stage reads and which state it keeps. What runs the stages:

    kafka.runner       joins the consumer group, keeps a partition task for each partition it is given
    kafka.partition    opens a partition, fetches, gives batches to the agent, commits
    TransactionalChannel carries a batch to the agent and its outcome back
    worker.host        the process: Faust, signals, health, metrics

The partition task puts a batch on the channel and waits until the agent asks for the next one. Then it commits what
the agent wrote, the state and the offsets in one transaction. What an agent raises is raised in the task instead,
which aborts and tries again; the agent goes on with the next batch. Faust holds no offsets and no state.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial, wraps
from typing import Any

import faust
from faust.app import BootStrategy

from assay_stream.alerts.view import SeverityLevel
from assay_stream.config import Settings
from assay_stream.errors import OperatingError
from assay_stream.join import Join
from assay_stream.kafka.partition import Batch, BatchDropped, place_of
from assay_stream.kafka.runner import Runner
from assay_stream.kafka.stage import Stage, Topology
from assay_stream.kafka.topics import ACCESS, STAGES, AccessRole
from assay_stream.limits import UNREVIEWED_AGE_MAX_S
from assay_stream.registry import processor
from assay_stream.worker.host import Host, run_host
from assay_stream.worker.stages import (
    AlertStageTable,
    BindingView,
    EvidenceLatency,
    JoinStage,
    RecentObservers,
    SteadyClock,
    alert_stage,
    join_calls,
    registry_stage,
)
from assay_stream.worker.telemetry import Metrics, PrometheusStage

Batches = AsyncIterator[Batch[Any]]
AgentFunction = Callable[[Batches], Awaitable[None]]


class TransactionalChannel(faust.Channel):  # type: ignore[misc]
    """A channel whose events are batches. Its agent runs once per partition, so that no batch waits for another's.

    Args:
        name: the stage whose batches it carries.
    """

    def __init__(self, app: faust.App, *, name: str = "", partitions: int = 1, **options: Any) -> None:
        super().__init__(app, **options)
        self.name = name
        self.partitions = partitions
        self._ended: OperatingError | None = None
        self._waiting: dict[Batch[Any], asyncio.Future[None]] = {}

    async def process(self, batch: Batch[Any]) -> None:
        """Pass a batch to the agent, and wait until the agent is done with it.

        Raises:
            OperatingError: ``agent_failed`` if the agent returned, or failed outside any batch.
            Exception: what the agent raised.
        """
        if self._ended is not None:
            raise self._ended
        done = self._waiting[batch] = asyncio.get_running_loop().create_future()
        try:
            await self.send(value=batch)
            await done
        finally:
            del self._waiting[batch]

    def guarded(self, function: AgentFunction) -> Callable[[AsyncIterator[Any]], Awaitable[None]]:
        """Return an agent function that settles every batch it takes, however it leaves it."""

        @wraps(function)
        async def agent(stream: AsyncIterator[Any]) -> None:
            # Faust's stream, which outlives an exception of the agent.
            events, in_hand, is_exhausted = aiter(stream), list[Batch[Any]](), False

            async def batches() -> AsyncGenerator[Batch[Any], None]:
                nonlocal is_exhausted
                async for batch in events:
                    in_hand.append(batch)
                    yield batch
                    # Requesting the next batch acknowledges this one.
                    self._settle(in_hand.pop(), None)
                is_exhausted = True

            why = f"the {self.name} agent returned: an agent iterates over its batches until the worker stops"
            while True:
                try:
                    async with aclosing(batches()) as given:
                        await function(given)
                    break
                except Exception as error:  # noqa: BLE001 - the task that waits for the batch raises it
                    if not in_hand:
                        why = f"the {self.name} agent failed outside any batch: {place_of(error)}"
                        break
                    self._settle(in_hand.pop(), error)
                except asyncio.CancelledError:
                    if in_hand:
                        self._settle(in_hand.pop(), BatchDropped())
                    raise
            if not is_exhausted:
                self._end(OperatingError("agent_failed", why))

        return agent

    def _settle(self, batch: Batch[Any], error: Exception | None) -> None:
        done = self._waiting.get(batch)
        if done is None or done.done():
            return  # dropped meanwhile
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    def _end(self, error: OperatingError) -> None:
        """Fail all waiting batches: with one run of the agent gone, some would wait forever."""
        self._ended = error
        for done in self._waiting.values():
            if not done.done():
                done.set_exception(error)


class _WithoutKafka(BootStrategy):  # type: ignore[misc]
    """Faust runs the agents; ``kafka.runner`` talks to Kafka."""

    enable_kafka = False


class AgentApp(faust.App):  # type: ignore[misc]
    """A Faust application whose agents work on batches."""

    BootStrategy = _WithoutKafka

    def __init__(self, name: str) -> None:
        super().__init__(name, store="memory://", web_enabled=False)

    async def on_first_start(self) -> None:
        """Let streams flow: otherwise Faust's own consumer does it. Tables are not used and need no folder."""
        self.flow_control.resume()

    def agent(self, channel: TransactionalChannel, **options: Any) -> Callable[[AgentFunction], faust.Agent]:
        """Declare the agent of a channel."""
        declare = super().agent

        def declared(function: AgentFunction) -> faust.Agent:
            named = {"name": channel.name, "concurrency": channel.partitions, **options}
            return declare(channel, **named)(channel.guarded(function))

        return declared


async def registry(batches: Batches) -> None:
    """Snapshots and control records in; facts, definitions, findings and verdicts out."""
    async for batch in batches:
        await batch.process(processor.process)


async def join(batches: Batches) -> None:
    """Calls in, evidence out, once what was observed before them is known."""
    async for batch in batches:
        await batch.process_pieces(join_calls)


async def alerts(batches: Batches) -> None:
    """Findings in, alerts out; the table remembers each alert."""
    async for batch in batches:
        await batch.process(AlertStageTable.process)


_AGENTS: dict[str, AgentFunction] = {AccessRole.REGISTRY: registry, AccessRole.JOIN: join, AccessRole.ALERTS: alerts}
GC_THRESHOLDS = (50_000, 50, 100)


def run_worker(settings: Settings, stages: frozenset[str]) -> None:
    """Run stages until told to stop.

    Args:
        stages: which of ``STAGES``.

    Raises:
        AssayStreamError: if the worker cannot start, or had to stop.
    """
    # A batch makes many short-lived objects and no cycles: collecting every 700 of them is wasted work.
    gc.set_threshold(*GC_THRESHOLDS)
    actors = [AccessRole(stage) for stage in stages]
    run_host(
        settings,
        frozenset().union(*(ACCESS[actor].roles for actor in actors)),
        actors,
        lambda host, counts: add_stages(host, Topology(settings, counts), stages),
        web_port=settings.web_port,
    )


def add_stages(host: Host, topology: Topology, stages: frozenset[str]) -> None:
    app = host.agents = AgentApp(topology.settings.group_prefix)
    made = {name: _stage(name, host, topology) for name in STAGES if name in stages}
    quarantine, runners = asyncio.Lock(), list[Runner]()
    for name, stage in made.items():
        gives_way_to = tuple(runners) if name == "alerts" else ()
        runners.append(add_stage(host, app, stage, _AGENTS[name], quarantine, gives_way_to))
        if name == "alerts":
            host.metrics.on_scrape(partial(note_open_alerts, stage, host.metrics))


def add_stage(
    host: Host,
    app: AgentApp,
    stage: Stage[Any],
    agent: AgentFunction,
    quarantine: asyncio.Lock,
    gives_way_to: Sequence[Runner] = (),
) -> Runner:
    """Add one stage to a host, behind its agent, and return its runner."""
    stage.level = host.format_level
    partitions = stage.topology.counts[stage.input_roles[0]]
    channel = TransactionalChannel(app, name=stage.name, partitions=partitions)
    app.agent(channel)(agent)
    metrics = PrometheusStage(host.metrics, stage.name)
    runner = Runner(stage, channel.process, metrics=metrics, quarantine=quarantine, gives_way_to=gives_way_to)
    host.add(stage.name, runner)
    return runner


def _stage(name: str, host: Host, topology: Topology) -> Stage[Any]:
    match name:
        case "registry":
            return registry_stage(topology)
        case "join":
            return join_stage(host, topology)
        case _:
            clock_us = SteadyClock(lambda: time.time_ns() // 1_000, lambda: time.monotonic_ns() // 1_000)
            metrics = PrometheusStage(host.metrics, "alerts")
            return alert_stage(topology, rules=topology.settings.alert_rules(), clock_us=clock_us, metrics=metrics)


def join_stage(host: Host, topology: Topology) -> JoinStage:
    """Return the join's stage, having added its view of the bindings to the host."""
    metrics, observers, settings = host.metrics, RecentObservers(), topology.settings
    latency = partial(EvidenceLatency, metrics.evidence_latency.observe, observers)
    metrics.on_scrape(lambda: metrics.observers_alive.labels("join").set(observers.count()))
    new_join = partial(
        Join, producer=settings.producer(), redaction=settings.redaction(), call_profile=settings.call_profile
    )
    view = BindingView(topology, new_join, heard=observers.heard)
    host.add("view", view)
    return JoinStage(view, topology, latency=latency)


def note_open_alerts(stage: Stage[AlertStageTable], metrics: Metrics) -> None:
    """Set the gauges of open alerts, of all partitions of this process together."""
    now_us = time.time_ns() // 1_000
    counts = [state.alerts.open_counts() for state in stage.states]
    for severity_id, level in enumerate(SeverityLevel, start=1):
        found = [each[severity_id] for each in counts]
        waiting_us = [one.unreviewed_since_us for one in found if one.unreviewed_since_us is not None]
        since_us = min(waiting_us, default=now_us)
        age_s = min(max((now_us - since_us) / 1_000_000, 0.0), UNREVIEWED_AGE_MAX_S)
        metrics.alerts_open.labels(level.value).set(sum(one.alerts for one in found))
        metrics.unreviewed_age.labels(level.value).set(age_s)
