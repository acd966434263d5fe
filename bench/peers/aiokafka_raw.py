"""The ceiling of our client: the calls' own bytes to the evidence topic, through the batch task of the join."""

from __future__ import annotations

import asyncio
import gc

from prometheus_client import CollectorRegistry

from assay_stream.config import load_settings
from assay_stream.kafka.stage_task import BatchTask
from assay_stream.model.record import Role
from assay_stream.worker.metrics import Meter, StageMeter
from bench.bench_join import PassThrough
from bench.peers.environment import Environment


async def run() -> None:
    """Run until killed."""
    environment = Environment.read()
    settings = load_settings()
    stage = PassThrough("raw")
    task = BatchTask(
        settings.model_copy(update={"group_prefix": environment.group.removesuffix("-raw")}),
        stage,
        topics={Role.CALLS: environment.calls_topic, Role.EVIDENCE: environment.evidence_topic},
        partition_counts={Role.CALLS: settings.call_partitions, Role.EVIDENCE: settings.call_partitions},
        meter=StageMeter(Meter(CollectorRegistry()), stage.name),
    )
    await task.run()


def main() -> None:
    """Run with the worker's thresholds of garbage collection."""
    gc.set_threshold(50_000, 50, 100)
    asyncio.run(run())


if __name__ == "__main__":
    main()
