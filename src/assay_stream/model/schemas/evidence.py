"""Models of what is evidence: decisions, changes; and of verdicts."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from assay_stream.model.control_facts import DiscoveryStatus
from assay_stream.model.fields import (
    ActionText,
    BareHex,
    Closed,
    Count,
    DigestText,
    Enforcement,
    HashText,
    Identifier,
    KeyFingerprint,
    Micros,
    OriginField,
    Reference,
    Scheme,
    SchemeValue,
    Text,
    Timestamp,
    Token,
    Unknown,
)
from assay_stream.model.kinds import Kind
from assay_stream.model.observation import CallProfile
from assay_stream.registry.as_of import Scope, Unbound
from assay_stream.registry.pins import PinStatus
from assay_stream.schemes.schemapin import Mode


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
    reason_code: Literal["P_TOOL_DRIFT", "P_TOOL_UNOBSERVED"] | None = None


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
    expires_at: str | None = None
    schema_version: str | None = None
    previous_hash: str | None = None
    warning: Literal["signature_expired", "signature_expires_at_unparseable"] | None = None
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
    unknown: Unknown


class ChangePayload(Closed):
    """What an operator set, or which key was observed, and what that replaced."""

    change: str
    server_id: Identifier
    origin: OriginField
    superseded: bool
    tool_name: Identifier | None = None
    scheme: Scheme | None = None
    value: SchemeValue | None = None
    upstream: Text | None = None
    author: Text | None = None
    reason: Text | None = None
    enforcement: Enforcement | None = None
    unknown: Unknown | None = None
    domain: str | None = None
    key_fingerprint: KeyFingerprint | None = None
    status: DiscoveryStatus | None = None
    revoked_keys: list[str] | None = None
    rule_id: Identifier | None = None
    tool: Text | None = None
    kind: Kind | None = None
    field: Text | None = None
    until_us: Micros | None = None
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
