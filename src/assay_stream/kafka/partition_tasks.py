"""The lanes of a worker: one for each input partition number that it has, with a producer and a state of its own.

The order in which a lane is opened is what keeps others out: its producer first, which ends the old owner's
transaction and shuts it out; then the stage's state, from the committed end of its log; then the start positions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass, field

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition

from assay_stream.config import Settings
from assay_stream.errors import ConfigurationError, IntegrityError
from assay_stream.kafka.attempts import Suspicion, decode_mark, suspicion_after
from assay_stream.kafka.stage import Stage
from assay_stream.kafka.transport import TransactionalWriter
from assay_stream.model.record import Role
from assay_stream.worker.metrics import StageMeter

_log = structlog.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class Lane:
    """One input partition number, over all topics of the stage.

    Args:
        partition: its number.
        writer: its producer.
        committed: the next offset to read of each of its partitions, as it was committed.
        metadata: what was committed with them: the mark of an owner that has begun on records, or nothing.
        suspicion: what the owner before this one makes suspect.
    """

    partition: int
    writer: TransactionalWriter
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    metadata: str = ""
    suspicion: Suspicion = field(default_factory=Suspicion)


class Lanes:
    """Opens and closes the lanes of one stage. It is no concern of theirs whose turn it is: callers hold a lock.

    Args:
        settings: the operator's settings.
        stage: restores and drops the state of a partition.
        topics: topic name of every role.
        partition_counts: how many partitions each role's topic has.
        meter: where to count.
        group_id: the consumer group; the transactional ids begin with it.
    """

    def __init__(
        self,
        settings: Settings,
        stage: Stage,
        *,
        topics: Mapping[Role, str],
        partition_counts: Mapping[Role, int],
        meter: StageMeter,
        group_id: str,
    ) -> None:
        self._settings = settings
        self._stage = stage
        self._topics = topics
        self._partition_counts = partition_counts
        self._meter = meter
        self._group_id = group_id
        self._open: dict[int, Lane] = {}

    @property
    def partitions(self) -> set[int]:
        """Which partition numbers are open."""
        return set(self._open)

    def all(self) -> list[Lane]:
        """Return every lane that is open."""
        return list(self._open.values())

    def committed(self) -> dict[TopicPartition, int]:
        """Return how far each partition was committed."""
        return {partition: offset for lane in self._open.values() for partition, offset in lane.committed.items()}

    async def open(self, consumer: AIOKafkaConsumer, partitions: Iterable[int]) -> None:
        """Take partitions over, and set the consumer to where each goes on.

        Args:
            consumer: reads the partitions.
            partitions: their numbers.

        Raises:
            KafkaError: a lane could not be opened; those that could are open.
        """
        await every(self._open_lane(consumer, partition) for partition in sorted(partitions))

    async def close(self) -> None:
        """Close every lane; what was not committed is left to the next owner."""
        lanes, self._open = self._open, {}
        for partition in lanes:
            self._stage.close(partition)
        await every(lane.writer.close() for lane in lanes.values())

    async def _open_lane(self, consumer: AIOKafkaConsumer, partition: int) -> None:
        inputs = self._inputs(partition)
        writer = TransactionalWriter(
            self._settings,
            transactional_id=f"{self._group_id}-{partition}",
            topics=self._topics,
            partition_counts=self._partition_counts,
        )
        lane = Lane(partition=partition, writer=writer)
        try:
            await writer.open()
            overriding = await self._stage.open(partition)
            done_before = await self._stage.done_before(partition)
            beginnings = await consumer.beginning_offsets(inputs)
            noted = await _committed(consumer, inputs)
            lane.metadata = next((metadata for _, metadata in noted.values() if metadata), "")
            lane.suspicion = suspicion_after(decode_mark(lane.metadata))
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
                        mend="its topic of states lost records: this input is read from its beginning",
                    )
                lane.committed[topic_partition] = -1 if position is None else position
                consumer.seek(topic_partition, self._start(topic_partition, position, beginnings[topic_partition]))
        except BaseException:
            await writer.close()
            raise
        self._open[partition] = lane

    def _inputs(self, partition: int) -> list[TopicPartition]:
        roles = self._stage.input_roles
        if all(partition >= self._partition_counts[role] for role in roles):
            raise ConfigurationError(
                "partitions_added",
                f"{self._topics[roles[0]]} has a partition {partition} now and had "
                f"{self._partition_counts[roles[0]]} partitions when this worker started. Added partitions move "
                "keys away from what is known of them: create a deployment with more partitions beside this one "
                "(ASSAY_STREAM_TOPIC_PREFIX, ASSAY_STREAM_GROUP_PREFIX)",
            )
        return [TopicPartition(self._topics[role], partition) for role in roles]

    async def _check_reset(
        self, consumer: AIOKafkaConsumer, partition: TopicPartition, committed: int | None, done: int
    ) -> None:
        """Say that the group lost offsets, or was set back; what is done is not done again."""
        end = (await consumer.end_offsets([partition]))[partition]
        if done > end:
            raise IntegrityError(
                "outputs_ahead",
                f"the outputs of the {self._stage.name} stage go up to offset {done} of {partition.topic}, "
                f"partition {partition.partition}, which ends at {end}: was the topic made anew? Use a new "
                "ASSAY_STREAM_TOPIC_PREFIX, or bring the topic back",
            )
        _log.error(
            "offsets_reset",
            stage=self._stage.name,
            topic=partition.topic,
            partition=partition.partition,
            committed=committed,
            going_on_at=done,
            mend="the group's offsets were lost or set back: nothing is done twice, replay if that was wanted",
        )

    def _start(self, partition: TopicPartition, position: int | None, beginning: int) -> int:
        if position is None:
            return beginning
        if position < beginning:
            # Retention was shorter than the outage: the records are gone, and that must not pass in silence.
            self._meter.lost(beginning - position)
            _log.error(
                "input_expired",
                topic=partition.topic,
                partition=partition.partition,
                first_lost_offset=position,
                lost=beginning - position,
                mend="records expired before they were read: lengthen retention.ms",
            )
            return beginning
        return position


async def _committed(
    consumer: AIOKafkaConsumer, partitions: list[TopicPartition]
) -> dict[TopicPartition, tuple[int | None, str]]:
    """Return the group's committed offsets with their metadata, which the consumer itself does not give."""
    found = await consumer._coordinator.fetch_committed_offsets(partitions)
    return {tp: (None if told.offset < 0 else told.offset, told.metadata or "") for tp, told in found.items()}


async def every(steps: Iterable[Coroutine[None, None, None]]) -> None:
    """Run steps side by side; when all have ended, raise the first error there was.

    Args:
        steps: what to run.
    """
    for result in await asyncio.gather(*steps, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
