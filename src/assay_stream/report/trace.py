"""One call from observation to evidence to alerts, each step with its place in the logs."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from assay_stream.alerts.formats.view import view_of
from assay_stream.bindings.server import ServerBindings
from assay_stream.errors import InputError
from assay_stream.limits.store import STORE_PAGE_ROWS_MAX
from assay_stream.model.cloudevents import event_time_us, read_whole_call
from assay_stream.model.facts import Seen
from assay_stream.model.finding import Finding
from assay_stream.model.kinds import INVENTORY
from assay_stream.model.observation import CallEvent, CallProfile
from assay_stream.model.record import Origin, Record
from assay_stream.readmodel.queries import Store
from assay_stream.readmodel.rows import EvidenceFilter, EvidenceRecord, Paging
from assay_stream.report.rows import Row, time_text
from assay_stream.report.timeline import alert_row, finding_row, is_about
from assay_stream.text.counting import counted
from assay_stream.verify.evidence import intact_content, origin_in

TRACED_MAX = STORE_PAGE_ROWS_MAX
"""Calls of one trace that are shown."""

_PLAIN = re.compile(r"[A-Za-z0-9._:-]+")
"""Text that has one form in JSON, in practice; anything else is searched for the slow way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sought:
    """The calls to trace: by tool call id, trace id, or both."""

    tool_call_id: str | None = None
    trace_id: str | None = None

    def may_be_in(self, value: bytes | None) -> bool:
        """Return False if the record cannot be a traced call or its evidence."""
        return value is not None and all(
            text is None or _PLAIN.fullmatch(text) is None or text.encode() in value
            for text in (self.tool_call_id, self.trace_id)
        )

    def is_in(self, data: object) -> bool:
        """Return True for the data of a traced call or its evidence."""
        return isinstance(data, dict) and all(
            wanted is None or data.get(name) == wanted
            for name, wanted in (("tool_call_id", self.tool_call_id), ("trace_id", self.trace_id))
        )

    def call_in(self, record: Record, call_profile: CallProfile = "assay") -> CallEvent | None:
        """Return the call in a record of the calls topic, ``None`` if it is refused or not traced."""
        if not self.may_be_in(record.value):
            return None
        try:
            event = read_whole_call(record, call_profile=call_profile)
        except InputError:
            return None
        return event if self.is_in(event.data) else None


def traced(store: Store, sought: Sought) -> list[EvidenceRecord]:
    """Return the evidence of the traced calls, by event time."""
    digest = sought.tool_call_id if sought.trace_id is None else sought.trace_id
    rows = store.evidence(EvidenceFilter(digest=digest), Paging(limit=TRACED_MAX)).rows
    found = [whole for row in reversed(rows) if (whole := store.evidence_of(row.reference)) is not None]
    return [whole for whole in found if sought.is_in(_data(whole))]


def trace_rows(store: Store, evidence: Sequence[EvidenceRecord]) -> list[Row]:
    bindings = store.bindings(*{whole.row.server_id for whole in evidence}) if evidence else None
    rows = []
    for number, whole in enumerate(evidence, start=1):
        server = None if bindings is None else bindings.find(whole.row.server_id)
        rows += [{"call": number, **row} for row in _rows(store, server, whole)]
    return rows


def pending_rows(calls: Iterable[tuple[Origin, CallEvent]]) -> list[Row]:
    """Return rows for calls without evidence so far."""
    rows: list[Row] = []
    for number, (origin, event) in enumerate(calls, start=1):
        call = _call_row(origin, time_text(event_time_us(event)), {**event.data, "tool": event.data["tool_name"]})
        rows += [{"call": number, **row} for row in (call, {"step": "evidence", "state": "none_yet"})]
    return rows


def _data(whole: EvidenceRecord) -> dict[str, Any]:
    data: dict[str, Any] = orjson.loads(whole.value)["data"]
    return data


def _rows(store: Store, server: ServerBindings | None, whole: EvidenceRecord) -> Iterator[Row]:
    content = orjson.loads(whole.value)
    data = content["data"]
    call, snapshot = origin_in(data, "origin"), origin_in(data.get("binding"), "origin")
    yield _call_row(call, time_text(whole.row.time_us), data)
    if snapshot is not None:
        yield _snapshot_row(server, snapshot)
    yield _evidence_row(whole, content)
    findings = [
        entry
        for entry in store.findings(data["server_id"])
        if isinstance(entry, Finding)
        and entry.kind not in INVENTORY
        and entry.origin in (call, snapshot)
        and (entry.tool_name is None or is_about(entry, data["server_id"], tool_name=data["tool"]))
    ]
    for finding in findings:
        yield {"step": "finding", "time": time_text(finding.time_us), **_without_what(finding_row(finding))}
    uids = {finding.uid() for finding in findings}
    for view in map(view_of, store.alert_records(data["server_id"])) if uids else ():
        if view.uid in uids:
            yield {"step": "alert", "time": time_text(view.time_ms * 1_000), **_without_what(alert_row(view))}


def _call_row(origin: Origin | None, time: str, data: Mapping[str, Any]) -> Row:
    return {
        "step": "call",
        "origin": None if origin is None else origin.as_json(),
        "state": "observed",
        "time": time,
        "server_id": data["server_id"],
        "tool_name": data["tool"],
        "observer_id": data["observer_id"],
        "tool_call_id": data["tool_call_id"],
        "trace_id": data.get("trace_id"),
        "value": data.get("decision"),
        "detail": ", ".join([str(data.get("reason_code")), *_course(data)]),
    }


def _course(data: Mapping[str, Any]) -> Iterable[str]:
    """Yield what is unusual in the course of a call."""
    if "rounds" in data:
        yield f"{data['rounds']} rounds"
    if data.get("unmatched_retry"):
        yield "retry of no known call"
    for name, count in (data.get("inputs") or {}).items():
        if type(count) is int:
            yield f"{count} {name}"
    if data.get("task"):
        yield f"task {data['task'].get('status')}"


def _snapshot_row(server: ServerBindings | None, origin: Origin) -> Row:
    row: Row = {"step": "snapshot", "origin": origin.as_json()}
    seen = None if server is None else _seen_at(server, origin)
    if server is None or seen is None:
        return row | {"state": "gone"}
    tools = sum(1 for _ in server.catalogue_of(seen).definitions())
    return row | {
        "state": "observed",
        "time": time_text(seen.time_us),
        "observer_id": seen.observer_id,
        "snapshot_id": seen.snapshot_id,
        "detail": f"{seen.completeness}, {counted(tools, 'tool')}",
    }


def _seen_at(server: ServerBindings, origin: Origin) -> Seen | None:
    return next((seen for timeline in server.observers.values() for seen in timeline if seen.origin == origin), None)


def _evidence_row(whole: EvidenceRecord, content: Mapping[str, Any]) -> Row:
    data = content["data"]
    binding, pin = data["binding"], data.get("pin")
    return {
        "step": "evidence",
        "state": "written" if intact_content(whole.value) is not None else "content_hash_mismatch",
        "time": content["time"],
        "tool_name": data["tool"],
        "scope": binding["scope"],
        "value": data.get("tool_definition_digest") or data.get("unbound_reason"),
        "detail": f"scope {binding['scope']}",
        "pin": pin.get("status") if isinstance(pin, dict) else None,
        "id": content["id"],
        "where": str(whole.row.origin),
    }


def _without_what(row: Row) -> Row:
    return {name: value for name, value in row.items() if name != "what"}
