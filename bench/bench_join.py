"""How fast the join is: the join stage beside a raw pass-through of the same records, in one run.

Both run on the same broker, with transactions, one after the other in one process: the pass-through reads and
writes the same bytes through the same transactional batch task and does nothing else, so the ratio is what the
join itself costs.

    python -m bench.bench_join [--calls N] [--rounds N]
"""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry

from assay_stream import __version__
from assay_stream.config import Settings, load_settings
from assay_stream.join import Join
from assay_stream.kafka.connection import start_admin, writing_producer
from assay_stream.kafka.partition import BatchHandler, Step
from assay_stream.kafka.runner import Runner
from assay_stream.kafka.stage import NoState, Stage, StateThread, Topology
from assay_stream.kafka.topics import apply_topics, check_topics, inspect_topics, topic_names
from assay_stream.model.evidence import Producer
from assay_stream.model.facts import KEY, JoinProgress, write_progress
from assay_stream.model.record import TOPICS, Output, Record, Role
from assay_stream.registry import processor
from assay_stream.worker.stages import (
    BindingView,
    EvidenceLatency,
    JoinStage,
    RecentObservers,
    join_calls,
    registry_stage,
)
from assay_stream.worker.telemetry import Metrics, PrometheusStage
from assay_stream.worker.worker import AgentApp, Batches, TransactionalChannel
from bench.on_broker import Count, Measure, on_broker, run_until
from bench.publishing import publish
from tests.support.fleet import Fleet

ROLES = {role for role in Role if not TOPICS[role].of_agents} - {Role.ALERTS}


def pass_on(_: NoState, record: Record, *, record_bytes: int = 0) -> list[Output]:
    """The ceiling of our client: a call's own bytes to the evidence topic, filled up to a length."""
    value = (record.value or b"").ljust(record_bytes)
    return [Output(role=Role.EVIDENCE, key=record.key, value=value, partition=record.origin.partition)]


def pass_through(name: str, topology: Topology) -> Stage[NoState]:
    """A stage that only passes on."""
    return Stage(
        name, (Role.CALLS,), topology, new_state=lambda _: NoState(), shared_thread=StateThread(name), piece_records=100
    )


@asynccontextmanager
async def hosted(name: str, partitions: int, step: Any, *, of_pieces: bool = False) -> AsyncIterator[BatchHandler]:
    """Run an agent in a Faust application, as a worker does, and yield what takes its batches.

    Args:
        step: for single records, or for pieces.
    """
    app = AgentApp("bench")
    channel = TransactionalChannel(app, name=name, partitions=partitions)

    @app.agent(channel)
    async def agent(batches: Batches) -> None:
        async for batch in batches:
            await (batch.process_pieces(step) if of_pieces else batch.process(step))

    await app.start()
    try:
        yield channel.process
    finally:
        await app.stop()


class CountingMetrics(PrometheusStage):
    """Counts like the worker, and keeps the number of calls at hand."""

    def __init__(self, stage: str, count: Count) -> None:
        super().__init__(Metrics(CollectorRegistry()), stage)
        self._count = count

    def batch(self, records: int, labels: Mapping[str, int], *, seconds: float) -> None:
        super().batch(records, labels, seconds=seconds)
        self._count.calls += records


async def run_registry(settings: Settings, counts: dict[Role, int]) -> None:
    """Let the registry apply everything, so that what follows measures the join alone."""
    stage, count = registry_stage(Topology(settings, counts)), Count()
    async with hosted("registry", counts[Role.SNAPSHOTS], processor.process) as agent:
        task = make_task(stage, agent, count)
        running = asyncio.create_task(task.run())
        seen = -1
        while count.calls != seen or not task.ready or not count.calls:
            seen = count.calls
            await asyncio.sleep(1.0)
        task.stop()
        await running


def make_task(stage: Stage[Any], agent: BatchHandler, count: Count) -> Runner:
    """Return a task that counts."""
    return Runner(stage, agent, metrics=CountingMetrics(stage.name, count))


async def with_topics(settings: Settings) -> dict[Role, int]:
    """Create the topics, and return how many partitions each has."""
    admin = await start_admin(settings)
    await apply_topics(admin, settings)
    counts = check_topics(await inspect_topics(admin, settings), ROLES | {Role.DEFINITIONS}, settings)
    await admin.close()
    return counts


async def bench(bootstrap: str, calls: int, rounds: int) -> None:
    """Measure, and print the result."""
    settings = load_settings(bootstrap_servers=bootstrap, call_partitions=4, poll_timeout_ms=200, group_prefix="bench")
    counts = await with_topics(settings)
    size = await publish(settings, Fleet(servers=200, calls=calls, changes=100, seed=11))
    await run_registry(settings, counts)
    print(
        f"{calls} calls of {size} bytes, {counts[Role.CALLS]} partitions, {os.cpu_count()} cores shared "
        f"with the broker, Python {platform.python_version()}"
    )
    for number in range(rounds):
        count = Count()
        raw = await run_raw(settings, f"raw-{number}", counts, count, calls, pass_on)
        join = await run_join(settings.model_copy(update={"group_prefix": f"bench-{number}"}), counts, calls)
        print(
            f"round {number + 1}: join {join.calls_per_s:,.0f} calls/s at {join.cpu_us:.1f} us CPU; "
            f"raw pass-through {raw.calls_per_s:,.0f} calls/s at {raw.cpu_us:.1f} us CPU; "
            f"ratio {join.calls_per_s / raw.calls_per_s:.2f}"
        )


async def run_raw(
    settings: Settings, name: str, counts: dict[Role, int], count: Count, calls: int, step: Step[NoState]
) -> Measure:
    """Run a pass-through over all calls."""
    stage = pass_through(name, Topology(settings, counts))
    async with hosted(name, counts[Role.CALLS], step) as agent:
        return await run_until([make_task(stage, agent, count)], count, calls)


async def run_join(settings: Settings, counts: dict[Role, int], calls: int) -> Measure:
    """Run the join over all calls with a fresh consumer group, as if none had run before."""
    topics = topic_names(settings)
    async with writing_producer(settings) as producer:
        nothing = write_progress(JoinProgress(calls=0, rerouted=0))
        for number in range(counts[Role.CALLS]):
            await producer.send_and_wait(topics[Role.JOIN_PROGRESS], nothing, key=KEY, partition=number)
    topology = Topology(settings, counts)
    view = BindingView(topology, partial(Join, producer=Producer(version=__version__)))
    for number in range(counts[Role.BINDINGS]):
        view.need(number)
    following = asyncio.create_task(view.run())
    while not view.ready:
        await asyncio.sleep(0.05)
    count = Count()
    stage = JoinStage(view, topology, latency=partial(EvidenceLatency, lambda *_: None, RecentObservers()))
    async with hosted("join", counts[Role.CALLS], join_calls, of_pieces=True) as agent:
        measure = await run_until([make_task(stage, agent, count)], count, calls)
    view.stop()
    await following
    return measure


if __name__ == "__main__":
    on_broker(bench, __doc__)
