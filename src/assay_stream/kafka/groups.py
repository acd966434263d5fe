"""Positions of consumer groups, as an archive holds them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence

from aiokafka.errors import KafkaError, for_code
from aiokafka.structs import OffsetAndMetadata

from assay_stream.config import Settings
from assay_stream.errors import ConfigurationError
from assay_stream.files.archive import GroupOffset
from assay_stream.kafka.connection import AIOKafkaAdminClient, TopicPartition, open_admin, reading_consumer

_ATTEMPTS_MAX = 10
_PAUSE_S = 1.0


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


async def check_no_members(admin: AIOKafkaAdminClient, groups: Collection[str]) -> None:
    """Make sure that no process is in any of the groups.

    Raises:
        ConfigurationError: ``group_in_use``.
        KafkaError: the coordinators do not answer.
    """
    for attempt in range(_ATTEMPTS_MAX):
        try:
            in_use = [group async for group in _with_members(admin, groups)]
            break
        except KafkaError:
            # A new cluster makes the topic of groups when it is first asked for one.
            if attempt == _ATTEMPTS_MAX - 1:
                raise
            await asyncio.sleep(_PAUSE_S)
    if in_use:
        raise ConfigurationError("group_in_use", f"processes are in the groups {', '.join(in_use)}: stop them first")


async def _with_members(admin: AIOKafkaAdminClient, groups: Collection[str]) -> AsyncIterator[str]:
    for group in sorted(groups):
        for response in await admin.describe_consumer_groups([group]):
            for code, _, state, *_ in response.groups:
                if code:
                    raise for_code(code)
                if state not in ("Empty", "Dead"):
                    yield group


async def commit_group_offsets(settings: Settings, offsets: Sequence[GroupOffset]) -> None:
    """Set the positions of groups that have no members."""
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
        finally:
            await consumer.stop()
