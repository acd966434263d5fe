"""The alert as a record: an OCSF 1.8.0 Detection Finding (class 2004), with CloudEvents attributes in the headers.

What rule engines match on stands as flat scalars under ``unmapped``. Nothing in it is a definition's own text.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from hashlib import sha256
from operator import attrgetter, itemgetter
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, Required, get_args, get_origin, get_type_hints

import orjson
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from assay_stream.canonical.digest import canonicalize
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.alert_state import AlertState, named_count
from assay_stream.model.fields import (
    ActionText,
    AgentName,
    BareHex,
    DigestText,
    Enforcement,
    Identifier,
    Millis,
    Natural,
    Positive,
    Scheme,
    SchemeValue,
    SeverityId,
    ShortText,
    TriageAct,
)
from assay_stream.model.finding import Finding
from assay_stream.model.kinds import KINDS, Kind, KindInfo, info_of
from assay_stream.model.record import Output, Role

OCSF_VERSION = "1.8.0"
_SeverityText = Literal["Informational", "Low", "Medium", "High", "Critical"]
SEVERITY_TEXTS: dict[int, str] = dict(enumerate(get_args(_SeverityText), start=1))
_StatusText = Literal["New", "In Progress", "Suppressed", "Resolved"]
STATUS_TEXTS: dict[int, str] = dict(enumerate(get_args(_StatusText), start=1))
CLASS_DETECTION_FINDING = 2004


class Activity(IntEnum):
    """What happened to the alert: OCSF ``activity_id``."""

    CREATE = 1
    UPDATE = 2
    CLOSE = 3


class AlertStatus(IntEnum):
    """State of the alert: OCSF ``status_id``."""

    NEW = 1
    IN_PROGRESS = 2
    SUPPRESSED = 3
    RESOLVED = 4


class AlertProduct(TypedDict):
    """Who made the alert."""

    name: Literal["assay-stream"]
    vendor_name: Literal["assay-stream"]
    version: str


class AlertMetadata(TypedDict):
    """OCSF version and product."""

    version: Literal["1.8.0"]
    product: AlertProduct


class FoldedMember(TypedDict):
    """A member of a folded alert; its uid is that of its findings."""

    uid: BareHex
    type: Kind
    title: str
    desc: NotRequired[str]
    severity_id: SeverityId
    severity: _SeverityText


class AlertFindingInfo(TypedDict):
    """What the alert is about. Its ``uid`` is the same for every repeat."""

    uid: BareHex
    title: str
    desc: str
    types: Annotated[list[Kind], Field(min_length=1, max_length=DEFAULT_LIMITS.alert_parts_max + 1)]
    first_seen_time: Millis
    last_seen_time: Millis
    related_events: NotRequired[Annotated[list[FoldedMember], Field(max_length=DEFAULT_LIMITS.folded_named_max)]]
    related_events_count: NotRequired[Positive]


class AlertRemediation(TypedDict):
    """What to do next."""

    desc: str


class _Of(NamedTuple):
    """Where a flat field comes from.

    Args:
        field: of the finding.
        text: makes the value of it, ``None`` where it is taken as it is.
    """

    field: str
    text: Callable[[Any], Any] | None = None

    def value(self, finding: Finding) -> Any:
        value = getattr(finding, self.field)
        return value if value is None or self.text is None else self.text(value)


def _listed(words: Iterable[str]) -> str | None:
    return ",".join(words) or None


def _firsts(rows: Iterable[tuple[str, Any, Any]]) -> str | None:
    return _listed(sorted({first for first, *_ in rows}))


def _numbers(pairs: Iterable[tuple[str, int]]) -> str | None:
    return _listed(f"{name}:{number}" for name, number in pairs)


class AlertFlat(TypedDict, total=False):
    """The same facts as flat scalars, for rule engines."""

    mcp_finding_kind: Required[Annotated[Kind, _Of("kind", attrgetter("value"))]]
    mcp_server_id: Required[Annotated[Identifier, _Of("server_id")]]
    mcp_tool_name: Annotated[str | None, _Of("tool_name")]
    mcp_item_name: Annotated[str | None, _Of("item_name")]
    mcp_observer_id: Annotated[Identifier | None, _Of("observer_id")]
    mcp_observers: Required[Natural]
    mcp_observers_active: Required[Natural]
    mcp_repeats: Positive | None
    mcp_resolved_by: str | None
    mcp_suppressed_by: str | None
    mcp_reasons: str | None
    mcp_why: str | None
    mcp_group: BareHex | None
    mcp_act: TriageAct | None
    mcp_act_by: ShortText | None
    mcp_comment: ShortText | None
    mcp_acknowledged_by: ShortText | None
    mcp_assigned_to: ShortText | None
    mcp_folded: Positive | None
    mcp_folded_by_severity: str | None
    mcp_atlas: str | None
    mcp_owasp: str | None
    mcp_snapshot_id: Annotated[Identifier | None, _Of("snapshot_id")]
    mcp_release: Annotated[BareHex | None, _Of("release")]
    mcp_digest_before: Annotated[DigestText | None, _Of("before")]
    mcp_digest_after: Annotated[DigestText | None, _Of("after")]
    mcp_changed_fields: Annotated[str | None, _Of("changed_fields", _listed)]
    mcp_reason: Annotated[str | None, _Of("reason")]
    mcp_renamed_to: Annotated[str | None, _Of("renamed_to")]
    mcp_change_codes: Annotated[str | None, _Of("changes", _firsts)]
    mcp_indicators: Annotated[str | None, _Of("indicators", _firsts)]
    mcp_late_ms: Annotated[Natural | None, _Of("late_ms")]
    mcp_left_out: Annotated[str | None, _Of("left_out", _listed)]
    mcp_counted: Annotated[str | None, _Of("counted", _numbers)]
    mcp_inventory: Annotated[str | None, _Of("inventory", _numbers)]
    mcp_privileged: Annotated[str | None, _Of("privileged", _listed)]
    mcp_pin_scheme: Annotated[Scheme | None, _Of("scheme")]
    mcp_pin_expected: Annotated[SchemeValue | None, _Of("expected")]
    mcp_pin_observed: Annotated[SchemeValue | Identifier | None, _Of("observed")]
    mcp_pin_enforcement: Annotated[Enforcement | None, _Of("enforcement")]
    mcp_pin_action: Annotated[ActionText | None, _Of("action")]
    mcp_detection: Annotated[AgentName | None, _Of("detection", attrgetter("agent"))]
    mcp_detection_key: Annotated[str | None, _Of("detection", attrgetter("key_text"))]
    mcp_detection_digest: Annotated[DigestText | None, _Of("detection", attrgetter("digest"))]
    mcp_detection_references: Annotated[str | None, _Of("detection", lambda found: _listed(map(str, found.references)))]
    mcp_origin_topic: Required[Annotated[str, _Of("origin", attrgetter("topic"))]]
    mcp_origin_partition: Required[Annotated[Natural, _Of("origin", attrgetter("partition"))]]
    mcp_origin_offset: Required[Annotated[Natural, _Of("origin", attrgetter("offset"))]]


_SOURCES = {
    name: source
    for name, hint in get_type_hints(AlertFlat, include_extras=True).items()
    for source in getattr(get_args(hint)[0] if get_origin(hint) is Required else hint, "__metadata__", ())
    if isinstance(source, _Of)
}


class Alert(TypedDict):
    """The part of an OCSF 1.8.0 Detection Finding (class 2004) that assay-stream writes."""

    activity_id: Literal[1, 2, 3]
    activity_name: Literal["Create", "Update", "Close"]
    category_uid: Literal[2]
    category_name: Literal["Findings"]
    class_uid: Literal[2004]
    class_name: Literal["Detection Finding"]
    type_uid: Literal[200401, 200402, 200403]
    type_name: Literal["Detection Finding: Create", "Detection Finding: Update", "Detection Finding: Close"]
    time: Millis
    severity_id: SeverityId
    severity: _SeverityText
    status_id: Literal[1, 2, 3, 4]
    status: _StatusText
    is_alert: Literal[True]
    count: Positive
    message: str
    comment: NotRequired[ShortText]
    metadata: AlertMetadata
    finding_info: AlertFindingInfo
    remediation: AlertRemediation
    unmapped: AlertFlat


class AlertHeaders(BaseModel):
    """Kafka headers of an alert: CloudEvents attributes (binary mode), so that the value is plain OCSF."""

    model_config = ConfigDict(extra="forbid")

    content_type: Annotated[Literal["application/json"], Field(alias="content-type")]
    ce_specversion: Literal["1.0"]
    ce_type: Literal["assay.tool.drift"]
    ce_source: Literal["urn:assay-stream"]
    ce_id: Annotated[str, Field(pattern=r"^[0-9a-f]{64}:[0-9]+:[123]:[0-9]+$")]


_NAMED_IN_MESSAGE = 3
_LABELS = {Activity.CREATE: "created", Activity.UPDATE: "updated", Activity.CLOSE: "closed"}


def alert_record(
    state: AlertState, *, activity: Activity, status: AlertStatus, time_us: int, suppressed_by: str | None, version: str
) -> Output:
    """Return the record of an alert.

    Args:
        time_us: event time of the activity, microseconds since the epoch.
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
            "title": _title(finding, info),
            "desc": info.explanation,
            "types": list(dict.fromkeys([finding.kind.value, *(reason.partition(":")[0] for reason in reasons)])),
            "first_seen_time": state.first_us // 1_000,
            "last_seen_time": state.last_us // 1_000,
            **_members(folded),
        },
        "remediation": {"desc": info_of(finding.kind, finding.tool_name).next_step},
        "unmapped": _pin_of(state)
        | _present(
            **{name: source.value(finding) for name, source in _SOURCES.items()},
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
        headers=(
            ("content-type", b"application/json"),
            ("ce_specversion", b"1.0"),
            ("ce_type", b"assay.tool.drift"),
            ("ce_source", b"urn:assay-stream"),
            ("ce_id", f"{finding.uid()}:{state.count}:{activity.value}:{state.repeats}".encode()),
        ),
        timestamp_ms=max(state.last_us, time_us) // 1_000,
        label="alert:suppressed" if status is AlertStatus.SUPPRESSED else f"alert:{_LABELS[activity]}",
    )


def reasons_of(state: AlertState) -> list[str]:
    """Return the other subjects of an alert: labels of findings that joined it, sorted."""
    return sorted({*state.last.also, *(part["label"] for part in (state.parts or {}).values())})


def why_of(finding: Finding) -> str | None:
    """Return which indicators occur where, the most severe first, as far as there is room."""
    named = sorted(finding.indicators, key=lambda row: (-row[1], row[0], row[2]))[:_NAMED_IN_MESSAGE]
    return "; ".join(f"{rule} at {path}" for rule, _, path in named) or None


def group_of(finding: Finding) -> str | None:
    """Return the group of alerts of one change: kind and definition, on whatever servers it is found.

    For shadowed tools, kind and newcomer: a server that copies names has an alert for each of them. For a release, the
    list.
    """
    if finding.kind is Kind.TOOL_SHADOWED:
        return sha256(orjson.dumps([finding.kind, finding.server_id])).hexdigest()
    digest = finding.release if finding.kind is Kind.SERVER_CHANGED else finding.after or finding.before
    return None if digest is None else sha256(f"{finding.kind} {digest}".encode()).hexdigest()


def _pin_of(state: AlertState) -> dict[str, Any]:
    """Return the pin fields of the first part by label that still holds, whatever the order in which parts joined."""
    for part in sorted((state.parts or {}).values(), key=itemgetter("label")):
        if part["over_us"] is None and "pin" in part:
            return {f"mcp_pin_{name}": value for name, value in part["pin"].items()}
    return {}


def _message(finding: Finding, folded: Mapping[str, Any] | None, reasons: Iterable[str]) -> str:
    if folded is not None:
        names = ", ".join(dict.fromkeys(name for *_, name, _ in folded["most_severe"][:_NAMED_IN_MESSAGE] if name))
        if finding.kind is Kind.SERVER_CHANGED:
            worst = f"{names}: {found}" if (found := why_of(finding)) else names
            return f"{KINDS[finding.kind].title}: {finding.server_id}: {worst}; {_by_severity(folded)}"
        worst = f"; most severe: {names}" if names else ""
        return f"{KINDS[finding.kind].title}: {finding.server_id}: {_by_severity(folded)}{worst}"
    name = finding.tool_name or finding.item_name
    subject = f"{finding.server_id}/{name}" if name else finding.server_id
    detail = f" ({', '.join(finding.changed_fields)})" if finding.changed_fields else ""
    reason = f" ({finding.reason})" if finding.reason else ""
    also = "".join(f"; {reason}" for reason in reasons)
    why = why_of(finding)
    title = _title(finding, info_of(finding.kind, finding.tool_name))
    return f"{title}: {subject}{detail}{reason}{also}{f': {why}' if why else ''}"


def _title(finding: Finding, info: KindInfo) -> str:
    own = finding.detection if finding.kind is Kind.DETECTION else None
    return info.title if own is None else own.title


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
