"""A topic that others write, read once: what it holds now, in no consumer group. Nothing is created or committed."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from aiokafka import TopicPartition

from assay_stream.config import Settings
from assay_stream.errors import ConfigurationError
from assay_stream.kafka.connection import open_admin
from assay_stream.kafka.ranges import start_reader

_POLL_MS = 200
_BATCH_RECORDS_MAX = 500


async def values_of(settings: Settings, topic: str) -> AsyncGenerator[tuple[str, bytes], None]:
    """Yield the values of a topic with the place of each in words, partition by partition.

    Raises:
        ConfigurationError: ``topic_missing``, or why the brokers refuse us.
        OperatingError: ``broker_unreachable``.
    """
    async with open_admin(settings) as admin:
        if topic not in await admin.list_topics():
            raise ConfigurationError("topic_missing", f"no such topic: {topic}. Check its name")
        [described] = await admin.describe_topics([topic])
    consumer = await start_reader(settings)
    try:
        partitions = [TopicPartition(topic, each["partition"]) for each in described["partitions"]]
        firsts, ends = await consumer.beginning_offsets(partitions), await consumer.end_offsets(partitions)
        for partition in sorted(partitions):
            consumer.assign([partition])
            consumer.seek(partition, firsts[partition])
            while await consumer.position(partition) < ends[partition]:
                fetched = await consumer.getmany(partition, timeout_ms=_POLL_MS, max_records=_BATCH_RECORDS_MAX)
                for message in fetched.get(partition, []):
                    if message.offset < ends[partition] and message.value is not None:
                        yield f"{topic}, partition {partition.partition}, offset {message.offset}", message.value
    finally:
        await consumer.stop()
