"""A stage: its input topics, its state for each partition, and when a record is ready.

Processing is up to the agent: a coroutine function that takes a ``Batch``.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from aiokafka import TopicPartition

from assay_stream.kafka.connection import Clients
from assay_stream.kafka.log import read_partition
from assay_stream.kafka.state_thread import StateThread
from assay_stream.model.record import Output, Record, Role


class PartitionState(Protocol):
    """State of one input partition, kept in the same partition of a compacted topic; this base keeps none.

    ``model.state_table.StateTable`` is one that suits most agents.
    """

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
        *,
        clients: Clients,
        topics: Mapping[Role, str],
        new_state: Callable[[int], State],
        state_role: Role | None = None,
        thread: StateThread | None = None,
        piece_records: int = 1,
    ) -> None:
        self.name = name
        self.input_roles = input_roles
        self.piece_records = piece_records
        self._clients = clients
        self._topics = topics
        self._new_state = new_state
        self.state_role = state_role
        self._shared_thread = thread
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
        """
        state = self._new_state(partition)
        if self.state_role is not None:
            log = TopicPartition(self._topics[self.state_role], partition)
            async for record in read_partition(self._clients.consumer(), self.state_role, log):
                state.restore(record)
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
        """Return a number shared by the partitions with the same dependencies."""
        return 0

    async def done_before(self, partition: int) -> Mapping[TopicPartition, int]:
        """Return positions before which everything is done, according to the stage's own output."""
        return {}

    async def note_ends(self) -> Mapping[TopicPartition, int]:
        """Return upstream positions that must be applied before the records fetched now are ready."""
        return {}

    def admit(self, records: Sequence[Record], ends: Mapping[TopicPartition, int]) -> int:
        return len(records)

    async def wait(self, limit_s: float, *, since: int) -> None:
        """Wait until ``changes`` exceeds ``since``, at most ``limit_s`` seconds."""

    def committed(self, records: Sequence[Record]) -> None:
        """Handle records whose outputs are committed."""

    def flush(self, partition: int, positions: Mapping[TopicPartition, int]) -> list[Output]:
        """Return outputs to write along with these input positions."""
        return self._states[partition].flush({tp.topic: position for tp, position in positions.items()})

    def punctuate(self, partition: int) -> list[Output]:
        """Return outputs to write although nothing was read."""
        return self._states[partition].punctuate()


class StageMetrics:
    """Metrics interface of a stage; this base records nothing."""

    def batch(self, records: int, labels: Mapping[str, int], *, seconds: float) -> None:
        """Count a committed batch: records read, outputs by label, time."""

    def done(self, records: int, labels: Mapping[str, int]) -> None:
        """Count records read, and outputs by label."""

    def transaction(self, seconds: float) -> None:
        """Time a committed transaction."""

    def lags(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Set the number of unprocessed offsets of each topic and partition."""

    def state(self, entries: int) -> None:
        """Set how many entries are kept in memory."""

    def buffered(self, records: int) -> None:
        """Set the number of records waiting for other stages."""

    def lost(self, offsets: int) -> None:
        """Count offsets that expired unread."""

    def reopened(self) -> None:
        """Count a failed batch."""

    def opened(self, partitions: int, *, seconds: float) -> None:
        """Record a take-over of partitions and its duration, restoring included."""
