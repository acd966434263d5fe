"""Wait until downstream topics reflect all input published before a given time.

Evidence, findings and alerts follow from what proxies and operators publish, with a delay. So one of their topics that
was read to its end may still lack something. Progress decides, not the clock (``docs/adr/0001``):

1. Read the end offsets of the published topics.
2. Wait until the stages that read them have committed those; then the same for the topics that they write and
   later stages read. Ends include open transactions: a commit shows before its records do.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from aiokafka import TopicPartition

from assay_stream.kafka.connection import Consumer
from assay_stream.kafka.part import Part
from assay_stream.kafka.stage import Topology
from assay_stream.model.record import Role


class UpstreamStage(NamedTuple):
    """One stage between published input and the topics derived from it."""

    stage: str
    reads: tuple[Role, ...]
    writes: tuple[Role, ...]


STEPS = (
    UpstreamStage("registry", (Role.SNAPSHOTS, Role.CONTROL), (Role.DEFINITIONS, Role.FINDINGS)),
    UpstreamStage("join", (Role.CALLS,), (Role.EVIDENCE, Role.FINDINGS, Role.REROUTED)),
    UpstreamStage("join", (Role.REROUTED,), (Role.EVIDENCE, Role.FINDINGS)),
    UpstreamStage("alerts", (Role.FINDINGS,), (Role.ALERTS,)),
)
"""In processing order."""

_PAUSE_S = 0.02
_INTERVAL_S = 0.1
"""Minimum interval between checks. Each takes several requests, and a waiting reader gets larger batches."""


def steps_to(roles: Iterable[Role]) -> list[UpstreamStage]:
    wanted, steps = set(roles), []
    for step in reversed(STEPS):
        if wanted & set(step.writes):
            steps.append(step)
            wanted |= set(step.reads)
    return steps[::-1]


class UpstreamStages(Part):
    """Track the progress of stages.

    Args:
        steps: the stages, in processing order.
    """

    def __init__(self, steps: Sequence[UpstreamStage], topology: Topology) -> None:
        super().__init__()
        self._steps = list(steps)
        self._topology = topology
        self._readers: dict[str, Consumer] = {}
        self._started = asyncio.Event()
        self._asking = asyncio.Lock()
        self._answered_s = -_INTERVAL_S
        self._next: asyncio.Task[None] | None = None

    @property
    def ready(self) -> bool:
        return self._started.is_set()

    async def run(self) -> None:
        try:
            for step in {step.stage: step for step in self._steps}.values():
                group_id = f"{self._topology.settings.group_prefix}-{step.stage}"
                # It joins no group.
                reader = self._topology.clients.consumer(group_id=group_id, isolation_level="read_uncommitted")
                self._readers[step.stage] = reader
                await reader.start()
            self._started.set()
            await self.stopping.wait()
        finally:
            if self._next is not None:
                self._next.cancel()
            for reader in self._readers.values():
                await reader.stop()

    async def complete(self) -> None:
        """Wait until the stages have processed everything published so far, and everything derived from it.

        Concurrent callers share one check, unless it began before their call.

        Raises:
            KafkaError: brokers are unreachable.
        """
        if self._next is None:
            self._next = asyncio.create_task(self._complete())
        await asyncio.shield(self._next)

    async def _complete(self) -> None:
        async with self._asking:
            await self._started.wait()
            await asyncio.sleep(self._answered_s + _INTERVAL_S - time.monotonic())
            # What was read until here is covered.
            self._next = None
            self._answered_s = time.monotonic()
            published = {role for step in self._steps for role in step.reads}
            published -= {role for step in self._steps for role in step.writes}
            ends = await self._ends(published)
            for step in self._steps:
                if not published.issuperset(step.reads):
                    ends |= await self._ends(step.reads)
                await self._wait(step.stage, {tp: ends[tp] for tp in self._topology.places(*step.reads)})

    async def _wait(self, stage: str, ends: Mapping[TopicPartition, int]) -> None:
        while True:
            committed = await self._readers[stage].committed_with_metadata(ends)
            if all((committed.get(tp, (None, ""))[0] or 0) >= end for tp, end in ends.items()):
                return
            await asyncio.sleep(_PAUSE_S)

    async def _ends(self, roles: Iterable[Role]) -> dict[TopicPartition, int]:
        reader = next(iter(self._readers.values()))
        return dict(await reader.end_offsets(self._topology.places(*roles)))
