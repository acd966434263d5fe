"""The worker: the stages, their tasks and their agents in one process. Read this first.

Each stage is a Faust agent that iterates over batches: records of one input partition, in order. ``batch.process``
applies a pure function to each record, ``batch.process_pieces`` to some records at a time, in a thread of its own.
When the agent asks for its next batch, what it wrote, the state that changed and the input offsets are committed in
one Kafka transaction. When it raises, all of that is aborted, the state is restored from its topic, and the batch
comes again; after some failures in a row the worker stops with the agent's name and the cause. So no record is lost
and none counts twice.

``worker.stages`` and ``worker.join`` declare what a stage reads and which state it keeps. What runs the stages:

    kafka.runner       joins the consumer group, keeps a partition task for each partition it is given
    kafka.partition    opens a partition, fetches, gives batches to the agent, commits
    worker.channel     carries a batch to the agent and its outcome back
    worker.host        the process: Faust, signals, health, metrics
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from assay_stream.alerts.index import SeverityLevel
from assay_stream.config import Settings
from assay_stream.join.processor import Join
from assay_stream.kafka.runner import Runner
from assay_stream.kafka.stage import Stage, Topology
from assay_stream.kafka.topics import ACCESS, STAGES, AccessRole
from assay_stream.limits.core import UNREVIEWED_AGE_MAX_S
from assay_stream.registry import processor
from assay_stream.worker.channel import AgentFunction, Batches, TransactionalChannel
from assay_stream.worker.host import Host, run_host
from assay_stream.worker.join import BindingView, EvidenceLatency, JoinStage, RecentObservers, join_calls
from assay_stream.worker.metrics import Metrics, PrometheusStage
from assay_stream.worker.stages import AlertStageTable, SteadyClock, alert_stage, registry_stage


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
    access = [ACCESS[actor] for actor in actors]
    needed = frozenset().union(*(grants.reads | grants.writes | grants.looks_at for grants in access))
    run_host(
        settings,
        needed,
        actors,
        lambda host, counts: add_stages(host, Topology(settings, counts), stages),
        web_port=settings.web_port,
    )


def add_stages(host: Host, topology: Topology, stages: frozenset[str]) -> None:
    made = {name: _stage(name, host, topology) for name in STAGES if name in stages}
    quarantine, runners = asyncio.Lock(), list[Runner]()
    for name, stage in made.items():
        gives_way_to = tuple(runners) if name == "alerts" else ()
        runners.append(add_stage(host, stage, _AGENTS[name], quarantine, gives_way_to))
        if name == "alerts":
            host.metrics.on_scrape(partial(note_open_alerts, stage, host.metrics))


def add_stage(
    host: Host, stage: Stage[Any], agent: AgentFunction, quarantine: asyncio.Lock, gives_way_to: Sequence[Runner] = ()
) -> Runner:
    """Add one stage to a host, behind its agent, and return its runner."""
    stage.level = host.format_level
    partitions = stage.topology.counts[stage.input_roles[0]]
    channel = TransactionalChannel(host.app, name=stage.name, partitions=partitions)
    host.app.agent(channel)(agent)
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
