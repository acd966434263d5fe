"""Evidence: its records for calls and for control records, verdict records, and the one writer of a call's evidence.

A record states what was observed and by which rule it was bound. Only digests, codes and identifiers enter it.

The writer puts what a call reports and what was in force into the Assay envelope, as JCS bytes. Its payload is
generated from the declarations of a call and of its evidence. The fields stand in the order of JCS (RFC 8785), as
msgspec writes them in theirs, and what depends on the definition alone comes as bytes that were canonicalised once. The
fast reader (``model.plain_call``) decodes into the same object.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Required, Union, cast, get_args, get_origin, get_type_hints

import msgspec
import orjson
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, defstruct
from pydantic import Field, StringConstraints
from pydantic.fields import FieldInfo
from typing_extensions import TypedDict, is_typeddict

from assay_stream.canonical.digest import Redaction, canonicalize, redacted_digest
from assay_stream.model.control import DiscoveryStatus, PinResult
from assay_stream.model.fields import (
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
from assay_stream.model.observation import CallData, CallEvent, Reported
from assay_stream.model.record import Headers, Origin
from assay_stream.model.wire import record_model
from assay_stream.schemes import assay_tool as assay
from assay_stream.schemes.schemapin_canonical import Mode

EVIDENCE_TYPE = "assay.tool.decision"
CHANGE_TYPE = "assay.control.change"
EVIDENCE_SOURCE = "urn:assay-stream"
STRUCTURED: Headers = (("content-type", b"application/cloudevents+json"),)


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


PlainTime = Annotated[str, Meta(min_length=20, max_length=27)]
# What is smaller is written in another way by JCS.
_Duration = Annotated[int, Meta(ge=0, le=2**53)] | Annotated[float, Meta(ge=0.0001, le=2.0**53)]
_NARROWER: dict[str, Any] = {"duration_ms": _Duration, "profile": Literal["assay"]}
"""What the fast reader takes of a field where that is less than the model does."""
_ANY_TEXT_PATTERN = r"\S"
"""Checked without a search: see ``model.plain_call``."""


def plain_form(hint: Any, name: str = "") -> Any:
    """Return the msgspec type of the part of a field that the fast reader uses."""
    if name in _NARROWER:
        return _NARROWER[name]
    if hint == Timestamp:
        return PlainTime
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Required:
        return plain_form(parts[0], name)
    if origin in (Union, UnionType):
        return plain_form(next(part for part in parts if part is not type(None)), name)
    if origin is Annotated:
        return Annotated[plain_form(parts[0]), _bounds(parts[1])]
    if is_typeddict(hint):
        hints = _hints(hint)
        return _struct(hint.__name__, {field: plain_form(form, field) for field, form in hints.items()}, hints)
    return UnsetType if hint is Any else hint


def _bounds(given: StringConstraints | FieldInfo) -> Meta:
    if isinstance(given, FieldInfo):
        bounds = {type(bound).__name__.lower(): bound for bound in given.metadata}
        if "maxlen" in bounds:
            return Meta(max_length=bounds["maxlen"].max_length)
        return Meta(ge=bounds["ge"].ge, le=bounds["le"].le)
    pattern = None if given.pattern in (None, _ANY_TEXT_PATTERN) else str(given.pattern)
    if pattern is not None and pattern.endswith("$"):
        pattern = pattern[:-1] + r"\Z"  # "$" of Python's expressions also matches before a last line feed
    return Meta(min_length=given.min_length, max_length=given.max_length, pattern=pattern)


def _hints(model: Any) -> dict[str, Any]:
    return get_type_hints(model, include_extras=True)


def _struct(name: str, forms: dict[str, Any], hints: dict[str, Any]) -> type[Struct]:
    fields = [
        (field, forms[field]) if get_origin(hints.get(field)) is Required else (field, forms[field] | UnsetType, UNSET)
        for field in sorted(forms)
    ]
    return defstruct(name, fields, omit_defaults=True, kw_only=True, gc=False)


_CALL = _hints(CallData)
_NOT_TAKEN = {name for name in _CALL if name.startswith("tool_definition_")}
# A field of type UnsetType is of the evidence, or makes a call not plain: no JSON value is of that type.
DecisionFields: Any = _struct(
    "DecisionFields",
    dict.fromkeys([*_hints(DecisionPayload), *_CALL], UnsetType)
    | {name: plain_form(hint, name) for name, hint in _CALL.items() if name not in _NOT_TAKEN},
    _CALL,
)
"""What a call reports and what its evidence says, in one object."""
_NESTED: dict[str, Any] = {
    name: next(part for part in get_args(DecisionFields.__annotations__[name]) if part is not UnsetType)
    for name, hint in _CALL.items()
    if is_typeddict(get_args(hint)[0] if get_args(hint) else hint)
}
"""The fields of a call that are objects."""
_COPIED = _hints(DecisionPayload).keys() & _CALL.keys() - _NOT_TAKEN - _NESTED.keys()
_ENCODER = msgspec.json.Encoder()
CONSTANTS = dict(sorted(assay.CLUSTER_CONSTANTS.items()))
"""What stands beside the digest of a definition, in the order of JCS."""
_CANONICALIZATION, _ALGORITHM, _SCHEMA, _SOURCE = CONSTANTS.values()


class _Place(Struct, gc=False):
    offset: int
    partition: int
    topic: str


class InForcePart(NamedTuple):
    """What evidence says of the definition that was in force.

    Args:
        binding: the rule and the observation that it rests on, canonical.
        tool_identity: canonical, where the definition has one.
        digest: the tool definition digest, where there is one.
        unbound_reason: why there is none.
    """

    binding: Raw
    tool_identity: Raw | UnsetType
    digest: str | UnsetType
    unbound_reason: str | UnsetType


def fields_of(data: CallData, redaction: Redaction) -> Any:
    """Return the part of the evidence that comes from the call itself.

    Args:
        redaction: what is removed from arguments and results before they are hashed.
    """
    given: dict[str, Any] = {name: value for name, value in data.items() if name in _COPIED}
    # What is given inline is hashed here, and takes precedence over a hash that somebody else computed.
    if "args" in data:
        given["args_hash"] = str(redacted_digest(data["args"], redaction))
    if "result" in data:
        given["result_hash"] = str(redacted_digest(data["result"], redaction))
    if not redaction.is_default and ("args" in data or "result" in data):
        given["redaction"] = redaction.id
    if "error" in data:
        given["error"] = _NESTED["error"](code=data["error"]["code"])  # type: ignore[index]
    for name in ("actor", "inputs", "task"):
        if (value := data.get(name)) is not None:
            given[name] = _NESTED[name](**cast("Mapping[str, Any]", value))
    if "timing" in data:
        timing: dict[str, Any] = {**data["timing"]}  # type: ignore[dict-item]
        if "duration_ms" in timing:
            duration_ms = timing["duration_ms"]
            timing["duration_ms"] = int(duration_ms) if duration_ms.is_integer() else Raw(canonicalize(duration_ms))
        given["timing"] = _NESTED["timing"](**timing)
    return DecisionFields(tool=data["tool_name"], tool_name=UNSET, **given)


def write_payload(
    fields: Any, origin: Origin, part: InForcePart, pin: Raw, signature: Raw | UnsetType = UNSET
) -> bytes:
    """Return the payload of a call's evidence as JCS bytes; the same fields may be written again.

    Args:
        pin: how the definition compares with its pins, canonical.
        signature: the result of checking its signature, canonical.
    """
    fields.binding, fields.tool_identity, digest, fields.unbound_reason = part
    fields.tool_definition_digest = digest
    if digest is UNSET:
        fields.tool_definition_canonicalization = fields.tool_definition_digest_alg = UNSET
        fields.tool_definition_schema = fields.tool_definition_source = UNSET
    else:
        fields.tool_definition_canonicalization = _CANONICALIZATION
        fields.tool_definition_digest_alg = _ALGORITHM
        fields.tool_definition_schema = _SCHEMA
        fields.tool_definition_source = _SOURCE
    fields.origin = _Place(origin.offset, origin.partition, origin.topic)
    fields.pin, fields.signature = pin, signature
    return _ENCODER.encode(fields)


_COVERED_MIDDLE = b',"datacontenttype":"application/json","specversion":"1.0","subject":'
_TYPE_AND_END = b',"type":"' + EVIDENCE_TYPE.encode() + b'"}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Producer:
    """Who writes the evidence, as the envelope names it.

    Args:
        git: commit it was built from, ``unknown`` where the build did not say.
    """

    version: str
    git: str = "unknown"
    name: str = "assay-stream"
    fragment: bytes = field(init=False, repr=False, compare=False)
    """Its part of every envelope, between the content hash and the data."""

    def __post_init__(self) -> None:
        fragment = b'",' + canonicalize(self.attributes())[1:-1] + b',"data":'
        object.__setattr__(self, "fragment", fragment)

    def attributes(self) -> dict[str, str | bool]:
        """Return the attributes of an envelope that are the same in all that one producer writes."""
        return {
            "assaygit": self.git,
            "assaypii": False,
            "assayproducer": self.name,
            "assayproducerversion": self.version,
            "assaysecrets": False,
        }


def envelope(data: bytes, event: CallEvent, producer: Producer) -> bytes:
    """Return the evidence record's bytes: JCS of the Assay envelope around a payload.

    Run id and sequence belong to a bundle and are assigned at export. The parts are canonicalised one by one
    and joined in JCS order: ``assay...`` < ``data`` < ``datacontenttype`` < ... < ``type``.

    Args:
        data: the payload as JCS bytes.
    """
    subject = orjson.dumps(event.tool_name)
    covered = b"".join((b'{"data":', data, _COVERED_MIDDLE, subject, _TYPE_AND_END))
    identity = sha256(orjson.dumps([event.source, event.id])).hexdigest()
    parts = [
        b'{"assaycontenthash":"sha256:',
        sha256(covered).hexdigest().encode(),
        producer.fragment,
        data,
        b',"datacontenttype":"application/json","id":"',
        identity.encode(),
        b'","source":"',
        EVIDENCE_SOURCE.encode(),
        b'","specversion":"1.0","subject":',
        subject,
        b',"time":"',
        event.time.encode(),
        b'"',
    ]
    if event.traceparent is not None:
        parts += (b',"traceparent":', orjson.dumps(event.traceparent))
    parts.append(_TYPE_AND_END)
    return b"".join(parts)
