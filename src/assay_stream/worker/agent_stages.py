"""The stages that run users' agents: one for each input topic, and the one behind them.

1. A stage for each input topic writes its records to the agents' input topic, under the keys that agents want them
   under, and how far it has read to every partition of that topic (``agents.rekey``). Evidence goes there after the
   definitions, findings and alerts that follow from the same calls and from lists before them.
2. The stage behind them keeps records until every input was read as far, lets the agents handle them in order, and
   writes findings and what agents remember (``agents.step``).
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from assay_stream.agents import AgentSet, AgentState, Rekeying
from assay_stream.kafka.connection import Clients, TopicPartition
from assay_stream.kafka.stage import NoState, Stage
from assay_stream.kafka.upstream import UpstreamStages
from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.model.record import Output, Record, Role
from assay_stream.worker.metrics import Metrics

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
    """Holds back partitions of evidence that are ahead of the slowest one, by event time.

    Their records would wait behind this stage, in memory. Only partitions of this process with records to read count:
    one that was read to its end holds nobody back.
    """

    def __init__(self) -> None:
        self.changes = 0
        """How often a partition has moved."""
        self._times_us: dict[tuple[str, int], int] = {}

    def may_go_on(self, place: tuple[str, int], time_us: int) -> bool:
        """Tell whether a partition that was read to an event time may be read further."""
        if self._times_us.get(place) != time_us:
            self._times_us[place] = time_us
            self.changes += 1
        # A copy, since each partition has a thread of its own.
        return time_us <= min(list(self._times_us.values())) + DEFAULT_LIMITS.agent_disorder_ms * 1_000

    def leave(self, place: tuple[str, int]) -> None:
        """Note that a partition has no more records, or is read by another process."""
        if self._times_us.pop(place, None) is not None:
            self.changes += 1


class RekeyStage(Stage[Rekeyed]):
    """The records of one input topic, under the keys of agents. See ``Stage`` for the arguments.

    Args:
        partitions: how many partitions the agents' input topic has.
    """

    def __init__(
        self, name: str, role: Role, agents: AgentSet, *, clients: Clients, topics: Mapping[Role, str], partitions: int
    ) -> None:
        super().__init__(
            name,
            (role,),
            clients=clients,
            topics=topics,
            new_state=lambda number: Rekeyed(agents, number, partitions=partitions),
            piece_records=_PIECE_RECORDS,
        )


class EvidenceRekeyStage(RekeyStage):
    """The evidence, under the keys of agents, behind the other inputs. See ``RekeyStage`` for other arguments.

    Args:
        preceding: tells when the agents' input topic holds what goes there before.
    """

    def __init__(self, *arguments: Any, preceding: UpstreamStages | None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._topic = self._topics[Role.EVIDENCE]
        self._preceding = preceding
        self._pace = Pace()
        self._has_records: set[int] = set()

    @property
    def changes(self) -> int:
        """Grows whenever another partition has moved."""
        return self._pace.changes

    def close(self, partition: int) -> None:
        """Hold nobody back any more."""
        super().close(partition)
        self._pace.leave((self._topic, partition))

    async def note_ends(self) -> Mapping[TopicPartition, int]:
        """Wait until what follows from the same calls, and from lists before them, is in the agents' input topic."""
        if self._preceding is not None:
            await self._preceding.complete()
        return {}

    def admit(self, records: Sequence[Record], _: object) -> int:
        """Admit all, or none while the slowest partition is far behind."""
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
            new_state=lambda number: AgentState(
                agents, number, input_topic=topics[Role.AGENT_INPUTS], ordered={topics[Role.EVIDENCE]}
            ),
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

    async def note_quiet(self, partition: int) -> None:
        """Look up again ends that were not known yet."""
        if self._states[partition].needs_ends:
            self._ends[partition] = await self._upstream.complete()

    def admit(self, records: Any, ends: Mapping[TopicPartition, int]) -> int:
        """Admit all: the state keeps what is not ready. The ends are for what was read before they were looked up."""
        self._ends[records[0].origin.partition] = ends
        return len(records)

    def punctuate(self, partition: int) -> list[Output]:
        """Return what agents find now that the ends for the records in hand are known."""
        ends = self._ends.pop(partition, None)
        return [] if ends is None else self._states[partition].note_ends(ends)


def process(state: Rekeyed | AgentState, record: Record) -> list[Output]:
    return state.process(record)
