"""What operators' commands read from the topics, once and to their end, in no consumer group."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from assay_stream.bindings.state import Bindings
from assay_stream.config import Settings
from assay_stream.errors import InputError
from assay_stream.join.routing import call_in
from assay_stream.kafka.ends import READ, committed_offsets, note_ends
from assay_stream.kafka.ranges import Ends, LogRanges
from assay_stream.kafka.topics import topic_names
from assay_stream.model.record import Origin, Record, Role
from assay_stream.replay.history import History
from assay_stream.replay.selection import Selection
from assay_stream.report.pins import server_of
from assay_stream.report.timeline import Dated, alert_about, changes, finding_about
from assay_stream.report.trace import Sought, Trace, add_consequences, call_of
from assay_stream.verify.evidence import of_record

TRACED_MAX = 1_000
"""Calls of one trace that are shown."""

_WRITTEN = (Role.FINDINGS, Role.CHANGES, Role.ALERTS)
_SETTLE_LOOKS_MAX = 20
_SETTLE_PAUSE_S = 0.25
"""A transaction that is being committed ends within milliseconds; one that hangs has no committed offsets."""


async def read_records(settings: Settings, role: Role, *, since_ms: int | None = None) -> AsyncIterator[Record]:
    """Yield every committed record that a topic holds now, partition by partition.

    Args:
        since_ms: skip everything before the first record of this timestamp (milliseconds) or later.

    Raises:
        ConfigurationError: ``topic_missing``.
    """
    async with LogRanges(settings, [role]) as logs:
        async for record in logs.records(role, since_ms=since_ms):
            yield record


async def read_bindings(settings: Settings) -> Bindings:
    """Return everything that the registry has published.

    Raises:
        ConfigurationError: ``topic_missing``.
        IntegrityError: where the topic holds what is not ours.
    """
    async with LogRanges(settings, [Role.BINDINGS]) as logs:
        bindings = Bindings(home_partitions=len(logs.partitions(Role.BINDINGS)))
        async for record in logs.records(Role.BINDINGS):
            bindings.take(record)
    return bindings


async def read_log_history(settings: Settings) -> tuple[Bindings, list[Origin]]:
    """Return what the snapshot and control topics add up to, and where those start that lost their beginning."""
    async with LogRanges(settings, [Role.SNAPSHOTS, Role.CONTROL]) as logs:
        history = History(snapshot_partitions=len(logs.partitions(Role.SNAPSHOTS)))
        for role in (Role.CONTROL, Role.SNAPSHOTS):
            async for record in logs.records(role):
                history.take(record)
        starts = [Origin(*place, first) for place, first in logs.starts().items() if first > 0]
        return history.view, starts


async def timeline_from_kafka(settings: Settings, server_id: str, *, tool_name: str | None = None) -> list[Dated]:
    """Return everything that changed on a server, or that is about one of its tools.

    Raises:
        InputError: ``server_not_known``.
    """
    server, key = server_of(await read_bindings(settings), server_id), server_id.encode()
    async with LogRanges(settings, _WRITTEN) as logs:
        written = [record for role in _WRITTEN async for record in logs.records(role) if record.key == key]
        return list(changes(server, server_id, written, tool_name=tool_name))


async def traces_from_kafka(settings: Settings, sought: Sought) -> list[Trace]:
    """Return what the topics say of some calls."""
    roles = [Role.EVIDENCE, Role.CALLS, Role.SNAPSHOTS, Role.FINDINGS, Role.ALERTS]
    async with LogRanges(settings, roles) as logs:
        traces = await _traces(logs, sought)
        names = topic_names(settings)
        for trace in traces:
            if trace.call is None and trace.call_origin is not None:
                trace.call = await _record_at(logs, Role.CALLS, trace.call_origin, names[Role.CALLS])
            if trace.snapshot_origin is not None:
                trace.snapshot = await _record_at(logs, Role.SNAPSHOTS, trace.snapshot_origin, names[Role.SNAPSHOTS])
        servers = [name for name in {trace.about()[0] for trace in traces} if name is not None]
        add_consequences(
            traces,
            [
                one.value
                async for one in logs.records(Role.FINDINGS)
                if any(finding_about(one.value, n) for n in servers)
            ],
            [one.value async for one in logs.records(Role.ALERTS) if any(alert_about(one.value, n) for n in servers)],
        )
        return traces


async def _traces(logs: LogRanges, sought: Sought) -> list[Trace]:
    """Return a trace for each record of evidence, else for each call without any."""
    traces: list[Trace] = []
    async for record in logs.records(Role.EVIDENCE):
        if sought.may_be_in(record.value) and len(traces) < TRACED_MAX:
            evidence = of_record(record)
            if sought.is_in(evidence.content.get("data")):
                traces.append(Trace(evidence=evidence))
    if traces:
        return traces
    async for record in logs.records(Role.CALLS):
        event = call_of(record) if sought.may_be_in(record.value) else None
        if event is not None and sought.is_in(event.data):
            traces.append(Trace(evidence=None, call=record))
    return traces


async def _record_at(logs: LogRanges, role: Role, origin: Origin, topic: str) -> Record | None:
    """Return the record at a place, ``None`` where it is gone."""
    first, end = logs.bounds.get(origin[:2], (0, 0))
    if origin.topic != topic or not first <= origin.offset < end:
        return None
    async for batch in logs.read(role, origin.partition, first=origin.offset):
        return batch[0] if batch[0].origin == origin else None
    return None


async def joined_ends(settings: Settings) -> Ends:
    """Return where the input topics end now, of calls no further than their evidence is committed.

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
    """Return how far the join has come in each partition of calls, once its evidence can be read.

    Offsets of a transaction can show before its records do: these are waited for.

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
    """Return how far the join has come, of calls no further than the first that is re-routed and not joined yet."""
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


async def read_ranges(settings: Settings, ends: Ends, selection: Selection) -> AsyncIterator[Record]:
    """Yield the selected records of some topics, partition by partition, those that were set aside marked.

    Args:
        ends: where to stop, from ``note_ends``.
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
