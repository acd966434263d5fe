"""Alerts: attention. Findings with one identity make one alert with a life and a count.

The record is an OCSF 1.8.0 Detection Finding (class 2004). It is a function of the finding and of the alert's
own past, so a repeat after a crash has the same uid and the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from assay_stream.core.digest import canonicalize
from assay_stream.core.finding import KINDS, Finding
from assay_stream.core.limits import DEFAULT_LIMITS
from assay_stream.core.record import Output, Role

OCSF_VERSION = "1.8.0"

_CATEGORY_FINDINGS = 2
_CLASS_DETECTION_FINDING = 2004
_ACTIVITY_CREATE = 1
_ACTIVITY_UPDATE = 2
_STATUS_NEW = 1
_STATUS_IN_PROGRESS = 2
_SEVERITY = {1: "Informational", 2: "Low", 3: "Medium", 4: "High", 5: "Critical"}

_FURTHER_OBSERVERS = ""
"""Under this name the observers beyond the limit are counted; no observer can have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertState:
    """What is remembered of one alert.

    Args:
        applied: ``topic/partition`` of the records that findings were found in, to the highest offset counted.
        count: findings counted.
        first_us: event time of the earliest finding, microseconds since the epoch.
        last_us: event time of the latest.
        observers: how many findings each observer contributed.
        raised: whether an alert was ever published for it.
    """

    applied: dict[str, int]
    count: int
    first_us: int
    last_us: int
    observers: dict[str, int]
    raised: bool

    def as_json(self) -> dict[str, Any]:
        """Return the state as a JSON object."""
        return {
            "applied": self.applied,
            "count": self.count,
            "first_us": self.first_us,
            "last_us": self.last_us,
            "observers": self.observers,
            "raised": self.raised,
        }


def apply_finding(state: AlertState | None, finding: Finding, *, version: str) -> tuple[AlertState, Output | None]:
    """Count a finding on its alert.

    A finding is recognised by the input record that it was found in, so that one which is delivered again, or
    written again by a stage that undid its batch, gives back the state unchanged and no alert. A definition that
    the fleet had already shown on this server is not news: it is counted, and raises nothing of its own.

    Args:
        state: what is remembered of the alert, ``None`` for a new one.
        finding: the finding.
        version: version of this software, for ``metadata.product``.
    """
    source = f"{finding.origin.topic}/{finding.origin.partition}"
    applied = dict(state.applied) if state else {}
    if state is not None and finding.origin.offset <= applied.get(source, -1):
        return state, None
    applied[source] = finding.origin.offset
    observers = dict(state.observers) if state else {}
    observer = finding.observer_id or "unknown"
    if observer not in observers and len(observers) >= DEFAULT_LIMITS.alert_observers_max:
        observer = _FURTHER_OBSERVERS
    observers[observer] = observers.get(observer, 0) + 1
    was_raised = state is not None and state.raised
    raised = was_raised or not finding.known
    new = AlertState(
        applied=applied,
        count=(state.count if state else 0) + 1,
        first_us=min(state.first_us, finding.time_us) if state else finding.time_us,
        last_us=max(state.last_us, finding.time_us) if state else finding.time_us,
        observers=observers,
        raised=raised,
    )
    if not raised:
        return new, None
    return new, _alert(new, finding, created=not was_raised, version=version)


def _alert(state: AlertState, finding: Finding, *, created: bool, version: str) -> Output:
    info = KINDS[finding.kind]
    activity = _ACTIVITY_CREATE if created else _ACTIVITY_UPDATE
    status = _STATUS_NEW if created else _STATUS_IN_PROGRESS
    first_ms, last_ms = state.first_us // 1_000, state.last_us // 1_000
    body: dict[str, Any] = {
        "activity_id": activity,
        "activity_name": "Create" if created else "Update",
        "category_uid": _CATEGORY_FINDINGS,
        "category_name": "Findings",
        "class_uid": _CLASS_DETECTION_FINDING,
        "class_name": "Detection Finding",
        "type_uid": _CLASS_DETECTION_FINDING * 100 + activity,
        "type_name": f"Detection Finding: {'Create' if created else 'Update'}",
        "time": finding.time_us // 1_000,
        "severity_id": info.severity_id,
        "severity": _SEVERITY[info.severity_id],
        "status_id": status,
        "status": "New" if created else "In Progress",
        "count": state.count,
        "message": _message(finding),
        "metadata": {
            "version": OCSF_VERSION,
            "product": {"name": "assay-stream", "vendor_name": "assay-stream", "version": version},
        },
        "finding_info": {
            "uid": finding.uid(),
            "title": info.title,
            "desc": info.explanation,
            "types": [finding.kind.value],
            "first_seen_time": first_ms,
            "last_seen_time": last_ms,
        },
        "unmapped": _flat(state, finding),
    }
    return Output(
        role=Role.ALERTS,
        key=finding.server_id.encode(),
        value=canonicalize(body),
        headers=_cloudevents_headers(state, finding),
        timestamp_ms=last_ms,
        label=f"alert:{'created' if created else 'updated'}",
    )


def _message(finding: Finding) -> str:
    subject = f"{finding.server_id}/{finding.tool_name}" if finding.tool_name else finding.server_id
    detail = f" ({', '.join(finding.changed_fields)})" if finding.changed_fields else ""
    reason = f" ({finding.reason})" if finding.reason else ""
    return f"{KINDS[finding.kind].title}: {subject}{detail}{reason}"


def _flat(state: AlertState, finding: Finding) -> dict[str, Any]:
    fields = {
        "mcp_finding_kind": finding.kind.value,
        "mcp_server_id": finding.server_id,
        "mcp_tool_name": finding.tool_name,
        "mcp_observer_id": finding.observer_id,
        "mcp_observers": len(state.observers),
        "mcp_snapshot_id": finding.snapshot_id,
        "mcp_digest_before": finding.before,
        "mcp_digest_after": finding.after,
        "mcp_changed_fields": ",".join(finding.changed_fields) or None,
        "mcp_reason": finding.reason,
        "mcp_pin_scheme": finding.scheme,
        "mcp_pin_expected": finding.expected,
        "mcp_pin_observed": finding.observed,
        "mcp_pin_enforcement": finding.enforcement,
        "mcp_pin_action": finding.action,
        "mcp_origin_topic": finding.origin.topic,
        "mcp_origin_partition": finding.origin.partition,
        "mcp_origin_offset": finding.origin.offset,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _cloudevents_headers(state: AlertState, finding: Finding) -> tuple[tuple[str, bytes], ...]:
    return (
        ("content-type", b"application/json"),
        ("ce_specversion", b"1.0"),
        ("ce_type", b"assay.tool.drift"),
        ("ce_source", b"urn:assay-stream"),
        ("ce_id", f"{finding.uid()}:{state.count}".encode()),
    )
