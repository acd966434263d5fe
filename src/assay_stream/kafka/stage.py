"""A stage: its topics, its state for each partition, the thread that works on it, and the transactions it writes.

Processing is up to the agent: a coroutine function that takes a ``Batch``. It runs steps in the state's thread. Python
switches threads every few milliseconds, so a record that costs seconds delays the event loop by milliseconds.
"""

from __future__ import annotations

import asyncio
import gzip
import queue
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError
from aiokafka.producer.message_accumulator import BatchBuilder

from assay_stream.canonical.digest import sha256_of
from assay_stream.config import Settings
from assay_stream.errors import OperatingError
from assay_stream.kafka.connection import Clients, KafkaClients, read_partition
from assay_stream.kafka.topics import ACCESS, STAGES, AccessRole, topic_names
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.record import Output, Record, Role, murmur2_partition, size_bytes
from assay_stream.model.state_table import KEY, read_level, write_level

Result = TypeVar("Result")

_CLOSE_LIMIT_S = 10.0
_ERROR_HEADERS = 5
_REJECTED = Role.REJECTED
REJECTED_BYTES_MAX = DEFAULT_LIMITS.record_bytes_max + 512 * 1_024
"""Between the largest input and the limit of the rejected topic, which is a mebibyte above it."""

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

        def settle(give: Callable[[Any], None], what: object) -> None:
            if not answer.done():
                give(what)

        def hand_over(give: Callable[[Any], None], what: object) -> None:
            # Once the loop is closed, nothing awaits the answer.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(settle, give, what)

        def call() -> None:
            try:
                result = function(*arguments)
            except MemoryError as error:
                # What the frames hold is what fills the memory.
                traceback.clear_frames(error.__traceback__)
                hand_over(answer.set_exception, OUT_OF_MEMORY)
            except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
                hand_over(answer.set_exception, error)
            else:
                hand_over(answer.set_result, result)

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


@dataclass(eq=False, repr=False)
class Stage(Generic[State]):
    """A stage, with separate state for each partition or none.

    State belongs to a thread. ``admit``, ``flush`` and ``punctuate`` are called in it, all else in the event loop.

    Args:
        name: names the consumer group, the transactional ids, the log lines and the metrics.
        input_roles: input topics; within a partition, records of earlier roles go first.
        state_role: the compacted topic of the state; ``None`` for a stateless stage.
        shared_thread: the common thread of partitions that share state; by default each has its own.
        piece_records: records processed between clock checks; many where each takes microseconds.
    """

    name: str
    input_roles: tuple[Role, ...]
    topology: Topology
    _: KW_ONLY
    new_state: Callable[[int], State]
    state_role: Role | None = None
    shared_thread: StateThread | None = None
    piece_records: int = 1

    def __post_init__(self) -> None:
        self.level = 1
        """The format level that was finalised; to be set before partitions are opened."""
        self._marked: dict[int, int] = {}
        """The format level that each open partition of the state topic is marked with."""
        self._states: dict[int, State] = {}
        self._threads: dict[int, StateThread] = {}

    @property
    def outputs(self) -> list[TopicPartition]:
        """Every partition that it may write to."""
        writes = ACCESS[AccessRole(self.name) if self.name in STAGES else AccessRole.AGENTS].writes
        return self.topology.places(*(role for role in writes if role in self.topology.counts))

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
        state, self._marked[partition] = self.new_state(partition), 1
        if self.state_role is not None:
            log = TopicPartition(self.topology.names[self.state_role], partition)
            async for record in read_partition(self.topology.clients.consumer(), self.state_role, log):
                if record.key == KEY:
                    self._marked[partition] = read_level(record)
                else:
                    state.restore(record)
        state.level = self.level
        self._states[partition] = state
        self._threads[partition] = self.shared_thread or StateThread(f"{self.name}-{partition}")
        return {TopicPartition(topic, partition): offset for topic, offset in state.restored().items()}

    def close(self, partition: int) -> None:
        """Drop the state of a partition, which need not be open."""
        self._states.pop(partition, None)
        thread = self._threads.pop(partition, None)
        if thread is not None and thread is not self.shared_thread:
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


@dataclass(eq=False, repr=False)
class Gathered:
    """The outputs of one transaction, copied into the batches to send, so that none has to be kept.

    Args:
        create_batch: creates a batch of the sending producer.

    Attributes:
        batches: by topic and partition.
        labels: number of outputs by label.
    """

    create_batch: Callable[[], BatchBuilder]
    topology: Topology
    batches: dict[tuple[str, int], list[BatchBuilder]] = field(default_factory=dict, init=False)
    labels: Counter[str] = field(default_factory=Counter, init=False)

    def add(self, outputs: Sequence[Output]) -> None:
        self.labels.update([output.label for output in outputs])
        for output in outputs:
            role, partition = output.role, output.partition
            if partition is None:
                partition = murmur2_partition(output.key or b"", self.topology.counts[role])
            builders = self.batches.setdefault((self.topology.names[role], partition), [])
            if role is _REJECTED:
                output = fitting(output)
            if not builders or not _append(builders[-1], output):
                builders.append(self.create_batch())
                if not _append(builders[-1], output):
                    raise AssertionError("an empty batch takes any record")


@dataclass(eq=False, repr=False)
class TransactionalWriter:
    """Write outputs and input offsets of one input partition atomically.

    Opening it ends the transaction of the previous owner of its transactional id, and fences that owner for good.

    Args:
        group_id: owner of the offsets; no generation is needed, since the transactional id fences other owners.
        partition: makes its transactional id, with the group.
        inputs: what it commits offsets of.
        outputs: every partition that it may write to.
    """

    topology: Topology
    group_id: str
    partition: int
    _: KW_ONLY
    inputs: Collection[TopicPartition]
    outputs: Collection[TopicPartition]

    def __post_init__(self) -> None:
        self._producer = self.topology.clients.producer(f"{self.group_id}-{self.partition}")

    async def open(self) -> None:
        await self._producer.take_over(self.group_id, self.inputs, self.outputs)

    def gather(self) -> Gathered:
        return Gathered(self._producer.create_batch, self.topology)

    async def write(self, gathered: Gathered, offsets: Mapping[TopicPartition, int], *, metadata: str = "") -> None:
        """Write outputs and commit input offsets in one transaction.

        Args:
            offsets: next offset to read of each input partition.

        Raises:
            KafkaError: nothing was written; the writer must be closed.
        """
        producer = self._producer
        await producer.begin_transaction()
        deliveries = [
            await producer.send_batch(batch, topic, partition=partition)
            for (topic, partition), builders in gathered.batches.items()
            for batch in builders
        ]
        positions = {tp: (offset, metadata) for tp, offset in offsets.items()}
        await producer.send_offsets_to_transaction(positions, self.group_id)
        await asyncio.gather(*deliveries)
        await producer.commit_transaction()

    async def close(self) -> None:
        """Close the connection; an open transaction is left for the next owner or the broker to end."""
        # A fenced or unreachable producer cannot flush. What matters has been committed or never will be.
        with suppress(KafkaError, TimeoutError, asyncio.TimeoutError):
            await asyncio.wait_for(self._producer.stop(), _CLOSE_LIMIT_S)


def fitting(output: Output, *, bytes_max: int = REJECTED_BYTES_MAX) -> Output:
    """Return a rejected copy that fits its topic.

    A record that was small on the wire, being compressed, can be larger than any topic takes as it is. Its copy
    holds the value compressed (``error.value.encoding: gzip``). If even that does not fit, it holds the value's
    digest (``error.value.omitted``): the original stands where the ``error.topic``, ``.partition`` and ``.offset``
    headers say.

    Args:
        bytes_max: bytes of key, value and headers that fit.
    """
    if size_bytes(output.key, output.value, output.headers) <= bytes_max:
        return output
    value = output.value or b""
    # No name and no time: the same value gives the same bytes.
    packed = output._replace(
        value=gzip.compress(value, mtime=0), headers=(*output.headers, ("error.value.encoding", b"gzip"))
    )
    if size_bytes(packed.key, packed.value, packed.headers) <= bytes_max:
        return packed
    why = tuple(header for header in output.headers if header[0].startswith("error."))
    omitted = ("error.value.omitted", str(sha256_of(value)).encode())
    return output._replace(key=None, value=None, headers=(*why[-_ERROR_HEADERS:], omitted))


def _append(builder: BatchBuilder, output: Output) -> bool:
    appended = builder.append(
        timestamp=output.timestamp_ms, key=output.key, value=output.value, headers=list(output.headers)
    )
    return appended is not None
