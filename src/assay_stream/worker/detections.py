"""Users' agents: the stages that run them, in a process and in consumer groups of their own.

1. A stage for each input topic writes its records to the agents' input topic, under the keys that agents want them
   under, and how far it has read to every partition of that topic (``agents.rekey``).
2. The stage behind them keeps records until every input was read as far, lets the agents handle them in order, and
   writes findings and what agents remember (``agents.step``).

An agent that raises, blocks or returns junk ends this process, with its name. What it has in hand is not committed.
"""

import asyncio
import gc
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from aiokafka import TopicPartition

from assay_stream.agents import AgentSet, AgentState, Rekeying
from assay_stream.config import Settings
from assay_stream.kafka.access import ACCESS, AccessRole
from assay_stream.kafka.connection import Clients, KafkaClients
from assay_stream.kafka.stage import NoState, Stage
from assay_stream.kafka.stage_task import StageTask
from assay_stream.kafka.topics import topic_names
from assay_stream.kafka.upstream import UpstreamStages
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.record import Output, Record, Role
from assay_stream.worker.channel import Batches, TransactionalChannel
from assay_stream.worker.host import Host, PartitionCounts, run_host
from assay_stream.worker.metrics import Metrics, PrometheusStage
from assay_stream.worker.worker import GC_THRESHOLDS, add_task

_LOOK_S = 0.01
_PIECE_RECORDS = 16
"""A user's code may take long: few enough that the watchdog names the record closely."""


class Rekeyed(NoState):
    """One partition of an input: nothing is kept but how far the agents' partitions were told of.

    Args:
        partitions: how many partitions the agents' input topic has.
    """

    def __init__(self, agents: AgentSet, partition: int, *, partitions: int) -> None:
        self._rekeying = Rekeying(agents, partitions=partitions)
        self._partition = partition
        self._told: dict[str, int] = {}

    def process(self, record: Record) -> list[Output]:
        return self._rekeying.process(record)

    def time_us(self, topic: str) -> int:
        return self._rekeying.time_us(topic, self._partition)

    def flush(self, positions: Mapping[str, int]) -> list[Output]:
        """Return how far the input was read, where that is news."""
        news = {topic: position for topic, position in positions.items() if self._told.get(topic) != position}
        self._told |= news
        return [
            output
            for topic, position in news.items()
            for output in self._rekeying.progress(topic, self._partition, position)
        ]


class Pace:
    """Holds back inputs that are ahead of the slowest one, by event time.

    Their records would wait behind this stage, in memory. Only inputs of this process with records to read count: one
    that was read to its end holds nobody back.
    """

    def __init__(self) -> None:
        self.changes = 0
        """How often an input has moved."""
        self._times_us: dict[tuple[str, int], int] = {}

    def may_go_on(self, place: tuple[str, int], time_us: int) -> bool:
        """Tell whether an input that was read to an event time may be read further."""
        if self._times_us.get(place) != time_us:
            self._times_us[place] = time_us
            self.changes += 1
        # A copy, since each input has a thread of its own.
        return time_us <= min(list(self._times_us.values())) + DEFAULT_LIMITS.agent_disorder_ms * 1_000

    def leave(self, place: tuple[str, int]) -> None:
        """Note that an input has no more records, or is read by another process."""
        if self._times_us.pop(place, None) is not None:
            self.changes += 1


class RekeyStage(Stage[Rekeyed]):
    """The records of one input topic, under the keys of agents. See ``Stage`` for the arguments.

    Args:
        partitions: how many partitions the agents' input topic has.
    """

    def __init__(
        self,
        name: str,
        role: Role,
        agents: AgentSet,
        pace: Pace,
        *,
        clients: Clients,
        topics: Mapping[Role, str],
        partitions: int,
    ) -> None:
        super().__init__(
            name,
            (role,),
            clients=clients,
            topics=topics,
            new_state=lambda number: Rekeyed(agents, number, partitions=partitions),
            piece_records=_PIECE_RECORDS,
        )
        self._topic = topics[role]
        self._pace = pace
        self._has_records: set[int] = set()

    @property
    def changes(self) -> int:
        """Grows whenever another input has moved."""
        return self._pace.changes

    def close(self, partition: int) -> None:
        """Hold nobody back any more."""
        super().close(partition)
        self._pace.leave((self._topic, partition))

    def admit(self, records: Sequence[Record], _: object) -> int:
        """Admit all, or none while the slowest input is far behind."""
        partition = records[0].origin.partition
        self._has_records.add(partition)
        time_us = self._states[partition].time_us(self._topic)
        return len(records) if self._pace.may_go_on((self._topic, partition), time_us) else 0

    def punctuate(self, partition: int) -> list[Output]:
        """Note that a partition has nothing to read; write nothing."""
        if partition not in self._has_records:
            self._pace.leave((self._topic, partition))
        self._has_records.discard(partition)
        return []

    async def wait(self, limit_s: float, *, since: int) -> None:
        until_s = time.monotonic() + limit_s
        while self._pace.changes == since and time.monotonic() < until_s:
            await asyncio.sleep(_LOOK_S)


class DetectionStage(Stage[AgentState]):
    """The agents, over one partition of their input topic. See ``Stage`` for the arguments.

    Args:
        upstream: tells where their inputs end.
    """

    def __init__(
        self, name: str, agents: AgentSet, upstream: UpstreamStages, *, clients: Clients, topics: Mapping[Role, str]
    ) -> None:
        super().__init__(
            name,
            (Role.AGENT_INPUTS,),
            clients=clients,
            topics=topics,
            state_role=Role.AGENT_STATES,
            new_state=lambda number: AgentState(agents, number, input_topic=topics[Role.AGENT_INPUTS]),
            piece_records=_PIECE_RECORDS,
        )
        self._upstream = upstream
        self._ends: dict[int, Mapping[TopicPartition, int]] = {}

    @property
    def waiting(self) -> int:
        """How many records the states keep until every input was read as far."""
        return sum(state.buffered for state in self._states.values())

    def note_late(self, metrics: Metrics) -> None:
        """Note how many records came too late for their place in the order, since the partitions were taken over."""
        metrics.agent_late.labels(self.name).set(sum(state.late for state in self._states.values()))

    def close(self, partition: int) -> None:
        super().close(partition)
        self._ends.pop(partition, None)

    async def note_ends(self) -> Mapping[TopicPartition, int]:
        """Return where the inputs end, once they hold what follows from everything published by now."""
        return await self._upstream.complete()

    def admit(self, records: Any, ends: Mapping[TopicPartition, int]) -> int:
        """Admit all: the state keeps what is not ready. The ends are for what was read before they were looked up."""
        self._ends[records[0].origin.partition] = ends
        return len(records)

    def punctuate(self, partition: int) -> list[Output]:
        """Return what agents find now that the ends for the records in hand are known."""
        ends = self._ends.pop(partition, None)
        return [] if ends is None else self._states[partition].note_ends(ends)


def run_agents(settings: Settings, agents: AgentSet, name: str) -> None:
    """Run agents until told to stop.

    Args:
        name: names their topics and consumer groups.

    Raises:
        AssayStreamError: if they cannot start, or had to stop.
    """
    gc.set_threshold(*GC_THRESHOLDS)
    access = ACCESS[AccessRole.AGENTS]
    needed = (access.reads | access.writes | access.looks_at) - _unread(agents)
    run_host(
        settings,
        needed,
        lambda host, counts: add_agents(settings, host, counts, agents, name),
        web_port=settings.web_port,
        agents=name,
    )


def _unread(agents: AgentSet) -> set[Role]:
    return {Role.EVIDENCE, Role.ALERTS, Role.DEFINITIONS} - set(agents.roles)


def add_agents(settings: Settings, host: Host, counts: PartitionCounts, agents: AgentSet, name: str) -> None:
    """Add the stages of agents to a host. Arguments are those of ``run_agents``."""
    clients, topics = KafkaClients(settings), topic_names(settings, agents=name)
    upstream = UpstreamStages(
        agents.roles, clients=clients, topics=topics, partition_counts=counts, group_prefix=settings.group_prefix
    )
    host.add("upstream", upstream)
    quarantine = asyncio.Lock()
    for stage in stages_of(agents, name, upstream, clients=clients, topics=topics, counts=counts):
        channel = TransactionalChannel(host.app, name=stage.name, partitions=counts[stage.input_roles[0]])
        host.app.agent(channel)(_processing)
        task = StageTask(
            settings,
            stage,
            channel.process,
            topics=topics,
            partition_counts=counts,
            metrics=PrometheusStage(host.metrics, stage.name),
            clients=clients,
            quarantine=quarantine,
        )
        add_task(host, stage.name, task)
        if isinstance(stage, DetectionStage):
            host.metrics.on_scrape(partial(stage.note_late, host.metrics))


def stages_of(
    agents: AgentSet,
    name: str,
    upstream: UpstreamStages,
    *,
    clients: Clients,
    topics: Mapping[Role, str],
    counts: PartitionCounts,
) -> list[Stage[Any]]:
    """Return the stages of agents: one for each input, and the one behind them."""
    partitions, pace = counts[Role.AGENT_INPUTS], Pace()
    rekeying = [
        RekeyStage(
            _stage_name(name, role, agents), role, agents, pace, clients=clients, topics=topics, partitions=partitions
        )
        for role in agents.roles
    ]
    return [*rekeying, DetectionStage(f"agents-{name}", agents, upstream, clients=clients, topics=topics)]


def _stage_name(name: str, role: Role, agents: AgentSet) -> str:
    """Return what a stage and its group are called: other code reads all definitions again, to remember its own."""
    return f"agents-{name}-{role}" + (f"-{agents.digest[-12:]}" if role is Role.DEFINITIONS else "")


def process(state: Rekeyed | AgentState, record: Record) -> list[Output]:
    return state.process(record)


async def _processing(batches: Batches) -> None:
    async for batch in batches:
        await batch.process(process)
