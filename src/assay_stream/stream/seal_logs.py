"""The logs of one topic in Kafka, for code that reads them one record after the other and several times.

Where each log ends is settled once, at the start: what is written later is not read.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Coroutine, Iterator
from typing import Any, TypeVar

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from assay_stream.config import Settings
from assay_stream.core.errors import OperatingError
from assay_stream.core.record import Record, Role
from assay_stream.forensics.seal_files import LogName
from assay_stream.stream.connection import reading_consumer
from assay_stream.stream.lookup import partition_count
from assay_stream.stream.topics import topic_names
from assay_stream.stream.transport import record_of

_T = TypeVar("_T")


class KafkaLogs:
    """The logs of one topic.

    Args:
        settings: the operator's settings.
        role: what the topic carries.
        runner: runs what is asynchronous; it must live as long as this does.

    Raises:
        ConfigurationError: ``topic_missing``.
        OperatingError: ``broker_unreachable`` or ``brokers_failing``; the latter also while records are read.
    """

    def __init__(self, settings: Settings, role: Role, runner: asyncio.Runner) -> None:
        self._settings = settings
        self._role = role
        self._runner = runner
        self._topic = topic_names(settings)[role]
        self._beginnings, self._ends = self._run(self._bounds())

    def names(self) -> list[LogName]:
        """Return which logs there are, sorted."""
        return sorted(LogName(self._topic, partition.partition) for partition in self._ends)

    def start(self, name: LogName) -> int:
        """Return the offset at which a log begins now.

        Args:
            name: which log.
        """
        return self._beginnings.get(TopicPartition(*name), 0)

    def records(self, name: LogName) -> Iterator[Record]:
        """Yield the committed records of a log.

        Args:
            name: which log.
        """
        partition = TopicPartition(*name)
        if self._ends.get(partition, 0) <= self.start(name):
            return
        batches = self._batches(partition)
        try:
            while (batch := self._run(_next(batches))) is not None:
                yield from batch
        finally:
            self._run(_close(batches))

    def _run(self, step: Coroutine[Any, Any, _T]) -> _T:
        try:
            return self._runner.run(step)
        except (KafkaError, OSError, TimeoutError) as error:
            raise OperatingError(
                "brokers_failing", f"reading {self._topic} failed with {type(error).__name__}: try again"
            ) from error

    async def _bounds(self) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        count = await partition_count(self._settings, self._topic)
        partitions = [TopicPartition(self._topic, number) for number in range(count)]
        consumer = reading_consumer(self._settings)
        await consumer.start()
        try:
            return await consumer.beginning_offsets(partitions), await consumer.end_offsets(partitions)
        finally:
            await consumer.stop()

    async def _batches(self, partition: TopicPartition) -> AsyncGenerator[list[Record], None]:
        consumer = reading_consumer(self._settings)
        consumer.assign([partition])
        await consumer.start()
        try:
            consumer.seek(partition, self._beginnings[partition])
            position, moved_s = self._beginnings[partition], time.monotonic()
            while position < self._ends[partition]:
                fetched = await consumer.getmany(partition, timeout_ms=200)
                batch = [record_of(self._role, message) for message in fetched.get(partition, [])]
                batch = [record for record in batch if record.origin.offset < self._ends[partition]]
                if batch:
                    yield batch
                reached = await consumer.position(partition)
                if reached > position:
                    position, moved_s = reached, time.monotonic()
                elif time.monotonic() - moved_s > self._settings.connect_limit_s:
                    raise TimeoutError
        finally:
            await consumer.stop()


async def _next(batches: AsyncGenerator[list[Record], None]) -> list[Record] | None:
    return await anext(batches, None)


async def _close(batches: AsyncGenerator[list[Record], None]) -> None:
    await batches.aclose()
