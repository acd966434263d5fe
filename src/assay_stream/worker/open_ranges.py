"""Opens a sealer's ranges: fences the previous sealer, then reads the checkpoint at which each partition goes on."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from assay_stream.errors import InputError, IntegrityError
from assay_stream.kafka.connection import Clients, TopicPartition
from assay_stream.kafka.transport import TransactionalWriter, read_last
from assay_stream.model.checkpoint import Checkpoint
from assay_stream.model.record import Record, Role
from assay_stream.schemes import ed25519
from assay_stream.seal.checkpoint import TreeLeaf, decode, leaf_of
from assay_stream.seal.heads import is_known


@dataclass(slots=True, kw_only=True)
class OpenRange:
    """The range of one partition that is not sealed yet.

    Args:
        leaves: what is read and not sealed yet.
        since_s: when the first of them was read, by the monotonic clock.
    """

    partition: int
    writer: TransactionalWriter
    before: Checkpoint | None = None
    leaves: list[TreeLeaf] = field(default_factory=list)
    since_s: float = 0.0

    def take(self, record: Record, now_s: float) -> None:
        if not self.leaves:
            self.since_s = now_s
        self.leaves.append((record.origin.offset, leaf_of(record)))


class RangeOpener:
    """Opens one range for each partition of the evidence.

    Args:
        group_id: begins the transactional ids, so that opening fences the previous sealer.
        partitions: how many partitions the evidence and the checkpoint topic have.
        trusted: keys whose checkpoints are continued, by their id.
    """

    def __init__(
        self, clients: Clients, topics: Mapping[Role, str], group_id: str, *, partitions: int, trusted: ed25519.Keys
    ) -> None:
        self._clients = clients
        self._topics = topics
        self._group_id = group_id
        self._partitions = partitions
        self._trusted = trusted

    async def open(self) -> dict[int, OpenRange]:
        """Return the ranges by partition: all open, or none.

        Raises:
            InputError: ``checkpoint_not_continued`` where the last checkpoint of a partition is not ours.
            IntegrityError: ``checkpoints_cut_off`` where checkpoints are gone from the end of their log.
        """
        parts = {number: self._range(number) for number in range(self._partitions)}
        try:
            opened = await asyncio.gather(*(part.writer.open() for part in parts.values()), return_exceptions=True)
            # Only when all have ended: one that is still opening cannot be closed.
            for error in opened:
                if error is not None:
                    raise error
            for part in parts.values():
                part.before = await self._last_checkpoint(part.partition)
            check_siblings(parts)
        except BaseException:
            await close_ranges(parts)
            raise
        return parts

    def _range(self, number: int) -> OpenRange:
        writer = TransactionalWriter(
            self._clients.producer(f"{self._group_id}-{number}"),
            topics=self._topics,
            partition_counts={Role.CHECKPOINTS: self._partitions},
        )
        return OpenRange(partition=number, writer=writer)

    async def _last_checkpoint(self, number: int) -> Checkpoint | None:
        partition = TopicPartition(self._topics[Role.CHECKPOINTS], number)
        record = await read_last(self._clients.consumer(), Role.CHECKPOINTS, partition)
        if record is None:
            return None
        try:
            found = decode(record.value, self._trusted).checkpoint
            if (found.topic, found.partition) != (self._topics[Role.EVIDENCE], number):
                raise InputError("checkpoint_of_another_log", "it is about another log")
        except InputError as error:
            raise InputError(
                "checkpoint_not_continued",
                f"the last checkpoint of partition {number} (offset {record.origin.offset} of {partition.topic}) "
                f"is not continued ({error.code}). If another key signed it, give its public key with "
                "--also-trust; otherwise find out who wrote it",
            ) from None
        return found


async def close_ranges(parts: Mapping[int, OpenRange]) -> None:
    """Close the producers of the ranges."""
    await asyncio.gather(*(part.writer.close() for part in parts.values()))


def check_siblings(parts: Mapping[int, OpenRange]) -> None:
    """Refuse to go on where a partition has lost checkpoints that another one knows of."""
    for part in parts.values():
        if part.before is None:
            continue
        for head in part.before.siblings:
            other = parts.get(head.partition)
            if other is None or not is_known(head, None if other.before is None else other.before.head):
                raise IntegrityError(
                    "checkpoints_cut_off",
                    f"partition {part.partition} was sealed after {head.tree_size} records of partition "
                    f"{head.partition}, whose checkpoints do not go as far: restore their topic, and run "
                    "assay-stream seal verify",
                )
