"""Looking things up in the topics, once and to their end, for an operator's commands, in no consumer group."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from typing import Any

import orjson
from aiokafka import TopicPartition

from assay_stream.config import Settings
from assay_stream.core.attention import Entry, decode_entry
from assay_stream.core.bindings import Bindings
from assay_stream.core.engine import apply_fact
from assay_stream.core.errors import ConfigurationError
from assay_stream.core.finding import Finding
from assay_stream.core.partition import murmur2_partition
from assay_stream.core.record import Record, Role
from assay_stream.stream.connection import start_admin
from assay_stream.stream.topics import topic_names
from assay_stream.stream.transport import read_to_end


async def read_bindings(settings: Settings) -> Bindings:
    """Return everything that the registry has published.

    Args:
        settings: the operator's settings.

    Raises:
        ConfigurationError: ``topic_missing``.
        IntegrityError: where the topic holds what is not ours.
    """
    bindings = Bindings()
    async for record in _records(settings, Role.BINDINGS):
        apply_fact(bindings, record)
    return bindings


async def find_finding(settings: Settings, uid: str) -> Finding | None:
    """Return the latest finding that an alert counts, ``None`` where the topic holds none.

    Args:
        settings: the operator's settings.
        uid: ``finding_info.uid`` of the alert.
    """
    found: Finding | None = None
    async for record in _records(settings, Role.FINDINGS):
        entry = decode_entry(record.value)
        if isinstance(entry, Finding) and entry.uid() == uid:
            found = entry
    return found


async def read_definitions(settings: Settings, digests: Collection[str]) -> dict[str, dict[str, Any]]:
    """Return the definitions with these full digests, as far as the topic holds them.

    Args:
        settings: the operator's settings.
        digests: full digests.
    """
    wanted = {digest.encode() for digest in digests}
    found: dict[str, dict[str, Any]] = {}
    async for record in _records(settings, Role.DEFINITIONS):
        if record.key in wanted and record.value is not None:
            found[record.key.decode()] = orjson.loads(record.value)["definition"]
    return found


async def read_entries(settings: Settings, server_id: str) -> AsyncIterator[Entry]:
    """Yield every entry of the finding topic's partition that a server's findings stand in.

    Args:
        settings: the operator's settings.
        server_id: the server.

    Raises:
        ConfigurationError: ``topic_missing``.
        IntegrityError: where the topic holds what is not ours.
    """
    topic = topic_names(settings)[Role.FINDINGS]
    number = murmur2_partition(server_id.encode(), await _partition_count(settings, topic))
    async for record in read_to_end(settings, Role.FINDINGS, TopicPartition(topic, number)):
        yield decode_entry(record.value)


async def read_records(settings: Settings, role: Role, *, since_ms: int | None = None) -> AsyncIterator[Record]:
    """Yield every committed record that a topic holds now, partition by partition.

    Args:
        settings: the operator's settings.
        role: what the topic carries.
        since_ms: pass over what stands before the first record of this timestamp or later.

    Raises:
        ConfigurationError: ``topic_missing``.
    """
    async for record in _records(settings, role, since_ms):
        yield record


async def _records(settings: Settings, role: Role, since_ms: int | None = None) -> AsyncIterator[Record]:
    topic = topic_names(settings)[role]
    for number in range(await _partition_count(settings, topic)):
        async for record in read_to_end(settings, role, TopicPartition(topic, number), since_ms=since_ms):
            yield record


async def _partition_count(settings: Settings, topic: str) -> int:
    admin = await start_admin(settings)
    try:
        if topic not in await admin.list_topics():
            raise ConfigurationError(
                "topic_missing", f"no such topic: {topic}. Create it: assay-stream topics apply"
            )
        [described] = await admin.describe_topics([topic])
        return len(described["partitions"])
    finally:
        await admin.close()
