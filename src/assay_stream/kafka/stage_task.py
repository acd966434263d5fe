"""The transactional batch task: the one mechanism that all stages run on.

A batch of an input partition is read, stepped, and its outputs and offsets are committed in one transaction.

1. One transactional producer per input partition (a *lane*, ``kafka.partition_tasks``). Opening it on assignment ends
   the old owner's transaction and shuts it out, so that a zombie can write nothing (``docs/adr/0003``).
2. Each lane runs by itself (``kafka.partition_task``), so that none waits for another's records.
3. A batch that fails leaves its lane unusable; all are closed and opened anew.
4. A record that is worked on for too long stops the worker; a thread cannot be stopped (``docs/adr/0018``).
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import NoOffsetForPartitionError, OffsetOutOfRangeError

from assay_stream.config import Settings
from assay_stream.errors import ConfigurationError, OperatingError
from assay_stream.kafka.connection import reading_consumer
from assay_stream.kafka.partition_task import MAY_PASS, LaneRun
from assay_stream.kafka.partition_tasks import Lanes
from assay_stream.kafka.refusals import explained
from assay_stream.kafka.stage import Stage
from assay_stream.model.record import Origin, Role
from assay_stream.worker.metrics import StageMeter

_log = structlog.get_logger(__name__)

_REOPENINGS_MAX = 10
_REOPENING_PAUSE_S = 1.0
_LOOK_S = 0.1
_HELD_READY_LIMIT_S = 5.0
_POLL_INTERVAL_MS = 2**31 - 1
"""Calls may wait for the registry for ever, so a long time between two polls is no sign of death."""


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, task: BatchTask) -> None:
        self._task = task

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        await self._task.give_up(limit_s=self._task.revocation_limit_s)

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
        quarantine: held while a suspicious record is tried: one for all tasks of a process.
        gives_way_to: tasks of the process whose work goes before this one's.
    """

    def __init__(
        self,
        settings: Settings,
        stage: Stage,
        *,
        topics: Mapping[Role, str],
        partition_counts: Mapping[Role, int],
        meter: StageMeter,
        quarantine: asyncio.Lock | None = None,
        gives_way_to: Sequence[BatchTask] = (),
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
        self._runs: list[LaneRun] = []
        self._dropped: list[LaneRun] = []
        """Closed, while their threads still worked on something."""
        self._quarantine = asyncio.Lock() if quarantine is None else quarantine
        self._gives_way_to = gives_way_to
        self._lanes_lock = asyncio.Lock()
        self._moved_s = time.monotonic()
        self._is_opening = False
        self._stopping = asyncio.Event()
        self._consumer: AIOKafkaConsumer | None = None

    @property
    def ready(self) -> bool:
        """Whether every partition assigned is open and restored, and nothing waits for the registry for long."""
        now_s = time.monotonic()
        held_too_long = any(
            run.held_since_s is not None and now_s - run.held_since_s > _HELD_READY_LIMIT_S for run in self._runs
        )
        return self._settled and self._assigned == self._lanes.partitions and not held_too_long

    @property
    def still_s(self) -> float:
        """For how long nothing moved, here or in a thread. Restoring counts as moving."""
        if self._is_opening:
            return 0.0
        return max(time.monotonic() - self._moved_s, *(run.busy_s for run in self._runs), 0.0)

    @property
    def has_work(self) -> bool:
        """Whether records are in hand."""
        return any(run.has_work for run in self._runs)

    @property
    def revocation_limit_s(self) -> float:
        """How long the group may be kept waiting for what is in hand: less than a session."""
        return self._settings.session_timeout_ms / 3_000

    def note_gauges(self) -> None:
        """Note how far behind each partition is, and how much state there is."""
        consumer = self._consumer
        if consumer is None:
            return
        assigned, committed = consumer.assignment(), self._lanes.committed()
        ends = {tp: consumer.last_stable_offset(tp) for tp in committed if tp in assigned}
        self._meter.lags(
            {(tp.topic, tp.partition): end - committed[tp] for tp, end in ends.items() if end is not None and end >= 0}
        )
        self._meter.state(self._stage.entries)

    def stop(self) -> None:
        """Ask the task to finish what is in hand and return."""
        self._stopping.set()

    async def run(self) -> None:
        """Read and process until stopped.

        Raises:
            OperatingError: where the brokers failed for too long, memory ran out, or one record took too long.
            ConfigurationError: where the brokers refuse us, or partitions were added.
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
            # Where it stops by itself something is wrong, and nothing in hand is worth a wait.
            await self.give_up(limit_s=self._settings.stop_limit_s if self._stopping.is_set() else 0.0)
            await consumer.stop()

    async def give_up(self, *, limit_s: float) -> None:
        """Close every lane: the partitions may be someone else's next.

        Args:
            limit_s: how long to wait for what is in hand, seconds. What takes longer is left to the next owner.
        """
        self._settled = False
        self._generation += 1
        async with self._lanes_lock:
            self._assigned = set()
            await self._close_lanes(limit_s)

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
            dropped = {run.lane.partition for run in self._dropped if run.is_in_thread}
            missing = self._assigned - self._lanes.partitions - dropped
            if missing:
                await self._open_lanes(consumer, missing, generation)
            await self._look(consumer)
        except MAY_PASS as error:
            await self._recover(error)

    async def _look(self, consumer: AIOKafkaConsumer) -> None:
        """Wait a moment; raise what ended a lane, or stop where a record takes too long."""
        runs = list(self._runs)
        if runs:
            await asyncio.wait([run.task for run in runs], timeout=_LOOK_S, return_when=asyncio.FIRST_COMPLETED)
        else:
            # Nobody else asks, and what the group says is raised to whoever does. What is assigned meanwhile is
            # opened next, with a position.
            with suppress(NoOffsetForPartitionError):
                await consumer.getmany(timeout_ms=self._settings.poll_timeout_ms)
        self._dropped = [run for run in self._dropped if run.is_in_thread]
        for run in runs:
            if run.task.done() and not run.task.cancelled():
                run.task.result()
        self._meter.held(sum(run.held for run in runs))
        self._stop_if_stuck([*runs, *self._dropped])

    def _stop_if_stuck(self, runs: Iterable[LaneRun]) -> None:
        limit_s = self._settings.record_limit_s
        for run in runs:
            if run.busy_s > limit_s and run.working_on is not None:
                origin: Origin = run.working_on
                raise OperatingError(
                    "record_stuck",
                    f"the {self._stage.name} stage has worked for more than {limit_s} s on the record at offset "
                    f"{origin.offset} of {origin.topic}, partition {origin.partition}, or on one of the "
                    f"{self._stage.piece_records} from there: it is tried again after a restart, and set aside "
                    "after ASSAY_STREAM_RECORD_ATTEMPTS_MAX attempts",
                )

    async def _open_lanes(self, consumer: AIOKafkaConsumer, missing: set[int], generation: int) -> None:
        async with self._lanes_lock:
            if self._generation != generation:
                return
            started_s = time.monotonic()
            self._is_opening = True
            try:
                await self._lanes.open(consumer, missing)
            finally:
                self._is_opening, self._moved_s = False, time.monotonic()
            self._start_runs(consumer)
            seconds = time.monotonic() - started_s
            self._meter.opened(len(missing), seconds=seconds)
            _log.info("lanes_open", stage=self._stage.name, partitions=sorted(missing), seconds=round(seconds, 3))

    def _start_runs(self, consumer: AIOKafkaConsumer) -> None:
        running = {run.lane.partition for run in self._runs}
        lanes = self._lanes.all()
        self._runs += [
            LaneRun(
                self._settings,
                self._stage,
                lane,
                consumer,
                roles=self._role_of,
                group_id=self._group_id,
                records_max=max(self._settings.batch_records_max // len(lanes), 1),
                quarantine=self._quarantine,
                meter=self._meter,
                on_commit=self._note_commit,
                on_failure=self._note_failure,
                busy_elsewhere=lambda: any(task.has_work for task in self._gives_way_to),
            )
            for lane in lanes
            if lane.partition not in running
        ]

    async def _close_lanes(self, limit_s: float) -> None:
        runs, self._runs = self._runs, []
        await asyncio.gather(*(run.finish(limit_s) for run in runs))
        self._dropped += [run for run in runs if run.is_in_thread]
        self._meter.held(0)
        await self._lanes.close()

    def _note_commit(self, partition: int) -> None:
        # A turn with nothing to do proves nothing; a batch that was written does.
        self._reopenings = 0
        self._failures.pop(partition, None)

    def _note_failure(self, partition: int) -> None:
        self._failures[partition] += 1

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
        async with self._lanes_lock:
            await self._close_lanes(self.revocation_limit_s)
        # A fenced lane has a new owner, who will have it for good once the group has noticed: let it.
        await asyncio.sleep(_REOPENING_PAUSE_S * attempts)


def _stop_if_forbidden(error: Exception) -> None:
    told = explained(error)
    if isinstance(told, ConfigurationError):
        # What this user may not do now it may not do in a second.
        raise told from error
