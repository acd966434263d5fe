"""Looking back in Kafka: what the topics say about a server at a time, about its changes, and about one call."""

from __future__ import annotations

from collections.abc import AsyncIterator

from assay_stream.config import Settings
from assay_stream.kafka.ranges import LogRanges
from assay_stream.kafka.topics import topic_names
from assay_stream.model.record import Origin, Record, Role
from assay_stream.registry.state import Bindings
from assay_stream.replay.history import History
from assay_stream.report.pins import server_of
from assay_stream.report.timeline import Dated, alert_about, changes, finding_about
from assay_stream.report.trace import Sought, Trace, add_consequences, call_of
from assay_stream.verify.evidence import of_record

TRACED_MAX = 1_000
"""Calls of one trace that are shown."""
_WRITTEN = (Role.FINDINGS, Role.CHANGES, Role.ALERTS)


async def read_log_history(settings: Settings) -> tuple[Bindings, list[Origin]]:
    """Return what the snapshot and control topics add up to, and where those start that lost their beginning."""
    async with LogRanges(settings, [Role.SNAPSHOTS, Role.CONTROL]) as logs:
        history = History()
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
    async with LogRanges(settings, [Role.BINDINGS, *_WRITTEN]) as logs:
        bindings = Bindings()
        async for record in logs.records(Role.BINDINGS):
            bindings.take(record)
        server, key = server_of(bindings, server_id), server_id.encode()
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
    async for record in _holding(logs, Role.EVIDENCE, sought):
        evidence = of_record(record)
        if sought.is_in(evidence.content.get("data")) and len(traces) < TRACED_MAX:
            traces.append(Trace(evidence=evidence))
    if traces:
        return traces
    async for record in _holding(logs, Role.CALLS, sought):
        event = call_of(record)
        if event is not None and sought.is_in(event.data):
            traces.append(Trace(evidence=None, call=record))
    return traces


async def _holding(logs: LogRanges, role: Role, sought: Sought) -> AsyncIterator[Record]:
    async for record in logs.records(role):
        if sought.may_be_in(record.value):
            yield record


async def _record_at(logs: LogRanges, role: Role, origin: Origin, topic: str) -> Record | None:
    """Return the record at a place, ``None`` where it is gone."""
    first, end = logs.bounds.get(origin[:2], (0, 0))
    if origin.topic != topic or not first <= origin.offset < end:
        return None
    async for batch in logs.read(role, origin.partition, first=origin.offset):
        return batch[0] if batch[0].origin == origin else None
    return None
