"""JSON Schemas (draft 2020-12) of every record, generated from models, and the AsyncAPI document over them.

The core builds its records as plain dicts, for speed. The models here say what those dicts hold; the
conformance tests hold real records of the engine against them. A field that may be absent is absent, never
null.

    python -m assay_stream.schemas --check schemas      exit code 1 if a committed file differs
    python -m assay_stream.schemas --write schemas      write the files anew
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from assay_stream import __version__
from assay_stream.core.binding import Scope, Unbound
from assay_stream.core.change import CHANGE_TYPE
from assay_stream.core.control import CONTROL_MODELS, Enforcement, KeyFingerprint, Scheme
from assay_stream.core.control_facts import DiscoveryStatus, KeyAct, PinAct
from assay_stream.core.evidence import EVIDENCE_TYPE
from assay_stream.core.facts import Completeness
from assay_stream.core.finding import Kind
from assay_stream.core.limits import DEFAULT_LIMITS
from assay_stream.core.observation import (
    CALL_TYPE,
    SNAPSHOT_TYPE,
    CallEvent,
    CallProfile,
    Count,
    HashText,
    Identifier,
    Reference,
    SnapshotEvent,
    Text,
    Timestamp,
    Token,
)
from assay_stream.core.pins import PinStatus
from assay_stream.core.record import Role
from assay_stream.schemes import assay, handshake, htc_schema
from assay_stream.schemes.schemapin import Mode

DIALECT = "https://json-schema.org/draft/2020-12/schema"
ID_PREFIX = "urn:assay-stream:schema:"
SUFFIX = ".schema.json"
ASYNCAPI_FILE = "asyncapi.json"
HTC_FILE = "htc_v1.json"

DigestText = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
BareHex = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
# A scheme can print a word (a risk level) or nothing (the hash of a schema that is not there).
SchemeValue = Annotated[str, StringConstraints(pattern=r"^((sha256:)?[0-9a-f]{64}|LOW|MEDIUM|HIGH)?$")]
ActionText = Literal["allow", "warn", "block"]
UnknownText = Literal["allow_degraded", "warn", "block"]
Digits = Annotated[str, StringConstraints(pattern=r"^[0-9]+$")]
Base64 = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9+/]*={0,2}$")]
Natural = Annotated[int, Field(ge=0)]
Micros = Annotated[int, Field(ge=0, description="Event time, microseconds since the epoch.")]
Millis = Annotated[int, Field(ge=0, description="Milliseconds since the epoch.")]


class Closed(BaseModel):
    """A record that only assay-stream writes: it holds these fields and no others."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class OriginField(Closed):
    """Where an input record stands in its log: topic, partition and offset."""

    topic: str
    partition: Natural
    offset: Natural


class ToolIdentityField(Closed):
    """Assay's ToolIdentity: another notion than the tool definition digest, over other bytes."""

    server_id: str
    tool_name: str
    schema_hash: BareHex
    meta_hash: BareHex


class PinField(Closed):
    """How the definition in force stands to its pins. A match says that two values are equal, no more."""

    status: PinStatus
    scheme: Scheme | None = None
    expected: SchemeValue | None = None
    observed: SchemeValue | None = None
    enforcement: Enforcement | None = None
    action: ActionText | None = None
    reason_code: Literal["P_TOOL_DRIFT"] | None = None


class DiscoveryField(Closed):
    """Where the key document was observed; ``last_observed`` where the domain could not be read since."""

    origin: OriginField
    status: Literal["observed", "last_observed"]


class SignatureField(Closed):
    """A tool's SchemaPin signature held against the key in force. ``valid`` says nothing about the tool."""

    scheme: Literal["schemapin.v1"]
    valid: bool
    error_code: str | None = None
    mode: Mode | None = None
    key_fingerprint: KeyFingerprint | None = None
    domain: str | None = None
    discovery: DiscoveryField | None = None


class BindingField(Closed):
    """The rule that found the definition, and the observation that the answer rests on."""

    scope: Scope | Literal["none"]
    snapshot_id: str | None = None
    origin: OriginField | None = None
    catalogue_digest: DigestText | None = None
    server_scoped: bool | None = None
    full_digest: DigestText | None = None


class ErrorField(Closed):
    """Why the call failed: the code only, since a message may quote arguments."""

    code: Text


class TimingField(Closed):
    """When the call ran."""

    started_at: Timestamp | None = None
    ended_at: Timestamp | None = None
    duration_ms: Annotated[int | float, Field(ge=0, le=2**53)] | None = None


class ActorField(Closed):
    """On whose behalf the call was made."""

    kind: Literal["human", "agent", "system"]
    agent_id: Text | None = None
    model_id: Text | None = None


class DecisionPayload(Closed):
    """What one call was bound to. Never holds definitions, arguments, results or messages."""

    tool: Identifier
    origin: OriginField
    observer_id: Identifier
    server_id: Identifier
    tool_call_id: Identifier
    profile: CallProfile | None = None
    trace_id: Text | None = None
    decision: Literal["allow", "deny", "requires_approval", "error"]
    reason_code: Text
    args_schema_hash: HashText | None = None
    policy_digest: HashText | None = None
    policy_snapshot_digest: HashText | None = None
    policy_snapshot_digest_alg: HashText | None = None
    policy_snapshot_canonicalization: HashText | None = None
    policy_snapshot_schema: HashText | None = None
    ok: bool | None = None
    side_effect: Literal["READ", "WRITE", "EXECUTE"] | None = None
    idempotency: Literal["IDEMPOTENT", "IDEMPOTENT_WITH_KEY", "NON_IDEMPOTENT"] | None = None
    idempotency_key: Token | None = None
    transport: Token | None = None
    tool_id: Text | None = None
    tool_version: Text | None = None
    delegated_from: Text | None = None
    delegation_depth: Count | None = None
    error: ErrorField | None = None
    timing: TimingField | None = None
    actor: ActorField | None = None
    args_hash: HashText | None = None
    args_ref: Reference | None = None
    result_hash: HashText | None = None
    redaction: DigestText | None = None
    result_ref: Reference | None = None
    tool_definition_digest: DigestText | None = None
    tool_definition_digest_alg: HashText | None = None
    tool_definition_canonicalization: HashText | None = None
    tool_definition_schema: HashText | None = None
    tool_definition_source: HashText | None = None
    tool_identity: ToolIdentityField | None = None
    pin: PinField
    signature: SignatureField | None = None
    binding: BindingField
    unbound_reason: Unbound | None = None


class Evidence(Closed):
    """``assay.tool.decision``: one record per call, in the Assay envelope; the value is its JCS form."""

    specversion: Literal["1.0"]
    type: Literal["assay.tool.decision"]
    source: Literal["urn:assay-stream"]
    id: BareHex
    time: Timestamp
    datacontenttype: Literal["application/json"]
    subject: Identifier
    traceparent: Annotated[str, StringConstraints(max_length=64)] | None = None
    assayproducer: Literal["assay-stream"]
    assayproducerversion: str
    assaygit: str
    assaypii: Literal[False]
    assaysecrets: Literal[False]
    assaycontenthash: DigestText
    data: DecisionPayload


class PolicyField(Closed):
    """A digest policy: what is to happen on a mismatch, and where there is no pin."""

    enforcement: Enforcement
    unknown: UnknownText


class ChangePayload(Closed):
    """What an operator set, or which key was observed, and what that replaced."""

    change: str
    server_id: Identifier
    origin: OriginField
    superseded: bool
    tool_name: Identifier | None = None
    scheme: Scheme | None = None
    value: SchemeValue | None = None
    author: Text | None = None
    reason: Text | None = None
    enforcement: Enforcement | None = None
    unknown: UnknownText | None = None
    domain: str | None = None
    key_fingerprint: KeyFingerprint | None = None
    status: DiscoveryStatus | None = None
    revoked_keys: list[str] | None = None
    replaces: str | PolicyField | None = None


class Change(Closed):
    """``assay.control.change``: evidence of one control record, in the Assay envelope."""

    specversion: Literal["1.0"]
    type: Literal["assay.control.change"]
    source: Literal["urn:assay-stream"]
    id: BareHex
    time: Timestamp
    datacontenttype: Literal["application/json"]
    subject: Identifier
    assayproducer: Literal["assay-stream"]
    assayproducerversion: str
    assaygit: str
    assaypii: Literal[False]
    assaysecrets: Literal[False]
    assaycontenthash: DigestText
    data: ChangePayload


class VerdictRecord(PinField):
    """``assay.tool.verdict``: what the digest policy makes of a tool now. The key is the array [server, tool]."""

    server_id: Identifier
    tool_name: Identifier | None = None
    pins: dict[str, SchemeValue] | None = None
    rejected: dict[str, list[SchemeValue]] | None = None
    policy: PolicyField | None = None


class FindingRecord(Closed):
    """One thing found in one record of an input log."""

    kind: Kind
    uid: BareHex
    server_id: Identifier
    tool_name: str | None = None
    observer_id: Identifier | None = None
    time_us: Micros
    origin: OriginField
    snapshot_id: Identifier | None = None
    before: DigestText | None = None
    after: DigestText | None = None
    changed_fields: list[str]
    known: bool
    reason: str | None = None
    scheme: Scheme | None = None
    expected: SchemeValue | None = None
    observed: SchemeValue | None = None
    enforcement: Enforcement | None = None
    action: ActionText | None = None


class AlertProduct(Closed):
    """Who made the alert."""

    name: Literal["assay-stream"]
    vendor_name: Literal["assay-stream"]
    version: str


class AlertMetadata(Closed):
    """OCSF version and product."""

    version: Literal["1.8.0"]
    product: AlertProduct


class AlertFindingInfo(Closed):
    """What the alert is about. Its ``uid`` is the same for every repeat."""

    uid: BareHex
    title: str
    desc: str
    types: Annotated[list[Kind], Field(min_length=1, max_length=1)]
    first_seen_time: Millis
    last_seen_time: Millis


class AlertFlat(Closed):
    """The same facts as flat scalars, for rule engines."""

    mcp_finding_kind: Kind
    mcp_server_id: Identifier
    mcp_tool_name: str | None = None
    mcp_observer_id: Identifier | None = None
    mcp_observers: Annotated[int, Field(ge=1)]
    mcp_snapshot_id: Identifier | None = None
    mcp_digest_before: DigestText | None = None
    mcp_digest_after: DigestText | None = None
    mcp_changed_fields: str | None = None
    mcp_reason: str | None = None
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

    activity_id: Literal[1, 2]
    activity_name: Literal["Create", "Update"]
    category_uid: Literal[2]
    category_name: Literal["Findings"]
    class_uid: Literal[2004]
    class_name: Literal["Detection Finding"]
    type_uid: Literal[200401, 200402]
    type_name: Literal["Detection Finding: Create", "Detection Finding: Update"]
    time: Millis
    severity_id: Annotated[int, Field(ge=1, le=5)]
    severity: Literal["Informational", "Low", "Medium", "High", "Critical"]
    status_id: Literal[1, 2]
    status: Literal["New", "In Progress"]
    count: Annotated[int, Field(ge=1)]
    message: str
    metadata: AlertMetadata
    finding_info: AlertFindingInfo
    unmapped: AlertFlat


class AlertHeaders(Closed):
    """Kafka headers of an alert: CloudEvents attributes (binary mode), so that the value is plain OCSF."""

    model_config = ConfigDict(populate_by_name=True)

    content_type: Annotated[Literal["application/json"], Field(alias="content-type")]
    ce_specversion: Literal["1.0"]
    ce_type: Literal["assay.tool.drift"]
    ce_source: Literal["urn:assay-stream"]
    ce_id: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}:[0-9]+$")]


class Projection(Closed):
    """The bounded projection that the tool definition digest covers, without a server's id."""

    name: str
    description: str | None = None
    input_schema: dict[str, Any] | None = None


class Definition(Closed):
    """One distinct tool definition, for reviewers. The record's key is the full digest."""

    full_digest: DigestText
    definition: dict[str, Any]
    projection: Projection | None = None


class ToolFactValue(Closed):
    """A definition seen on a server: its digest under every scheme, and of every top-level field."""

    schemes: dict[str, SchemeValue]
    errors: dict[str, str]
    fields: list[tuple[str, DigestText]]
    packed: Base64


class CatalogueFactValue(Closed):
    """A set of definitions: name to full digest, null where the name stood twice with two definitions."""

    server_scoped: bool
    tools: list[tuple[str, DigestText | None]]


class SeenFactValue(Closed):
    """From this time on, this observer saw this catalogue on this server."""

    time_us: Micros
    snapshot_id: Identifier
    catalogue: DigestText
    completeness: Completeness
    signatures: DigestText | None


class RejectionFactValue(Closed):
    """A snapshot of the server was refused: what was in force before is in force no more."""

    time_us: Micros
    code: str


class PinFactValue(Closed):
    """An operator decided on a value of a tool; ``value`` is null only where a pin is removed."""

    time_us: Micros
    act: PinAct
    value: SchemeValue | None
    author: Text
    reason: Text


class PolicyFactValue(Closed):
    """An operator set a digest policy; ``tool_name`` is null where it is for the whole server."""

    time_us: Micros
    tool_name: Identifier | None
    enforcement: Enforcement
    unknown: UnknownText
    author: Text
    reason: Text


class KeyFactValue(Closed):
    """An operator accepted or revoked a SchemaPin key."""

    time_us: Micros
    act: KeyAct
    fingerprint: KeyFingerprint
    domain: str | None
    tool_name: Identifier | None
    author: Text
    reason: Text


class DiscoveryFactValue(Closed):
    """What was found at a domain, with its key where there is a usable one."""

    time_us: Micros
    status: DiscoveryStatus
    fingerprint: KeyFingerprint | None
    public_key_pem: str | None
    revoked: list[str]


class SignaturesFactValue(Closed):
    """Signatures that came with a catalogue: tool, domain, signature, and the SchemaPin digest it is for."""

    tools: list[tuple[str, str | None, str, BareHex | None]]


class CheckedFactValue(Closed):
    """Signatures held against one key: tool and hashing mode of those that match."""

    modes: list[tuple[str, Mode]]


class FirstUseFactValue(Closed):
    """The key of the first matching signature of a tool: trust on first use."""

    time_us: Micros
    origin: tuple[str, Natural, Natural]
    fingerprint: KeyFingerprint


class HorizonFactValue(Closed):
    """Of what this observer saw before this time, the oldest was folded away."""

    time_us: Micros


class ProgressFactValue(Closed):
    """The registry has applied everything before this position of one input partition."""

    position: Natural


FactKeyModel = (
    tuple[Literal["tool"], Identifier, bool, DigestText]
    | tuple[Literal["catalogue"], Identifier, DigestText]
    | tuple[Literal["seen"], Identifier, Identifier, str, Natural, Natural]
    | tuple[Literal["rejection"], Identifier, str, Natural, Natural]
    | tuple[Literal["pin"], Identifier, Identifier, Scheme, str, Natural, Natural]
    | tuple[Literal["policy"], Identifier, str, Natural, Natural]
    | tuple[Literal["key_decision"], Identifier, str, Natural, Natural]
    | tuple[Literal["discovery"], Identifier, str, str, Natural, Natural]
    | tuple[Literal["signatures"], Identifier, DigestText]
    | tuple[Literal["checked"], Identifier, DigestText, KeyFingerprint]
    | tuple[Literal["first_use"], Identifier, str, Identifier]
    | tuple[Literal["horizon"], Identifier, Identifier]
    | tuple[Literal["progress"], str, Natural]
)
"""The key of a fact: a JSON array that starts with the fact's kind."""


class RejectedHeaders(BaseModel):
    """Kafka headers of a rejected record. The original headers stand before them; value and key are kept."""

    model_config = ConfigDict(populate_by_name=True, extra="allow")

    code: Annotated[str, Field(alias="error.code")]
    message: Annotated[str, Field(alias="error.message")]
    topic: Annotated[str, Field(alias="error.topic")]
    partition: Annotated[Digits, Field(alias="error.partition")]
    offset: Annotated[Digits, Field(alias="error.offset")]


class RejectedError(Closed):
    """The ``error.*`` headers of a rejected record."""

    code: str
    message: str
    topic: str
    partition: Digits
    offset: Digits


class RejectedLine(Closed):
    """A rejected record as a line of ``rejected.ndjson``; ``*_base64`` holds bytes that are no UTF-8."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [{"required": ["key"]}, {"required": ["key_base64"]}],
            "anyOf": [{"required": ["value"]}, {"required": ["value_base64"]}],
        }
    )

    error: RejectedError
    key: Annotated[str | None, Field(json_schema_extra={"type": ["string", "null"]})] = None
    key_base64: Base64 | None = None
    value: Annotated[str | None, Field(json_schema_extra={"type": ["string", "null"]})] = None
    value_base64: Base64 | None = None
    headers: list[tuple[str, str]]
    headers_base64: list[tuple[str, Base64]] | None = None


_FACT_KEY = "assay.tool.binding.key"
_INPUTS: dict[str, type[BaseModel]] = {
    SNAPSHOT_TYPE: SnapshotEvent,
    CALL_TYPE: CallEvent,
    **CONTROL_MODELS,
}
_OUTPUTS: dict[str, Any] = {
    EVIDENCE_TYPE: Evidence,
    CHANGE_TYPE: Change,
    "assay.tool.verdict": VerdictRecord,
    "assay.tool.finding": FindingRecord,
    "assay.tool.drift": Alert,
    "assay.tool.drift.headers": AlertHeaders,
    "assay.tool.definition": Definition,
    _FACT_KEY: FactKeyModel,
    "assay.tool.binding.tool": ToolFactValue,
    "assay.tool.binding.catalogue": CatalogueFactValue,
    "assay.tool.binding.seen": SeenFactValue,
    "assay.tool.binding.rejection": RejectionFactValue,
    "assay.tool.binding.pin": PinFactValue,
    "assay.tool.binding.policy": PolicyFactValue,
    "assay.tool.binding.key_decision": KeyFactValue,
    "assay.tool.binding.discovery": DiscoveryFactValue,
    "assay.tool.binding.signatures": SignaturesFactValue,
    "assay.tool.binding.checked": CheckedFactValue,
    "assay.tool.binding.first_use": FirstUseFactValue,
    "assay.tool.binding.horizon": HorizonFactValue,
    "assay.tool.binding.progress": ProgressFactValue,
    "assay.rejected.headers": RejectedHeaders,
    "assay.rejected.line": RejectedLine,
}


class _AbsentNotNull(GenerateJsonSchema):
    """Writes a field that defaults to ``None`` as one that may be absent, and is never null."""

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        """Return the schema of a field with a default value."""
        inner = schema["schema"]
        if schema.get("default", ...) is None and inner["type"] == "nullable":
            return self.generate_inner(inner["schema"])
        return super().default_schema(schema)


def all_schemas() -> dict[str, dict[str, Any]]:
    """Return every schema: file name to content."""
    files: dict[str, dict[str, Any]] = {}
    for name, model in _INPUTS.items():
        files[name + SUFFIX] = _finished(name, model.model_json_schema())
    for name, model in _OUTPUTS.items():
        schema = TypeAdapter(model).json_schema(schema_generator=_AbsentNotNull)
        files[name + SUFFIX] = _finished(name, schema)
    files[SNAPSHOT_TYPE + SUFFIX]["$defs"]["SnapshotData"]["properties"]["tools"]["maxItems"] = (
        DEFAULT_LIMITS.tools_max
    )
    files[CALL_TYPE + SUFFIX]["$defs"]["CallData"]["allOf"] = [*_clusters(), _handshake_profile()]
    payload = files[EVIDENCE_TYPE + SUFFIX]["$defs"]["DecisionPayload"]
    payload["allOf"] = _clusters()
    # Bound with a whole cluster, or unbound with the reason: nothing in between.
    payload["oneOf"] = [{"required": ["tool_definition_digest"]}, {"required": ["unbound_reason"]}]
    return files


def _finished(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = _without_markup(schema)
    return {"$schema": DIALECT, "$id": ID_PREFIX + name, **plain, "title": name}


def _without_markup(part: Any) -> Any:
    """Return a schema without docstring markup and without the titles that only repeat a field's name."""
    if isinstance(part, list):
        return [_without_markup(item) for item in part]
    if not isinstance(part, dict):
        return part
    cleaned = {}
    for key, value in part.items():
        if key == "title" and isinstance(value, str):
            continue
        if key == "description" and isinstance(value, str):
            cleaned[key] = " ".join(value.replace("``", "`").split())
        else:
            cleaned[key] = _without_markup(value)
    return cleaned


def _clusters() -> list[dict[str, Any]]:
    """Return the conditions that make both clusters atomic: whole, or absent."""
    definition = _whole_or_absent("tool_definition_digest", assay.CLUSTER_CONSTANTS)
    policy = _whole_or_absent("policy_snapshot_digest", assay.POLICY_CLUSTER_CONSTANTS)
    whole = policy["anyOf"][1]
    whole["required"].append("policy_digest")
    whole["properties"]["policy_digest"] = {"type": "string"}
    return [definition, policy]


def _handshake_profile() -> dict[str, Any]:
    """Return the condition on a call of the handshake profile (FR-EVT-007), as far as a schema can say it."""
    required = [name for name in handshake.RECORDED.required if name != "type"]
    properties: dict[str, Any] = {name: {"not": {"type": "null"}} for name in required}
    properties |= {
        name: {"type": "string", "pattern": f"^{handshake.UUID}$"} for name in ("trace_id", "tool_call_id")
    }
    properties |= {
        "tool_id": {"type": "string", "pattern": f"^{handshake.TOOL_ID}$"},
        "transport": {"enum": list(handshake.TRANSPORTS)},
        "timing": {"type": "object", "required": ["started_at", "ended_at", "duration_ms"]},
        "args": False,
        "result": False,
    }
    return {
        "if": {"properties": {"profile": {"const": "handshake"}}, "required": ["profile"]},
        "then": {"properties": properties, "required": required},
    }


def _whole_or_absent(digest_field: str, constants: dict[str, str]) -> dict[str, Any]:
    absent = {field: {"type": "null"} for field in (digest_field, *constants)}
    whole: dict[str, Any] = {digest_field: {"type": "string", "pattern": rf"^{assay.CLUSTER_DIGEST}$(?!\n)"}}
    whole |= {field: {"const": value} for field, value in constants.items()}
    return {"anyOf": [{"properties": absent}, {"properties": whole, "required": list(whole)}]}


_CHANNELS: dict[Role, tuple[str, str, tuple[str, ...], str | None]] = {
    Role.SNAPSHOTS: (
        "mcp.tools.list",
        "Snapshots: what a server offered. Key: server_id.",
        (SNAPSHOT_TYPE,),
        None,
    ),
    Role.CONTROL: (
        "assay.control",
        "What an operator sets. Key: server_id.",
        tuple(CONTROL_MODELS),
        None,
    ),
    Role.CALLS: ("mcp.tools.call", "Calls: what an agent did. Any key.", (CALL_TYPE,), None),
    Role.BINDINGS: (
        "assay.tool.binding",
        "Facts of the registry. Compacted. Key: assay.tool.binding.key.",
        tuple(name for name in _OUTPUTS if name.startswith("assay.tool.binding.") and name != _FACT_KEY),
        None,
    ),
    Role.DEFINITIONS: (
        "assay.tool.definition",
        "Definitions for reviewers. Compacted. Key: full digest.",
        ("assay.tool.definition",),
        None,
    ),
    Role.FINDINGS: ("assay.tool.finding", "Findings. Key: server_id.", ("assay.tool.finding",), None),
    Role.ALERTS: (
        "assay.tool.drift",
        "Alerts. Key: server_id.",
        ("assay.tool.drift",),
        "assay.tool.drift.headers",
    ),
    Role.EVIDENCE: (
        "assay.tool.decision",
        "Evidence: one record per call. Key: server_id; partition number: the call's.",
        (EVIDENCE_TYPE,),
        None,
    ),
    Role.CHANGES: (
        "assay.control.change",
        "Changes: evidence of every control record. Key: server_id; partition number: the control record's.",
        (CHANGE_TYPE,),
        None,
    ),
    Role.VERDICTS: (
        "assay.tool.verdict",
        "Verdicts: what the digest policy makes of each tool now. Compacted. Key: JSON array of server and tool.",
        ("assay.tool.verdict",),
        None,
    ),
    Role.REJECTED: (
        "assay.rejected",
        "Refused input: original bytes, key and headers, and error headers.",
        (),
        "assay.rejected.headers",
    ),
}
_READ = (Role.SNAPSHOTS, Role.CONTROL, Role.CALLS)


def asyncapi() -> dict[str, Any]:
    """Return the AsyncAPI 3.0 document: every topic without its prefix, and what stands in it."""
    channels: dict[str, Any] = {}
    messages: dict[str, Any] = {}
    operations: dict[str, Any] = {}
    for role, (address, description, names, headers) in _CHANNELS.items():
        of_channel: dict[str, Any] = {}
        for name in names or (address,):
            messages[name] = _message(name, has_payload=bool(names), headers=headers, is_event=role in _READ)
            of_channel[name] = {"$ref": f"#/components/messages/{name}"}
        channels[role.value] = {"address": address, "description": description, "messages": of_channel}
        operations[f"{'read' if role in _READ else 'write'}_{role.value}"] = {
            "action": "receive" if role in _READ else "send",
            "channel": {"$ref": f"#/channels/{role.value}"},
        }
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "assay-stream",
            "version": __version__,
            "description": "What assay-stream reads from Kafka and what it writes. A deployment may put a "
            "prefix before every address. CloudEvents are written in structured mode; both modes are read.",
            "license": {"name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"},
        },
        "defaultContentType": "application/json",
        "channels": channels,
        "operations": operations,
        "components": {"messages": messages},
    }


def _message(name: str, *, has_payload: bool, headers: str | None, is_event: bool) -> dict[str, Any]:
    message: dict[str, Any] = {"name": name}
    if is_event or name in (EVIDENCE_TYPE, CHANGE_TYPE):
        message["contentType"] = "application/cloudevents+json"
    if headers is not None:
        message["headers"] = _reference(headers)
    if has_payload:
        message["payload"] = _reference(name)
    else:
        message["contentType"] = "application/octet-stream"
    return message


def _reference(name: str) -> dict[str, Any]:
    return {
        "schemaFormat": "application/schema+json;version=draft-2020-12",
        "schema": {"$ref": f"./{name}{SUFFIX}"},
    }


def all_files() -> dict[str, str]:
    """Return every generated file of the schema folder: file name to text."""
    documents = {**all_schemas(), ASYNCAPI_FILE: asyncapi(), HTC_FILE: htc_schema.SCHEMA}
    return {name: json.dumps(content, indent=2, ensure_ascii=False) + "\n" for name, content in documents.items()}


def differing_files(folder: Path) -> list[str]:
    """Return the names of files in a folder that are missing, stale, or not generated any more.

    Args:
        folder: the schema folder.
    """
    wanted = all_files()
    present = {path.name for path in folder.glob("*.json")}
    stale = {
        name
        for name, text in wanted.items()
        if name in present and (folder / name).read_text(encoding="utf-8") != text
    }
    return sorted(stale | (present ^ wanted.keys()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Check or write the schema folder, and return the exit code.

    Args:
        arguments: command-line arguments, ``None`` for the process's own.
    """
    parser = argparse.ArgumentParser(
        prog="python -m assay_stream.schemas",
        description="Check or write the JSON Schemas of every record, and the AsyncAPI document over them.",
    )
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--check", metavar="DIR", type=Path, help="Exit with 1 if a file in DIR differs.")
    action.add_argument("--write", metavar="DIR", type=Path, help="Write every file to DIR.")
    chosen = parser.parse_args(arguments)
    if chosen.write is not None:
        chosen.write.mkdir(parents=True, exist_ok=True)
        for name, text in all_files().items():
            (chosen.write / name).write_text(text, encoding="utf-8")
        return 0
    differing = differing_files(chosen.check)
    for name in differing:
        print(f"differs from the models: {chosen.check / name}", file=sys.stderr)
    if differing:
        print(f"mend it: python -m assay_stream.schemas --write {chosen.check}", file=sys.stderr)
    return 1 if differing else 0


__all__ = ["all_files", "all_schemas", "asyncapi", "differing_files", "main"]

if __name__ == "__main__":
    sys.exit(main())
