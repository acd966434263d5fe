"""One transaction for what the partition tasks of a worker have ready: while one is committed, the next one fills.

What keeps others out (``docs/adr/0003``):

1. The worker's producer has the transactional id of one of its partitions. Whoever takes a partition over takes its id,
   so of the partitions of a worker that is gone the first one taken over, or a later one, ends its open transaction.
2. Offsets are committed with the generation in which their partition was opened: the coordinator refuses older ones.
3. Positions are read once no open transaction has offsets of the partition, and state after them.

A transaction that fails for several partitions is tried again for each of them alone.
"""

import asyncio
import copy
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import structlog
from aiokafka import TopicPartition
from aiokafka.errors import IllegalStateError, KafkaError
from aiokafka.producer.message_accumulator import BatchBuilder

from assay_stream.kafka.group_producer import GroupProducer
from assay_stream.kafka.group_protocol import GroupMember
from assay_stream.kafka.transport import Gathered
from assay_stream.model.record import Role

_log = structlog.get_logger(__name__)

_CLOSE_LIMIT_S = 10.0
_GATHER_S = 0.01
"""Less than a transaction takes, and enough for the small batches of a join that keeps up."""
_GATHER_OUTPUTS = 1_000
"""What is worth a transaction: it is better written while the others are at work."""
_LOOK_S = 0.001


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Part:
    """What one partition has ready."""

    partition: int
    gathered: Gathered
    offsets: Mapping[TopicPartition, tuple[int, str]]
    member: GroupMember
    done: asyncio.Future[None]


class SharedWriter:
    """The producer that the partition tasks of a stage share.

    Args:
        producer_of: returns a producer, not started, with the transactional id of a partition.
        working: returns how many partitions have records in hand, those that wait for their transaction included.
    """

    def __init__(
        self,
        producer_of: Callable[[int], GroupProducer],
        *,
        working: Callable[[], int],
        topics: Mapping[Role, str],
        partition_counts: Mapping[Role, int],
    ) -> None:
        self._producer_of = producer_of
        self._working = working
        self._topics = topics
        self._partition_counts = partition_counts
        self._open: set[int] = set()
        self._producer: GroupProducer | None = None
        self._create_batch: Callable[[], BatchBuilder] | None = None
        self._own: int | None = None
        """The partition whose transactional id the producer has; ``None`` where it must be replaced."""
        self._last = -1
        """The partition whose transactional id was used last."""
        self._waiting: list[_Part] = []
        self._alone: set[int] = set()
        """Partitions of a shared transaction that failed: written by themselves until that has worked."""
        self._in_hand: dict[int, asyncio.Event] = {}
        """Partitions in the transaction that is written now, each with what tells that it has ended."""
        self._committing: asyncio.Task[None] | None = None
        self._taking = asyncio.Lock()

    async def open(self, partition: int) -> None:
        """Take the transactional id of a partition: what its previous owner left open with it is ended."""
        # A task that was dropped may have left a part that is written: its offsets are to be read after that.
        if partition in self._in_hand:
            await self._in_hand[partition].wait()
        superfluous: GroupProducer | None
        taker = superfluous = self._producer_of(partition)
        try:
            await taker.start()
            self._create_batch = taker.create_batch
            self._open.add(partition)
            if self._committing is not None and not self._committing.done():
                return
            async with self._taking:
                if self._own is None and (self._last == partition or self._last not in self._open):
                    superfluous, self._producer = self._producer, taker
                    self._own = self._last = partition
            # What could not be aborted is ended now: this partition's offsets may be part of it.
            await self._started()
        finally:
            await _stop(superfluous)

    async def close(self, partition: int) -> None:
        """Let a partition go; its transactional id may be another worker's next."""
        self._open.discard(partition)
        if self._own == partition:
            self._own = None
        if not self._open:
            producer, self._producer, self._own = self._producer, None, None
            await _stop(producer)

    def gather(self) -> Gathered:
        """Return what takes the outputs of one partition."""
        if self._create_batch is None:
            raise AssertionError("a partition was opened")
        return Gathered(self._create_batch, self._topics, self._partition_counts)

    async def write(
        self, partition: int, gathered: Gathered, offsets: Mapping[TopicPartition, tuple[int, str]], member: GroupMember
    ) -> None:
        """Write what a partition has ready with the next transaction.

        Raises:
            KafkaError: nothing was written then, and the partition must be opened again.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Part(partition=partition, gathered=gathered, offsets=offsets, member=member, done=done))
        if self._committing is None or self._committing.done():
            self._committing = asyncio.create_task(self._commit_waiting(), name="shared-writer")
        await done

    async def _commit_waiting(self) -> None:
        while True:
            await self._gather()
            parts = self._take()
            if not parts:
                return
            ended = asyncio.Event()
            self._in_hand = {part.partition: ended for part in parts}
            try:
                await self._commit(parts)
            except BaseException as error:  # noqa: BLE001 - raised in each of the tasks that wait
                await self._fail(parts, error)
            else:
                self._alone -= {part.partition for part in parts}
                for part in parts:
                    if not part.done.done():
                        part.done.set_result(None)
            finally:
                self._in_hand = {}
                ended.set()

    async def _gather(self) -> None:
        """Wait a moment for partitions that have records in hand: they share a turn, and fetch together after it."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _GATHER_S
        while (
            len(self._waiting) < self._working()
            and sum(part.gathered.labels.total() for part in self._waiting) < _GATHER_OUTPUTS
            and loop.time() < deadline
        ):
            await asyncio.sleep(_LOOK_S)

    def _take(self) -> list[_Part]:
        """Return what goes into the next transaction: parts of one generation, or one of a partition that is alone."""
        self._waiting = [part for part in self._waiting if not part.done.cancelled()]
        if not self._waiting:
            return []
        first = self._waiting[0]
        parts = [
            part
            for part in self._waiting
            if part is first or (part.member == first.member and not {first.partition, part.partition} & self._alone)
        ]
        self._waiting = [part for part in self._waiting if part not in parts]
        return parts

    async def _commit(self, parts: list[_Part]) -> None:
        producer = await self._started()
        batches: dict[tuple[str, int], list[BatchBuilder]] = {}
        for part in parts:
            for place, builders in part.gathered.batches.items():
                batches[place] = [*batches.get(place, ()), *builders]
        offsets = {tp: position for part in parts for tp, position in part.offsets.items()}
        await producer.write(batches, offsets, parts[0].member)

    async def _fail(self, parts: list[_Part], error: BaseException) -> None:
        _log.warning("transaction_failed", partitions=sorted(part.partition for part in parts), error=repr(error))
        if len(parts) > 1:
            self._alone |= {part.partition for part in parts}
        # The id may be another worker's by now, so it is not taken again before the group says that it is ours. What
        # is open must end at once: whoever owns the partitions next waits for their offsets.
        self._own = None
        if self._producer is not None:
            with suppress(KafkaError, OSError, TimeoutError):
                await asyncio.wait_for(self._producer.abort(), _CLOSE_LIMIT_S)
        for part in parts:
            if not part.done.done():
                part.done.set_exception(copy.copy(error))

    async def _started(self) -> GroupProducer:
        """Return the producer, in place of one that failed or whose id may be another worker's."""
        async with self._taking:
            if self._producer is not None and self._own is not None:
                return self._producer
            if not self._open:
                raise IllegalStateError("no partition is open")
            # What could not be aborted is ended by taking the same id.
            partition = self._last if self._last in self._open else min(self._open)
            replaced, producer = self._producer, self._producer_of(partition)
            self._producer = producer
            await _stop(replaced)
            await producer.start()
            self._own = self._last = partition
            return producer


async def _stop(producer: GroupProducer | None) -> None:
    if producer is not None:
        # One that is fenced or cut off cannot end in order, and need not.
        with suppress(KafkaError, TimeoutError, asyncio.TimeoutError):
            await asyncio.wait_for(producer.stop(), _CLOSE_LIMIT_S)


class PartWriter:
    """Writes for one partition through the producer of its worker, as ``TransactionalWriter`` does through its own."""

    def __init__(self, shared: SharedWriter, partition: int) -> None:
        self._shared = shared
        self._partition = partition

    async def open(self) -> None:
        await self._shared.open(self._partition)

    def gather(self) -> Gathered:
        """Return what takes the outputs of one transaction."""
        return self._shared.gather()

    async def write(
        self, gathered: Gathered, offsets: Mapping[TopicPartition, int], group: GroupMember, *, metadata: str = ""
    ) -> None:
        """Write outputs and commit input offsets in one transaction, with those of other partitions or alone.

        Args:
            offsets: next offset to read of each input partition.

        Raises:
            KafkaError: nothing was written then; the writer must be closed.
        """
        positions = {tp: (offset, metadata) for tp, offset in offsets.items()}
        await self._shared.write(self._partition, gathered, positions, group)

    async def close(self) -> None:
        """Let the partition go."""
        await self._shared.close(self._partition)
