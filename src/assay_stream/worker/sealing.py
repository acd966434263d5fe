"""The sealer: follows every partition of the evidence, and writes a signed checkpoint over each range.

1. One transactional producer for each partition. Opening it shuts out whoever sealed this partition before.
2. Only then is the last checkpoint read. It must be signed by a key that counts here; it says where to go on.
3. A checkpoint goes to the partition of its evidence, in a transaction with the offset up to which is sealed. That
   offset is for those who watch the lag of ``<group_prefix>-seal``; nothing here reads it.
4. What fails leaves the partitions unusable: all are closed and opened anew, from 1. A sealer that was shut out
   ends.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError, ProducerFenced
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from assay_stream import __version__
from assay_stream.config import Settings
from assay_stream.errors import ConfigurationError, InputError, IntegrityError, OperatingError
from assay_stream.kafka.connection import reading_consumer
from assay_stream.kafka.refusals import explained
from assay_stream.kafka.topics import topic_names
from assay_stream.kafka.transport import TransactionalWriter, record_of
from assay_stream.model.checkpoint import Checkpoint
from assay_stream.model.record import Output, Record, Role
from assay_stream.schemes import dsse
from assay_stream.seal.checkpoint import Leaf, decode, encode, leaf_of, sealed
from assay_stream.seal.heads import is_known

if TYPE_CHECKING:
    from assay_stream.worker.metrics import StageMeter

_log = structlog.get_logger(__name__)

_MAY_PASS = (KafkaError, OSError, TimeoutError)
_REOPENINGS_MAX = 10
_PAUSE_S = 1.0
_CLOSE_LIMIT_S = 5.0
_LOOK_BACK_RECORDS = 8


@dataclass(slots=True, kw_only=True)
class Lane:
    """One partition that is being sealed.

    Args:
        partition: its number.
        writer: writes its checkpoints.
        before: its last checkpoint.
        leaves: what is read and not sealed yet.
        since_s: when the first of them was read, by the monotonic clock.
    """

    partition: int
    writer: TransactionalWriter
    before: Checkpoint | None = None
    leaves: list[Leaf] = field(default_factory=list)
    since_s: float = 0.0

    def take(self, record: Record, now_s: float) -> None:
        """Add a record to the range that is open.

        Args:
            record: the next record of the partition.
            now_s: the monotonic clock.
        """
        if not self.leaves:
            self.since_s = now_s
        self.leaves.append((record.origin.offset, leaf_of(record)))


class Sealer:
    """Seals until told to stop, or until everything that was there is sealed.

    Args:
        settings: the operator's settings.
        key: signs.
        trusted: keys whose checkpoints are continued, by their id; the own one among them.
        partitions: how many partitions the evidence and the checkpoint topic have.
        every_records: records of one range at most.
        every_s: how long a record waits for its checkpoint at most.
        log_name: begins the origin of signed notes.
        now: the time for ``sealed_at``, RFC 3339, and in milliseconds.
    """

    def __init__(
        self,
        settings: Settings,
        key: Ed25519PrivateKey,
        trusted: dsse.Keys,
        *,
        partitions: int,
        every_records: int,
        every_s: float,
        log_name: str,
        now: Callable[[], tuple[str, int]],
    ) -> None:
        self._settings = settings
        self.meter: StageMeter | None = None
        """Where to count, if anywhere."""
        self._consumer: AIOKafkaConsumer | None = None
        self._moved_s = time.monotonic()
        self._key = key
        self._trusted = trusted
        self._partitions = partitions
        self._every_records = every_records
        self._every_s = every_s
        self._log_name = log_name
        self._now = now
        self._topics = topic_names(settings)
        self._group_id = f"{settings.group_prefix}-seal"
        self._lanes: dict[int, Lane] = {}
        self._ends: dict[TopicPartition, int] = {}
        """Where the evidence ended when the lanes were opened."""
        self._written = 0
        self._failures = 0
        """How often in a row sealing failed, quiet turns in between or not."""
        self._stopping = asyncio.Event()

    @property
    def ready(self) -> bool:
        """Whether every partition is open, and what was read last could be sealed."""
        return bool(self._lanes) and not self._failures

    @property
    def still_s(self) -> float:
        """For how long no turn was taken."""
        return time.monotonic() - self._moved_s

    def note_gauges(self) -> None:
        """Note how much evidence of each partition is not sealed yet."""
        if self.meter is None or self._consumer is None or not self._lanes:
            return
        behind = {}
        for partition in self._consumer.assignment():
            end = self._consumer.last_stable_offset(partition)
            before = self._lanes[partition.partition].before
            sealed_to = 0 if before is None else before.last_offset + 1
            if end is not None and end >= 0:
                behind[(partition.topic, partition.partition)] = end - sealed_to
        self.meter.lags(behind)
        # What is read and not sealed yet is all that is kept.
        self.meter.state(sum(len(lane.leaves) for lane in self._lanes.values()))

    def stop(self) -> None:
        """Ask it to seal what it has read, and return."""
        self._stopping.set()

    async def run(self, *, once: bool = False) -> None:
        """Seal.

        Args:
            once: seal what is there now, and return.

        Raises:
            ConfigurationError: ``sealer_fenced`` where another sealer has taken over.
            InputError: ``checkpoint_not_continued`` where the last checkpoint of a partition is not ours.
            IntegrityError: ``evidence_cut_off`` where sealed evidence is gone from the end of its log;
                ``checkpoints_cut_off`` where checkpoints are.
            OperatingError: ``brokers_failing``.
        """
        consumer = self._consumer = reading_consumer(self._settings)
        try:
            await consumer.start()
            while True:
                try:
                    if await self._turn(consumer, once=once):
                        return
                except ProducerFenced:
                    raise ConfigurationError(
                        "sealer_fenced", "another sealer has taken over: run one for each deployment"
                    ) from None
                except _MAY_PASS as error:
                    await self._recover(error)
        finally:
            await self._close_lanes()
            with suppress(KafkaError, OSError, TimeoutError):
                await asyncio.wait_for(consumer.stop(), _CLOSE_LIMIT_S)

    async def _turn(self, consumer: AIOKafkaConsumer, *, once: bool) -> bool:
        """Read and seal a little, and say whether that was all."""
        self._moved_s = time.monotonic()
        if not self._lanes:
            await self._open_lanes(consumer)
            if self.meter is not None:
                self.meter.opened(self._partitions, seconds=time.monotonic() - self._moved_s)
        fetched = await consumer.getmany(
            timeout_ms=self._settings.poll_timeout_ms, max_records=self._settings.batch_records_max
        )
        written = self._written
        for partition, messages in fetched.items():
            lane = self._lanes[partition.partition]
            for message in messages:
                lane.take(record_of(Role.EVIDENCE, message), time.monotonic())
                if len(lane.leaves) >= self._every_records:
                    await self._seal(lane)
        is_done = self._stopping.is_set() or (once and await self._is_at_end(consumer))
        for lane in self._lanes.values():
            if lane.leaves and (is_done or time.monotonic() - lane.since_s >= self._every_s):
                await self._seal(lane)
        if self._written > written:
            # A turn with nothing to seal proves nothing.
            self._failures = 0
        return is_done

    async def _is_at_end(self, consumer: AIOKafkaConsumer) -> bool:
        for partition, end in self._ends.items():
            if await consumer.position(partition) < end:
                return False
        return True

    async def _seal(self, lane: Lane) -> None:
        started_s = time.monotonic()
        sealed_at, now_ms = self._now()
        made = sealed(
            lane.before,
            lane.leaves,
            topic=self._topics[Role.EVIDENCE],
            partition=lane.partition,
            sealed_at=sealed_at,
            key=self._key,
            software=f"assay-stream {__version__}",
            partitions=self._partitions,
            log_name=self._log_name,
            siblings=[other.before.head for other in self._lanes.values() if other.before is not None],
        )
        checkpoint = made.checkpoint
        output = Output(
            role=Role.CHECKPOINTS,
            key=None,
            value=encode(made),
            timestamp_ms=now_ms,
            partition=lane.partition,
            label="checkpoint",
        )
        sealed_to = {TopicPartition(checkpoint.topic, lane.partition): checkpoint.last_offset + 1}
        writing_s = time.monotonic()
        gathered = lane.writer.gather()
        gathered.add([output])
        await lane.writer.write(gathered, sealed_to, self._group_id)
        if self.meter is not None:
            self.meter.transaction(time.monotonic() - writing_s)
            self.meter.batch(len(lane.leaves), {output.label: 1}, seconds=time.monotonic() - started_s)
        lane.before, lane.leaves = checkpoint, []
        self._written += 1
        _log.info(
            "checkpoint_written",
            partition=lane.partition,
            sequence=checkpoint.sequence,
            records=checkpoint.records,
            tree_size=checkpoint.tree_size,
            last_offset=checkpoint.last_offset,
        )

    async def _open_lanes(self, consumer: AIOKafkaConsumer) -> None:
        lanes = {number: self._lane(number) for number in range(self._partitions)}
        try:
            opened = await asyncio.gather(*(lane.writer.open() for lane in lanes.values()), return_exceptions=True)
            # Only when all have ended: one that is still opening cannot be closed.
            for error in opened:
                if error is not None:
                    raise error
            for lane in lanes.values():
                lane.before = await self._last_checkpoint(lane.partition)
            self._check_siblings(lanes)
            await self._go_on(consumer, lanes)
        except BaseException:
            await asyncio.gather(*(lane.writer.close() for lane in lanes.values()))
            raise
        self._lanes = lanes
        _log.info("sealing", partitions=self._partitions, key_id=dsse.key_id(self._key.public_key()))

    def _check_siblings(self, lanes: dict[int, Lane]) -> None:
        """Refuse to go on where a partition has lost checkpoints that another one knows of."""
        for lane in lanes.values():
            if lane.before is None:
                continue
            for head in lane.before.siblings:
                other = lanes.get(head.partition)
                if other is None or not is_known(head, None if other.before is None else other.before.head):
                    raise IntegrityError(
                        "checkpoints_cut_off",
                        f"partition {lane.partition} was sealed after {head.tree_size} records of partition "
                        f"{head.partition}, whose checkpoints do not go as far: restore their topic, and run "
                        "assay-stream seal verify",
                    )

    def _lane(self, number: int) -> Lane:
        counts = {Role.CHECKPOINTS: self._partitions}
        transactional_id = f"{self._group_id}-{number}"
        writer = TransactionalWriter(
            self._settings, transactional_id=transactional_id, topics=self._topics, partition_counts=counts
        )
        return Lane(partition=number, writer=writer)

    async def _last_checkpoint(self, number: int) -> Checkpoint | None:
        partition = TopicPartition(self._topics[Role.CHECKPOINTS], number)
        record = await last_record(self._settings, Role.CHECKPOINTS, partition)
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

    async def _go_on(self, consumer: AIOKafkaConsumer, lanes: dict[int, Lane]) -> None:
        """Go to the first record of each partition that is not sealed."""
        partitions = {TopicPartition(self._topics[Role.EVIDENCE], number): lane for number, lane in lanes.items()}
        consumer.assign(list(partitions))
        beginnings = await consumer.beginning_offsets(list(partitions))
        self._ends = await consumer.end_offsets(list(partitions))
        for partition, lane in partitions.items():
            beginning = beginnings[partition]
            following = beginning if lane.before is None else lane.before.last_offset + 1
            if following > self._ends[partition]:
                raise IntegrityError(
                    "evidence_cut_off",
                    f"{partition.topic}/{partition.partition} ends at offset {self._ends[partition]} and is "
                    f"sealed up to {following - 1}: alter neither topic, and run assay-stream seal verify",
                )
            if lane.before is not None and following < beginning:
                if self.meter is not None:
                    self.meter.lost(beginning - following)
                _log.error(
                    "input_expired",
                    partition=partition.partition,
                    first_lost_offset=following,
                    lost=beginning - following,
                )
            consumer.seek(partition, max(following, beginning))

    async def _recover(self, error: Exception) -> None:
        told = explained(error)
        if isinstance(told, ConfigurationError):
            raise told from error
        failures = self._failures = self._failures + 1
        if self.meter is not None:
            self.meter.reopened()
        _log.warning("lanes_reopening", stage="seal", error=type(error).__name__, attempt=failures)
        if failures > _REOPENINGS_MAX or self._stopping.is_set():
            raise OperatingError(
                "brokers_failing",
                f"sealing failed {failures} times, last with {type(error).__name__}: see the brokers' logs",
            ) from error
        await self._close_lanes()
        with suppress(TimeoutError):
            async with asyncio.timeout(_PAUSE_S * failures):
                await self._stopping.wait()

    async def _close_lanes(self) -> None:
        lanes, self._lanes = self._lanes, {}
        await asyncio.gather(*(lane.writer.close() for lane in lanes.values()))


async def last_record(settings: Settings, role: Role, partition: TopicPartition) -> Record | None:
    """Return the last committed record of a partition, ``None`` where it holds none.

    Args:
        settings: the operator's settings.
        role: what the topic carries.
        partition: topic and partition.
    """
    consumer = reading_consumer(settings)
    consumer.assign([partition])
    try:
        await consumer.start()
        beginning = (await consumer.beginning_offsets([partition]))[partition]
        end = (await consumer.end_offsets([partition]))[partition]
        found, back = None, _LOOK_BACK_RECORDS
        # Transactions leave markers, and aborted ones records that are not seen: look further back until one is.
        while found is None:
            start = max(beginning, end - back)
            consumer.seek(partition, start)
            while await consumer.position(partition) < end:
                fetched = await consumer.getmany(partition, timeout_ms=200)
                for message in fetched.get(partition, []):
                    found = record_of(role, message)
            if start == beginning:
                break
            back *= 8
        return found
    finally:
        await consumer.stop()
