"""The task of a stage: it joins the stage's consumer group and keeps a partition task for each of its partitions.

1. A batch of an input partition is read, given to the agent, and its outputs, state and offsets are committed in one
   transaction.
2. One transactional producer per input partition: opening it fences the previous owner (``docs/adr/0003``).
3. A batch that fails makes its task unusable: it is closed and opened again, and the other partitions go on.
4. A record that is worked on for too long stops the worker: a thread cannot be stopped (``docs/adr/0018``).
5. An agent that raises on a batch again and again stops the worker (``docs/adr/0022``).
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import structlog
from aiokafka import ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import InconsistentGroupProtocolError, NoOffsetForPartitionError, OffsetOutOfRangeError

from assay_stream.config import Settings
from assay_stream.errors import ConfigurationError, OperatingError
from assay_stream.kafka.assignor import StickyAssignor, other_release
from assay_stream.kafka.batch import AgentFailed, BatchDropped, BatchHandler
from assay_stream.kafka.connection import Clients, Consumer, KafkaClients
from assay_stream.kafka.partition_task import MAY_PASS, PartitionTask, TaskContext
from assay_stream.kafka.partition_tasks import PartitionTasks
from assay_stream.kafka.refusals import explained
from assay_stream.kafka.stage import Stage, StageMetrics
from assay_stream.model.record import Role

_log = structlog.get_logger(__name__)

_FAILURES_MAX = 10
"""Broker failures in a row, each with a longer pause: about a minute."""
_AGENT_FAILURES_MAX = 3
"""What an agent raises is mostly the same the next time."""
_REOPENING_PAUSE_S = 1.0
_LOOK_S = 0.1
_FETCH_BYTES = 2 * 1_024 * 1_024
"""Of one partition: about what a turn takes. A client fetches no more of a partition until all it has is taken, so
what is larger is not fetched ahead while a turn is worked on. Brokers send a larger record whole."""
_FETCH_WAIT_MS_MAX = 500
_FETCH_PARTITIONS = 8
"""How many such pieces one answer has at most, which bounds what waits in memory."""
_BUFFERED_READY_LIMIT_S = 5.0
_HEARTBEAT_MS = 1_000
"""Members learn of a rebalance by heartbeat, and those that have learnt of it wait for the others."""
_REBALANCE_LIMIT_MS = 60_000
"""How long a group waits for a member that is alive and opens partitions. One that was not waited for would start over:
its partitions would be opened by others, and then once more by itself. A dead member is waited for as long as a session
lasts."""
_POLL_INTERVAL_MS = 2**31 - 1
"""Calls may wait for the registry for ever, so a long time between two polls is no sign of death."""


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, task: StageTask) -> None:
        self._task = task

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        await self._task.give_up()

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self._task.take_over(self._task.whole_numbers(assigned))


class StageTask:
    """Runs a stage over its share of the input partitions until told to stop.

    Args:
        quarantine: held while a suspicious record is tried: one for all tasks of a process.
        gives_way_to: tasks of the process whose work goes before this one's.
    """

    def __init__(
        self,
        settings: Settings,
        stage: Stage[Any],
        agent: BatchHandler,
        *,
        topics: Mapping[Role, str],
        partition_counts: Mapping[Role, int],
        metrics: StageMetrics | None = None,
        clients: Clients | None = None,
        quarantine: asyncio.Lock | None = None,
        gives_way_to: Sequence[StageTask] = (),
    ) -> None:
        self._settings = settings
        self._stage = stage
        self._metrics = StageMetrics() if metrics is None else metrics
        self._context = TaskContext(
            settings=settings,
            stage=stage,
            agent=agent,
            clients=KafkaClients(settings) if clients is None else clients,
            topics=topics,
            partition_counts=partition_counts,
            metrics=self._metrics,
            quarantine=asyncio.Lock() if quarantine is None else quarantine,
            on_commit=self._note_commit,
            on_failure=self._note_failure,
            busy_elsewhere=lambda: any(task.has_work for task in gives_way_to),
        )
        self._tasks = PartitionTasks(self._context)
        self._tasks_lock = asyncio.Lock()
        self._assigned: set[int] = set()
        self._generation = 0
        self._settled = False
        """Whether the group has said what is ours: between a revocation and the next assignment nobody knows."""
        self._reopenings = 0
        self._failures: Counter[int] = Counter()
        """Partition to how often in a row its batch failed, quiet turns in between or not."""
        self._agent_failures: Counter[int] = Counter()
        self._moved_s = time.monotonic()
        self._is_opening = False
        self._stopping = asyncio.Event()
        self._consumer: Consumer | None = None

    @property
    def ready(self) -> bool:
        """Whether every assigned partition is open, and no record has waited for the registry for long."""
        now_s = time.monotonic()
        waits_too_long = any(
            task.buffered_since_s is not None and now_s - task.buffered_since_s > _BUFFERED_READY_LIMIT_S
            for task in self._tasks.open_tasks
        )
        return self._settled and self._assigned == self._tasks.partitions and not waits_too_long

    @property
    def still_s(self) -> float:
        """For how long nothing moved, here or in a thread, seconds. Restoring counts as moving."""
        if self._is_opening:
            return 0.0
        return max(time.monotonic() - self._moved_s, *(task.busy_s for task in self._tasks.open_tasks), 0.0)

    @property
    def has_work(self) -> bool:
        return any(task.has_work for task in self._tasks.open_tasks)

    @property
    def revocation_limit_s(self) -> float:
        """How long the group may be kept waiting for what is in hand: less than a session."""
        return self._settings.session_timeout_ms / 3_000

    def note_gauges(self) -> None:
        """Note how far behind each partition is, and how much state there is."""
        consumer = self._consumer
        if consumer is None:
            return
        assigned, committed = consumer.assignment(), self._tasks.committed()
        ends = {tp: consumer.last_stable_offset(tp) for tp in committed if tp in assigned}
        self._metrics.lags(
            {(tp.topic, tp.partition): end - committed[tp] for tp, end in ends.items() if end is not None and end >= 0}
        )
        self._metrics.state(self._stage.entries)

    def stop(self) -> None:
        self._stopping.set()

    async def run(self) -> None:
        """Read and process until stopped.

        Raises:
            OperatingError: where the brokers failed for too long, memory ran out, one record took too long, or another
                release is at work.
            ConfigurationError: where the brokers refuse us, or partitions were added.
            IntegrityError: where our own logs contradict each other.
        """
        consumer = self._consumer = self._context.clients.consumer(
            group_id=self._context.group_id,
            session_timeout_ms=self._settings.session_timeout_ms,
            rebalance_timeout_ms=max(self._settings.session_timeout_ms, _REBALANCE_LIMIT_MS),
            heartbeat_interval_ms=min(self._settings.session_timeout_ms // 3, _HEARTBEAT_MS),
            max_poll_interval_ms=_POLL_INTERVAL_MS,
            # Brokers answer a connection in order: what else is asked waits for the fetch, and records of one partition
            # wait for those of others.
            fetch_max_wait_ms=min(self._settings.poll_timeout_ms, _FETCH_WAIT_MS_MAX),
            max_partition_fetch_bytes=_FETCH_BYTES,
            fetch_max_bytes=_FETCH_PARTITIONS * _FETCH_BYTES,
            partition_assignment_strategy=(StickyAssignor(lambda: self._tasks.paused),),
        )
        consumer.subscribe([self._context.topics[role] for role in self._stage.input_roles], listener=_Listener(self))
        try:
            await consumer.start()
            while not self._stopping.is_set():
                await self._turn(consumer)
        except InconsistentGroupProtocolError as error:
            raise await other_release(self._settings, self._context.group_id) from error
        finally:
            self._unsettle()
            async with self._tasks_lock:
                # Where it stops by itself something is wrong, and nothing in hand is worth a wait.
                limit_s = self._settings.stop_limit_s if self._stopping.is_set() else 0.0
                await self._close(limit_s, self._tasks.partitions.union(self._tasks.paused))
            await consumer.stop()

    async def give_up(self) -> None:
        """Pause every partition task: the partitions may be someone else's next, and most come back."""
        self._unsettle()
        async with self._tasks_lock:
            await self._tasks.pause(self.revocation_limit_s)
            self._metrics.buffered(0)

    def _unsettle(self) -> None:
        self._settled = False
        self._generation += 1
        self._assigned = set()

    def whole_numbers(self, assigned: Iterable[TopicPartition]) -> set[int]:
        """Return the partition numbers of which every input topic's partition is assigned, and added ones.

        While some members of a group read more topics than others, as when the mode changes, two of them may share
        the partitions of one number: neither opens it then.
        """
        roles, known = self._stage.input_roles, self._context.partition_counts
        counts = Counter(tp.partition for tp in assigned)
        return {number for number, count in counts.items() if count == len(roles) or number >= known[roles[0]]}

    def take_over(self, partitions: set[int]) -> None:
        """Note which partition numbers are ours now; the main loop opens them, and closes what is not."""
        self._generation += 1
        self._assigned = partitions
        self._settled = True
        if self._consumer is not None:
            self._tasks.keep(self._consumer, partitions)
        _log.info("partitions_assigned", stage=self._stage.name, partitions=sorted(partitions))

    async def _turn(self, consumer: Consumer) -> None:
        generation = self._generation
        self._moved_s = time.monotonic()
        try:
            dropped = {task.partition for task in self._tasks.dropped}
            missing = self._assigned - self._tasks.partitions - dropped
            if self._settled and (missing or self._tasks.paused):
                await self._open(consumer, missing, generation)
            await self._look(consumer)
        except (AgentFailed, *MAY_PASS) as error:
            await self._recover(error)

    async def _look(self, consumer: Consumer) -> None:
        """Wait a moment; raise what ended a partition task, or stop where a record takes too long."""
        tasks = self._tasks.open_tasks
        running = [task.running for task in tasks if task.running is not None]
        if running:
            await asyncio.wait(running, timeout=_LOOK_S, return_when=asyncio.FIRST_COMPLETED)
        else:
            # Nobody else polls, and what the group says is raised to whoever does. What is assigned meanwhile is
            # opened next, with a position.
            with suppress(NoOffsetForPartitionError):
                await consumer.getmany(timeout_ms=self._settings.poll_timeout_ms)
        for ended in running:
            if ended.done() and not ended.cancelled():
                # A rebalance took the partition meanwhile, and a client swallowed that the task was cancelled.
                with suppress(BatchDropped):
                    ended.result()
        self._metrics.buffered(sum(task.buffered for task in tasks) + self._stage.waiting)
        self._stop_if_stuck([*tasks, *self._tasks.dropped])

    def _stop_if_stuck(self, tasks: Iterable[PartitionTask]) -> None:
        limit_s = self._settings.record_limit_s
        for task in tasks:
            origin = task.working_on
            if task.busy_s > limit_s and origin is not None:
                raise OperatingError(
                    "record_stuck",
                    f"the {self._stage.name} stage has worked for more than {limit_s} s on the record at offset "
                    f"{origin.offset} of {origin.topic}, partition {origin.partition}, or on one of the "
                    f"{self._stage.piece_records} from there: it is tried again after a restart, and set aside "
                    "after ASSAY_STREAM_RECORD_ATTEMPTS_MAX attempts",
                )

    async def _open(self, consumer: Consumer, missing: set[int], generation: int) -> None:
        async with self._tasks_lock:
            if self._generation != generation:
                return
            started_s, self._is_opening = time.monotonic(), True
            kept = missing.intersection(self._tasks.paused)
            try:
                await self._close(0.0, set(self._tasks.paused) - missing)
                await self._tasks.open(consumer, missing)
            finally:
                self._is_opening, self._moved_s = False, time.monotonic()
            seconds = self._moved_s - started_s
            self._metrics.opened(len(missing), seconds=seconds)
            _log.info(
                "partitions_open",
                stage=self._stage.name,
                partitions=sorted(missing),
                kept=sorted(kept),
                seconds=round(seconds, 3),
            )

    async def _close(self, limit_s: float, partitions: Iterable[int]) -> None:
        await self._tasks.close(limit_s, partitions)
        self._metrics.buffered(sum(task.buffered for task in self._tasks.open_tasks))

    def _note_commit(self, partition: int) -> None:
        # A turn with nothing to do proves nothing; a batch that was written does.
        self._reopenings = 0
        self._failures.pop(partition, None)
        self._agent_failures.pop(partition, None)

    def _note_failure(self, partition: int) -> None:
        self._failures[partition] += 1

    async def _recover(self, error: Exception) -> None:
        if isinstance(error, InconsistentGroupProtocolError):
            raise error
        _stop_if_forbidden(error)
        if isinstance(error, OffsetOutOfRangeError):
            _log.warning("offset_out_of_range", stage=self._stage.name)
        failures = self._count_agent(error) if isinstance(error, AgentFailed) else self._count(error)
        cause = error.cause if isinstance(error, AgentFailed) else type(error).__name__
        _log.warning("partitions_reopening", stage=self._stage.name, error=cause, attempt=failures)
        self._metrics.reopened()
        async with self._tasks_lock:
            ended = [task.partition for task in self._tasks.open_tasks if task.running and task.running.done()]
            await self._close(0.0, ended)
        # A fenced task's partition has a new owner, who will have it for good once the group has noticed: let it.
        await asyncio.sleep(_REOPENING_PAUSE_S * failures)

    def _count(self, error: Exception) -> int:
        self._reopenings += 1
        failures = max(self._reopenings, *self._failures.values(), 0)
        if failures > _FAILURES_MAX:
            raise OperatingError(
                "brokers_failing",
                f"the {self._stage.name} stage failed {failures} times in a row, last with "
                f"{type(error).__name__}: see the brokers' logs",
            ) from error
        return failures

    def _count_agent(self, error: AgentFailed) -> int:
        self._agent_failures[error.partition] += 1
        failures = self._agent_failures[error.partition]
        if failures > _AGENT_FAILURES_MAX:
            raise OperatingError(
                "agent_failed",
                f"the {error.name} agent failed {failures} times in a row on a batch of partition "
                f"{error.partition}, last with {error.cause}: nothing of the batch is written, and it is read again "
                "after a restart",
            ) from error
        return failures


def _stop_if_forbidden(error: Exception) -> None:
    told = explained(error)
    if isinstance(told, ConfigurationError):
        # What this user may not do now it may not do in a second.
        raise told from error
