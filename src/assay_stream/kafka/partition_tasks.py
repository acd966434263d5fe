"""Opening, pausing and closing the partition tasks of a stage.

1. The order of opening is what keeps others out (``docs/adr/0003``): first the producer, which ends the transaction
   of the previous owner and fences it; then the start positions, once no open transaction has any; then the stage's
   state, from the committed end of its topic.
2. A rebalance pauses tasks between two batches. One whose partition comes back with the next generation goes on with
   its producer and state. If a generation was missed, the partition may have had another owner: it is opened anew.
"""

import asyncio
from collections.abc import Container, Coroutine, Iterable, Sequence

import structlog
from aiokafka import TopicPartition

from assay_stream.errors import ConfigurationError, IntegrityError
from assay_stream.kafka.attempts import Suspicion, decode_mark, suspicion_after
from assay_stream.kafka.connection import Consumer
from assay_stream.kafka.partition_task import PartitionTask, TaskContext

_log = structlog.get_logger(__name__)


class PartitionTasks:
    """The open partition tasks of one stage. Not safe for concurrent use: callers hold a lock."""

    def __init__(self, context: TaskContext) -> None:
        self._context = context
        self._stage = context.stage
        self._open: dict[int, PartitionTask] = {}
        self._paused: dict[int, PartitionTask] = {}
        self._dropped: list[PartitionTask] = []
        self._openings = 0
        self._own_marks: dict[int, tuple[dict[TopicPartition, int], str, Suspicion]] = {}
        """Marks of tasks whose agent raised. This process lives, so they do not tell of an owner that ended."""

    @property
    def partitions(self) -> set[int]:
        return set(self._open)

    @property
    def paused(self) -> list[int]:
        """Partitions whose tasks wait for the end of a rebalance, those opened first at the front.

        Of those opened together, such as need the same are next to each other, and so stay together.
        """
        opened = {partition: task.opening for partition, task in self._paused.items()}
        return sorted(opened, key=lambda partition: (opened[partition], self._stage.needed_by(partition), partition))

    @property
    def open_tasks(self) -> list[PartitionTask]:
        return list(self._open.values())

    @property
    def dropped(self) -> list[PartitionTask]:
        """Tasks that were closed while their threads worked, and whose threads still do."""
        self._dropped = [task for task in self._dropped if task.is_in_thread]
        return self._dropped

    def committed(self) -> dict[TopicPartition, int]:
        return {partition: offset for task in self._open.values() for partition, offset in task.committed.items()}

    async def open(self, consumer: Consumer, partitions: Iterable[int]) -> None:
        """Take partitions over, set the consumer to where each goes on, and start their tasks.

        Raises:
            KafkaError: a task could not be opened; those that could are open.
        """
        chosen = set(partitions)
        self._openings += 1
        records_max = max(self._context.settings.batch_records_max // max(len(chosen | self._open.keys()), 1), 1)
        # An owner in between that has died since left a transaction open, under the id of any of its partitions.
        outdated = [task for task in self._paused.values() if not consumer.member().follows(task.member)]
        await self.close(0.0, [task.partition for task in outdated])
        await self._resume(consumer, [task for task in self._paused.values() if task.partition in chosen])
        self._start_tasks(consumer, records_max)
        try:
            await _every(self._open_task(consumer, partition) for partition in sorted(chosen - self._open.keys()))
        finally:
            self._start_tasks(consumer, records_max)

    def _start_tasks(self, consumer: Consumer, records_max: int) -> None:
        for task in self._open.values():
            if task.running is None:
                task.start(consumer, records_max=records_max)

    def keep(self, consumer: Consumer, partitions: Container[int]) -> None:
        """Note that paused tasks of some partitions are ours in this generation, too, before they can be resumed."""
        member = consumer.member()
        for task in self._paused.values():
            if task.partition in partitions and member.follows(task.member):
                task.member = member

    async def pause(self, limit_s: float) -> None:
        """Let the batches in hand be committed and stop; close tasks that cannot go on from where they are."""
        tasks, self._open = list(self._open.values()), {}
        await asyncio.gather(*(task.finish(limit_s) for task in tasks))
        for task in tasks:
            if task.may_go_on:
                task.running = None
                self._paused[task.partition] = task
        await self._discard([task for task in tasks if not task.may_go_on])

    async def close(self, limit_s: float, partitions: Iterable[int]) -> None:
        """Close tasks, open or paused; what was not committed is left to the next owner."""
        chosen = set(partitions)
        tasks = [task for task in (*self._open.values(), *self._paused.values()) if task.partition in chosen]
        self._open = {partition: task for partition, task in self._open.items() if partition not in chosen}
        self._paused = {partition: task for partition, task in self._paused.items() if partition not in chosen}
        await asyncio.gather(*(task.finish(limit_s) for task in tasks))
        await self._discard(tasks)

    async def _discard(self, tasks: list[PartitionTask]) -> None:
        self._dropped += [task for task in tasks if task.is_in_thread]
        for task in tasks:
            self._stage.close(task.partition)
            if task.agent_failed and task.metadata:
                self._own_marks[task.partition] = (task.committed, task.metadata, task.suspicion)
        await _every(task.writer.close() for task in tasks)

    async def _resume(self, consumer: Consumer, tasks: Sequence[PartitionTask]) -> None:
        """Set the consumer to where paused tasks go on."""
        if not tasks:
            return
        positions = {tp: offset for task in tasks for tp, offset in task.committed.items()}
        beginnings = await consumer.beginning_offsets(positions)
        for task in tasks:
            for tp, offset in task.committed.items():
                consumer.seek(tp, self._start(tp, None if offset < 0 else offset, beginnings[tp]))
            self._open[task.partition] = self._paused.pop(task.partition)

    async def _open_task(self, consumer: Consumer, partition: int) -> None:
        inputs = self._inputs(partition)
        task = PartitionTask(self._context, partition)
        task.opening = self._openings
        try:
            await task.writer.open()
            noted = await consumer.committed_with_metadata(inputs)
            overriding = await self._stage.open(partition)
            done_before = await self._stage.done_before(partition)
            beginnings = await consumer.beginning_offsets(inputs)
            task.metadata = next((metadata for _, metadata in noted.values() if metadata), "")
            for topic_partition in inputs:
                committed, _ = noted.get(topic_partition, (None, ""))
                position = overriding.get(topic_partition, committed)
                done = done_before.get(topic_partition, 0)
                if done > (position or 0):
                    await self._check_reset(consumer, topic_partition, position, done)
                    position = done
                if position is None and committed:
                    _log.warning(
                        "state_lost",
                        stage=self._stage.name,
                        topic=topic_partition.topic,
                        partition=partition,
                        fix="none needed: its state topic lost records, so this input is read from its beginning",
                    )
                task.committed[topic_partition] = -1 if position is None else position
                consumer.seek(topic_partition, self._start(topic_partition, position, beginnings[topic_partition]))
            task.suspicion = self._suspicion(task)
        except BaseException:
            self._stage.close(partition)
            await task.writer.close()
            raise
        self._open[partition] = task

    def _suspicion(self, task: PartitionTask) -> Suspicion:
        positions, metadata, suspicion = self._own_marks.pop(task.partition, ({}, "", Suspicion()))
        if metadata and (positions, metadata) == (task.committed, task.metadata):
            return suspicion
        return suspicion_after(decode_mark(task.metadata))

    def _inputs(self, partition: int) -> list[TopicPartition]:
        roles, counts, topics = self._stage.input_roles, self._context.partition_counts, self._context.topics
        if all(partition >= counts[role] for role in roles):
            raise ConfigurationError(
                "partitions_added",
                f"{topics[roles[0]]} has a partition {partition} now and had {counts[roles[0]]} partitions when this "
                "worker started: it begins again once the topics of this group have as many",
            )
        return [TopicPartition(topics[role], partition) for role in roles]

    async def _check_reset(
        self, consumer: Consumer, partition: TopicPartition, committed: int | None, done: int
    ) -> None:
        """Report that the group lost offsets, or was set back; what is done is not done again."""
        end = (await consumer.end_offsets([partition]))[partition]
        if done > end:
            raise IntegrityError(
                "outputs_ahead",
                f"the outputs of the {self._stage.name} stage go up to offset {done} of {partition.topic}, "
                f"partition {partition.partition}, which ends at {end}: was the topic recreated? Use a new "
                "ASSAY_STREAM_TOPIC_PREFIX, or restore the topic",
            )
        _log.error(
            "offsets_reset",
            stage=self._stage.name,
            topic=partition.topic,
            partition=partition.partition,
            committed=committed,
            continuing_at=done,
            fix="none needed: the group's offsets were lost or set back, and nothing is done twice; replay redoes it",
        )

    def _start(self, partition: TopicPartition, position: int | None, beginning: int) -> int:
        if position is None:
            return beginning
        if position < beginning:
            # Retention was shorter than the outage: the records are gone, and that must not pass in silence.
            self._context.metrics.lost(beginning - position)
            _log.error(
                "input_expired",
                topic=partition.topic,
                partition=partition.partition,
                first_lost_offset=position,
                lost=beginning - position,
                fix="records expired before they were read: increase retention.ms",
            )
            return beginning
        return position


async def _every(steps: Iterable[Coroutine[None, None, None]]) -> None:
    """Run steps side by side; when all have ended, raise the first error there was."""
    for result in await asyncio.gather(*steps, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
