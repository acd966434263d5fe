"""Looking back in Kafka: what the topics say of a server at a time, of its changes, and of one call."""

from __future__ import annotations

from collections.abc import AsyncIterator

from assay_stream.config import Settings
from assay_stream.kafka.ranges import LogRanges
from assay_stream.kafka.topics import topic_names
from assay_stream.kafka.verification import read_history
from assay_stream.model.record import Origin, Record, Role
from assay_stream.registry.state import Bindings
from assay_stream.report.pins import server_of
from assay_stream.report.timeline import Told, alert_about, alerted, decided, finding_about, found, observed
from assay_stream.report.trace import Sought, Trace, call_of
from assay_stream.verify.evidence import Recorded, of_record

TRACED_MAX = 1_000
"""Calls of one trace that are shown."""


async def read_bindings_of(settings: Settings) -> Bindings:
    """Return everything that the binding topic holds.

    Args:
        settings: the operator's settings.
    """
    async with LogRanges(settings, [Role.BINDINGS]) as logs:
        return await _bindings(logs)


async def read_log_history(settings: Settings) -> tuple[Bindings, list[Origin]]:
    """Return what the snapshot and control topics add up to, and where those begin that lost their beginning.

    Args:
        settings: the operator's settings.
    """
    async with LogRanges(settings, [Role.SNAPSHOTS, Role.CONTROL]) as logs:
        history = await read_history(logs)
        begin = [
            Origin(topic=topic, partition=number, offset=first)
            for (topic, number), first in logs.starts().items()
            if first > 0
        ]
        return history.view, begin


async def timeline_from_kafka(settings: Settings, server_id: str, *, tool_name: str | None = None) -> list[Told]:
    """Return everything that changed on a server, as the topics tell it.

    Args:
        settings: the operator's settings.
        server_id: the server.
        tool_name: only what is about this tool, ``None`` for all.

    Raises:
        InputError: ``server_not_known``.
    """
    tellers = {Role.FINDINGS: found, Role.CHANGES: decided, Role.ALERTS: alerted}
    async with LogRanges(settings, [Role.BINDINGS, *tellers]) as logs:
        server = server_of(await _bindings(logs), server_id)
        told = list(observed(server, tool_name=tool_name))
        for role, tell in tellers.items():
            async for record in _of_server(logs, role, server_id):
                told += tell(record.value, server_id, tool_name=tool_name)
        return told


async def traces_from_kafka(settings: Settings, sought: Sought) -> list[Trace]:
    """Return what the topics say of the calls that are sought.

    Args:
        settings: the operator's settings.
        sought: which calls.
    """
    roles = [Role.EVIDENCE, Role.CALLS, Role.SNAPSHOTS, Role.FINDINGS, Role.ALERTS]
    async with LogRanges(settings, roles) as logs:
        traces = [Trace(evidence=evidence) async for evidence in _evidence(logs, sought)]
        if not traces:
            traces = [Trace(evidence=None, call=call) async for call in _calls(logs, sought)]
        names = topic_names(settings)
        for trace in traces:
            if trace.call is None and trace.call_origin is not None:
                trace.call = await _record_at(logs, Role.CALLS, trace.call_origin, names[Role.CALLS])
            if trace.snapshot_origin is not None:
                trace.snapshot = await _record_at(logs, Role.SNAPSHOTS, trace.snapshot_origin, names[Role.SNAPSHOTS])
        await _add_what_was_found(logs, traces)
        return traces


async def _add_what_was_found(logs: LogRanges, traces: list[Trace]) -> None:
    about = [(trace, *_server_and_tool(trace)) for trace in traces]
    async for batch in logs.read_all(Role.FINDINGS):
        for record in batch:
            for trace, server_id, tool_name in about:
                finding = None if server_id is None else finding_about(record.value, server_id)
                if finding is not None:
                    trace.take_findings([finding], tool_name)
    async for batch in logs.read_all(Role.ALERTS):
        for record in batch:
            for trace, server_id, _ in about:
                view = None if server_id is None or not trace.findings else alert_about(record.value, server_id)
                if view is not None:
                    trace.take_alerts([view])


def _server_and_tool(trace: Trace) -> tuple[str | None, str | None]:
    if trace.evidence is not None:
        return trace.evidence.text("server_id"), trace.evidence.text("tool")
    event = None if trace.call is None else call_of(trace.call)
    return (None, None) if event is None else (event.data["server_id"], event.data["tool_name"])


async def _evidence(logs: LogRanges, sought: Sought) -> AsyncIterator[Recorded]:
    count = 0
    async for batch in logs.read_all(Role.EVIDENCE):
        for record in batch:
            if not sought.may_be_in(record.value):
                continue
            evidence = of_record(record)
            if sought.is_in(evidence.content.get("data")) and count < TRACED_MAX:
                count += 1
                yield evidence


async def _calls(logs: LogRanges, sought: Sought) -> AsyncIterator[Record]:
    async for batch in logs.read_all(Role.CALLS):
        for record in batch:
            event = call_of(record) if sought.may_be_in(record.value) else None
            if event is not None and sought.is_in(event.data):
                yield record


async def _record_at(logs: LogRanges, role: Role, origin: Origin, topic: str) -> Record | None:
    """Return the record at a place, ``None`` where there is none any more."""
    first, end = logs.bounds.get(origin[:2], (0, 0))
    if origin.topic != topic or not first <= origin.offset < end:
        return None
    async for batch in logs.read(role, origin.partition, first=origin.offset):
        return batch[0] if batch[0].origin == origin else None
    return None


async def _of_server(logs: LogRanges, role: Role, server_id: str) -> AsyncIterator[Record]:
    key = server_id.encode()
    async for batch in logs.read_all(role):
        for record in batch:
            if record.key == key:
                yield record


async def _bindings(logs: LogRanges) -> Bindings:
    bindings = Bindings()
    async for batch in logs.read_all(Role.BINDINGS):
        for record in batch:
            bindings.take(record)
    return bindings
