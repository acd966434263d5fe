"""The task of one input partition: fetch, buffer, pass to the agent and commit, independently of other partitions.

1. The order of opening excludes other owners (``docs/adr/0003``): first the producer, which ends the transaction of the
   previous owner and fences it; then the start positions, once no open transaction has any; then the stage's state,
   from the committed end of its topic.
2. The agent works on the records in the thread of their state, for a limited time; what is done is committed.
3. Nothing new is fetched while records are buffered: backlog stays in Kafka.
4. The thread of a dropped task is awaited before the partition is opened again: it must
   never meet the state of another owner.
5. A low-priority task pauses for longer than it works while others have work: evidence needs the registry, and
   alerts can wait.
6. A mark is committed before suspicious records are tried.

Records that kill their worker are found, tried a bounded number of times across restarts, and set aside. ``Attempts``
is pure and returns the task's next step as data. The task writes each mark into the metadata of its group's committed
offset, in a transaction, before it begins on the records. A commit of records leaves no mark. So a mark that is
found on opening says that its owner ended while it worked on them, and the transactional id sees to it that no
other owner could have written it.

1. ``FREE``: nothing is suspected, nothing is marked. Marks cost a transaction each.
2. ``BATCH``: the first batch after opening is marked, and what is left of it after each commit.
3. ``FEW``: an owner ended in a marked batch. Its records are tried a few at a time.
4. ``ONE``: an owner ended in a few. They are tried one by one, and each mark names its record and counts.
5. A record that is named with as many attempts as are allowed is set aside.

A span that was passed without another end goes back to ``BATCH``, and from there to ``FREE``.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec
import structlog
from aiokafka import TopicPartition

from assay_stream.errors import AssayStreamError, ConfigurationError, IntegrityError, OperatingError
from assay_stream.kafka.connection import MAY_PASS, Consumer, FetchedRecord, record_of
from assay_stream.kafka.stage import Gathered, TransactionalWriter
from assay_stream.model.record import Origin, Output, Record

if TYPE_CHECKING:
    from assay_stream.kafka.runner import Runner

_FEW_RECORDS = 32
"""Records tried together: a marked batch of thousands costs hundreds of transactions, some seconds."""


class SuspicionLevel(StrEnum):
    FREE = "free"
    BATCH = "batch"
    FEW = "few"
    ONE = "one"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """Suspicion of the next records; as a mark, that of an owner before it began on them.

    Args:
        left: number of suspect records.
        record: at ``ONE``: the record tried last.
        attempt: at ``ONE``: number of its attempts.
    """

    level: SuspicionLevel = SuspicionLevel.BATCH
    left: int = 0
    record: Origin | None = None
    attempt: int = 0

    def plan(self, first: Origin, available: int, *, attempts_max: int) -> Plan:
        match self.level:
            case SuspicionLevel.FREE:
                return Plan(count=available)
            case SuspicionLevel.BATCH:
                return Plan(count=available, mark=Suspicion(left=available))
            case SuspicionLevel.FEW:
                count = min(available, self.left, _FEW_RECORDS)
                return Plan(count=count, mark=replace(self, left=count))
            case SuspicionLevel.ONE:
                attempts = self.attempt if first == self.record else 0
                if attempts >= attempts_max:
                    return Plan(count=1, set_aside=True)
                return Plan(count=1, mark=replace(self, record=first, attempt=attempts + 1))

    def after(self, count: int, *, of: int) -> Suspicion:
        """Return the remaining suspicion after ``count`` records were committed, of those that were planned."""
        if self.level in (SuspicionLevel.FREE, SuspicionLevel.BATCH):
            # Of a batch that was cut short by time, any of the rest may end its owner too.
            return Suspicion(level=SuspicionLevel.FREE) if count >= of else self
        left = self.left - count
        return Suspicion(level=self.level, left=left) if left > 0 else Suspicion()

    def encode(self) -> str:
        return msgspec.json.encode(self).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How to process the next records.

    Args:
        mark: what to write first; ``None`` for nothing.
        set_aside: reject the record instead of trying it.
    """

    count: int
    mark: Suspicion | None = None
    set_aside: bool = False


def suspicion_after(metadata: str) -> Suspicion:
    """Return the suspicion implied by the previous owner's metadata: a mark, if it ended during processing.

    Kafka's own tools write metadata there too.
    """
    try:
        mark = msgspec.json.decode(metadata, type=Suspicion)
    except (msgspec.DecodeError, RecursionError):
        return Suspicion()
    if mark.left < 1 or mark.attempt < 0:
        return Suspicion()  # with no record to try, the partition would stand still
    return replace(mark, level=SuspicionLevel.FEW if mark.level is SuspicionLevel.BATCH else SuspicionLevel.ONE)


_log = structlog.get_logger(__name__)

State = TypeVar("State")
Step = Callable[[State, Record], Sequence[Output]]
"""Applies one record to a state, in place, and returns the outputs."""
PieceStep = Callable[[State, Sequence[Record]], Sequence[Output]]
"""Applies some records to a state, in order, and returns the outputs."""

_PROGRESS_WAIT_S = 0.25
_CANCELLING_S = 5.0
_PAUSE_SHARE = 3.0
"""Pause of a low-priority task, as a multiple of its work: leaves it a quarter of a processor."""


class BatchDropped(Exception):  # noqa: N818 - nothing went wrong: the partition has another owner
    """The batch was taken away; none of it will be written."""


class AgentFailed(Exception):  # noqa: N818 - says what happened
    """An agent raised on a batch."""

    def __init__(self, name: str, partition: int, cause: Exception) -> None:
        self.partition = partition
        self.cause = place_of(cause)
        super().__init__(f"the {name} agent failed: {self.cause}")


def place_of(error: Exception) -> str:
    """Return the class of an error and the line that raised it: its text may quote the record."""
    if isinstance(error, AssayStreamError):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return type(error).__name__ + place


class Batch(Generic[State]):
    """Records of one input partition, in order. Their outputs and offsets form one transaction.

    Requesting the next batch acknowledges this one. An agent that does not call ``process`` acknowledges all
    records.

    Attributes:
        state: state of the partition, for use in ``process`` only.
    """

    def __init__(self, task: PartitionTask, records: Sequence[Record]) -> None:
        self._task = task
        self.partition = task.partition
        self.records = records
        self.state: State = task.stage.state(task.partition)
        self.outputs = task.writer.gather()
        self._processed: int | None = None
        self._working: asyncio.Future[Any] | None = None

    @property
    def done(self) -> int:
        """Number of leading records done; the others return in the next batch."""
        return len(self.records) if self._processed is None else self._processed

    async def process(self, step: Step[State]) -> None:
        """Apply a step to each record, in the state's thread, until the batch's time limit.

        Raises:
            BatchDropped: the partition now has another owner.
        """

        def in_turn(state: State, piece: Sequence[Record]) -> list[Output]:
            return [output for record in piece for output in step(state, record)]

        await self.process_pieces(in_turn)

    async def process_pieces(self, step: PieceStep[State]) -> None:
        """Apply a step to several records at a time, otherwise like ``process``.

        Raises:
            BatchDropped: the partition now has another owner.
        """
        if self._task.is_dropped:
            raise BatchDropped
        self._working = self._task.in_thread(self._step_all, step)
        await self._working

    def drop(self) -> None:
        """Release an agent waiting for the thread, which may take long to end."""
        if self._working is not None and not self._working.done():
            self._working.set_exception(BatchDropped())

    def _step_all(self, step: PieceStep[State]) -> None:
        task, records, done = self._task, self.records, self._processed or 0
        until_s = time.monotonic() + task.runner.settings.batch_ms_max / 1_000
        first, size = done, task.stage.piece_records
        while done < len(records) and (done == first or time.monotonic() < until_s):
            piece = records[done : done + size]
            task.note_piece(piece[0])
            self.outputs.add(step(self.state, piece))
            done += len(piece)
        self._processed = done


BatchHandler = Callable[[Batch[Any]], Awaitable[None]]
"""Processes one batch; returns when done."""


class PartitionTask:
    """Owner of one input partition number, over all topics of a stage: opened, run, possibly paused and resumed,
    closed.

    Args:
        opening: the runner's count of openings; higher for partitions taken over later.

    Attributes:
        committed: next offset of each of its partitions, as committed; -1 for the beginning.
        member: our membership in the generation in which the partition was opened or kept.
        metadata: committed with them: the mark of an owner that has begun on records, or empty.
        suspicion: records made suspect by the previous owner.
        buffered: number of records waiting for the registry.
        buffered_since_s: since when, by the monotonic clock.
        working_on: the first of the records being processed.
        is_in_thread: whether its thread is working on its state, awaited or not.
        is_dropped: whether the current batch is left to the next owner.
        agent_failed: whether it ended because its agent raised.
        may_go_on: whether it was stopped between two batches, so that its state equals what it committed.

    Raises:
        ConfigurationError: ``partitions_added``.
    """

    def __init__(self, runner: Runner, consumer: Consumer, partition: int, *, opening: int) -> None:
        self.runner = runner
        self.stage = runner.stage
        self.partition = partition
        self.opening = opening
        self._consumer = consumer
        topology = self.stage.topology
        self._roles = {topology.names[role]: role for role in self.stage.input_roles}
        self._inputs = [TopicPartition(topic, partition) for topic in self._roles]
        first, counts = self._inputs[0].topic, [topology.counts[role] for role in self.stage.input_roles]
        if partition >= max(counts):
            raise ConfigurationError(
                "partitions_added",
                f"{first} has a partition {partition} now and had {counts[0]} partitions when this worker started: it "
                "begins again once the topics of this group have as many",
            )
        self.writer = TransactionalWriter(
            topology, runner.group_id, partition, inputs=self._inputs, outputs=self.stage.outputs
        )
        self.committed: dict[TopicPartition, int] = {}
        self.metadata = ""
        self.suspicion = Suspicion()
        self._records: list[Record] = []
        self._ends: Mapping[TopicPartition, int] = {}
        self._fetched_s = time.monotonic()
        self._is_idle = True
        self._is_finishing = False
        self.is_dropped = False
        self.is_in_thread = False
        self.working_on: Origin | None = None
        self.buffered = 0
        self.buffered_since_s: float | None = None
        self.agent_failed = False
        self.may_go_on = False
        self.running: asyncio.Task[None] | None = None

    @property
    def busy_s(self) -> float:
        return 0.0 if self.running is None else self._thread.busy_s

    @property
    def has_work(self) -> bool:
        """Whether it has records that need not wait."""
        return len(self._records) > self.buffered

    # Opening and closing

    async def open(self) -> None:
        """Take over the partition, and seek the consumer to where it continues.

        Raises:
            KafkaError: it could not be opened, and must be closed.
            IntegrityError: ``outputs_ahead``.
        """
        await self.writer.open()
        noted = await self._consumer.committed_with_metadata(self._inputs)
        overriding = await self.stage.open(self.partition)
        done_before = await self.stage.done_before(self.partition)
        self.metadata = next((metadata for _, metadata in noted.values() if metadata), "")
        ends = await self._consumer.end_offsets(self._inputs)
        for place in self._inputs:
            committed, _ = noted.get(place, (None, ""))
            position = overriding.get(place, committed)
            done = done_before.get(place, 0)
            self._check_end(place, max(position or 0, done), ends[place])
            if done > (position or 0):
                _log.error(
                    "offsets_reset",
                    stage=self.stage.name,
                    topic=place.topic,
                    partition=place.partition,
                    committed=position,
                    continuing_at=done,
                    fix="none needed: the group's offsets were lost or set back, and nothing is done twice; replay "
                    "redoes it",
                )
                position = done
            if position is None and committed:
                _log.warning(
                    "state_lost",
                    stage=self.stage.name,
                    topic=place.topic,
                    partition=self.partition,
                    fix="none needed: its state topic lost records, so this input is read from its beginning",
                )
            self.committed[place] = -1 if position is None else position
        self.seek(await self._consumer.beginning_offsets(self._inputs))

    def seek(self, beginnings: Mapping[TopicPartition, int]) -> None:
        """Seek the consumer to the committed position, or to the log start if that expired."""
        for place, position in self.committed.items():
            begin = beginnings[place]
            if 0 <= position < begin:
                # Retention was shorter than the outage: the records are lost, which must not go unnoticed.
                self.runner.metrics.expired(place, position, begin - position)
            self._consumer.seek(place, max(position, begin))

    async def close(self) -> None:
        self.stage.close(self.partition)
        await self.writer.close()

    def _check_end(self, place: TopicPartition, done: int, end: int) -> None:
        """Refuse a log that was recreated: its records up to the old position would be skipped."""
        if done > end:
            raise IntegrityError(
                "outputs_ahead",
                f"the {self.stage.name} stage has processed records up to offset {done} of {place.topic}, "
                f"partition {place.partition}, which ends at {end}: was the topic recreated? Use a new "
                "ASSAY_STREAM_TOPIC_PREFIX, or restore the topic",
            )

    # Running

    def start(self, records_max: int) -> None:
        """Begin, or resume after ``finish`` if allowed; the consumer must be positioned."""
        self.member = self._consumer.member()
        self._records_max = records_max
        self._thread = self.stage.thread(self.partition)
        self._records, self.buffered, self.buffered_since_s = [], 0, None
        self._is_finishing = self.is_dropped = self.may_go_on = False
        self.running = asyncio.create_task(self._run(), name=f"{self.stage.name}-{self.partition}")

    async def finish(self, limit_s: float) -> None:
        """Stop after committing the current batch; drop it after ``limit_s``.

        A dropped batch was not committed: the next owner repeats it.
        """
        if self.running is None:
            return
        self._is_finishing = True
        if not self._is_idle:
            await asyncio.wait([self.running], timeout=limit_s)
        # Read first: cancelling drops the current batch, which also leaves the task idle.
        was_idle = self._is_idle
        self.is_dropped = True
        self.running.cancel()
        ended, _ = await asyncio.wait([self.running], timeout=_CANCELLING_S)
        for task in ended:
            # Retrieved, so that asyncio does not log the traceback of a dropped batch as an error.
            error = None if task.cancelled() else task.exception()
            self.may_go_on = was_idle and error is None
            if error is not None and not isinstance(error, BatchDropped):
                _log.warning("partition_closed_after", stage=self.stage.name, error=str(error))

    async def _run(self) -> None:
        while not self._is_finishing:
            if not self._records:
                await self._fetch()
            changes = self.stage.changes
            admitted = await self._admitted()
            if self.is_dropped:
                # A client may have swallowed the cancellation. No batch is in hand, so the task may resume later.
                return
            self._is_idle = False
            worked_s = time.monotonic()
            try:
                await self._process(admitted)
            finally:
                self._is_idle = True
            if admitted and self.runner.gives_way:
                await asyncio.sleep(_PAUSE_SHARE * (time.monotonic() - worked_s))
            if self.buffered and not admitted:
                await self.stage.wait(_PROGRESS_WAIT_S, since=changes)

    async def _fetch(self) -> None:
        suspect = self.suspicion.record
        # In the order of the stage's inputs, but first from where a suspect stands.
        places = sorted(self._inputs, key=lambda place: suspect is None or place.topic != suspect.topic)
        fetched: dict[TopicPartition, list[FetchedRecord]] = {}
        # A client returns what it fetched first, up to the limit, so a backlog of calls would delay re-routed ones.
        for place in places[:-1]:
            share = max(self._records_max // 2, 1)
            fetched |= await self._consumer.getmany(place, timeout_ms=0, max_records=share)
        left = max(self._records_max - sum(map(len, fetched.values())), 1)
        last = places[-1:] if fetched else places
        timeout_ms = 0 if fetched else self.runner.settings.poll_timeout_ms
        fetched |= await self._consumer.getmany(*last, timeout_ms=timeout_ms, max_records=left)
        # Control records go before snapshots: a pin set first is in force first.
        self._records = [record_of(self._roles[tp.topic], message) for tp in places for message in fetched.get(tp, ())]
        if self._records:
            self._fetched_s = time.monotonic()
            self._ends = await self.stage.upstream_ends()

    async def _admitted(self) -> int:
        """Return how many records are ready, or have waited as long as configured."""
        limit_ms = self.runner.settings.hold_limit_ms
        if limit_ms and self.buffered and (time.monotonic() - self._fetched_s) * 1_000 >= limit_ms:
            self._records = [record._replace(hold_expired=True) for record in self._records]
        admitted = await self._thread.run(self.stage.admit, self._records, self._ends) if self._records else 0
        self.buffered = len(self._records) - admitted
        self.buffered_since_s = self._fetched_s if self.buffered else None
        return admitted

    async def _process(self, admitted: int) -> None:
        plan = Plan(count=0)
        if admitted:
            limit = self.runner.settings.record_attempts_max
            plan = self.suspicion.plan(self._records[0].origin, admitted, attempts_max=limit)
        is_single = plan.mark is not None and plan.mark.level is SuspicionLevel.ONE
        async with self.runner.quarantine if is_single else nullcontext():
            await self._try(plan)

    async def _try(self, plan: Plan) -> None:
        started_s = time.monotonic()
        records = self._records[: plan.count]
        end = {place: await self._consumer.position(place) for place in self.committed}
        if plan.set_aside:
            records = [record._replace(set_aside=True) for record in records]
            _log.error("record_set_aside", stage=self.stage.name, **records[0].origin.as_json())
        start = self._positions(0, end)
        if plan.mark is not None:
            marking = self.writer.gather()
            marking.add(await self.in_thread(self.stage.flush, self.partition, start))
            await self._commit(marking, start, metadata=plan.mark.encode())
        batch: Batch[Any] = Batch(self, records)
        try:
            if records:
                await self._give_to_agent(batch)
            positions = self._positions(batch.done, end)
            is_needed = await self.in_thread(self._complete, batch, positions)
        except (IntegrityError, ConfigurationError):
            # Not the record's fault: it is still there once the cause is fixed. What records before it have changed in
            # the state must not be written without their outputs and offsets.
            if self.metadata:
                with suppress(*MAY_PASS):
                    await self._commit(self.writer.gather(), start, metadata="")
            raise
        if not is_needed:
            return
        await self._commit(batch.outputs, positions, metadata="" if batch.done else self.metadata)
        self.stage.committed(self._records[: batch.done])
        del self._records[: batch.done]
        if batch.done:
            self.suspicion = self.suspicion.after(batch.done, of=plan.count)
            self.runner.note_commit(self.partition)
        self.runner.metrics.batch(batch.done, batch.outputs.labels, seconds=time.monotonic() - started_s)

    async def _give_to_agent(self, batch: Batch[Any]) -> None:
        try:
            await self.runner.agent(batch)
        except asyncio.CancelledError:
            batch.drop()
            raise
        except (IntegrityError, ConfigurationError, OperatingError):
            raise
        except Exception as error:
            if self.is_dropped:
                raise BatchDropped from error
            self.agent_failed = True
            raise AgentFailed(self.stage.name, self.partition, error) from error

    def _complete(self, batch: Batch[Any], positions: dict[TopicPartition, int]) -> bool:
        """Add the outputs that accompany the offsets; return True if there is work to commit."""
        punctuated = self.stage.punctuate(self.partition)
        if not (batch.done or punctuated or positions != self.committed):
            return False
        batch.outputs.add([*punctuated, *self.stage.flush(self.partition, positions)])
        return True

    def _positions(self, done: int, end: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return each partition's next offset after ``done`` records: buffered ones do not count."""
        positions, buffered = dict(end), self._records[done:]
        # With a single topic the first buffered record decides.
        for record in buffered[:1] if len(end) == 1 else reversed(buffered):
            positions[TopicPartition(record.origin.topic, record.origin.partition)] = record.origin.offset
        return positions

    def in_thread(self, function: Callable[..., Any], *arguments: object) -> asyncio.Future[Any]:
        """Run a function in the state's thread, unless the task is dropped by then."""

        def guarded() -> Any:
            # In this order: code that drops a task reads the two in the opposite order.
            self.is_in_thread = True
            try:
                if self.is_dropped:
                    raise BatchDropped
                return function(*arguments)
            finally:
                self.working_on = None
                self.is_in_thread = False

        return self._thread.run(guarded)

    def note_piece(self, record: Record) -> None:
        self.working_on = record.origin
        self._thread.note_progress()

    async def _commit(self, outputs: Gathered, positions: dict[TopicPartition, int], *, metadata: str) -> None:
        writing_s = time.monotonic()
        try:
            await self.writer.write(outputs, positions, metadata=metadata)
        except MAY_PASS:
            self.runner.note_failure(self.partition)
            raise
        self.runner.metrics.measure("transaction_seconds", time.monotonic() - writing_s)
        self.committed, self.metadata = positions, metadata
