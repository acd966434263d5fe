"""The alert as a record: an OCSF 1.8.0 Detection Finding (class 2004), with CloudEvents attributes in the headers.

What rule engines match on stands as flat scalars under ``unmapped``. Nothing in it is a definition's own text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any

from assay_stream.canonical.digest import canonicalize
from assay_stream.model.finding import Finding
from assay_stream.model.kinds import KINDS, Kind
from assay_stream.model.record import Output, Role

OCSF_VERSION = "1.8.0"

_CATEGORY_FINDINGS = 2
_CLASS_DETECTION_FINDING = 2004
_SEVERITY = {1: "Informational", 2: "Low", 3: "Medium", 4: "High", 5: "Critical"}


class Activity(IntEnum):
    """What happened to the alert: OCSF ``activity_id``."""

    CREATE = 1
    UPDATE = 2
    CLOSE = 3


class Status(IntEnum):
    """Where the alert stands: OCSF ``status_id``."""

    NEW = 1
    IN_PROGRESS = 2
    SUPPRESSED = 3
    RESOLVED = 4


_STATUS = {
    Status.NEW: "New",
    Status.IN_PROGRESS: "In Progress",
    Status.SUPPRESSED: "Suppressed",
    Status.RESOLVED: "Resolved",
}
_NAMED_IN_MESSAGE = 3
_LABELS = {Activity.CREATE: "created", Activity.UPDATE: "updated", Activity.CLOSE: "closed"}


def alert_record(
    finding: Finding,
    *,
    activity: Activity,
    status: Status,
    time_us: int,
    severity_id: int,
    count: int,
    seen_us: tuple[int, int],
    observers: int,
    active: int,
    repeats: int,
    resolved_by: str | None,
    suppressed_by: str | None,
    version: str,
    folded: Mapping[str, Any] | None = None,
) -> Output:
    """Return the record of an alert.

    Args:
        finding: the last finding of it.
        activity: what happened to it.
        status: where it stands.
        time_us: event time of what happened, microseconds since the epoch.
        severity_id: OCSF severity, 1 to 5.
        count: findings counted.
        seen_us: event time of the earliest and of the latest finding.
        observers: how many observers contributed, of those that are named.
        active: how many of them see it still.
        repeats: how often it was written again since the last finding.
        resolved_by: what put an end to it, for one that closes.
        suppressed_by: id of the suppression rule that covers it.
        version: version of this software.
        folded: of a folded alert, its members, as its state has them.
    """
    info = KINDS[finding.kind]
    first_ms, last_ms = seen_us[0] // 1_000, seen_us[1] // 1_000
    body: dict[str, Any] = {
        "activity_id": activity.value,
        "activity_name": activity.name.capitalize(),
        "category_uid": _CATEGORY_FINDINGS,
        "category_name": "Findings",
        "class_uid": _CLASS_DETECTION_FINDING,
        "class_name": "Detection Finding",
        "type_uid": _CLASS_DETECTION_FINDING * 100 + activity.value,
        "type_name": f"Detection Finding: {activity.name.capitalize()}",
        "time": time_us // 1_000,
        "severity_id": severity_id,
        "severity": _SEVERITY[severity_id],
        "status_id": status.value,
        "status": _STATUS[status],
        "is_alert": True,
        "count": count,
        "message": _message(finding, folded),
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
            **_members(folded),
        },
        "remediation": {"desc": info.next_step},
        "unmapped": _flat(finding)
        | _present(
            mcp_observers=observers,
            mcp_observers_active=active,
            mcp_repeats=repeats or None,
            mcp_resolved_by=resolved_by,
            mcp_suppressed_by=suppressed_by,
            mcp_folded=_total(folded),
            mcp_folded_by_severity=_by_severity(folded),
            mcp_atlas=",".join(info.atlas) or None,
            mcp_owasp=",".join(info.owasp) or None,
        ),
    }
    return Output(
        role=Role.ALERTS,
        key=finding.server_id.encode(),
        value=canonicalize(body),
        headers=_cloudevents_headers(f"{finding.uid()}:{count}:{activity.value}:{repeats}"),
        timestamp_ms=max(last_ms, time_us // 1_000),
        label="alert:suppressed" if status is Status.SUPPRESSED else f"alert:{_LABELS[activity]}",
    )


def _message(finding: Finding, folded: Mapping[str, Any] | None) -> str:
    if folded is not None:
        names = ", ".join(dict.fromkeys(name for *_, name, _ in folded["gravest"][:_NAMED_IN_MESSAGE] if name))
        gravest = f"; gravest: {names}" if names else ""
        return f"{KINDS[finding.kind].title}: {finding.server_id}: {_by_severity(folded)}{gravest}"
    name = finding.tool_name or finding.item_name
    subject = f"{finding.server_id}/{name}" if name else finding.server_id
    detail = f" ({', '.join(finding.changed_fields)})" if finding.changed_fields else ""
    reason = f" ({finding.reason})" if finding.reason else ""
    return f"{KINDS[finding.kind].title}: {subject}{detail}{reason}"


def _total(folded: Mapping[str, Any] | None) -> int | None:
    return None if folded is None else sum(folded["by_severity"].values())


def _by_severity(folded: Mapping[str, Any] | None) -> str | None:
    if folded is None:
        return None
    levels = sorted(((int(level), count) for level, count in folded["by_severity"].items()), reverse=True)
    return ", ".join(f"{count:,} {_SEVERITY[level].lower()}" for level, count in levels)


def _members(folded: Mapping[str, Any] | None) -> dict[str, Any]:
    if folded is None:
        return {}
    listed = [
        _present(
            uid=uid,
            type=kind,
            title=KINDS[Kind(kind)].title,
            desc=name,
            severity_id=level,
            severity=_SEVERITY[level],
        )
        for level, kind, name, uid in folded["gravest"]
    ]
    return {"related_events": listed, "related_events_count": _total(folded)}


def _flat(finding: Finding) -> dict[str, Any]:
    return _present(
        mcp_finding_kind=finding.kind.value,
        mcp_server_id=finding.server_id,
        mcp_tool_name=finding.tool_name,
        mcp_item_name=finding.item_name,
        mcp_observer_id=finding.observer_id,
        mcp_snapshot_id=finding.snapshot_id,
        mcp_digest_before=finding.before,
        mcp_digest_after=finding.after,
        mcp_changed_fields=",".join(finding.changed_fields) or None,
        mcp_reason=finding.reason,
        mcp_renamed_to=finding.renamed_to,
        mcp_change_codes=_listed(code for code, _, _ in finding.changes),
        mcp_signs=_listed(rule for rule, _, _ in finding.signs),
        mcp_late_ms=finding.late_ms,
        mcp_left_out=",".join(finding.left_out) or None,
        mcp_counted=",".join(f"{kind}:{number}" for kind, number in finding.counted) or None,
        mcp_pin_scheme=finding.scheme,
        mcp_pin_expected=finding.expected,
        mcp_pin_observed=finding.observed,
        mcp_pin_enforcement=finding.enforcement,
        mcp_pin_action=finding.action,
        mcp_origin_topic=finding.origin.topic,
        mcp_origin_partition=finding.origin.partition,
        mcp_origin_offset=finding.origin.offset,
    )


def _listed(words: Iterable[str]) -> str | None:
    return ",".join(sorted(set(words))) or None


def _present(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _cloudevents_headers(event_id: str) -> tuple[tuple[str, bytes], ...]:
    return (
        ("content-type", b"application/json"),
        ("ce_specversion", b"1.0"),
        ("ce_type", b"assay.tool.drift"),
        ("ce_source", b"urn:assay-stream"),
        ("ce_id", event_id.encode()),
    )
