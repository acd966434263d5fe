"""Whether the topics of our stages hold everything that follows from what was published before a moment.

Evidence, findings and alerts follow from what proxies and operators publish, some time later. So a topic of them that
was read to its end may still lack something. Progress tells, not the clock (``docs/adr/0004``):

1. Note where the topics end that are published.
2. Wait until the stages that read these have committed as much; then the same for the topics that those write and
   later stages read.
3. Note where the last ones end, open transactions included: a commit shows before its records do.

A stage may be hours behind. With a time limit, the ends of what it has yet to write are ``OPEN_END`` instead.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from aiokafka import TopicPartition

from assay_stream.kafka.connection import Clients, Consumer
from assay_stream.model.agent_topic import OPEN_END
from assay_stream.model.record import Role


class UpstreamStage(NamedTuple):
    """One stage between what is published and what follows.

    Attributes:
        partitioned_alike: topics that it writes of which a partition follows from the same partition of its input.
    """

    stage: str
    reads: tuple[Role, ...]
    writes: tuple[Role, ...]
    partitioned_alike: tuple[Role, ...] = ()


STEPS = (
    UpstreamStage("registry", (Role.SNAPSHOTS, Role.CONTROL), (Role.DEFINITIONS, Role.FINDINGS)),
    UpstreamStage("join", (Role.CALLS,), (Role.EVIDENCE, Role.FINDINGS, Role.REROUTED), (Role.EVIDENCE,)),
    UpstreamStage("join", (Role.REROUTED,), (Role.EVIDENCE, Role.FINDINGS)),
    UpstreamStage("alerts", (Role.FINDINGS,), (Role.ALERTS,)),
)
"""In the order of their work."""

_PAUSE_S = 0.02
_INTERVAL_S = 0.1
"""Between two answers, at least. Each takes several requests, and who waits for one reads more records at a time."""


def steps_to(roles: Iterable[Role]) -> list[UpstreamStage]:
    """Return the stages that some topics follow from, in the order of their work."""
    wanted, steps = set(roles), []
    for step in reversed(STEPS):
        if wanted & set(step.writes):
            steps.append(step)
            wanted |= set(step.reads)
    return steps[::-1]


class UpstreamStages:
    """Follows the stages that write some topics.

    Args:
        roles: the topics.
        clients: make consumers, which join no group.
        steps: the stages. Default: those that the topics follow from.
        limit_s: how long one answer may wait for the stages, seconds. Default: until they are done.
    """

    def __init__(
        self,
        roles: Iterable[Role],
        *,
        clients: Clients,
        topics: Mapping[Role, str],
        partition_counts: Mapping[Role, int],
        group_prefix: str,
        steps: Sequence[UpstreamStage] | None = None,
        limit_s: float | None = None,
    ) -> None:
        self._steps = steps_to(roles) if steps is None else steps
        self._limit_s = limit_s
        self._partitions = {
            role: [TopicPartition(topics[role], number) for number in range(partition_counts[role])]
            for role in {*roles, *(role for step in self._steps for role in step.reads)}
        }
        self._last = [tp for role in roles for tp in self._partitions[role]]
        self._clients = clients
        self._group_prefix = group_prefix
        self._readers: dict[str, Consumer] = {}
        self._started = asyncio.Event()
        self._stopping = asyncio.Event()
        self._asking = asyncio.Lock()
        self._answered_s = -_INTERVAL_S
        self._next: asyncio.Task[Mapping[TopicPartition, int]] | None = None

    @property
    def ready(self) -> bool:
        return self._started.is_set()

    async def run(self) -> None:
        """Keep connections open until stopped."""
        try:
            for step in {step.stage: step for step in self._steps}.values():
                group_id = f"{self._group_prefix}-{step.stage}"
                reader = self._clients.consumer(group_id=group_id, isolation_level="read_uncommitted")
                self._readers[step.stage] = reader
                await reader.start()
            self._started.set()
            await self._stopping.wait()
        finally:
            if self._next is not None:
                self._next.cancel()
            for reader in self._readers.values():
                await reader.stop()

    def stop(self) -> None:
        self._stopping.set()

    async def complete(self) -> Mapping[TopicPartition, int]:
        """Wait until everything published before is processed, and return where the topics end then.

        Who asks at the same time shares an answer, unless somebody had asked for it before them.

        Raises:
            KafkaError: brokers are away.
        """
        if self._next is None:
            self._next = asyncio.create_task(self._find_out())
        return await asyncio.shield(self._next)

    async def _find_out(self) -> Mapping[TopicPartition, int]:
        async with self._asking:
            await self._started.wait()
            await asyncio.sleep(self._answered_s + _INTERVAL_S - time.monotonic())
            # What was read until here is covered.
            self._next = None
            self._answered_s = time.monotonic()
            published = {role for step in self._steps for role in step.reads}
            published -= {role for step in self._steps for role in step.writes}
            ends = await self._ends(tp for role in published for tp in self._partitions[role])
            unknown: set[TopicPartition] = set()
            for step in self._steps:
                inputs = [tp for role in step.reads for tp in self._partitions[role]]
                if not published.issuperset(step.reads):
                    ends |= await self._ends(inputs)
                behind = unknown.intersection(inputs) or await self._wait(step.stage, {tp: ends[tp] for tp in inputs})
                unknown |= self._following(step, behind)
            return await self._ends(self._last) | {tp: OPEN_END for tp in self._last if tp in unknown}

    async def _wait(self, stage: str, ends: Mapping[TopicPartition, int]) -> set[TopicPartition]:
        """Wait until a stage has come to some ends; return where it has not after the time limit."""
        while True:
            committed = await self._readers[stage].committed_with_metadata(ends)
            behind = {tp for tp, end in ends.items() if (committed.get(tp, (None, ""))[0] or 0) < end}
            if not behind or (self._limit_s is not None and time.monotonic() - self._answered_s >= self._limit_s):
                return behind
            await asyncio.sleep(_PAUSE_S)

    def _following(self, step: UpstreamStage, behind: set[TopicPartition]) -> set[TopicPartition]:
        """Return what a stage has yet to write to, given where it is behind.

        Copies of calls are left out: what follows from one goes where what follows from its call goes.
        """
        numbers = {tp.partition for tp in behind}
        return {
            tp
            for role in (step.writes if behind else ())
            if role is not Role.REROUTED
            for tp in self._partitions.get(role, ())
            if role not in step.partitioned_alike or tp.partition in numbers
        }

    async def _ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        reader = next(iter(self._readers.values()))
        return dict(await reader.end_offsets(list(partitions)))
