"""The runner of a stage: joins the stage's consumer group and runs a task for each assigned partition.

1. A batch of an input partition is read, passed to the agent, and its outputs, state and offsets are committed in one
   transaction. The partition task owns the batch until then (``kafka.partition``); the runner owns the partition tasks.
2. One transactional producer per input partition: opening it fences the previous owner (``docs/adr/0003``).
3. A batch that fails makes its task unusable: it is closed and opened again, and the other partitions go on.
4. A rebalance pauses tasks between two batches. One whose partition comes back with the next generation goes on with
   its producer and state. If a generation was missed, the partition may have had another owner: it is opened anew.
5. A record that takes too long stops the worker: a thread cannot be stopped (``docs/adr/0003``).
6. An agent that repeatedly raises on a batch stops the worker (``docs/adr/0003``).

A partition number goes to one member over all topics of the stage, since its state is about all of them. A member
that reads fewer topics than others, as while a stage is restarted to read one more, gets those that it reads. What
aiokafka brings does not fit: its range assignor moves most partitions whenever a member comes or goes, and its sticky
one shares out each topic by itself and keeps its state in the class, for all groups of a process.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import orjson
import structlog
from aiokafka import ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
from aiokafka.errors import (
    InconsistentGroupProtocolError,
    KafkaError,
    NoOffsetForPartitionError,
    UnknownTopicOrPartitionError,
)

from assay_stream.config import Settings
from assay_stream.errors import OperatingError
from assay_stream.kafka.connection import MAY_PASS, Consumer, client_id, open_admin
from assay_stream.kafka.part import UNCOUNTED, PatientPart, StageMetrics, lags_of
from assay_stream.kafka.partition import (
    AgentFailed,
    BatchDropped,
    BatchHandler,
    PartitionTask,
    Suspicion,
    suspicion_after,
)
from assay_stream.kafka.stage import Stage

_VERSION = 0


class StickyAssignor:
    """aiokafka partition assignment strategy with separate state for each consumer.

    Args:
        open_partitions: returns the partition numbers that this member has open, oldest first.
    """

    name = "assay-sticky"
    """As long as this stays, and ``metadata`` is as below, releases can be replaced one worker after the other."""

    def __init__(self, open_partitions: Callable[[], Sequence[int]]) -> None:
        self._open_partitions = open_partitions

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        user_data = orjson.dumps(list(self._open_partitions()))
        return ConsumerProtocolMemberMetadata(_VERSION, list(topics), user_data)

    def assign(
        self, cluster: Any, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        topics = {topic for member in members.values() for topic in member.subscription}
        numbers = {topic: set(cluster.partitions_for_topic(topic) or ()) for topic in sorted(topics)}
        claims = {name: _claims(member.user_data) for name, member in members.items()}
        shares = share_out(set().union(*numbers.values()), claims)
        return {
            name: ConsumerProtocolMemberAssignment(
                _VERSION, [(topic, sorted(share & numbers[topic])) for topic in sorted(members[name].subscription)], b""
            )
            for name, share in shares.items()
        }

    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:
        """Do nothing: open partitions are queried when needed."""


async def other_release(settings: Settings, group_id: str) -> OperatingError:
    """Return the error for a worker whose group has members of a release with another assignment strategy."""
    async with open_admin(settings) as admin:
        (answer,) = await admin.describe_consumer_groups([group_id])
    _, _, _, _, protocol, members, *_ = answer.groups[0]
    names = sorted({f"{client} at {host.strip('/')}" for _, client, host, *_ in members})
    return OperatingError(
        "other_release",
        f"this is {client_id(settings)}, and group {group_id} has workers of another release "
        f"({', '.join(names) or 'gone by now'}), which share partitions out by {protocol or 'another rule'} and not by "
        f"{StickyAssignor.name}: these cannot work side by side. It waits until they have stopped",
    )


def share_out(numbers: Collection[int], claims: Mapping[str, Iterable[int]]) -> dict[str, set[int]]:
    """Assign partition numbers to members; their counts differ by one at most.

    Args:
        claims: partitions each member would keep, in order of preference. Of two claimants, the first by name gets it.
    """
    each, larger_shares = divmod(len(numbers), len(claims))
    left, shares = set(numbers), dict[str, set[int]]()
    for name in sorted(claims):
        kept = [number for number in dict.fromkeys(claims[name]) if number in left][: each + (larger_shares > 0)]
        larger_shares -= len(kept) > each
        shares[name] = set(kept)
        left -= shares[name]
    for number in sorted(left):
        min(shares.items(), key=lambda share: (len(share[1]), share[0]))[1].add(number)
    return shares


def _claims(user_data: bytes | None) -> list[int]:
    """Return what a member claims: whatever a later release writes there, what is no number claims nothing."""
    try:
        claimed = orjson.loads(user_data or b"[]")
    except ValueError:
        return []
    return [number for number in claimed if type(number) is int] if isinstance(claimed, list) else []


_log = structlog.get_logger(__name__)

_AGENT_FAILURES_MAX = 3
"""An agent's failure is usually deterministic."""
_LOOK_S = 0.1
_GROUP_LOOK_S = 5.0
_FETCH_BYTES = 2 * 1_024 * 1_024
"""Per partition: about one turn's worth. A client fetches no more of a partition until it has delivered everything, so
with a larger size nothing is fetched ahead during a turn. Brokers send a larger record whole.
"""
_FETCH_WAIT_MS_MAX = 500
_FETCH_PARTITIONS = 8
"""Such fetches per response at most, which bounds buffered memory."""
_BUFFERED_READY_LIMIT_S = 5.0
_HEARTBEAT_MS = 1_000
"""Members learn of a rebalance by heartbeat, and those that have learnt of it wait for the others."""
_REBALANCE_LIMIT_MS = 60_000
"""How long a group waits for a live member that is opening partitions. A member not waited for would start over:
its partitions would be opened by others, and then again by itself. For a dead member, the group waits as long as a
session lasts.
"""
_POLL_INTERVAL_MS = 2**31 - 1
"""Calls may wait for the registry indefinitely, so a long time between polls does not indicate death."""


class Runner(PatientPart, ConsumerRebalanceListener):  # type: ignore[misc]
    """Run a stage over its share of the input partitions until stopped.

    Args:
        quarantine: held while a suspicious record is tried alone: shared by all runners of a process, so that it
            tries one suspect at a time.
        gives_way_to: runners of the process with higher priority.

    Attributes:
        group_id: the consumer group; transactional ids begin with it.
        waiting_for: that a group has members of another release, or which topics are missing.
    """

    def __init__(
        self,
        stage: Stage[Any],
        agent: BatchHandler,
        *,
        metrics: StageMetrics = UNCOUNTED,
        quarantine: asyncio.Lock | None = None,
        gives_way_to: Sequence[Runner] = (),
    ) -> None:
        self.topology, settings = stage.topology, stage.topology.settings
        name = settings.group_instance_id
        # aiokafka does not know the error of a member that is fenced by another one (KIP-345).
        hint = f", and whether another worker is called {name}" if name else ""
        super().__init__(f"the {stage.name} stage", settings, metrics=metrics, hint=hint)
        self.stage = stage
        self.agent = agent
        self.quarantine = asyncio.Lock() if quarantine is None else quarantine
        self.group_id = f"{settings.group_prefix}-{stage.name}"
        self._gives_way_to = gives_way_to
        self._consumer: Consumer | None = None
        self._lock = asyncio.Lock()
        """Held while opening, pausing and closing tasks."""
        self._open: dict[int, PartitionTask] = {}
        self._paused: dict[int, PartitionTask] = {}
        self._dropped: list[PartitionTask] = []
        """Tasks closed while their threads were working."""
        self._own_marks: dict[int, tuple[dict[TopicPartition, int], str, Suspicion]] = {}
        """Marks of tasks whose agent raised. This process is alive, so they do not indicate a dead owner."""
        self._assigned: set[int] = set()
        self._settled = False
        """Whether our partitions are assigned: between a revocation and the next assignment they are unknown."""
        self._openings = 0
        self._failures: Counter[int] = Counter()
        """Consecutive batch failures by partition, quiet turns in between or not."""
        self._agent_failures: Counter[int] = Counter()
        self.moved_s = time.monotonic()
        self._is_opening = False

    @property
    def ready(self) -> bool:
        """Whether every assigned partition is open, and no record has waited long for the registry."""
        now_s = time.monotonic()
        waits_too_long = any(
            task.buffered_since_s is not None and now_s - task.buffered_since_s > _BUFFERED_READY_LIMIT_S
            for task in self._open.values()
        )
        is_settled = self._settled and self.waiting_for is None
        return is_settled and self._assigned == self._open.keys() and not waits_too_long

    @property
    def still_s(self) -> float:
        """Seconds since last progress, here or in a thread. Restoring counts as progress."""
        if self._is_opening:
            return 0.0
        return max(super().still_s, *(task.busy_s for task in self._open.values()), 0.0)

    @property
    def has_work(self) -> bool:
        return any(task.has_work for task in self._open.values())

    @property
    def gives_way(self) -> bool:
        return any(runner.has_work for runner in self._gives_way_to)

    def claims(self) -> list[int]:
        """Return the partitions whose tasks wait for the end of a rebalance, in order of opening.

        Among those opened together, partitions with the same dependencies are adjacent, so they stay together.
        """
        opened = {partition: task.opening for partition, task in self._paused.items()}
        return sorted(opened, key=lambda partition: (opened[partition], self.stage.needed_by(partition), partition))

    def note_gauges(self) -> None:
        if self._consumer is not None:
            committed = {place: offset for task in self._open.values() for place, offset in task.committed.items()}
            self.metrics.lags(lags_of(self._consumer, committed))
            self.metrics.measure("state_entries", self.stage.entries)

    def note_commit(self, partition: int) -> None:
        """Reset a partition's failure count after a written batch. A turn with nothing to do proves nothing."""
        self.failures = 0
        self._failures.pop(partition, None)
        self._agent_failures.pop(partition, None)

    def note_failure(self, partition: int) -> None:
        self._failures[partition] += 1

    async def run(self) -> None:
        """Read and process until stopped. While a group shares partitions out in another way, wait for its end.

        Raises:
            OperatingError: the brokers failed again and again, memory ran out, or one record took too long.
            ConfigurationError: the brokers refuse us, partitions were added, or a later release has finalised its
                format.
            IntegrityError: our own logs contradict each other, or hold what this release does not know.
        """
        while not self.stopping.is_set():
            try:
                await self._run_in_group()
            except InconsistentGroupProtocolError:
                self.moved_s, before = time.monotonic(), self.waiting_for
                with suppress(*MAY_PASS, OperatingError):  # brokers that are away are met again
                    self.waiting_for = str(await other_release(self.settings, self.group_id))
                if self.waiting_for is None or self.waiting_for != before:
                    _log.warning("waiting_for_group", stage=self.stage.name, why=self.waiting_for)
                await self.pause(_GROUP_LOOK_S)

    async def _run_in_group(self) -> None:
        session_ms = self.settings.session_timeout_ms
        consumer = self._consumer = self.topology.clients.consumer(
            group_id=self.group_id,
            # Static membership (KIP-345).
            group_instance_id=self.settings.group_instance_id or None,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=max(session_ms, _REBALANCE_LIMIT_MS),
            heartbeat_interval_ms=min(session_ms // 3, _HEARTBEAT_MS),
            max_poll_interval_ms=_POLL_INTERVAL_MS,
            # Brokers answer a connection in order: other requests wait for the fetch, and records of one partition
            # wait for those of others.
            fetch_max_wait_ms=min(self.settings.poll_timeout_ms, _FETCH_WAIT_MS_MAX),
            max_partition_fetch_bytes=_FETCH_BYTES,
            fetch_max_bytes=_FETCH_PARTITIONS * _FETCH_BYTES,
            partition_assignment_strategy=(StickyAssignor(self.claims),),
        )
        consumer.subscribe([self.topology.names[role] for role in self.stage.input_roles], listener=self)
        try:
            await consumer.start()
            while not self.stopping.is_set():
                await self._turn(consumer)
        finally:
            self._unsettle()
            async with self._lock:
                # If it stops because something is wrong, batches in hand are not waited for.
                limit_s = self.settings.stop_limit_s if self.stopping.is_set() else 0.0
                await self._close([*self._open, *self._paused], limit_s)
            await consumer.stop()

    # The group

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Pause every task: partitions may move to another member, but most come back."""
        self._unsettle()
        async with self._lock:
            tasks, self._open = list(self._open.values()), {}
            # The group waits for the batches in hand, for less than a session.
            limit_s = self.settings.session_timeout_ms / 3_000
            await asyncio.gather(*(task.finish(limit_s) for task in tasks))
            for task in tasks:
                if task.may_go_on:
                    task.running = None
                    self._paused[task.partition] = task
            await self._discard([task for task in tasks if not task.may_go_on])
            self.metrics.measure("buffered", 0)

    def _unsettle(self) -> None:
        self._settled = False
        self._assigned = set()

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Record the assigned partition numbers; the main loop opens them and closes all others.

        A number counts only if it is assigned for every input topic, added partitions included. While some members of a
        group read more topics than others, as while they are upgraded, two of them may share the partitions of one
        number: neither opens it then.
        """
        roles, known = self.stage.input_roles, self.topology.counts
        counts = Counter(tp.partition for tp in assigned)
        self._assigned = {n for n, count in counts.items() if count == len(roles) or n >= known[roles[0]]}
        self._settled, self.waiting_for = True, None
        if self._consumer is not None:
            topics = [self.topology.names[role] for role in roles]
            # A topic that was deleted has no partitions: its stage would pass for one that has nothing to do.
            if missing := [topic for topic in topics if not self._consumer.partitions_for_topic(topic)]:
                self.waiting_for = f"topics that it reads are missing: {', '.join(missing)}"
                _log.error("inputs_missing", stage=self.stage.name, topics=missing)
            member = self._consumer.member()
            for number, task in self._paused.items():
                # Paused tasks are ours in this generation, too, before they can be resumed.
                if number in self._assigned and member.follows(task.member):
                    task.member = member
        _log.info("partitions_assigned", stage=self.stage.name, partitions=sorted(self._assigned))

    # The main loop

    async def _turn(self, consumer: Consumer) -> None:
        self.moved_s = time.monotonic()
        try:
            if self._settled and (self._missing() or self._paused):
                async with self._lock:
                    # A rebalance may have come meanwhile.
                    if self._settled:
                        await self._take_over(consumer, self._missing())
            if self._settled and self.waiting_for is not None:
                # For a while: brokers that start may not know of it yet. After a restart its name is the error.
                raise UnknownTopicOrPartitionError(self.waiting_for)
            await self._look(consumer)
        except InconsistentGroupProtocolError:
            raise
        except (AgentFailed, *MAY_PASS) as error:
            await self._recover(error)

    def _missing(self) -> set[int]:
        """Return the assigned partitions that can be opened: no thread is using an old state of theirs."""
        self._dropped = [task for task in self._dropped if task.is_in_thread]
        return self._assigned - self._open.keys() - {task.partition for task in self._dropped}

    async def _look(self, consumer: Consumer) -> None:
        tasks = list(self._open.values())
        running = {task.running: task for task in tasks if task.running is not None}
        if running:
            await asyncio.wait(running, timeout=_LOOK_S, return_when=asyncio.FIRST_COMPLETED)
        else:
            # No task is polling, so poll here: group errors are raised from ``getmany``. Partitions assigned meanwhile
            # have no position until they are opened.
            with suppress(NoOffsetForPartitionError):
                await consumer.getmany(timeout_ms=self.settings.poll_timeout_ms)
        for ended, task in running.items():
            if ended.cancelled() and not task.is_dropped:
                # Not by us: a client cancels its own fetches in an outage, and with them who waits for one.
                raise KafkaError(f"the task of partition {task.partition} was cancelled")
            if ended.done() and not ended.cancelled():
                # A rebalance took the partition meanwhile, and a client swallowed the cancellation.
                with suppress(BatchDropped):
                    ended.result()
        self.metrics.measure("buffered", sum(task.buffered for task in tasks))
        limit_s = self.settings.record_limit_s
        for task in (*tasks, *self._dropped):
            origin = task.working_on
            if task.busy_s > limit_s and origin is not None:
                raise OperatingError(
                    "record_stuck",
                    f"the {self.stage.name} stage has worked for more than {limit_s} s on the record at offset "
                    f"{origin.offset} of {origin.topic}, partition {origin.partition}, or on one of the "
                    f"{self.stage.piece_records} from there: it is tried again after a restart, and set aside "
                    "after ASSAY_STREAM_RECORD_ATTEMPTS_MAX attempts",
                )

    # Opening and closing

    async def _take_over(self, consumer: Consumer, missing: set[int]) -> None:
        started_s, self._is_opening = time.monotonic(), True
        # A member that owned them in between and died may have left a transaction open.
        member = consumer.member()
        outdated = {number for number, task in self._paused.items() if not member.follows(task.member)}
        kept = missing & self._paused.keys() - outdated
        try:
            await self._close(self._paused.keys() - kept)
            await self._start(consumer, kept, missing - kept)
        finally:
            self._is_opening, self.moved_s = False, time.monotonic()
        seconds = self.moved_s - started_s
        self.metrics.measure("opened", len(missing))
        self.metrics.measure("opening_seconds", seconds)
        _log.info(
            "partitions_open",
            stage=self.stage.name,
            partitions=sorted(missing),
            kept=sorted(kept),
            seconds=round(seconds, 3),
        )

    async def _start(self, consumer: Consumer, kept: set[int], new: set[int]) -> None:
        """Resume paused tasks, and open others concurrently: where one cannot be opened, the others run."""
        self._openings += 1
        records_max = max(self.settings.batch_records_max // max(len(self._open) + len(kept) + len(new), 1), 1)
        if kept:
            places = [place for number in kept for place in self._paused[number].committed]
            beginnings = await consumer.beginning_offsets(places)
            for number in kept:
                task = self._paused[number]
                task.seek(beginnings)
                self._open[number] = self._paused.pop(number)
                task.start(records_max)
        await _every(self._open_task(consumer, number, records_max) for number in sorted(new))

    async def _open_task(self, consumer: Consumer, number: int, records_max: int) -> None:
        task = PartitionTask(self, consumer, number, opening=self._openings)
        try:
            await task.open()
        except BaseException:
            await task.close()
            raise
        positions, metadata, suspicion = self._own_marks.pop(number, ({}, "", Suspicion()))
        is_own = metadata and (positions, metadata) == (task.committed, task.metadata)
        task.suspicion = suspicion if is_own else suspicion_after(task.metadata)
        self._open[number] = task
        task.start(records_max)

    async def _close(self, numbers: Iterable[int], limit_s: float = 0.0) -> None:
        tasks = [kind.pop(number) for number in list(numbers) for kind in (self._open, self._paused) if number in kind]
        await asyncio.gather(*(task.finish(limit_s) for task in tasks))
        await self._discard(tasks)
        self.metrics.measure("buffered", sum(task.buffered for task in self._open.values()))

    async def _discard(self, tasks: Sequence[PartitionTask]) -> None:
        self._dropped += [task for task in tasks if task.is_in_thread]
        for task in tasks:
            if task.agent_failed and task.metadata:
                self._own_marks[task.partition] = (task.committed, task.metadata, task.suspicion)
        await _every(task.close() for task in tasks)

    # Failures

    async def _recover(self, error: Exception) -> None:
        async with self._lock:
            await self._close([task.partition for task in self._open.values() if task.running and task.running.done()])
        if not isinstance(error, AgentFailed):
            # A fenced task's partition has a new owner: the pause gives the group time to notice.
            self.failures = max(self.failures, *(count - 1 for count in self._failures.values()), 0)
            await self.endure(error)
            return
        self._agent_failures[error.partition] += 1
        failures = self._agent_failures[error.partition]
        text = (
            f"the {self.stage.name} agent failed {failures} times in a row on a batch of partition {error.partition}, "
            f"last with {error.cause}"
        )
        if failures > _AGENT_FAILURES_MAX:
            why = f"{text}: nothing of the batch is written, and it is read again after a restart"
            raise OperatingError("agent_failed", why) from error
        await self.pause_after(failures, text)


async def _every(steps: Iterable[Coroutine[None, None, None]]) -> None:
    """Run steps concurrently; when all have ended, raise the first error."""
    for result in await asyncio.gather(*steps, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
