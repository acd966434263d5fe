"""Timelines and traces from recorded observations, replayed by the same processors."""

from collections.abc import Callable, Iterable, Iterator

from assay_stream.canonical.redaction import DEFAULT_REDACTION, Redaction
from assay_stream.model.envelope import Producer
from assay_stream.model.observation import CallProfile
from assay_stream.model.record import Origin, Output, Record, Role
from assay_stream.replay.history import history_of
from assay_stream.replay.run import replay
from assay_stream.report.pins import server_of
from assay_stream.report.timeline import Dated, changes
from assay_stream.report.trace import Sought, Trace, add_consequences, call_of
from assay_stream.verify.evidence import Recorded

Read = Callable[[], Iterable[Record]]


def archived_timeline(
    read: Read, server_id: str, *, producer: Producer, tool_name: str | None = None
) -> Iterator[Dated]:
    """Yield everything that changed on a server.

    Raises:
        InputError: ``server_not_known``.
    """
    key = server_id.encode()
    history = history_of(lambda: (record for record in read() if _is_of_server(record, key)))
    server = server_of(history.view, server_id)
    of_server = (record for record in read() if _is_of_server(record, key) or _is_call_on(record, server_id, "assay"))
    yield from changes(server, server_id, replay(of_server, producer=producer), tool_name=tool_name)


def archived_traces(
    read: Read,
    sought: Sought,
    *,
    producer: Producer,
    redaction: Redaction = DEFAULT_REDACTION,
    call_profile: CallProfile = "assay",
) -> list[Trace]:
    """Return what recorded observations say of some calls."""
    calls: dict[Origin, Record] = {}
    keys: set[bytes] = set()
    for record in read():
        if record.role is Role.CALLS and sought.may_be_in(record.value):
            event = call_of(record, call_profile=call_profile)
            if event is not None and sought.is_in(event.data):
                calls[record.origin] = record
                keys.add(event.data["server_id"].encode())
    if not calls:
        return []
    kept = [record for record in read() if record.role is not Role.CALLS and record.key in keys]
    outputs = list(replay([*kept, *calls.values()], producer=producer, redaction=redaction, call_profile=call_profile))
    evidence = _evidence_by_call(outputs)
    snapshots = {record.origin: record for record in kept if record.role is Role.SNAPSHOTS}
    traces = []
    for origin, call in sorted(calls.items()):
        trace = Trace(evidence=evidence.get(origin), call=call)
        if trace.snapshot_origin is not None:
            trace.snapshot = snapshots.get(trace.snapshot_origin)
        traces.append(trace)
    findings, alerts = ([o.value for o in outputs if o.role is role] for role in (Role.FINDINGS, Role.ALERTS))
    add_consequences(traces, findings, alerts)
    return traces


def _evidence_by_call(outputs: Iterable[Output]) -> dict[Origin, Recorded]:
    evidence: dict[Origin, Recorded] = {}
    for output in outputs:
        if output.role is Role.EVIDENCE:
            written = Recorded("replayed", output.value or b"")
            if written.call is not None:
                evidence[written.call] = written
    return evidence


def _is_of_server(record: Record, key: bytes) -> bool:
    return record.role is not Role.CALLS and record.key == key


def _is_call_on(record: Record, server_id: str, call_profile: CallProfile) -> bool:
    if record.role is not Role.CALLS:
        return False
    event = call_of(record, call_profile=call_profile)
    return event is not None and event.data["server_id"] == server_id
