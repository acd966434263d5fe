"""Reading parts of the logs for somebody who looks back: by assignment and offset, committed records only.

No consumer group is joined and no offset is committed: whoever looks back leaves no trace in the stages' own.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from types import TracebackType

from aiokafka import AIOKafkaConsumer, TopicPartition

from assay_stream.config import Settings
from assay_stream.errors import ConfigurationError
from assay_stream.kafka.connection import reading_consumer, start_admin
from assay_stream.kafka.set_aside import marked, read_set_aside
from assay_stream.kafka.topics import topic_names
from assay_stream.kafka.transport import record_of
from assay_stream.model.record import Origin, Record, Role

_INPUTS = frozenset({Role.SNAPSHOTS, Role.CONTROL, Role.CALLS})
_POLL_MS = 200
_BATCH_RECORDS_MAX = 5_000


class LogRanges:
    """The topics of a deployment as they are at one moment: what arrives later is not read.

    Args:
        settings: the operator's settings.
        roles: which topics.
    """

    def __init__(self, settings: Settings, roles: Sequence[Role]) -> None:
        self._settings = settings
        self._roles = roles
        self._names = topic_names(settings)
        self._consumers: list[AIOKafkaConsumer] = []
        self._set_aside: frozenset[Origin] = frozenset()
        self.bounds: dict[tuple[str, int], tuple[int, int]] = {}
        """The first offset that is there and the first that is not yet, of each partition."""

    async def __aenter__(self) -> LogRanges:
        admin = await start_admin(self._settings)
        try:
            present = set(await admin.list_topics())
            names = [self._names[role] for role in self._roles]
            for name in names:
                if name not in present:
                    raise ConfigurationError(
                        "topic_missing", f"no such topic: {name}. Create it: assay-stream topics apply"
                    )
            described = await admin.describe_topics(names)
        finally:
            await admin.close()
        places = [
            TopicPartition(topic["topic"], partition["partition"])
            for topic in described
            for partition in topic["partitions"]
        ]
        consumer = await self._consumer()
        firsts = await consumer.beginning_offsets(places)
        ends = await consumer.end_offsets(places)
        self.bounds = {(tp.topic, tp.partition): (firsts[tp], ends[tp]) for tp in sorted(places)}
        if not _INPUTS.isdisjoint(self._roles):
            self._set_aside = await read_set_aside(self._settings)
        return self

    async def note_ends(self) -> None:
        """Note anew where each partition ends."""
        places = [TopicPartition(*place) for place in self.bounds]
        ends = await self._consumers[0].end_offsets(places)
        self.bounds = {place: (first, ends[TopicPartition(*place)]) for place, (first, _) in self.bounds.items()}

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for consumer in self._consumers:
            await consumer.stop()

    def partitions(self, role: Role) -> list[int]:
        """Return the partition numbers of a topic.

        Args:
            role: what it carries.
        """
        return [number for topic, number in self.bounds if topic == self._names[role]]

    def starts(self) -> dict[tuple[str, int], int]:
        """Return the first offset that is left of each partition."""
        return {place: first for place, (first, _) in self.bounds.items()}

    async def offset_at(self, role: Role, number: int, time_ms: int) -> int:
        """Return an offset before which no record has this timestamp or a later one.

        Args:
            role: what the topic carries.
            number: the partition.
            time_ms: a timestamp of the log, milliseconds since the epoch.
        """
        place = TopicPartition(self._names[role], number)
        found = (await self._consumers[0].offsets_for_times({place: time_ms}))[place]
        return self.bounds[place.topic, number][1] if found is None else int(found.offset)

    async def read(self, role: Role, number: int, *, first: int = 0) -> AsyncGenerator[list[Record], None]:
        """Yield the records of one partition, in batches, up to where it ended when this was opened.

        Those that the deployment has set aside are marked.

        Args:
            role: what the topic carries.
            number: the partition.
            first: the first offset that is asked for.
        """
        place = TopicPartition(self._names[role], number)
        begin, end = self.bounds[place.topic, number]
        begin = max(begin, first)
        if begin >= end:
            return
        consumer = await self._consumer()
        consumer.assign([place])
        consumer.seek(place, begin)
        try:
            while await consumer.position(place) < end:
                fetched = await consumer.getmany(place, timeout_ms=_POLL_MS, max_records=_BATCH_RECORDS_MAX)
                batch = [record_of(role, message) for message in fetched.get(place, []) if message.offset < end]
                if batch:
                    yield marked(batch, self._set_aside)
        finally:
            self._consumers.remove(consumer)
            await consumer.stop()

    async def read_all(self, role: Role) -> AsyncIterator[list[Record]]:
        """Yield every record of a topic, partition by partition, in batches.

        Args:
            role: what it carries.
        """
        for number in self.partitions(role):
            async for batch in self.read(role, number):
                yield batch

    async def _consumer(self) -> AIOKafkaConsumer:
        consumer = reading_consumer(self._settings)
        self._consumers.append(consumer)
        await consumer.start()
        return consumer
