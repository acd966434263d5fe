"""The work of one lane: fetch, hold, process and commit, over and over, whatever the other lanes do.

1. Records are processed in the thread of their state, a slice at a time, and each slice is committed: a partition
   with expensive records costs the others nothing but their share of the processor.
2. Nothing new is read while records wait: what is upstream is Kafka's to keep.
3. What is dropped while its thread works on it is waited for before the partition is opened again: the thread must
   never meet the state of another lane.
4. A task that gives way pauses for longer than it works while others have work: evidence needs the registry, and
   alerts can wait.
5. A mark is committed before suspicious records are tried (``kafka.attempts``).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeVar

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from assay_stream.config import Settings
from assay_stream.errors import ConfigurationError, IntegrityError
from assay_stream.kafka.attempts import Level, Plan
from assay_stream.kafka.partition_tasks import Lane
from assay_stream.kafka.stage import Stage
from assay_stream.kafka.transport import Gathered, positions_of, record_of
from assay_stream.model.record import Origin, Record, Role
from assay_stream.worker.metrics import StageMeter

_log = structlog.get_logger(__name__)

MAY_PASS = (KafkaError, OSError, TimeoutError)
"""What a broker that is away or busy causes: tried again, within a limit."""

_PROGRESS_WAIT_S = 0.25
_CANCELLING_S = 5.0
_PAUSE_SHARE = 3.0
"""How long a lane that gives way pauses, as a share of what it worked: a quarter of a processor is left to it."""

Result = TypeVar("Result")


class _Slice(NamedTuple):
    done: int
    gathered: Gathered
    positions: dict[TopicPartition, int]
    is_needed: bool


class LaneRun:
    """Runs one lane until it is finished.

    Args:
        settings: the operator's settings.
        stage: what to do with the records.
        lane: the lane, open.
        consumer: reads its partitions.
        roles: role of each input topic.
        group_id: the consumer group.
        records_max: how many records to fetch at once.
        quarantine: held while a record is tried by itself, so that no two suspects are tried at a time.
        meter: where to count.
        on_commit: called with the partition number after each batch that was committed.
        on_failure: called with it after each that could not be.
        busy_elsewhere: whether somebody has work to whom this lane gives way.
    """

    def __init__(
        self,
        settings: Settings,
        stage: Stage,
        lane: Lane,
        consumer: AIOKafkaConsumer,
        *,
        roles: Mapping[str, Role],
        group_id: str,
        records_max: int,
        quarantine: asyncio.Lock,
        meter: StageMeter,
        on_commit: Callable[[int], None],
        on_failure: Callable[[int], None],
        busy_elsewhere: Callable[[], bool],
    ) -> None:
        self._settings = settings
        self._stage = stage
        self.lane = lane
        self._consumer = consumer
        self._roles = roles
        self._group_id = group_id
        self._records_max = records_max
        self._quarantine = quarantine
        self._meter = meter
        self._on_commit = on_commit
        self._on_failure = on_failure
        self._busy_elsewhere = busy_elsewhere
        self._thread = stage.thread(lane.partition)
        self._waiting: list[Record] = []
        self._ends: Mapping[TopicPartition, int] = {}
        self._fetched_s = time.monotonic()
        self._is_idle = True
        self._is_finishing = False
        self._is_dropped = False
        self.is_in_thread = False
        """Whether its thread works on its state now, awaited or not."""
        self.working_on: Origin | None = None
        """The first of the records that are being worked on now."""
        self.held = 0
        """How many records wait for the registry."""
        self.held_since_s: float | None = None
        self.task = asyncio.create_task(self._run(), name=f"{stage.name}-{lane.partition}")

    @property
    def busy_s(self) -> float:
        """For how many seconds its thread has been working on one thing."""
        return self._thread.busy_s

    @property
    def has_work(self) -> bool:
        """Whether records that need not wait for others are in hand."""
        return len(self._waiting) > self.held

    async def finish(self, limit_s: float) -> None:
        """Let the slice in hand be committed, and stop; drop it where that takes too long.

        What is dropped was not committed: the next owner does it again.

        Args:
            limit_s: how long to wait, seconds.
        """
        self._is_finishing = True
        if not self._is_idle:
            await asyncio.wait([self.task], timeout=limit_s)
        self._is_dropped = True
        self.task.cancel()
        await asyncio.wait([self.task], timeout=_CANCELLING_S)

    async def _run(self) -> None:
        while not self._is_finishing:
            if not self._waiting:
                await self._fetch()
            noted = self._stage.changes
            self._expire()
            admitted = await self._admitted()
            self._is_idle = False
            worked_s = time.monotonic()
            try:
                await self._commit(admitted)
            finally:
                self._is_idle = True
            if admitted and self._busy_elsewhere():
                await asyncio.sleep(_PAUSE_SHARE * (time.monotonic() - worked_s))
            if self.held and not admitted:
                await self._stage.wait(_PROGRESS_WAIT_S, since=noted)

    async def _fetch(self) -> None:
        partitions = sorted(self.lane.committed, key=self._input_order)
        fetched = await self._consumer.getmany(
            *partitions, timeout_ms=self._settings.poll_timeout_ms, max_records=self._records_max
        )
        # Control records go before snapshots: a pin set first is in force first.
        self._waiting = [
            record_of(self._roles[tp.topic], message) for tp in partitions for message in fetched.get(tp, ())
        ]
        if self._waiting:
            self._fetched_s = time.monotonic()
            self._ends = await self._stage.note_ends()

    def _input_order(self, partition: TopicPartition) -> tuple[bool, int]:
        suspect = self.lane.suspicion.record
        is_suspect = suspect is not None and partition.topic == suspect.topic
        return not is_suspect, self._stage.input_roles.index(self._roles[partition.topic])

    def _expire(self) -> None:
        limit_ms = self._settings.hold_limit_ms
        if limit_ms and self.held and (time.monotonic() - self._fetched_s) * 1_000 >= limit_ms:
            self._waiting = [record._replace(hold_expired=True) for record in self._waiting]

    async def _admitted(self) -> int:
        admitted = 0
        if self._waiting:
            admitted = await self._thread.run(self._stage.admit, self._waiting, self._ends)
        self.held = len(self._waiting) - admitted
        self.held_since_s = self._fetched_s if self.held else None
        return admitted

    async def _commit(self, admitted: int) -> None:
        """Process a slice of the records that are admitted, and write what comes of it in one transaction."""
        lane, waiting = self.lane, self._waiting
        plan = Plan(count=0)
        if admitted:
            limit = self._settings.record_attempts_max
            plan = lane.suspicion.plan(waiting[0].origin, admitted, attempts_max=limit)
        if plan.mark is not None and plan.mark.level is Level.ONE:
            async with self._quarantine:
                await self._try(plan)
        else:
            await self._try(plan)

    async def _try(self, plan: Plan) -> None:
        lane, started_s = self.lane, time.monotonic()
        batch = self._waiting[: plan.count]
        end = await positions_of(self._consumer, lane.committed)
        if plan.set_aside:
            batch = [record._replace(set_aside=True) for record in batch]
            _log.error("record_set_aside", stage=self._stage.name, **batch[0].origin.as_json())
        if plan.mark is not None:
            await self._mark(plan.mark.encode(), end)
        try:
            done, gathered, positions, is_needed = await self._in_thread(lambda: self._slice(batch, end))
        except (IntegrityError, ConfigurationError):
            # Not the record's fault: whoever mends the cause finds it waiting.
            with suppress(*MAY_PASS):
                await self._mark("", end)
            raise
        if not is_needed:
            return
        await self._write(gathered, positions, metadata="" if done else lane.metadata)
        del self._waiting[:done]
        if done:
            lane.suspicion = lane.suspicion.after(done)
            self._on_commit(lane.partition)
        self._meter.batch(done, gathered.labels, seconds=time.monotonic() - started_s)

    def _slice(self, batch: Sequence[Record], end: dict[TopicPartition, int]) -> _Slice:
        """Process records until the time of a slice is over, in the thread of their state."""
        stage, partition = self._stage, self.lane.partition
        gathered = self.lane.writer.gather()
        until_s = time.monotonic() + self._settings.batch_ms_max / 1_000
        done = 0
        while done < len(batch) and (not done or time.monotonic() < until_s):
            piece = batch[done : done + stage.piece_records]
            self.working_on = piece[0].origin
            self._thread.note_progress()
            gathered.add(stage.process(partition, piece))
            done += len(piece)
        self.working_on = None
        positions = self._positions(done, end)
        unasked = stage.unasked(partition)
        is_needed = bool(done or unasked or positions != self.lane.committed)
        if is_needed:
            gathered.add([*unasked, *stage.seal(partition, positions)])
        return _Slice(done, gathered, positions, is_needed)

    def _positions(self, done: int, end: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the next offset of each partition once so many of the waiting records are done."""
        positions = dict(end)
        for record in reversed(self._waiting[done:]):
            positions[TopicPartition(record.origin.topic, record.origin.partition)] = record.origin.offset
        return positions

    async def _in_thread(self, function: Callable[[], Result]) -> Result:
        def guarded() -> Result:
            # In this order: whoever drops the lane looks at both, in the other one.
            self.is_in_thread = True
            try:
                if self._is_dropped:
                    raise asyncio.CancelledError
                return function()
            finally:
                self.working_on = None
                self.is_in_thread = False

        return await self._thread.run(guarded)

    async def _mark(self, metadata: str, end: dict[TopicPartition, int]) -> None:
        gathered, positions = self.lane.writer.gather(), self._positions(0, end)
        gathered.add(await self._in_thread(lambda: self._stage.seal(self.lane.partition, positions)))
        await self._write(gathered, positions, metadata=metadata)

    async def _write(self, gathered: Gathered, positions: dict[TopicPartition, int], *, metadata: str) -> None:
        lane, writing_s = self.lane, time.monotonic()
        try:
            await lane.writer.write(gathered, positions, self._group_id, metadata=metadata)
        except MAY_PASS:
            self._on_failure(lane.partition)
            raise
        self._meter.transaction(time.monotonic() - writing_s)
        lane.committed, lane.metadata = positions, metadata
