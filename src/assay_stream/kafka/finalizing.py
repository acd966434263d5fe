"""Finalise a format level: which one is in force, whether every worker can read the next one, and the record of it."""

from __future__ import annotations

import re
import time
from typing import NamedTuple

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import GroupCoordinatorNotAvailableError, for_code

from assay_stream.config import Settings
from assay_stream.kafka.connection import start_producer
from assay_stream.kafka.publishing import disconnect
from assay_stream.kafka.ranges import LogRanges
from assay_stream.kafka.topics import STAGES, topic_names
from assay_stream.model.record import Record, Role
from assay_stream.model.state_table import KEY, read_level, stated_level, write_level

_LEVEL = re.compile(r"assay-stream-.*-level([1-9][0-9]{0,8})(?:-|$)")
"""Of a client id, as ``kafka.connection.client_id`` makes it."""


class Member(NamedTuple):
    """A member of a consumer group of the stages.

    Args:
        name: client id and host.
        level: the highest format level that it reads; 0 if its client id does not say.
    """

    group_id: str
    name: str
    level: int


async def finalised_level(settings: Settings) -> int:
    """Return the format level that workers write.

    Raises:
        ConfigurationError: ``format_too_new``, ``topic_missing``.
        OperatingError: ``broker_unreachable``.
    """
    return max(map(read_level, await _stated(settings)), default=1)


async def show_level(settings: Settings) -> tuple[int, str]:
    """Return the format level and which release finalised it, even if it is too new for this one."""
    return max(map(stated_level, await _stated(settings)), default=(1, ""))


async def _stated(settings: Settings) -> list[Record]:
    async with LogRanges(settings, [Role.FORMATS]) as logs:
        return [record async for record in logs.records(Role.FORMATS) if record.key == KEY]


async def list_members(admin: AIOKafkaAdminClient, settings: Settings) -> list[Member]:
    """Return the members of the groups of the stages and of users' agents.

    Nothing else that reads state topics is in a group: the store, the console and commands.
    """
    of_agents = topic_names(settings)[Role.AGENT_STATES]
    agents = [topic.removeprefix(of_agents) for topic in await admin.list_topics() if topic.startswith(of_agents)]
    inputs = (Role.EVIDENCE, Role.FINDINGS, Role.ALERTS, Role.DEFINITIONS)
    names = [*STAGES, *(f"agents-{name}{of}" for name in agents for of in ("", *(f"-{role}" for role in inputs)))]
    found = []
    for name in names:
        try:
            # One by one: aiokafka cannot read an answer about several groups.
            (answer,) = await admin.describe_consumer_groups([f"{settings.group_prefix}-{name}"])
        except GroupCoordinatorNotAvailableError:
            if await admin.list_consumer_groups():
                raise
            # No group has ever been on this cluster: nobody coordinates any.
            return []
        ((error_code, group_id, _, _, _, members, *_),) = answer.groups
        if error_code:
            raise for_code(error_code)(group_id)
        for _, client_id, host, *_ in members:
            level = _LEVEL.match(client_id)
            found.append(Member(group_id, f"{client_id} at {host.strip('/')}", int(level[1]) if level else 0))
    return sorted(found)


async def write_finalised(settings: Settings, level: int) -> None:
    """Finalise a level: one record, so that a deployment has one level at any time."""
    producer = await start_producer(settings)
    now_ms = time.time_ns() // 1_000_000
    try:
        topic, value = topic_names(settings)[Role.FORMATS], write_level(level)
        await (await producer.send(topic, key=KEY, value=value, headers=[], timestamp_ms=now_ms, partition=0))
    finally:
        await disconnect(producer)
