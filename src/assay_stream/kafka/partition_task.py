"""The task of one input partition: fetch, buffer, give to the agent and commit, whatever other partitions do.

1. The agent works on the records in the thread of their state, for a limited time; what is done is committed.
2. Nothing new is fetched while records are buffered: backlog stays in Kafka.
3. A task that is dropped while its thread works is waited for before the partition is opened again: the thread must
   never meet the state of another owner.
4. A task that gives way pauses for longer than it works while others have work: evidence needs the registry, and
   alerts can wait.
5. A mark is committed before suspicious records are tried (``kafka.attempts``).
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import structlog
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from assay_stream.config import Settings
from assay_stream.errors import ConfigurationError, IntegrityError, OperatingError
from assay_stream.kafka.attempts import Plan, Suspicion, SuspicionLevel
from assay_stream.kafka.batch import AgentFailed, Batch, BatchDropped, BatchHandler
from assay_stream.kafka.connection import Clients, Consumer
from assay_stream.kafka.stage import Stage, StageMetrics
from assay_stream.kafka.transport import Gathered, TransactionalWriter, positions_of, record_of
from assay_stream.model.record import Origin, Record, Role

_log = structlog.get_logger(__name__)

MAY_PASS = (KafkaError, OSError, TimeoutError)
"""What a broker that is away or busy causes: tried again, within a limit."""

_PROGRESS_WAIT_S = 0.25
_CANCELLING_S = 5.0
_PAUSE_SHARE = 3.0
"""How long a task that gives way pauses, as a share of its work: a quarter of a processor is left to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskContext:
    """What the partition tasks of a stage share.

    Args:
        quarantine: held while a record is tried by itself, so that a process tries one suspect at a time.
        on_commit: called with the partition number after each batch that was committed.
        on_failure: called with it after each that could not be.
        busy_elsewhere: whether a task has work that this one gives way to.
    """

    settings: Settings
    stage: Stage[Any]
    agent: BatchHandler
    clients: Clients
    topics: Mapping[Role, str]
    partition_counts: Mapping[Role, int]
    metrics: StageMetrics
    quarantine: asyncio.Lock
    on_commit: Callable[[int], None]
    on_failure: Callable[[int], None]
    busy_elsewhere: Callable[[], bool]

    @property
    def group_id(self) -> str:
        """The consumer group; transactional ids begin with it."""
        return f"{self.settings.group_prefix}-{self.stage.name}"

    def writer(self, partition: int) -> TransactionalWriter:
        """Return what a partition is written with: its own producer."""
        producer = self.clients.producer(f"{self.group_id}-{partition}")
        return TransactionalWriter(producer, topics=self.topics, partition_counts=self.partition_counts)


class PartitionTask:
    """Runs one input partition number, over all topics of a stage, until it is finished.

    Attributes:
        opening: which time the stage opened partitions; it is higher for those taken over later.
        committed: next offset of each of its partitions, as committed.
        member: our membership in the generation in which the partition was opened or kept.
        metadata: what was committed with them: the mark of an owner that has begun on records, or nothing.
        suspicion: which records the owner before this one makes suspect.
        buffered: how many records wait for the registry.
        buffered_since_s: since when, by the monotonic clock.
        working_on: the first of the records that are worked on now.
        is_in_thread: whether its thread works on its state now, awaited or not.
        agent_failed: whether it ended because its agent raised.
        may_go_on: whether it was stopped between two batches, so that its state is what it has committed.
    """

    def __init__(self, context: TaskContext, partition: int) -> None:
        self._context = context
        self._stage = context.stage
        self.partition = partition
        self.writer = context.writer(partition)
        self.opening = 0
        self.committed: dict[TopicPartition, int] = {}
        self.metadata = ""
        self.suspicion = Suspicion()
        self._roles = {context.topics[role]: role for role in context.stage.input_roles}
        self._records: list[Record] = []
        self._ends: Mapping[TopicPartition, int] = {}
        self._fetched_s = time.monotonic()
        self._is_idle = True
        self._is_finishing = False
        self._is_dropped = False
        self.is_in_thread = False
        self.working_on: Origin | None = None
        self.buffered = 0
        self.buffered_since_s: float | None = None
        self.agent_failed = False
        self.may_go_on = False
        self.running: asyncio.Task[None] | None = None

    @property
    def busy_s(self) -> float:
        """For how many seconds its thread has been working on one thing."""
        return 0.0 if self.running is None else self._thread.busy_s

    @property
    def has_work(self) -> bool:
        """Whether it has records that need not wait."""
        return len(self._records) > self.buffered

    def start(self, consumer: Consumer, *, records_max: int) -> None:
        """Begin, or go on after ``finish`` if that is allowed; the consumer stands where the task goes on."""
        self._consumer = consumer
        self.member = consumer.member()
        self._records_max = records_max
        self._thread = self._stage.thread(self.partition)
        self._records, self.buffered, self.buffered_since_s = [], 0, None
        self._is_finishing = self._is_dropped = self.may_go_on = False
        self.running = asyncio.create_task(self._run(), name=f"{self._stage.name}-{self.partition}")

    async def finish(self, limit_s: float) -> None:
        """Let the batch in hand be committed, and stop; drop it where that takes too long.

        What is dropped was not committed: the next owner does it again.
        """
        if self.running is None:
            return
        self._is_finishing = True
        if not self._is_idle:
            await asyncio.wait([self.running], timeout=limit_s)
        # Cancelling ends a batch in hand, which leaves the task idle, too.
        was_idle = self._is_idle
        self._is_dropped = True
        self.running.cancel()
        ended, _ = await asyncio.wait([self.running], timeout=_CANCELLING_S)
        for task in ended:
            # Unless somebody asks for it, asyncio logs the traceback of a dropped batch as an error.
            error = None if task.cancelled() else task.exception()
            self.may_go_on = was_idle and error is None
            if error is not None and not isinstance(error, BatchDropped):
                _log.warning("partition_closed_after", stage=self._stage.name, error=str(error))

    async def _run(self) -> None:
        while not self._is_finishing:
            if not self._records:
                await self._fetch()
            changes = self._stage.changes
            self._expire()
            admitted = await self._admitted()
            self._is_idle = False
            worked_s = time.monotonic()
            try:
                await self._commit(admitted)
            finally:
                self._is_idle = True
            if admitted and self._context.busy_elsewhere():
                await asyncio.sleep(_PAUSE_SHARE * (time.monotonic() - worked_s))
            if self.buffered and not admitted:
                await self._stage.wait(_PROGRESS_WAIT_S, since=changes)

    async def _fetch(self) -> None:
        partitions = sorted(self.committed, key=self._input_order)
        fetched = await self._consumer.getmany(
            *partitions, timeout_ms=self._context.settings.poll_timeout_ms, max_records=self._records_max
        )
        # Control records go before snapshots: a pin set first is in force first.
        self._records = [
            record_of(self._roles[tp.topic], message) for tp in partitions for message in fetched.get(tp, ())
        ]
        if self._records:
            self._fetched_s = time.monotonic()
            self._ends = await self._stage.note_ends()
        else:
            await self._stage.note_quiet(self.partition)

    def _input_order(self, partition: TopicPartition) -> tuple[bool, int]:
        suspect = self.suspicion.record
        is_suspect = suspect is not None and partition.topic == suspect.topic
        return not is_suspect, self._stage.input_roles.index(self._roles[partition.topic])

    def _expire(self) -> None:
        limit_ms = self._context.settings.hold_limit_ms
        if limit_ms and self.buffered and (time.monotonic() - self._fetched_s) * 1_000 >= limit_ms:
            self._records = [record._replace(hold_expired=True) for record in self._records]

    async def _admitted(self) -> int:
        admitted = await self._thread.run(self._stage.admit, self._records, self._ends) if self._records else 0
        self.buffered = len(self._records) - admitted
        self.buffered_since_s = self._fetched_s if self.buffered else None
        return admitted

    async def _commit(self, admitted: int) -> None:
        """Have a batch of the admitted records processed, and commit what comes of it."""
        plan = Plan(count=0)
        if admitted:
            limit = self._context.settings.record_attempts_max
            plan = self.suspicion.plan(self._records[0].origin, admitted, attempts_max=limit)
        is_single = plan.mark is not None and plan.mark.level is SuspicionLevel.ONE
        async with self._context.quarantine if is_single else nullcontext():
            await self._try(plan)

    async def _try(self, plan: Plan) -> None:
        started_s = time.monotonic()
        records = self._records[: plan.count]
        end = await positions_of(self._consumer, self.committed)
        if plan.set_aside:
            records = [record._replace(set_aside=True) for record in records]
            _log.error("record_set_aside", stage=self._stage.name, **records[0].origin.as_json())
        if plan.mark is not None:
            await self._mark(plan.mark.encode(), end)
        batch = self._batch(records)
        try:
            if records:
                await self._give_to_agent(batch)
            positions = self._positions(batch.done, end)
            is_needed = await self._in_thread(self._complete, batch, positions)
        except (IntegrityError, ConfigurationError):
            # Not the record's fault: it is still there once the cause is fixed.
            with suppress(*MAY_PASS):
                await self._mark("", end)
            raise
        if not is_needed:
            return
        await self._write(batch.outputs, positions, metadata="" if batch.done else self.metadata)
        self._stage.committed(self._records[: batch.done])
        del self._records[: batch.done]
        if batch.done:
            self.suspicion = self.suspicion.after(batch.done)
            self._context.on_commit(self.partition)
        self._context.metrics.batch(batch.done, batch.outputs.labels, seconds=time.monotonic() - started_s)

    def _batch(self, records: list[Record]) -> Batch[Any]:
        return Batch(
            self.partition,
            records,
            self._stage.state(self.partition),
            outputs=self.writer.gather(),
            piece_records=self._stage.piece_records,
            limit_s=self._context.settings.batch_ms_max / 1_000,
            in_thread=self._in_thread,
            on_piece=self._note_piece,
        )

    def _note_piece(self, record: Record) -> None:
        self.working_on = record.origin
        self._thread.note_progress()

    async def _give_to_agent(self, batch: Batch[Any]) -> None:
        try:
            await self._context.agent(batch)
        except asyncio.CancelledError:
            batch.drop()
            raise
        except (IntegrityError, ConfigurationError, OperatingError):
            raise
        except Exception as error:
            if self._is_dropped:
                raise BatchDropped from error
            self.agent_failed = True
            raise AgentFailed(self._stage.name, self.partition, error) from error

    def _complete(self, batch: Batch[Any], positions: dict[TopicPartition, int]) -> bool:
        """Add what goes with the offsets, in the thread of the state; tell whether there is anything to commit."""
        punctuated = self._stage.punctuate(self.partition)
        if not (batch.done or punctuated or positions != self.committed):
            return False
        batch.write([*punctuated, *self._stage.flush(self.partition, positions)])
        return True

    def _positions(self, done: int, end: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the next offset of each partition once so many of the records are done: buffered ones are not."""
        positions, buffered = dict(end), self._records[done:]
        # Records of one partition follow each other, so the first of all is the only one to look at.
        for record in buffered[:1] if len(end) == 1 else reversed(buffered):
            positions[TopicPartition(record.origin.topic, record.origin.partition)] = record.origin.offset
        return positions

    def _in_thread(self, function: Callable[..., Any], *arguments: object) -> asyncio.Future[Any]:
        def guarded() -> Any:
            # In this order: dropping the task reads both in the opposite order.
            self.is_in_thread = True
            try:
                if self._is_dropped:
                    raise BatchDropped
                return function(*arguments)
            finally:
                self.working_on = None
                self.is_in_thread = False

        return self._thread.run(guarded)

    async def _mark(self, metadata: str, end: dict[TopicPartition, int]) -> None:
        outputs, positions = self.writer.gather(), self._positions(0, end)
        outputs.add(await self._in_thread(self._stage.flush, self.partition, positions))
        await self._write(outputs, positions, metadata=metadata)

    async def _write(self, outputs: Gathered, positions: dict[TopicPartition, int], *, metadata: str) -> None:
        writing_s = time.monotonic()
        try:
            await self.writer.write(outputs, positions, self._context.group_id, metadata=metadata)
        except MAY_PASS:
            self._context.on_failure(self.partition)
            raise
        self._context.metrics.transaction(time.monotonic() - writing_s)
        self.committed, self.metadata = positions, metadata
