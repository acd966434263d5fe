"""Records of evidence, for calls and for control records, with pin and signature results; and verdict records."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal, Required

from pydantic import Field
from typing_extensions import TypedDict

from assay_stream.model.control import DiscoveryStatus
from assay_stream.model.fields import (
    ActionText,
    AgentName,
    BareHex,
    DigestText,
    Enforcement,
    HashText,
    Identifier,
    KeyFingerprint,
    Micros,
    Natural,
    OriginField,
    Scheme,
    SchemeValue,
    ScopeField,
    ShortText,
    Timestamp,
    Unknown,
)
from assay_stream.model.kinds import Kind
from assay_stream.model.observation import Reported
from assay_stream.model.wire import Wire, record_model, write_record
from assay_stream.schemes.assay_tool import TOOL_DRIFT, TOOL_UNOBSERVED
from assay_stream.schemes.hangar import Action
from assay_stream.schemes.schemapin_canonical import Mode

CHANGE_TYPE = "assay.control.change"


class Scope(StrEnum):
    """The rule by which a call was bound."""

    EXACT = "exact"
    OBSERVER = "observer"
    SERVER = "server"


class Unbound(StrEnum):
    """Why a call carries no tool definition digest."""

    NOT_OBSERVED = "definition_not_observed"
    NOT_LISTED = "tool_not_listed"
    AMBIGUOUS = "definition_ambiguous"
    NOT_DIGESTIBLE = "definition_not_digestible"
    SNAPSHOT_REJECTED = "snapshot_rejected"
    LIST_CHANGE_ANNOUNCED = "list_change_announced"
    HISTORY_FOLDED = "history_folded"
    UNAVAILABLE = "definition_unavailable"


class PinStatus(StrEnum):
    """How a definition compares with its pins."""

    UNPINNED = "unpinned"
    MATCH = "match"
    UNOBSERVED = "unobserved"
    MISMATCH = "mismatch"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True, kw_only=True)
class PinResult:
    """How the definition in force compares with its pins. A match says that two values are equal, no more.

    Args:
        status: the result of the pin that says most, of several.
        expected: the approved value under that scheme, if there is one.
        action: what the policy would have done; the stream itself blocks nothing.
    """

    status: PinStatus
    scheme: Annotated[str | None, Wire(Scheme)] = None
    expected: SchemeValue | None = None
    observed: SchemeValue | None = None
    enforcement: Annotated[str | None, Wire(Enforcement)] = None
    action: Annotated[Action | None, Wire(ActionText, lambda action: action.value)] = None

    def as_json(self) -> dict[str, str]:
        reason_code = self.reason_code()
        return write_record(self) | ({} if reason_code is None else {"reason_code": reason_code})

    def reason_code(self) -> str | None:
        """Return Assay's reason code if one of its own pins does not match, or had nothing to match."""
        if not (self.scheme and self.scheme.startswith("assay.")):
            return None
        if self.status is PinStatus.UNOBSERVED:
            return TOOL_UNOBSERVED
        return TOOL_DRIFT if self.status in (PinStatus.MISMATCH, PinStatus.REJECTED) else None


_PinField = record_model(PinResult, reason_code=Literal["P_TOOL_DRIFT", "P_TOOL_UNOBSERVED"] | None)


class ToolIdentity(TypedDict):
    """Assay's ToolIdentity: another notion than the tool definition digest, over other bytes."""

    server_id: str
    tool_name: str
    schema_hash: BareHex
    meta_hash: BareHex


class DiscoveryField(TypedDict):
    """Where the key document was observed; ``last_observed`` where the domain could not be read since."""

    origin: OriginField
    status: Literal["observed", "last_observed"]


class SignatureField(TypedDict, total=False):
    """A tool's SchemaPin signature, checked with the key in force. ``valid`` says nothing about the tool."""

    scheme: Required[Literal["schemapin.v1"]]
    valid: Required[bool]
    error_code: str
    mode: Mode
    key_fingerprint: KeyFingerprint
    domain: str
    expires_at: str
    schema_version: str
    previous_hash: str
    warning: Literal["signature_expired", "signature_expires_at_unparseable"]
    discovery: DiscoveryField


class BindingField(TypedDict, total=False):
    """The rule that found the definition, and the observation that the answer rests on.

    ``hidden``: the proxy kept that definition from its client.
    """

    scope: Required[Scope | Literal["none"]]
    snapshot_id: str
    origin: OriginField
    catalogue_digest: DigestText
    server_scoped: bool
    full_digest: DigestText
    hidden: Literal[True]


class ErrorCode(TypedDict):
    """Why the call failed: the code only, since a message may quote arguments."""

    code: ShortText


class DecisionPayload(Reported, total=False):
    """What one call was bound to. Never holds definitions, arguments, results or messages."""

    tool: Required[Identifier]
    origin: Required[OriginField]
    error: ErrorCode
    redaction: DigestText
    tool_definition_digest: DigestText
    tool_definition_digest_alg: HashText
    tool_definition_canonicalization: HashText
    tool_definition_schema: HashText
    tool_definition_source: HashText
    tool_identity: ToolIdentity
    pin: Required[_PinField]  # type: ignore[valid-type]
    signature: SignatureField
    binding: Required[BindingField]
    unbound_reason: Unbound


class _Envelope(TypedDict):
    specversion: Literal["1.0"]
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


class Evidence(_Envelope, total=False):
    """``assay.tool.decision``: one record per call, in the Assay envelope; the value is its JCS form."""

    type: Required[Literal["assay.tool.decision"]]
    traceparent: Annotated[str, Field(max_length=64)]
    data: Required[DecisionPayload]


class PolicyField(TypedDict):
    """A digest policy: what is to happen on a mismatch, and where there is no pin."""

    enforcement: Enforcement
    unknown: Unknown


class ChangePayload(TypedDict, total=False):
    """What an operator set, or which key was observed, and what that replaced."""

    change: Required[str]
    server_id: Required[Identifier]
    origin: Required[OriginField]
    superseded: Required[bool]
    tool_name: Identifier
    scheme: Scheme
    value: SchemeValue
    upstream: ShortText
    author: ShortText
    reason: ShortText
    enforcement: Enforcement
    unknown: Unknown
    domain: str
    key_fingerprint: KeyFingerprint
    status: DiscoveryStatus
    revoked_keys: list[str]
    rule_id: Identifier
    alert_uid: BareHex
    assignee: ShortText
    tool: ShortText
    kind: Kind
    field: ShortText
    detection: AgentName
    until_us: Micros
    replaces: str | PolicyField
    scope_id: Identifier
    scope: ScopeField
    records: Natural


class ControlChange(_Envelope):
    """``assay.control.change``: evidence of one control record, in the Assay envelope."""

    type: Literal["assay.control.change"]
    data: ChangePayload


class VerdictRecord(_PinField):  # type: ignore[misc, valid-type]
    """``assay.tool.verdict``: what the digest policy makes of a tool now. The key is the array [server, tool]."""

    server_id: Identifier
    tool_name: Identifier | None = None
    pins: dict[str, SchemeValue] | None = None
    rejected: dict[str, list[SchemeValue]] | None = None
    policy: PolicyField | None = None
