"""Looking things up in the topics, once and to their end, for operators' commands, in no consumer group."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Collection, Iterator
from typing import Any

import orjson
from aiokafka import TopicPartition

from assay_stream.config import Settings
from assay_stream.errors import ConfigurationError, InputError
from assay_stream.kafka.connection import start_admin
from assay_stream.kafka.topics import topic_names
from assay_stream.kafka.transport import read_to_end
from assay_stream.model.finding import Finding
from assay_stream.model.finding_topic import Entry, NameClaim, decode_entry
from assay_stream.model.partition import murmur2_partition
from assay_stream.model.record import Record, Role
from assay_stream.registry.shadowing import shadows_of
from assay_stream.registry.state import Bindings

_CANDIDATES_MAX = 5
_UID_PREFIX = re.compile("[0-9a-f]{6,64}")


async def read_bindings(settings: Settings) -> Bindings:
    """Return everything that the registry has published.

    Raises:
        ConfigurationError: ``topic_missing``.
        IntegrityError: where the topic holds what is not ours.
    """
    bindings = Bindings()
    async for record in _records(settings, Role.BINDINGS):
        bindings.take(record)
    return bindings


async def find_finding(settings: Settings, uid: str) -> Finding | None:
    """Return the latest finding that an alert counts, ``None`` where the topic holds none.

    For an alert about a shadowed tool the topic holds the claim: the finding then does not name who held the name.

    Args:
        settings: the operator's settings.
        uid: ``finding_info.uid`` of the alert, or a prefix that no other finding has.

    Raises:
        InputError: ``bad_uid`` or ``ambiguous_uid``.
    """
    wanted = uid.lower()
    if not _UID_PREFIX.fullmatch(wanted):
        raise InputError("bad_uid", "give the first 6 to 64 hexadecimal digits of an alert's uid")
    found: dict[str, Finding] = {}
    async for record in _records(settings, Role.FINDINGS):
        entries = _findings_in(decode_entry(record.value))
        found.update((each, finding) for each, finding in entries if each.startswith(wanted))
    if len(found) > 1:
        named = ", ".join(sorted(found)[:_CANDIDATES_MAX])
        raise InputError("ambiguous_uid", f"{len(found)} findings have a uid that begins so, give more of it: {named}")
    return next(iter(found.values()), None)


def _findings_in(entry: Entry) -> Iterator[tuple[str, Finding]]:
    if isinstance(entry, Finding):
        yield entry.uid(), entry
    elif isinstance(entry, NameClaim):
        for shadow in shadows_of(entry):
            yield shadow.uid(), shadow.finding(None, entry)


async def read_definitions(settings: Settings, digests: Collection[str]) -> dict[str, dict[str, Any]]:
    """Return the definitions with these full digests, as far as the topic holds them."""
    wanted = {digest.encode() for digest in digests}
    found: dict[str, dict[str, Any]] = {}
    async for record in _records(settings, Role.DEFINITIONS):
        if record.key in wanted and record.value is not None:
            found[record.key.decode()] = orjson.loads(record.value)["definition"]
    return found


async def read_entries(settings: Settings, key: str) -> AsyncIterator[Entry]:
    """Yield every entry in the partition of the finding topic that a key of ``alerts.processor.partition_key`` is in.

    Raises:
        ConfigurationError: ``topic_missing``.
        IntegrityError: where the topic holds what is not ours.
    """
    topic = topic_names(settings)[Role.FINDINGS]
    number = murmur2_partition(key.encode(), await _partition_count(settings, topic))
    async for record in read_to_end(settings, Role.FINDINGS, TopicPartition(topic, number)):
        yield decode_entry(record.value)


async def read_records(settings: Settings, role: Role, *, since_ms: int | None = None) -> AsyncIterator[Record]:
    """Yield every committed record that a topic holds now, partition by partition.

    Args:
        settings: the operator's settings.
        role: what the topic carries.
        since_ms: skip everything before the first record of this timestamp (milliseconds) or later.

    Raises:
        ConfigurationError: ``topic_missing``.
    """
    async for record in _records(settings, role, since_ms):
        yield record


async def read_alerts(settings: Settings) -> AsyncIterator[Record]:
    """Yield every alert that the topic holds now, partition by partition.

    Raises:
        ConfigurationError: ``topic_missing``.
    """
    async for record in read_records(settings, Role.ALERTS):
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
            raise ConfigurationError("topic_missing", f"no such topic: {topic}. Create it: assay-stream topics apply")
        [described] = await admin.describe_topics([topic])
        return len(described["partitions"])
    finally:
        await admin.close()
