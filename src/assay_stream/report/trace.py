"""One call from observation to evidence to alerts, each step with where it stands in the logs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay_stream.alerts.formats.view import AlertView
from assay_stream.errors import InputError
from assay_stream.model.cloudevents import event_time_us, read_event, read_whole_call
from assay_stream.model.finding import Finding
from assay_stream.model.observation import CallEvent, CallProfile, SnapshotEvent
from assay_stream.model.record import Origin, Record
from assay_stream.report.pins import time_text
from assay_stream.report.timeline import alert_row, finding_row
from assay_stream.schemes import assay
from assay_stream.verify.evidence import Recorded, origin_in, strict_content

Row = dict[str, Any]

_PLAIN = re.compile(r"[A-Za-z0-9._:-]+")
"""Text that JSON has one form of only, in practice: others are looked for the slow way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sought:
    """Which calls are traced.

    Args:
        tool_call_id: the call with this id, ``None`` for any.
        trace_id: the calls of this trace, ``None`` for any.
    """

    tool_call_id: str | None = None
    trace_id: str | None = None

    def may_be_in(self, value: bytes | None) -> bool:
        """Say whether the bytes of a record can be those of a call or evidence that is sought.

        Args:
            value: value bytes.
        """
        return value is not None and all(
            text is None or _PLAIN.fullmatch(text) is None or text.encode() in value
            for text in (self.tool_call_id, self.trace_id)
        )

    def is_in(self, data: object) -> bool:
        """Say whether this is the data of a call or evidence that is sought.

        Args:
            data: what stands there.
        """
        return isinstance(data, dict) and all(
            wanted is None or data.get(name) == wanted
            for name, wanted in (("tool_call_id", self.tool_call_id), ("trace_id", self.trace_id))
        )


@dataclass(slots=True, kw_only=True)
class Trace:
    """What was found of one call.

    Args:
        evidence: its record; ``None`` where there is none yet.
        call: the call itself, ``None`` where it is deleted.
        snapshot: the snapshot that the binding rests on, ``None`` where it rests on none or that is deleted.
        findings: what was found in the call or in that snapshot about the tool.
        alerts: the alerts about these.
    """

    evidence: Recorded | None
    call: Record | None = None
    snapshot: Record | None = None
    findings: list[Finding] = field(default_factory=list)
    alerts: list[AlertView] = field(default_factory=list)

    @property
    def call_origin(self) -> Origin | None:
        """Where the call stands, or stood."""
        if self.call is not None:
            return self.call.origin
        return None if self.evidence is None else self.evidence.call

    @property
    def snapshot_origin(self) -> Origin | None:
        """Where the snapshot stands that the binding rests on, or stood."""
        data = None if self.evidence is None else self.evidence.content.get("data")
        return origin_in(data.get("binding"), "origin") if isinstance(data, dict) else None

    def take_findings(self, findings: Iterable[Finding], tool_name: str | None) -> None:
        """Keep the findings that are about this call.

        Args:
            findings: findings on its server.
            tool_name: the tool that was called.
        """
        origins = {self.call_origin, self.snapshot_origin} - {None}
        for finding in findings:
            about = tool_name in (finding.tool_name, finding.renamed_to) or finding.tool_name is None
            if finding.origin in origins and about:
                self.findings.append(finding)

    def take_alerts(self, alerts: Iterable[AlertView]) -> None:
        """Keep the alerts that are about the findings.

        Args:
            alerts: alerts on its server.
        """
        uids = {finding.uid() for finding in self.findings}
        self.alerts += [view for view in alerts if view.uid in uids]


def call_of(record: Record, *, call_profile: CallProfile = "assay") -> CallEvent | None:
    """Return the call in a record, ``None`` where it is refused.

    Args:
        record: a record of the calls topic.
        call_profile: what every call must satisfy.
    """
    try:
        return read_whole_call(record, call_profile=call_profile)
    except InputError:
        return None


def trace_rows(traces: Sequence[Trace]) -> list[Row]:
    """Return one row for each step of each call, in order.

    Args:
        traces: what was found.
    """
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
        "detail": data["reason_code"],
    }


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
        "detail": f"{event.data.completeness}, {len(event.data.tools)} tools",
    }


def _evidence_row(evidence: Recorded) -> Row:
    content = evidence.content
    data = content.get("data")
    data = data if isinstance(data, dict) else {}
    binding = data.get("binding")
    pin = data.get("pin")
    try:
        strict = strict_content(evidence.value)
        intact = strict.get("assaycontenthash") == str(assay.content_hash(strict))
    except InputError:
        intact = False
    return {
        "step": "evidence",
        "state": "written" if intact else "content_hash_mismatch",
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
