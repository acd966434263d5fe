"""Models of findings, alerts and definitions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints

from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.fields import (
    ActionText,
    BareHex,
    Closed,
    DigestText,
    Enforcement,
    Identifier,
    Millis,
    Natural,
    Scheme,
    SchemeValue,
)
from assay_stream.model.kinds import Kind


class AlertProduct(Closed):
    """Who made the alert."""

    name: Literal["assay-stream"]
    vendor_name: Literal["assay-stream"]
    version: str


class AlertMetadata(Closed):
    """OCSF version and product."""

    version: Literal["1.8.0"]
    product: AlertProduct


class FoldedMember(Closed):
    """A member of a folded alert; its uid is that of its findings."""

    uid: BareHex
    type: Kind
    title: str
    desc: str | None = None
    severity_id: Annotated[int, Field(ge=1, le=5)]
    severity: Literal["Informational", "Low", "Medium", "High", "Critical"]


class AlertFindingInfo(Closed):
    """What the alert is about. Its ``uid`` is the same for every repeat."""

    uid: BareHex
    title: str
    desc: str
    types: Annotated[list[Kind], Field(min_length=1, max_length=1)]
    first_seen_time: Millis
    last_seen_time: Millis
    related_events: Annotated[list[FoldedMember], Field(max_length=DEFAULT_LIMITS.folded_named_max)] | None = None
    related_events_count: Annotated[int, Field(ge=1)] | None = None


class AlertRemediation(Closed):
    """What to do next."""

    desc: str


class AlertFlat(Closed):
    """The same facts as flat scalars, for rule engines."""

    mcp_finding_kind: Kind
    mcp_server_id: Identifier
    mcp_tool_name: str | None = None
    mcp_item_name: str | None = None
    mcp_observer_id: Identifier | None = None
    mcp_observers: Natural
    mcp_observers_active: Natural
    mcp_repeats: Annotated[int, Field(ge=1)] | None = None
    mcp_resolved_by: str | None = None
    mcp_suppressed_by: str | None = None
    mcp_folded: Annotated[int, Field(ge=1)] | None = None
    mcp_folded_by_severity: str | None = None
    mcp_atlas: str | None = None
    mcp_owasp: str | None = None
    mcp_snapshot_id: Identifier | None = None
    mcp_digest_before: DigestText | None = None
    mcp_digest_after: DigestText | None = None
    mcp_changed_fields: str | None = None
    mcp_reason: str | None = None
    mcp_renamed_to: str | None = None
    mcp_change_codes: str | None = None
    mcp_signs: str | None = None
    mcp_late_ms: Natural | None = None
    mcp_left_out: str | None = None
    mcp_counted: str | None = None
    mcp_pin_scheme: Scheme | None = None
    mcp_pin_expected: SchemeValue | None = None
    mcp_pin_observed: SchemeValue | None = None
    mcp_pin_enforcement: Enforcement | None = None
    mcp_pin_action: ActionText | None = None
    mcp_origin_topic: str
    mcp_origin_partition: Natural
    mcp_origin_offset: Natural


class Alert(Closed):
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
    severity_id: Annotated[int, Field(ge=1, le=5)]
    severity: Literal["Informational", "Low", "Medium", "High", "Critical"]
    status_id: Literal[1, 2, 3, 4]
    status: Literal["New", "In Progress", "Suppressed", "Resolved"]
    is_alert: Literal[True]
    count: Annotated[int, Field(ge=1)]
    message: str
    metadata: AlertMetadata
    finding_info: AlertFindingInfo
    remediation: AlertRemediation
    unmapped: AlertFlat


class AlertHeaders(Closed):
    """Kafka headers of an alert: CloudEvents attributes (binary mode), so that the value is plain OCSF."""

    model_config = ConfigDict(populate_by_name=True)

    content_type: Annotated[Literal["application/json"], Field(alias="content-type")]
    ce_specversion: Literal["1.0"]
    ce_type: Literal["assay.tool.drift"]
    ce_source: Literal["urn:assay-stream"]
    ce_id: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}:[0-9]+:[123]:[0-9]+$")]


class Projection(Closed):
    """The bounded projection that the tool definition digest covers, without a server's id."""

    name: str
    description: str | None = None
    input_schema: dict[str, Any] | None = None


class Definition(Closed):
    """One distinct tool, prompt or resource template, for reviewers. The record's key is the full digest."""

    full_digest: DigestText
    definition: dict[str, Any]
    projection: Projection | None = None
