"""The writer of alerts: the state of one, and what happened to it, as an OCSF record (``model.alert``)."""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from operator import itemgetter
from typing import Any

import orjson

from assay_stream.canonical.digest import canonicalize
from assay_stream.model.alert import (
    CLASS_DETECTION_FINDING,
    OCSF_VERSION,
    SEVERITY_TEXTS,
    STATUS_TEXTS,
    Activity,
    AlertStatus,
    flat_facts,
)
from assay_stream.model.alert_state import AlertState, named_count
from assay_stream.model.finding import Finding
from assay_stream.model.kinds import KINDS, Kind
from assay_stream.model.record import Output, Role

_NAMED_IN_MESSAGE = 3
_LABELS = {Activity.CREATE: "created", Activity.UPDATE: "updated", Activity.CLOSE: "closed"}


def alert_record(
    state: AlertState, *, activity: Activity, status: AlertStatus, time_us: int, suppressed_by: str | None, version: str
) -> Output:
    """Return the record of an alert.

    Args:
        time_us: event time of what happened, microseconds since the epoch.
    """
    finding, folded, triage = state.last, state.folded, state.triage or {}
    info = KINDS[finding.kind]
    reasons = reasons_of(state)
    body: dict[str, Any] = {
        "activity_id": activity.value,
        "activity_name": activity.name.capitalize(),
        "category_uid": 2,
        "category_name": "Findings",
        "class_uid": CLASS_DETECTION_FINDING,
        "class_name": "Detection Finding",
        "type_uid": CLASS_DETECTION_FINDING * 100 + activity.value,
        "type_name": f"Detection Finding: {activity.name.capitalize()}",
        "time": time_us // 1_000,
        "severity_id": state.severity_id,
        "severity": SEVERITY_TEXTS[state.severity_id],
        "status_id": status.value,
        "status": STATUS_TEXTS[status],
        "is_alert": True,
        "count": state.count,
        "message": _message(finding, folded, reasons),
        **_present(comment=triage.get("comment")),
        "metadata": {
            "version": OCSF_VERSION,
            "product": {"name": "assay-stream", "vendor_name": "assay-stream", "version": version},
        },
        "finding_info": {
            "uid": finding.uid(),
            "title": _title(finding),
            "desc": info.explanation,
            "types": list(dict.fromkeys([finding.kind.value, *(reason.partition(":")[0] for reason in reasons)])),
            "first_seen_time": state.first_us // 1_000,
            "last_seen_time": state.last_us // 1_000,
            **_members(folded),
        },
        "remediation": {"desc": info.next_step},
        "unmapped": _pin_of(state)
        | flat_facts(finding)
        | _present(
            mcp_observers=named_count(state.observers),
            mcp_observers_active=named_count(state.active),
            mcp_repeats=state.repeats or None,
            mcp_resolved_by=state.resolved_by if activity is Activity.CLOSE else None,
            mcp_suppressed_by=suppressed_by,
            mcp_folded=_total(folded),
            mcp_folded_by_severity=_by_severity(folded),
            mcp_reasons=",".join(reasons) or None,
            mcp_why=why_of(finding),
            mcp_group=group_of(finding),
            mcp_act=triage.get("act"),
            mcp_act_by=triage.get("by"),
            mcp_comment=triage.get("comment"),
            mcp_acknowledged_by=triage.get("acknowledged_by"),
            mcp_assigned_to=triage.get("assigned_to"),
            mcp_atlas=",".join(info.atlas) or None,
            mcp_owasp=",".join(info.owasp) or None,
        ),
    }
    return Output(
        role=Role.ALERTS,
        key=finding.server_id.encode(),
        value=canonicalize(body),
        headers=_cloudevents_headers(f"{finding.uid()}:{state.count}:{activity.value}:{state.repeats}"),
        timestamp_ms=max(state.last_us, time_us) // 1_000,
        label="alert:suppressed" if status is AlertStatus.SUPPRESSED else f"alert:{_LABELS[activity]}",
    )


def reasons_of(state: AlertState) -> list[str]:
    """Return what else an alert is about: labels of findings that joined it, sorted."""
    return sorted({*state.last.also, *(part["label"] for part in (state.parts or {}).values())})


def why_of(finding: Finding) -> str | None:
    """Return which indicators stand where, the most severe first, as far as there is room."""
    named = sorted(finding.indicators, key=lambda row: (-row[1], row[0], row[2]))[:_NAMED_IN_MESSAGE]
    return "; ".join(f"{rule} at {path}" for rule, _, path in named) or None


def group_of(finding: Finding) -> str | None:
    """Return what alerts of one change have in common: kind and definition, on whatever servers it is found.

    Of shadowed tools, kind and newcomer: a server that copies names has an alert for each of them.
    """
    if finding.kind is Kind.TOOL_SHADOWED:
        return sha256(orjson.dumps([finding.kind, finding.server_id])).hexdigest()
    digest = finding.after or finding.before
    return None if digest is None else sha256(f"{finding.kind} {digest}".encode()).hexdigest()


def _pin_of(state: AlertState) -> dict[str, Any]:
    """Return what the first part by label that still stands says of a pin: in which order they joined is no matter."""
    for part in sorted((state.parts or {}).values(), key=itemgetter("label")):
        if part["over_us"] is None and "pin" in part:
            return {f"mcp_pin_{name}": value for name, value in part["pin"].items()}
    return {}


def _message(finding: Finding, folded: Mapping[str, Any] | None, reasons: Iterable[str]) -> str:
    if folded is not None:
        names = ", ".join(dict.fromkeys(name for *_, name, _ in folded["most_severe"][:_NAMED_IN_MESSAGE] if name))
        worst = f"; most severe: {names}" if names else ""
        return f"{KINDS[finding.kind].title}: {finding.server_id}: {_by_severity(folded)}{worst}"
    name = finding.tool_name or finding.item_name
    subject = f"{finding.server_id}/{name}" if name else finding.server_id
    detail = f" ({', '.join(finding.changed_fields)})" if finding.changed_fields else ""
    reason = f" ({finding.reason})" if finding.reason else ""
    also = "".join(f"; {reason}" for reason in reasons)
    why = why_of(finding)
    return f"{_title(finding)}: {subject}{detail}{reason}{also}{f': {why}' if why else ''}"


def _title(finding: Finding) -> str:
    """Return the title of a user's detection, or that of the kind."""
    own = finding.detection if finding.kind is Kind.DETECTION else None
    return KINDS[finding.kind].title if own is None else own.title


def _total(folded: Mapping[str, Any] | None) -> int | None:
    return None if folded is None else sum(folded["by_severity"].values())


def _by_severity(folded: Mapping[str, Any] | None) -> str | None:
    if folded is None:
        return None
    levels = sorted(((int(level), count) for level, count in folded["by_severity"].items()), reverse=True)
    return ", ".join(f"{count:,} {SEVERITY_TEXTS[level].lower()}" for level, count in levels)


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
            severity=SEVERITY_TEXTS[level],
        )
        for level, kind, name, uid in folded["most_severe"]
    ]
    return {"related_events": listed, "related_events_count": _total(folded)}


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
