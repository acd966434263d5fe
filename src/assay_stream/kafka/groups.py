"""Positions of consumer groups, as an archive holds them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from aiokafka.errors import CommitFailedError
from aiokafka.structs import OffsetAndMetadata

from assay_stream.config import Settings
from assay_stream.errors import ConfigurationError
from assay_stream.files.archive import GroupOffset
from assay_stream.kafka.connection import TopicPartition, open_admin, reading_consumer


async def group_offsets(settings: Settings, topics: Collection[str]) -> list[GroupOffset]:
    """Return the committed offsets of all consumer groups in some topics.

    Raises:
        OperatingError: ``broker_unreachable``.
    """
    found = []
    async with open_admin(settings) as admin:
        for group in sorted({group for group, *_ in await admin.list_consumer_groups()}):
            for place, committed in sorted((await admin.list_consumer_group_offsets(group)).items()):
                if place.topic in topics and committed.offset >= 0:
                    found.append(
                        GroupOffset(group, place.topic, place.partition, committed.offset, committed.metadata or "")
                    )
    return found


async def commit_group_offsets(settings: Settings, offsets: Sequence[GroupOffset]) -> None:
    """Set the positions of groups that have no members.

    Raises:
        ConfigurationError: ``group_in_use``.
    """
    for group in sorted({each.group for each in offsets}):
        noted = {
            TopicPartition(each.topic, each.partition): OffsetAndMetadata(each.offset, each.metadata)
            for each in offsets
            if each.group == group
        }
        consumer = reading_consumer(settings, group_id=group)
        consumer.assign(list(noted))
        try:
            await consumer.start()
            await consumer.commit(noted)
        except CommitFailedError:
            raise ConfigurationError("group_in_use", f"processes are in the group {group}: stop them first") from None
        finally:
            await consumer.stop()
