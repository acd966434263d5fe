"""The ceiling of our client: calls passed on to the evidence topic, through the batch task of the join."""

from __future__ import annotations

import asyncio
import gc
from functools import partial

from assay_stream.config import load_settings
from assay_stream.kafka.runner import Runner
from assay_stream.kafka.stage import Topology
from assay_stream.model.record import Role
from bench.bench_join import hosted, pass_on, pass_through
from bench.peers.environment import Environment


async def run() -> None:
    """Run until killed."""
    environment = Environment.read()
    settings = load_settings()
    settings = settings.model_copy(update={"group_prefix": environment.group.removesuffix("-raw")})
    topics = {Role.CALLS: environment.calls_topic, Role.EVIDENCE: environment.evidence_topic}
    step = partial(pass_on, record_bytes=environment.record_bytes)
    async with hosted("raw", settings.call_partitions, step) as agent:
        topology = Topology(settings, dict.fromkeys(topics, settings.call_partitions))
        topology.names |= topics
        await Runner(pass_through("raw", topology), agent).run()


def main() -> None:
    """Run with the worker's thresholds of garbage collection."""
    gc.set_threshold(50_000, 50, 100)
    asyncio.run(run())


if __name__ == "__main__":
    main()
