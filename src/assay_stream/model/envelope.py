"""The one writer of evidence: what a call reports and what was in force, in the Assay envelope, as JCS bytes.

The payload is generated from the declarations of a call and of its evidence. Its fields stand in the order of JCS
(RFC 8785), as msgspec writes them in theirs, and what depends on the definition alone comes as bytes that were
canonicalised once. The fast reader (``model.plain_call``) decodes into the same object.

The record states what was observed and by which rule it was bound. Only digests, codes and identifiers enter it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Required, Union, cast, get_args, get_origin, get_type_hints

import msgspec
import orjson
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, defstruct
from pydantic import StringConstraints
from pydantic.fields import FieldInfo
from typing_extensions import is_typeddict

from assay_stream.canonical.digest import Redaction, canonicalize, redacted_digest
from assay_stream.model.evidence import DecisionPayload
from assay_stream.model.fields import Timestamp
from assay_stream.model.observation import CallData, CallEvent
from assay_stream.model.record import Headers, Origin
from assay_stream.schemes import assay_tool as assay

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


EVIDENCE_TYPE = "assay.tool.decision"
EVIDENCE_SOURCE = "urn:assay-stream"
STRUCTURED: Headers = (("content-type", b"application/cloudevents+json"),)

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
