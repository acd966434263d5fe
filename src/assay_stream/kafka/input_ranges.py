"""Ranges of the input topics for a replay or an archive, and how far the stages have come.

Where each partition ends is noted first, of calls before all else: whatever a call of the range rests on, and was
published before it, is then in the range of its own topic. Records written later are not read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection

from aiokafka.errors import KafkaError

from assay_stream.config import Settings
from assay_stream.kafka.connection import broker_unreachable, start_admin
from assay_stream.kafka.ranges import Ends, LogRanges
from assay_stream.kafka.topics import topic_names
from assay_stream.model.record import Record, Role
from assay_stream.replay.selection import Selection

READ = (Role.CALLS, Role.SNAPSHOTS, Role.CONTROL)

_ATTEMPTS_MAX = 5
_SETTLE_LOOKS_MAX = 20
_SETTLE_PAUSE_S = 0.25
"""A transaction that is being committed ends within milliseconds; one that hangs has no committed offsets."""


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
    ordered = sorted(roles, key=lambda role: READ.index(role) if role in READ else len(READ))
    names = topic_names(settings)
    async with LogRanges(settings, ordered, isolation_level=isolation_level) as logs:
        return {role: {n: logs.bounds[names[role], n][1] for n in logs.partitions(role)} for role in ordered}


async def joined_ends(settings: Settings) -> Ends:
    """Return where the input topics end now, of calls no further than their evidence is committed.

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
    """Return how far the join has come in each partition of calls, once its evidence can be read.

    Offsets of a transaction can show before its records do: these are waited for.

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
    """Return how far ``registry``, ``join`` or ``alerts`` has come, by topic and partition, where it has committed.

    Raises:
        OperatingError: ``broker_unreachable``.
    """
    for attempt in range(_ATTEMPTS_MAX):
        admin = await start_admin(settings)
        try:
            found = await admin.list_consumer_group_offsets(f"{settings.group_prefix}-{stage}")
            return {tuple(place): committed.offset for place, committed in found.items() if committed.offset >= 0}
        except KafkaError as error:
            # The coordinator is another broker, or moves: a busy one is not ready at the first attempt.
            if attempt == _ATTEMPTS_MAX - 1:
                raise broker_unreachable(settings, error) from None
            await asyncio.sleep(1.0)
        finally:
            await admin.close()
    raise AssertionError("unreachable")


async def read_ranges(settings: Settings, ends: Ends, selection: Selection) -> AsyncIterator[Record]:
    """Yield the selected records of some topics, partition by partition, those that were set aside marked.

    Args:
        settings: the operator's settings.
        ends: where to stop, from ``note_ends``.
        selection: which records.
    """
    names = topic_names(settings)
    async with LogRanges(settings, sorted(ends, key=READ.index, reverse=True), ends=ends) as logs:
        for role in sorted(ends, key=READ.index, reverse=True):
            for number in logs.partitions(role):
                wanted = selection.range_of(names[role], number)
                if wanted is None:
                    continue
                first, end = wanted
                if selection.from_ms is not None and role is Role.CALLS:
                    first = max(first, await logs.offset_at(role, number, max(selection.from_ms, 0)))
                async for batch in logs.read(role, number, first=first, end=end):
                    for record in batch:
                        if selection.wants(record):
                            yield record
