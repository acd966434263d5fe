"""Ranges of the input topics, read for an analyst: in no consumer group, with nothing committed.

Where each partition ends is noted first, for calls before all else: whatever a call of the range rests on, and was
published before it, is then in the range of its own topic. Records written later are not read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from assay_stream.config import Settings
from assay_stream.errors import ConfigurationError
from assay_stream.kafka.connection import broker_unreachable, reading_consumer, start_admin
from assay_stream.kafka.refusals import explained
from assay_stream.kafka.set_aside import read_set_aside
from assay_stream.kafka.topics import inspect_topics, topic_names
from assay_stream.kafka.transport import record_of
from assay_stream.model.record import Record, Role
from assay_stream.replay.selection import Selection

READ = (Role.CALLS, Role.SNAPSHOTS, Role.CONTROL)

_ATTEMPTS_MAX = 5
_SETTLE_LOOKS_MAX = 20
_SETTLE_PAUSE_S = 0.25
"""A transaction that is being committed ends within milliseconds; one that hangs has no committed offsets."""

Ends = dict[Role, dict[int, int]]
"""Of each role's topic, by partition: the first offset that is not read."""


async def note_ends(settings: Settings, roles: Collection[Role], *, isolation_level: str = "read_committed") -> Ends:
    """Return where the topics of some roles end now.

    Args:
        settings: the operator's settings.
        roles: what the topics carry.
        isolation_level: whether records of open transactions count (``read_uncommitted``).

    Raises:
        ConfigurationError: ``topic_missing``.
        OperatingError: ``broker_unreachable``.
    """
    admin = await start_admin(settings)
    try:
        counts = {state.spec.role: state.partitions for state in await inspect_topics(admin, settings)}
    finally:
        await admin.close()
    names = topic_names(settings)
    missing = [names[role] for role in roles if not counts[role]]
    if missing:
        raise ConfigurationError("topic_missing", f"no such topic: {', '.join(missing)}")
    consumer = await _started(settings, isolation_level=isolation_level)
    try:
        ends: Ends = {}
        for role in sorted(roles, key=lambda role: READ.index(role) if role in READ else len(READ)):
            partitions = [TopicPartition(names[role], number) for number in range(counts[role])]
            found = await consumer.end_offsets(partitions)
            ends[role] = {tp.partition: end for tp, end in found.items()}
        return ends
    finally:
        await consumer.stop()


async def joined_ends(settings: Settings) -> Ends:
    """Return where the input topics end now, of the calls no further than evidence of them is committed.

    Args:
        settings: the operator's settings.

    Raises:
        ConfigurationError: ``topic_missing``.
        OperatingError: ``broker_unreachable``.
    """
    committed = await committed_offsets(settings, "join")
    topic, ends = topic_names(settings)[Role.CALLS], await note_ends(settings, READ)
    for number, end in ends[Role.CALLS].items():
        ends[Role.CALLS][number] = min(end, committed.get((topic, number), end))
    return ends


async def joined_offsets(settings: Settings) -> dict[tuple[str, int], int]:
    """Return how far the join has come in each partition of calls, where its evidence can be read by now.

    Offsets of a transaction can show before its records do: they are waited for.

    Args:
        settings: the operator's settings.

    Raises:
        ConfigurationError: ``topic_missing``.
        OperatingError: ``broker_unreachable``.
    """
    committed = await committed_offsets(settings, "join")
    written = await note_ends(settings, (Role.EVIDENCE,), isolation_level="read_uncommitted")
    for _ in range(_SETTLE_LOOKS_MAX):
        readable = (await note_ends(settings, (Role.EVIDENCE,)))[Role.EVIDENCE]
        if all(readable[number] >= end for number, end in written[Role.EVIDENCE].items()):
            break
        await asyncio.sleep(_SETTLE_PAUSE_S)
    calls = topic_names(settings)[Role.CALLS]
    return {place: offset for place, offset in committed.items() if place[0] == calls}


async def committed_offsets(settings: Settings, stage: str) -> dict[tuple[str, int], int]:
    """Return how far a stage has come, by topic and partition; without those of which nothing is committed.

    Args:
        settings: the operator's settings.
        stage: ``registry``, ``join`` or ``alerts``.

    Raises:
        OperatingError: ``broker_unreachable``.
    """
    for attempt in range(_ATTEMPTS_MAX):
        admin = await start_admin(settings)
        try:
            found = await admin.list_consumer_group_offsets(f"{settings.group_prefix}-{stage}")
            return {tuple(place): told.offset for place, told in found.items() if told.offset >= 0}
        except KafkaError as error:
            # The coordinator is another broker, or moves: a busy one is not ready at the first attempt.
            if attempt == _ATTEMPTS_MAX - 1:
                raise broker_unreachable(settings, error) from None
            await asyncio.sleep(1.0)
        finally:
            await admin.close()
    raise AssertionError("unreachable")


async def read_ranges(settings: Settings, ends: Ends, selection: Selection) -> AsyncIterator[Record]:
    """Yield the committed records of some topics that are asked for, each partition in its order.

    Those that the deployment has set aside are marked.

    Args:
        settings: the operator's settings.
        ends: where to stop, from ``note_ends``.
        selection: what is asked for.
    """
    names = topic_names(settings)
    set_aside = await read_set_aside(settings)
    for role in sorted(ends, key=READ.index, reverse=True):
        consumer = await _started(settings)
        try:
            bounds = await _bounds(consumer, names[role], role, ends[role], selection)
            async for record in _read(consumer, role, bounds):
                if selection.wants(record):
                    yield record if record.origin not in set_aside else record._replace(set_aside=True)
        finally:
            await consumer.stop()


async def _started(settings: Settings, *, isolation_level: str = "read_committed") -> AIOKafkaConsumer:
    consumer = reading_consumer(settings, isolation_level=isolation_level)
    try:
        await consumer.start()
    except (KafkaError, OSError) as error:
        await consumer.stop()
        told = explained(error)
        raise (told if isinstance(told, ConfigurationError) else broker_unreachable(settings, error)) from None
    return consumer


async def _bounds(
    consumer: AIOKafkaConsumer, topic: str, role: Role, ends: Mapping[int, int], selection: Selection
) -> dict[TopicPartition, tuple[int, int]]:
    """Return the offsets to read of each partition that holds any; the end exclusive."""
    partitions = [TopicPartition(topic, number) for number in sorted(ends)]
    begins = await consumer.beginning_offsets(partitions)
    by_time = {}
    if selection.from_ms is not None and role is Role.CALLS:
        by_time = await consumer.offsets_for_times(dict.fromkeys(partitions, max(selection.from_ms, 0)))
    bounds = {}
    for tp in partitions:
        asked = selection.range_of(topic, tp.partition)
        if asked is None:
            continue
        first, end = max(begins[tp], asked[0]), ends[tp.partition]
        if tp in by_time:
            # None of that time or later is there yet.
            first = end if by_time[tp] is None else max(first, by_time[tp].offset)
        end = end if asked[1] is None else min(end, asked[1])
        if first < end:
            bounds[tp] = (first, end)
    return bounds


async def _read(
    consumer: AIOKafkaConsumer, role: Role, bounds: Mapping[TopicPartition, tuple[int, int]]
) -> AsyncIterator[Record]:
    left = set(bounds)
    consumer.assign(sorted(left))
    for tp, (first, _) in bounds.items():
        consumer.seek(tp, first)
    while left:
        fetched = await consumer.getmany(*left, timeout_ms=200, max_records=5_000)
        for tp, messages in fetched.items():
            for message in messages:
                if message.offset < bounds[tp][1]:
                    yield record_of(role, message)
        for tp in [tp for tp in left if bounds[tp][1] <= await consumer.position(tp)]:
            left.discard(tp)
            consumer.pause(tp)
