"""One-off topic reads for operators' commands, up to the current end, without a consumer group."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from assay_stream.config import Settings
from assay_stream.errors import InputError
from assay_stream.join.routing import call_in
from assay_stream.kafka.ranges import READ, Ends, LogRanges, committed_offsets, note_ends
from assay_stream.kafka.topics import topic_names
from assay_stream.model.record import Record, Role

_SETTLE_LOOKS_MAX = 20
_SETTLE_PAUSE_S = 0.25
"""A committing transaction ends within milliseconds; a hanging one has no committed offsets."""


async def read_records(settings: Settings, role: Role, *, since_ms: int | None = None) -> AsyncIterator[Record]:
    """Yield every committed record now in a topic, partition by partition.

    Args:
        since_ms: skip everything before the first record with this timestamp (milliseconds) or later.

    Raises:
        ConfigurationError: ``topic_missing``.
    """
    async with LogRanges(settings, [role]) as logs:
        async for record in logs.records(role, since_ms=since_ms):
            yield record


async def joined_ends(settings: Settings) -> Ends:
    """Return the current end offsets of the input topics; for calls, only as far as evidence is committed.

    Raises:
        ConfigurationError: ``topic_missing``.
        OperatingError: ``broker_unreachable``.
    """
    committed = await _joined(settings)
    topic, ends = topic_names(settings)[Role.CALLS], await note_ends(settings, READ)
    for number, end in ends[Role.CALLS].items():
        ends[Role.CALLS][number] = min(end, committed.get((topic, number), end))
    return ends


async def joined_offsets(settings: Settings) -> dict[tuple[str, int], int]:
    """Return the join's position in each partition of calls, once its evidence is readable.

    Offsets of a transaction can become visible before its records; this waits for the records.

    Raises:
        ConfigurationError: ``topic_missing``.
        OperatingError: ``broker_unreachable``.
    """
    committed = await _joined(settings)
    written = await note_ends(settings, (Role.EVIDENCE,), isolation_level="read_uncommitted")
    for _ in range(_SETTLE_LOOKS_MAX):
        readable = (await note_ends(settings, (Role.EVIDENCE,)))[Role.EVIDENCE]
        if all(readable[number] >= end for number, end in written[Role.EVIDENCE].items()):
            break
        await asyncio.sleep(_SETTLE_PAUSE_S)
    calls = topic_names(settings)[Role.CALLS]
    return {place: offset for place, offset in committed.items() if place[0] == calls}


async def _joined(settings: Settings) -> dict[tuple[str, int], int]:
    """Return the join's position, for calls no further than the first re-routed call not joined yet."""
    committed = await committed_offsets(settings, "join")
    names = topic_names(settings)
    calls = {place: offset for place, offset in committed.items() if place[0] == names[Role.CALLS]}
    partitions = 1 + max((number for _, number in calls), default=-1)
    # Committed first: what was re-routed before is in the topic, and what is joined later counts as waiting.
    async with LogRanges(settings, [Role.REROUTED], isolation_level="read_uncommitted") as logs:
        for number in logs.partitions(Role.REROUTED):
            first = committed.get((names[Role.REROUTED], number), 0)
            async for batch in logs.read(Role.REROUTED, number, first=first):
                for record in batch:
                    with suppress(InputError):
                        topic, number_of, offset = call_in(
                            record, topic=names[Role.CALLS], partitions=partitions
                        ).origin
                        calls[topic, number_of] = min(offset, calls.get((topic, number_of), offset))
    return committed | calls
