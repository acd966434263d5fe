"""One call from observation to evidence to alerts, each step with its place in the logs."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay_stream.alerts.formats.view import AlertView
from assay_stream.errors import InputError
from assay_stream.model.cloudevents import event_time_us, read_event, read_whole_call
from assay_stream.model.finding import Finding
from assay_stream.model.kinds import INVENTORY
from assay_stream.model.observation import CallEvent, CallProfile, SnapshotEvent
from assay_stream.model.record import Origin, Record
from assay_stream.report.rows import Row, time_text
from assay_stream.report.timeline import alert_about, alert_row, finding_about, finding_row
from assay_stream.text.counting import counted
from assay_stream.verify.evidence import Recorded, intact_content, origin_in

_PLAIN = re.compile(r"[A-Za-z0-9._:-]+")
"""Text that has one form in JSON, in practice; anything else is searched for the slow way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sought:
    """Which calls to trace: by their own id, by that of their trace, or by both."""

    tool_call_id: str | None = None
    trace_id: str | None = None

    def may_be_in(self, value: bytes | None) -> bool:
        """Tell whether the value of a record can be that of a call or evidence to trace."""
        return value is not None and all(
            text is None or _PLAIN.fullmatch(text) is None or text.encode() in value
            for text in (self.tool_call_id, self.trace_id)
        )

    def is_in(self, data: object) -> bool:
        """Tell whether this is the data of a call or evidence to trace."""
        return isinstance(data, dict) and all(
            wanted is None or data.get(name) == wanted
            for name, wanted in (("tool_call_id", self.tool_call_id), ("trace_id", self.trace_id))
        )


@dataclass(slots=True, kw_only=True)
class Trace:
    """What was found of one call.

    Args:
        evidence: its record, ``None`` where there is none yet.
        call: the call itself, ``None`` where it is deleted.
        snapshot: the snapshot that the binding rests on, ``None`` where it rests on none or that is deleted.
    """

    evidence: Recorded | None
    call: Record | None = None
    snapshot: Record | None = None
    findings: list[Finding] = field(default_factory=list)
    alerts: list[AlertView] = field(default_factory=list)

    @property
    def call_origin(self) -> Origin | None:
        """Where the call is, or was."""
        if self.call is not None:
            return self.call.origin
        return None if self.evidence is None else self.evidence.call

    @property
    def snapshot_origin(self) -> Origin | None:
        """Where the snapshot stands that the binding rests on, or stood."""
        return None if self.evidence is None else origin_in(self.evidence.binding, "origin")

    def about(self) -> tuple[str | None, str | None]:
        """Return the server and the tool that were called, as far as known."""
        if self.evidence is not None:
            return self.evidence.text("server_id"), self.evidence.text("tool")
        event = None if self.call is None else call_of(self.call)
        return (None, None) if event is None else (event.data["server_id"], event.data["tool_name"])


def add_consequences(traces: Sequence[Trace], findings: Iterable[bytes | None], alerts: Iterable[bytes | None]) -> None:
    """Add to each trace the findings about its call, and then the alerts about these."""
    abouts = [(trace, *trace.about()) for trace in traces]
    for value in findings:
        for trace, server_id, tool_name in abouts:
            finding = None if server_id is None else finding_about(value, server_id)
            if finding is None or finding.kind in INVENTORY:
                continue
            if finding.origin not in (trace.call_origin, trace.snapshot_origin):
                continue
            if finding.tool_name is None or tool_name in (finding.tool_name, finding.renamed_to):
                trace.findings.append(finding)
    for value in alerts:
        for trace, server_id, _ in abouts:
            view = None if server_id is None or not trace.findings else alert_about(value, server_id)
            if view is not None and view.uid in {finding.uid() for finding in trace.findings}:
                trace.alerts.append(view)


def call_of(record: Record, *, call_profile: CallProfile = "assay") -> CallEvent | None:
    """Return the call in a record of the calls topic under a profile, ``None`` where it is refused."""
    try:
        return read_whole_call(record, call_profile=call_profile)
    except InputError:
        return None


def trace_rows(traces: Sequence[Trace]) -> list[Row]:
    rows = []
    for number, trace in enumerate(traces, start=1):
        rows += [{"call": number, **row} for row in _rows(trace)]
    return rows


def _rows(trace: Trace) -> Iterable[Row]:
    yield _call_row(trace)
    if trace.snapshot_origin is not None:
        yield _snapshot_row(trace.snapshot, trace.snapshot_origin)
    if trace.evidence is None:
        yield {"step": "evidence", "state": "none_yet"}
    else:
        yield _evidence_row(trace.evidence)
    for finding in trace.findings:
        yield {"step": "finding", "time": time_text(finding.time_us), **_without_what(finding_row(finding))}
    for view in trace.alerts:
        yield {"step": "alert", "time": time_text(view.time_ms * 1_000), **_without_what(alert_row(view))}


def _call_row(trace: Trace) -> Row:
    origin = trace.call_origin
    row: Row = {"step": "call", "origin": None if origin is None else origin.as_json()}
    if trace.call is None:
        return row | {"state": "gone"}
    event = call_of(trace.call)
    if event is None:
        return row | {"state": "refused"}
    data = event.data
    return row | {
        "state": "observed",
        "time": time_text(event_time_us(event)),
        "server_id": data["server_id"],
        "tool_name": data["tool_name"],
        "observer_id": data["observer_id"],
        "tool_call_id": data["tool_call_id"],
        "trace_id": data.get("trace_id"),
        "value": data["decision"],
        "detail": ", ".join([data["reason_code"], *_course(data)]),
    }


def _course(data: Mapping[str, Any]) -> Iterable[str]:
    """Yield what is out of the ordinary in how a call went."""
    if "rounds" in data:
        yield f"{data['rounds']} rounds"
    if data.get("unmatched_retry"):
        yield "retry of no known call"
    for name, count in data.get("inputs", {}).items():
        if type(count) is int:
            yield f"{count} {name}"
    if "task" in data:
        yield f"task {data['task']['status']}"


def _snapshot_row(snapshot: Record | None, origin: Origin) -> Row:
    row: Row = {"step": "snapshot", "origin": origin.as_json()}
    if snapshot is None:
        return row | {"state": "gone"}
    try:
        event = read_event(snapshot)
    except InputError:
        return row | {"state": "refused"}
    if not isinstance(event, SnapshotEvent):
        return row | {"state": "refused"}
    return row | {
        "state": "observed",
        "time": time_text(event_time_us(event)),
        "observer_id": event.data.observer_id,
        "snapshot_id": event.data.snapshot_id,
        "detail": f"{event.data.completeness}, {counted(len(event.data.tools), 'tool')}",
    }


def _evidence_row(evidence: Recorded) -> Row:
    content = evidence.content
    data = content.get("data")
    data = data if isinstance(data, dict) else {}
    binding = evidence.binding
    pin = data.get("pin")
    return {
        "step": "evidence",
        "state": "written" if intact_content(evidence.value) is not None else "content_hash_mismatch",
        "time": content.get("time"),
        "tool_name": data.get("tool"),
        "scope": binding.get("scope") if isinstance(binding, dict) else None,
        "value": data.get("tool_definition_digest") or data.get("unbound_reason"),
        "detail": f"scope {binding.get('scope')}" if isinstance(binding, dict) else None,
        "pin": pin.get("status") if isinstance(pin, dict) else None,
        "id": content.get("id"),
        "where": evidence.where,
    }


def _without_what(row: Row) -> Row:
    return {name: value for name, value in row.items() if name != "what"}
