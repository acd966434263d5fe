"""The process of users' agents: their stages, in consumer groups of their own.

1. A stage for each input topic writes its records to the agents' input topic, under the keys that agents want them
   under (``Rekeying``). Evidence goes there after the definitions, findings and alerts that follow from the same calls
   and from lists before them.
2. The stage behind them lets the agents handle the records in the order of that topic, and writes findings and what
   agents remember (``AgentState``).

An agent that raises, blocks or returns junk ends this process, with its name. What it has in hand is not committed.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import Any

import msgspec

from assay_stream.agents import AgentSet, AgentState, Rekeying
from assay_stream.config import Settings
from assay_stream.errors import InputError
from assay_stream.kafka.connection import Consumer, TopicPartition
from assay_stream.kafka.part import Part
from assay_stream.kafka.stage import NoState, Stage, Topology
from assay_stream.kafka.topics import ACCESS, AccessRole
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.record import Output, Record, Role
from assay_stream.text.times import time_us_of
from assay_stream.worker.host import Host, run_host
from assay_stream.worker.worker import GC_THRESHOLDS, AgentApp, Batches, add_stage

_LOOK_S = 0.01
_HOLD_LIMIT_S = 5.0
_LIVE_SPEED_MAX = 2.0
"""Event time that passes in a second, at most, where records are read as they come."""
_FREE_S = 60.0
_PAUSE_S = 0.02
_INTERVAL_S = 0.1
"""Minimum interval between checks. Each takes several requests, and a waiting reader gets larger batches."""
_PIECE_RECORDS = 16
"""A user's code may take long: few enough that the watchdog names the record closely."""


def run_agents(settings: Settings, agents: AgentSet, name: str) -> None:
    """Run agents until stopped.

    Args:
        name: names their topics and consumer groups.

    Raises:
        AssayStreamError: if they cannot start, or had to stop.
    """
    gc.set_threshold(*GC_THRESHOLDS)
    unread = {Role.EVIDENCE, Role.ALERTS, Role.DEFINITIONS} - set(agents.roles)
    run_host(
        settings,
        ACCESS[AccessRole.AGENTS].roles - unread,
        [AccessRole.AGENTS],
        lambda host, counts: add_agents(host, Topology(settings, counts, agents=name), agents, name),
        web_port=settings.web_port,
        agents=name,
    )


def add_agents(host: Host, topology: Topology, agents: AgentSet, name: str) -> None:
    """Add the stages of agents to a host. Arguments are those of ``run_agents``."""
    preceding = preceding_stages(agents, name, topology)
    if preceding is not None:
        host.add("preceding", preceding)
    app = host.agents = AgentApp(topology.settings.group_prefix)
    quarantine = asyncio.Lock()
    for stage in stages_of(agents, name, preceding, topology):
        add_stage(host, app, stage, _processing, quarantine)


def preceding_stages(agents: AgentSet, name: str, topology: Topology) -> UpstreamStages | None:
    """Return the stages whose output goes before evidence in the agents' input topic, if agents read both."""
    others = [role for role in agents.roles if role is not Role.EVIDENCE]
    if not others or Role.EVIDENCE not in agents.roles:
        return None
    # The join has written what follows from a call when its evidence can be read.
    steps: dict[str, tuple[Role, ...]] = {"registry": (Role.SNAPSHOTS, Role.CONTROL)}
    if Role.ALERTS in others:
        steps["alerts"] = (Role.FINDINGS,)
    return UpstreamStages(steps | {f"agents-{name}-{role}": (role,) for role in others}, topology)


def stages_of(agents: AgentSet, name: str, preceding: UpstreamStages | None, topology: Topology) -> list[Stage[Any]]:
    """Return the stages of agents: one for each input, and the one behind them."""
    rekeying = dict.fromkeys(agents.roles, Stage[Any]) | {Role.EVIDENCE: partial(EvidenceStage, preceding=preceding)}
    stages: list[Stage[Any]] = [
        rekeying[role](
            f"agents-{name}-{role}",
            (role,),
            topology,
            new_state=lambda _: Rekeyed(agents, partitions=topology.counts[Role.AGENT_INPUTS]),
            piece_records=_PIECE_RECORDS,
        )
        for role in agents.roles
    ]
    detecting: Stage[AgentState] = Stage(
        f"agents-{name}",
        (Role.AGENT_INPUTS,),
        topology,
        state_role=Role.AGENT_STATES,
        new_state=lambda number: AgentState(agents, number, input_topic=topology.names[Role.AGENT_INPUTS]),
        piece_records=_PIECE_RECORDS,
    )
    return [*stages, detecting]


class UpstreamStages(Part):
    """Tracks how far the stages are whose output goes before evidence.

    Findings and alerts follow from what proxies and operators publish, with a delay. So one of their topics that was
    read to its end may still lack something. Progress decides, not the clock (``docs/adr/0001``).

    Args:
        steps: the input topics of each stage, in processing order.
    """

    def __init__(self, steps: Mapping[str, tuple[Role, ...]], topology: Topology) -> None:
        super().__init__()
        self._steps = steps
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
            for stage in self._steps:
                group_id = f"{self._topology.settings.group_prefix}-{stage}"
                # It joins no group. Ends include open transactions: a commit shows before its records do.
                reader = self._topology.clients.consumer(group_id=group_id, isolation_level="read_uncommitted")
                self._readers[stage] = reader
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
            for stage, roles in self._steps.items():
                reader = self._readers[stage]
                ends = await reader.end_offsets(self._topology.places(*roles))
                while not _has_reached(await reader.committed_with_metadata(ends), ends):
                    await asyncio.sleep(_PAUSE_S)


def _has_reached(
    committed: Mapping[TopicPartition, tuple[int | None, str]], ends: Mapping[TopicPartition, int]
) -> bool:
    return all((committed.get(place, (None, ""))[0] or 0) >= end for place, end in ends.items())


class Rekeyed(Rekeying, NoState):
    """One partition of an input, of which nothing is kept."""


class Pace:
    """Holds back partitions of evidence that are ahead of the slowest one, by event time.

    In a backlog, calls of one actor on two servers would be days apart otherwise, and a window over them would have
    forgotten one before the other comes. Only partitions of this process with records to read count. A record dated far
    ahead goes on after ``_HOLD_LIMIT_S``, so a wrong clock does not stop its partition. If the slowest partition has
    moved no faster than time meanwhile, it is in no backlog but dated by a slow clock, or this one by a fast clock: it
    will never catch up, and this one is not held for a while.
    """

    def __init__(self) -> None:
        self.changes = 0
        """How often a partition has moved."""
        self._next_us: dict[int, int] = {}
        self._held: dict[int, tuple[float, int]] = {}
        """Since when partitions are held, and where the slowest one was then."""
        self._free_until_s: dict[int, float] = {}

    def admit(self, partition: int, times_us: Iterable[int]) -> int:
        """Return how many of a partition's next records may go on, given their event times."""
        times_us = iter(times_us)
        first_us = next(times_us)
        self._move(partition, first_us)
        # A copy, since each partition has a thread of its own.
        slowest_us, now_s = min(list(self._next_us.values())), time.monotonic()
        until_us = slowest_us + DEFAULT_LIMITS.agent_lead_ms * 1_000
        is_free = now_s < self._free_until_s.get(partition, now_s)
        if first_us > until_us and not is_free:
            since_s, from_us = self._held.setdefault(partition, (now_s, slowest_us))
            if now_s - since_s < _HOLD_LIMIT_S:
                return 0
            if is_free := 0 < slowest_us - from_us <= _LIVE_SPEED_MAX * (now_s - since_s) * 1_000_000:
                self._free_until_s[partition] = now_s + _FREE_S
        self._held.pop(partition, None)
        if is_free:
            return 1 + sum(1 for _ in times_us)
        return 1 + sum(1 for _ in takewhile(lambda time_us: time_us <= until_us, times_us))

    def join(self, partition: int) -> None:
        """Wait for a partition until its first records are there."""
        self._move(partition, 0)

    def leave(self, partition: int) -> None:
        """Note that a partition has no more records, or is read by another process."""
        self._held.pop(partition, None)
        if self._next_us.pop(partition, None) is not None:
            self.changes += 1

    def _move(self, partition: int, next_us: int) -> None:
        if self._next_us.get(partition) != next_us:
            self._next_us[partition] = next_us
            self.changes += 1


class _Dated(msgspec.Struct):
    time: str


_read_dated = msgspec.json.Decoder(_Dated).decode


def _time_us(record: Record) -> int:
    try:
        return time_us_of(_read_dated(record.value or b"").time)
    except (msgspec.MsgspecError, InputError):
        return 0  # It fails where it is processed.


class EvidenceStage(Stage[Rekeyed]):
    """The evidence, under the keys of agents, behind the other inputs. See ``Stage`` for other arguments.

    Args:
        preceding: the stages whose output goes before.
    """

    def __init__(self, *arguments: Any, preceding: UpstreamStages | None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._preceding = preceding
        self._pace = Pace()
        self._has_records: set[int] = set()

    @property
    def changes(self) -> int:
        return self._pace.changes

    async def open(self, partition: int) -> Mapping[TopicPartition, int | None]:
        offsets = await super().open(partition)
        self._pace.join(partition)
        return offsets

    def close(self, partition: int) -> None:
        super().close(partition)
        self._pace.leave(partition)

    async def upstream_ends(self) -> Mapping[TopicPartition, int]:
        """Wait until what follows from the same calls, and from lists before them, is in the agents' input topic."""
        if self._preceding is not None:
            await self._preceding.complete()
        return {}

    def admit(self, records: Sequence[Record], _: object) -> int:
        partition = records[0].origin.partition
        self._has_records.add(partition)
        return self._pace.admit(partition, map(_time_us, records))

    def punctuate(self, partition: int) -> list[Output]:
        """Note that a partition has nothing to read; write nothing."""
        if partition not in self._has_records:
            self._pace.leave(partition)
        self._has_records.discard(partition)
        return []

    async def wait(self, limit_s: float, *, since: int) -> None:
        until_s = time.monotonic() + limit_s
        while self._pace.changes == since and time.monotonic() < until_s:
            await asyncio.sleep(_LOOK_S)


def process(state: Rekeyed | AgentState, record: Record) -> list[Output]:
    return state.process(record)


async def _processing(batches: Batches) -> None:
    async for batch in batches:
        await batch.process(process)
