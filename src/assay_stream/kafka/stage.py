"""A stage: which topics it reads, the state it keeps for each partition, and when a record is ready.

What happens to the records is the agent's: a coroutine function that takes a ``Batch``.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from aiokafka import TopicPartition

from assay_stream.kafka.connection import Clients
from assay_stream.kafka.log import read_partition
from assay_stream.kafka.state_thread import StateThread
from assay_stream.model.record import Output, Record, Role


class PartitionState(Protocol):
    """State of one input partition, kept in the same partition of a compacted topic; by itself, none.

    ``model.state_table.StateTable`` is one that suits most agents.
    """

    @property
    def entries(self) -> int:
        """How many entries it holds, for the metrics."""
        return 0

    def restore(self, record: Record) -> None:
        """Take in one record of the compacted topic."""
        return

    def restored(self) -> Mapping[str, int | None]:
        """Return the next offset of each input topic, once all is taken in; ``None`` for its beginning.

        What is not named goes on from the group's committed offsets.
        """
        return {}

    def flush(self, positions: Mapping[str, int]) -> list[Output]:
        """Return what changed and how far the input is read: next offset by topic."""
        return []

    def punctuate(self) -> list[Output]:
        """Return what time alone calls for; asked whenever a poll has ended."""
        return []


class NoState(PartitionState):
    """The state of a stage that keeps none."""


State = TypeVar("State", bound=PartitionState)


class Stage(Generic[State]):
    """A stage, with state of its own for each partition or with none.

    State belongs to a thread. ``admit``, ``flush`` and ``punctuate`` are called in it, all else in the event loop.

    Args:
        name: names the consumer group, the transactional ids, the log lines and the metrics.
        input_roles: what it reads; within a partition, records of earlier roles go first.
        state_role: the compacted topic that holds the state; ``None`` where nothing is kept.
        thread: what all partitions work in, where they share state; otherwise each has a thread of its own.
        piece_records: records processed between two looks at the clock; many where each takes microseconds.
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
        """How many entries the states hold."""
        return sum(state.entries for state in self._states.values())

    @property
    def states(self) -> list[State]:
        """The states of the open partitions; only their threads look into them."""
        return list(self._states.values())

    @property
    def changes(self) -> int:
        """Grows whenever more records may have become ready."""
        return 0

    def state(self, partition: int) -> State:
        return self._states[partition]

    def thread(self, partition: int) -> StateThread:
        return self._threads[partition]

    async def open(self, partition: int) -> Mapping[TopicPartition, int | None]:
        """Restore the state of a partition, and return where its input goes on: it overrides the group's offsets.

        Offsets without the state that they led to would lose what is known. So without its progress record, or
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
        """Drop the state of a partition; it need not be open."""
        self._states.pop(partition, None)
        thread = self._threads.pop(partition, None)
        if thread is not None and thread is not self._shared_thread:
            thread.close()

    def needed_by(self, partition: int) -> int:
        """Return a number that partitions share that need the same to be worked on."""
        return 0

    async def done_before(self, partition: int) -> Mapping[TopicPartition, int]:
        """Return positions before which everything is done, as the stage's own output shows."""
        return {}

    async def note_ends(self) -> Mapping[TopicPartition, int]:
        """Return upstream positions that must be applied before the records fetched now are ready."""
        return {}

    def admit(self, records: Sequence[Record], ends: Mapping[TopicPartition, int]) -> int:
        """Return how many leading records are ready."""
        return len(records)

    async def wait(self, limit_s: float, *, since: int) -> None:
        """Wait until ``changes`` is more than ``since``, or for the limit in seconds."""

    def committed(self, records: Sequence[Record]) -> None:
        """Take note of records whose outputs are committed."""

    def flush(self, partition: int, positions: Mapping[TopicPartition, int]) -> list[Output]:
        """Return what must be written with these input positions."""
        return self._states[partition].flush({tp.topic: position for tp, position in positions.items()})

    def punctuate(self, partition: int) -> list[Output]:
        """Return what must be written although nothing was read."""
        return self._states[partition].punctuate()


class StageMetrics:
    """Counts nothing; a host that serves metrics passes one that does."""

    def batch(self, records: int, labels: Mapping[str, int], *, seconds: float) -> None:
        """Count a committed batch: records read, outputs by label, time."""

    def done(self, records: int, labels: Mapping[str, int]) -> None:
        """Count records read, and outputs by label."""

    def transaction(self, seconds: float) -> None:
        """Time a committed transaction."""

    def lags(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Set how many offsets of each topic and partition are not processed yet."""

    def state(self, entries: int) -> None:
        """Set how many entries are kept in memory."""

    def buffered(self, records: int) -> None:
        """Set how many records wait for other stages."""

    def lost(self, offsets: int) -> None:
        """Count offsets that expired unread."""

    def reopened(self) -> None:
        """Count a failed batch."""

    def opened(self, partitions: int, *, seconds: float) -> None:
        """Note a take-over of partitions and how long it took, restoring included."""
