"""The transactional batch task: the one mechanism that all stages run on.

A batch of an input partition is read, stepped, and its outputs and offsets are committed in one transaction.

1. One transactional producer per input partition (a *lane*, ``stream.lanes``). Opening it on assignment ends the
   old owner's transaction and shuts it out, so that a zombie can write nothing (``docs/adr/0003``).
2. A batch that fails leaves its lane unusable; all are closed and opened anew.
3. Nothing new is read while calls are held: what waits upstream is Kafka's to keep.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Mapping

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from assay_stream.config import Settings
from assay_stream.core.errors import ConfigurationError, OperatingError
from assay_stream.core.record import Record, Role
from assay_stream.refusals import explained
from assay_stream.stream.connection import reading_consumer
from assay_stream.stream.lanes import Lane, Lanes, every
from assay_stream.stream.meter import StageMeter
from assay_stream.stream.stage import Stage
from assay_stream.stream.transport import Gathered, positions_of, record_of

_log = structlog.get_logger(__name__)

_MAY_PASS = (KafkaError, OSError, TimeoutError)
"""What a broker that is away or busy causes: tried again, within a limit."""

_REOPENINGS_MAX = 10
_REOPENING_PAUSE_S = 1.0
_PROGRESS_WAIT_S = 0.25
_HELD_READY_LIMIT_S = 5.0
_PIECE_RECORDS = 500
"""Records stepped without a pause: half a second where a record has a millisecond, as on a starved machine."""
_POLL_INTERVAL_MS = 2**31 - 1
"""Calls may wait for the registry for ever, so a long time between two polls is no sign of death."""


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, task: BatchTask) -> None:
        self._task = task

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        await self._task.give_up()

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self._task.take_over({tp.partition for tp in assigned})


class BatchTask:
    """Runs a stage over its share of the input partitions until told to stop.

    Args:
        settings: the operator's settings.
        stage: what to do with the records.
        topics: topic name of every role.
        partition_counts: how many partitions each role's topic has.
        meter: where to count.
    """

    def __init__(
        self,
        settings: Settings,
        stage: Stage,
        *,
        topics: Mapping[Role, str],
        partition_counts: Mapping[Role, int],
        meter: StageMeter,
    ) -> None:
        self._settings = settings
        self._stage = stage
        self._meter = meter
        self._role_of = {topics[role]: role for role in stage.input_roles}
        self._group_id = f"{settings.group_prefix}-{stage.name}"
        self._lanes = Lanes(
            settings,
            stage,
            topics=topics,
            partition_counts=partition_counts,
            meter=meter,
            group_id=self._group_id,
        )
        self._assigned: set[int] = set()
        self._generation = 0
        self._settled = False
        """Whether the group has told what is ours: between a revocation and the next assignment nobody knows."""
        self._reopenings = 0
        self._failures: Counter[int] = Counter()
        """Partition to how often in a row its batch could not be written, quiet turns in between or not."""
        self._held_since_s: float | None = None
        self._batch_lock = asyncio.Lock()
        self._stepping = asyncio.Lock()
        self._moved_s = time.monotonic()
        self._is_opening = False
        self._stopping = asyncio.Event()
        self._consumer: AIOKafkaConsumer | None = None

    @property
    def ready(self) -> bool:
        """Whether every partition assigned is open and restored, and nothing waits for the registry for long."""
        held_too_long = (
            self._held_since_s is not None and time.monotonic() - self._held_since_s > _HELD_READY_LIMIT_S
        )
        return self._settled and self._assigned == self._lanes.partitions and not held_too_long

    @property
    def still_s(self) -> float:
        """For how long no turn was taken; restoring, which may take long, counts as moving."""
        return 0.0 if self._is_opening else time.monotonic() - self._moved_s

    def note_gauges(self) -> None:
        """Note how far behind each partition is, and how much state there is."""
        consumer = self._consumer
        if consumer is None:
            return
        assigned, committed = consumer.assignment(), self._lanes.committed()
        ends = {tp: consumer.last_stable_offset(tp) for tp in committed if tp in assigned}
        self._meter.lags(
            {
                (tp.topic, tp.partition): end - committed[tp]
                for tp, end in ends.items()
                if end is not None and end >= 0
            }
        )
        self._meter.state(self._stage.entries)

    def stop(self) -> None:
        """Ask the task to finish the batch in hand and return."""
        self._stopping.set()

    async def run(self) -> None:
        """Read and process until stopped.

        Raises:
            OperatingError: where the brokers failed for too long.
            IntegrityError: where our own logs contradict each other.
        """
        consumer = self._consumer = reading_consumer(
            self._settings,
            group_id=self._group_id,
            session_timeout_ms=self._settings.session_timeout_ms,
            heartbeat_interval_ms=self._settings.session_timeout_ms // 3,
            max_poll_interval_ms=_POLL_INTERVAL_MS,
            partition_assignment_strategy=(RangePartitionAssignor,),
        )
        consumer.subscribe(list(self._role_of), listener=_Listener(self))
        try:
            await consumer.start()
            while not self._stopping.is_set():
                await self._turn(consumer)
        finally:
            await self.give_up()
            await consumer.stop()

    async def give_up(self) -> None:
        """Close every lane once the batch in hand is done: the partitions may be someone else's next."""
        self._settled = False
        self._generation += 1
        async with self._batch_lock:
            self._assigned = set()
            await self._lanes.close()

    def take_over(self, partitions: set[int]) -> None:
        """Note which partition numbers are ours now; the main loop opens them.

        Args:
            partitions: all partition numbers assigned to this worker.
        """
        self._generation += 1
        self._assigned = partitions
        self._settled = True
        _log.info("partitions_assigned", stage=self._stage.name, partitions=sorted(partitions))

    async def _turn(self, consumer: AIOKafkaConsumer) -> None:
        generation = self._generation
        self._moved_s = time.monotonic()
        try:
            missing = self._assigned - self._lanes.partitions
            if missing:
                await self._open_lanes(consumer, missing, generation)
            fetched = await self._fetch(consumer)
            if self._generation != generation:
                return
            await self._process(consumer, fetched, generation)
        except _MAY_PASS as error:
            await self._recover(error)
        else:
            if fetched:
                # A turn with nothing to do proves nothing.
                self._reopenings = 0

    async def _fetch(self, consumer: AIOKafkaConsumer) -> dict[int, list[Record]]:
        fetched = await consumer.getmany(
            timeout_ms=self._settings.poll_timeout_ms, max_records=self._settings.batch_records_max
        )
        batches: dict[int, list[Record]] = {}
        # Within a lane, control records go before snapshots: a pin set first is in force first.
        for partition in sorted(fetched, key=self._input_order):
            role = self._role_of[partition.topic]
            batch = batches.setdefault(partition.partition, [])
            batch.extend(record_of(role, message) for message in fetched[partition])
        return batches

    def _input_order(self, partition: TopicPartition) -> tuple[int, int]:
        return (self._stage.input_roles.index(self._role_of[partition.topic]), partition.partition)

    async def _process(
        self, consumer: AIOKafkaConsumer, waiting: dict[int, list[Record]], generation: int
    ) -> None:
        self._held_since_s = None
        since_s = time.monotonic()
        ends = await self._stage.note_ends() if waiting else {}
        while True:
            self._moved_s = time.monotonic()
            async with self._batch_lock:
                if self._generation != generation:
                    return
                self._expire(waiting, since_s)
                await every(
                    self._commit(consumer, lane, waiting.get(lane.partition, []), ends)
                    for lane in self._lanes.all()
                )
            waiting = {partition: records for partition, records in waiting.items() if records}
            self._meter.held(sum(len(records) for records in waiting.values()))
            if not waiting or self._stopping.is_set():
                self._held_since_s = None
                return
            self._held_since_s = since_s
            await self._stage.wait(_PROGRESS_WAIT_S)

    def _expire(self, waiting: dict[int, list[Record]], since_s: float) -> None:
        limit_ms = self._settings.hold_limit_ms
        if limit_ms and (time.monotonic() - since_s) * 1_000 >= limit_ms:
            for partition, records in waiting.items():
                waiting[partition] = [record._replace(hold_expired=True) for record in records]

    async def _commit(
        self,
        consumer: AIOKafkaConsumer,
        lane: Lane,
        waiting: list[Record],
        ends: Mapping[TopicPartition, int],
    ) -> None:
        """Process what is admitted of a lane's records, in one transaction, and take it off the list."""
        admitted = self._stage.admit(waiting, ends) if waiting else 0
        batch, held = waiting[:admitted], waiting[admitted:]
        positions = await positions_of(consumer, lane.committed)
        for record in reversed(held):
            positions[TopicPartition(record.origin.topic, record.origin.partition)] = record.origin.offset
        unasked = self._stage.unasked(lane.partition)
        if not batch and not unasked and positions == lane.committed:
            return
        started_s = time.monotonic()
        gathered = lane.writer.gather()
        await self._step(lane.partition, batch, gathered)
        gathered.add([*unasked, *self._stage.seal(lane.partition, positions)])
        writing_s = time.monotonic()
        try:
            await lane.writer.write(gathered, positions, self._group_id)
        except _MAY_PASS:
            self._failures[lane.partition] += 1
            raise
        self._meter.transaction(time.monotonic() - writing_s)
        self._failures.pop(lane.partition, None)
        lane.committed = positions
        waiting[:] = held
        self._meter.batch(len(batch), gathered.labels, seconds=time.monotonic() - started_s)

    async def _step(self, partition: int, batch: list[Record], gathered: Gathered) -> None:
        """Step a batch piece by piece: a whole one can outlast the session, and heartbeats must not wait for it.

        One lane after the other, so that one is written while the next is stepped.
        """
        async with self._stepping:
            for start in range(0, len(batch), _PIECE_RECORDS):
                gathered.add(self._stage.process(partition, batch[start : start + _PIECE_RECORDS]))
                await asyncio.sleep(0)

    async def _open_lanes(self, consumer: AIOKafkaConsumer, missing: set[int], generation: int) -> None:
        async with self._batch_lock:
            if self._generation != generation:
                return
            started_s = time.monotonic()
            self._is_opening = True
            try:
                await self._lanes.open(consumer, missing)
            finally:
                self._is_opening, self._moved_s = False, time.monotonic()
            seconds = time.monotonic() - started_s
            self._meter.opened(len(missing), seconds=seconds)
            _log.info("lanes_open", stage=self._stage.name, partitions=sorted(missing), seconds=round(seconds, 3))

    async def _recover(self, error: Exception) -> None:
        _stop_if_forbidden(error)
        if isinstance(error, OffsetOutOfRangeError):
            _log.warning("offset_out_of_range", stage=self._stage.name)
        self._reopenings += 1
        attempts = max(self._reopenings, *self._failures.values(), 0)
        if attempts > _REOPENINGS_MAX:
            raise OperatingError(
                "brokers_failing",
                f"the {self._stage.name} stage failed {attempts} times in a row, last with "
                f"{type(error).__name__}: see the brokers' logs",
            ) from error
        _log.warning("lanes_reopening", stage=self._stage.name, error=type(error).__name__, attempt=attempts)
        self._meter.reopened()
        async with self._batch_lock:
            await self._lanes.close()
        # A fenced lane has a new owner, who will have it for good once the group has noticed: let it.
        await asyncio.sleep(_REOPENING_PAUSE_S * attempts)


def _stop_if_forbidden(error: Exception) -> None:
    told = explained(error)
    if isinstance(told, ConfigurationError):
        # What this user may not do now it may not do in a second.
        raise told from error
