"""A stage: its input topics, its state for each partition, the thread that works on it, and how far upstream ones are.

Processing is up to the agent: a coroutine function that takes a ``Batch``. It runs steps in the state's thread. Python
switches threads every few milliseconds, so a record that costs seconds delays the event loop by milliseconds.

Evidence, findings and alerts follow from what proxies and operators publish, with a delay. So one of their topics that
was read to its end may still lack something. Progress decides, not the clock (``docs/adr/0001``):

1. Read the end offsets of the published topics.
2. Wait until the stages that read them have committed those; then the same for the topics that they write and
   later stages read. Ends include open transactions: a commit shows before its records do.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from aiokafka import TopicPartition

from assay_stream.config import Settings
from assay_stream.errors import OperatingError
from assay_stream.kafka.connection import Clients, Consumer, KafkaClients
from assay_stream.kafka.log import read_partition
from assay_stream.kafka.part import Part
from assay_stream.kafka.topics import topic_names
from assay_stream.model.record import Output, Record, Role
from assay_stream.model.state_table import KEY, read_level, write_level

Result = TypeVar("Result")

OUT_OF_MEMORY = OperatingError(
    "out_of_memory",
    "the process is out of memory. Give it more, or more workers: docs/capacity.md says what a fleet "
    "takes. A record that needs too much by itself is set aside after some attempts",
)
"""Created in advance: there is no memory to create it later."""


class Topology:
    """The topics that the stages of a process read and write.

    Args:
        counts: how many partitions each role's topic has.
        clients: of their brokers, in place of those that the settings name.
        agents: name of the users' agents whose topics they are, if any.
    """

    def __init__(
        self, settings: Settings, counts: Mapping[Role, int], *, clients: Clients | None = None, agents: str = ""
    ) -> None:
        self.settings = settings
        self.counts = counts
        self.clients: Clients = KafkaClients(settings) if clients is None else clients
        self.names = topic_names(settings, agents=agents)

    def places(self, *roles: Role) -> list[TopicPartition]:
        return [TopicPartition(self.names[role], number) for role in roles for number in range(self.counts[role])]


class StateThread:
    """Run calls sequentially in a daemon thread."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._moved_s: float | None = None
        threading.Thread(target=self._work, name=name, daemon=True).start()

    @property
    def busy_s(self) -> float:
        """Seconds spent on the current item; 0 when idle."""
        moved_s = self._moved_s
        return 0.0 if moved_s is None else time.monotonic() - moved_s

    def note_progress(self) -> None:
        """Mark the start of the next item; call it in the thread."""
        self._moved_s = time.monotonic()

    def run(self, function: Callable[..., Result], *arguments: object) -> asyncio.Future[Result]:
        """Run a function in the thread, and return the future of its result.

        If the future is cancelled or set first, the function keeps running and its result is dropped.

        Raises:
            OperatingError: ``out_of_memory`` in place of ``MemoryError``.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Result] = loop.create_future()

        def call() -> None:
            try:
                result = function(*arguments)
            except MemoryError as error:
                # What the frames hold is what fills the memory.
                traceback.clear_frames(error.__traceback__)
                _hand_over(loop, answer.set_exception, answer, OUT_OF_MEMORY)
            except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
                _hand_over(loop, answer.set_exception, answer, error)
            else:
                _hand_over(loop, answer.set_result, answer, result)

        self._calls.put(call)
        return answer

    def close(self) -> None:
        self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            self.note_progress()
            call()
            self._moved_s = None
            # The last call holds a whole batch.
            del call


def _hand_over(
    loop: asyncio.AbstractEventLoop, give: Callable[[Any], None], answer: asyncio.Future[Any], what: object
) -> None:
    def settle() -> None:
        if not answer.done():
            give(what)

    # Once the loop is closed, nothing awaits the answer.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(settle)


class PartitionState(Protocol):
    """State of one input partition, kept in the same partition of a compacted topic; this base keeps none.

    ``model.state_table.Table`` is one that suits most agents.
    """

    level: int = 1
    """The format level that it may write (``model.state_table``); set once it is restored."""

    @property
    def entries(self) -> int:
        """Number of entries, for the metrics."""
        return 0

    def restore(self, record: Record) -> None:
        """Apply one record of the compacted topic."""
        return

    def restored(self) -> Mapping[str, int | None]:
        """Return the next offset of each input topic after restoring; ``None`` for its beginning.

        Topics not named continue from the group's committed offsets.
        """
        return {}

    def flush(self, positions: Mapping[str, int]) -> list[Output]:
        """Return outputs for the changes and the input progress (next offset by topic)."""
        return []

    def punctuate(self) -> list[Output]:
        """Return outputs triggered by time alone; called after every poll."""
        return []


class NoState(PartitionState):
    """State of a stateless stage."""


State = TypeVar("State", bound=PartitionState)


class Stage(Generic[State]):
    """A stage, with separate state for each partition or none.

    State belongs to a thread. ``admit``, ``flush`` and ``punctuate`` are called in it, all else in the event loop.

    Args:
        name: names the consumer group, the transactional ids, the log lines and the metrics.
        input_roles: input topics; within a partition, records of earlier roles go first.
        state_role: the compacted topic of the state; ``None`` for a stateless stage.
        thread: the common thread of partitions that share state; by default each has its own.
        piece_records: records processed between clock checks; many where each takes microseconds.
    """

    def __init__(
        self,
        name: str,
        input_roles: tuple[Role, ...],
        topology: Topology,
        *,
        new_state: Callable[[int], State],
        state_role: Role | None = None,
        thread: StateThread | None = None,
        piece_records: int = 1,
    ) -> None:
        self.name = name
        self.input_roles = input_roles
        self.piece_records = piece_records
        self.topology = topology
        self._new_state = new_state
        self.state_role = state_role
        self._shared_thread = thread
        self.level = 1
        """The format level that was finalised; to be set before partitions are opened."""
        self._marked: dict[int, int] = {}
        """The format level that each open partition of the state topic is marked with."""
        self._states: dict[int, State] = {}
        self._threads: dict[int, StateThread] = {}

    @property
    def entries(self) -> int:
        return sum(state.entries for state in self._states.values())

    @property
    def states(self) -> list[State]:
        """States of the open partitions; to be read only in their threads."""
        return list(self._states.values())

    @property
    def changes(self) -> int:
        """Increases whenever more records may have become ready."""
        return 0

    def state(self, partition: int) -> State:
        return self._states[partition]

    def thread(self, partition: int) -> StateThread:
        return self._threads[partition]

    async def open(self, partition: int) -> Mapping[TopicPartition, int | None]:
        """Restore the state of a partition, and return its input positions, which override the group's offsets.

        Offsets without the state that they led to would lose information. So without its progress record, or
        with part of its topic lost, a state starts empty and the input from its beginning (``None``).

        Raises:
            AssayStreamError: the topic holds what this release does not know (``model.state_table.UNREADABLE``).
        """
        state, self._marked[partition] = self._new_state(partition), 1
        if self.state_role is not None:
            log = TopicPartition(self.topology.names[self.state_role], partition)
            async for record in read_partition(self.topology.clients.consumer(), self.state_role, log):
                if record.key == KEY:
                    self._marked[partition] = read_level(record)
                else:
                    state.restore(record)
        state.level = self.level
        self._states[partition] = state
        self._threads[partition] = self._shared_thread or StateThread(f"{self.name}-{partition}")
        return {TopicPartition(topic, partition): offset for topic, offset in state.restored().items()}

    def close(self, partition: int) -> None:
        """Drop the state of a partition, which need not be open."""
        self._states.pop(partition, None)
        thread = self._threads.pop(partition, None)
        if thread is not None and thread is not self._shared_thread:
            thread.close()

    def needed_by(self, partition: int) -> int:
        """Return the number of what a partition depends on: partitions with the same one stay together."""
        return 0

    async def done_before(self, partition: int) -> Mapping[TopicPartition, int]:
        """Return positions before which everything is done, according to the stage's own output."""
        return {}

    async def upstream_ends(self) -> Mapping[TopicPartition, int]:
        """Return upstream positions that must be applied before the records fetched now are ready."""
        return {}

    def admit(self, records: Sequence[Record], ends: Mapping[TopicPartition, int]) -> int:
        """Return how many leading records are ready, given ``upstream_ends``; the others stay buffered."""
        return len(records)

    async def wait(self, limit_s: float, *, since: int) -> None:
        """Wait until ``changes`` exceeds ``since``, at most ``limit_s`` seconds."""

    def committed(self, records: Sequence[Record]) -> None:
        """Handle records whose outputs are committed."""

    def flush(self, partition: int, positions: Mapping[TopicPartition, int]) -> list[Output]:
        """Return outputs to write along with these input positions.

        The first ones of a partition mark its state topic with a new format level: they are written alone, before any
        record is processed (``kafka.partition``).
        """
        outputs = self._states[partition].flush({tp.topic: position for tp, position in positions.items()})
        if self.state_role is None or self.level <= self._marked[partition]:
            return outputs
        self._marked[partition] = self.level
        return [Output(self.state_role, KEY, write_level(self.level), partition=partition, label="format"), *outputs]

    def punctuate(self, partition: int) -> list[Output]:
        """Return outputs to write although nothing was read."""
        return self._states[partition].punctuate()


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
