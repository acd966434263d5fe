"""Plain calls: what most calls are, read and written the short way.

The model in ``observation`` says what a call must be. This module takes the calls that plainly are that, and
leaves all others to the model, which takes them too or says what is wrong. Whatever is taken here the model takes
as well, and its evidence is the same to the byte. A call is not plain where it gives arguments or results inline,
names the definition itself, follows another profile, says ``null``, or is written with escapes.

That nothing was lost in reading, no second key and no unknown field, is seen by writing what was read: without
escapes each key and each text takes two quotation marks, and no other mark stands there.
"""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import product
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from assay_stream.canonical.decode import is_faithful
from assay_stream.errors import InputError
from assay_stream.limits import DEFAULT_LIMITS, Limits
from assay_stream.model.record import Origin
from assay_stream.schemes import assay

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBER_MAX = 2**53
_DEPTH = 3
"""Containers in a plain call: the event, its data, and its timing, actor or error."""

_DIGITS = 16
"""Digits of the largest integer of a plain call."""

_WORD = r"^[A-Za-z0-9_:./-]+\Z"
_Identifier = Annotated[str, Meta(min_length=1, max_length=DEFAULT_LIMITS.identifier_chars_max)]
_Text = _Identifier | UnsetType
_Hash = Annotated[str, Meta(min_length=1, max_length=128)] | UnsetType
_Time = Annotated[str, Meta(min_length=20, max_length=27)]
_Token = Annotated[str, Meta(max_length=DEFAULT_LIMITS.identifier_chars_max, pattern=_WORD)] | UnsetType
_Reference = Annotated[str, Meta(max_length=2_048, pattern=_WORD)] | UnsetType
# What is smaller is written in another way by JCS.
_Fraction = Annotated[float, Meta(ge=0.0001, le=float(_NUMBER_MAX))]
_Count = Annotated[int, Meta(ge=0, le=_NUMBER_MAX)]

# In UTC, to the second, the milli- or the microsecond; up to three of them.
_TIME_FORMS = tuple(f"0000-00-00T00:00:00{fraction}Z" for fraction in ("", ".000", ".000000"))
_TIMES = frozenset(" ".join(forms).encode() for count in (1, 2, 3) for forms in product(_TIME_FORMS, repeat=count))
_DIGITS_AS_0 = bytes.maketrans(b"123456789", b"000000000")


# The fields of what is written stand in the order of JCS (RFC 8785), as msgspec writes them in theirs. A field of
# type UnsetType is of the evidence, or makes a call not plain: no JSON value is of that type.


class _Timing(Struct, omit_defaults=True, gc=False):
    duration_ms: _Count | _Fraction | UnsetType = UNSET
    ended_at: _Time | UnsetType = UNSET
    started_at: _Time | UnsetType = UNSET


class _Actor(Struct, omit_defaults=True, kw_only=True, gc=False):
    agent_id: _Text = UNSET
    kind: Literal["human", "agent", "system"]
    model_id: _Text = UNSET


class _Error(Struct, omit_defaults=True, gc=False):
    code: _Identifier
    kind: _Text = UNSET
    message: str | UnsetType = UNSET


class _Fields(Struct, omit_defaults=True, kw_only=True, gc=False):
    actor: _Actor | UnsetType = UNSET
    args: UnsetType = UNSET
    args_hash: _Hash = UNSET
    args_ref: _Reference = UNSET
    args_schema_hash: _Hash = UNSET
    binding: UnsetType = UNSET
    decision: Literal["allow", "deny", "requires_approval", "error"]
    delegated_from: _Text = UNSET
    delegation_depth: _Count | UnsetType = UNSET
    error: _Error | UnsetType = UNSET
    idempotency: Literal["IDEMPOTENT", "IDEMPOTENT_WITH_KEY", "NON_IDEMPOTENT"] | UnsetType = UNSET
    idempotency_key: _Token = UNSET
    observer_id: _Identifier
    ok: bool | UnsetType = UNSET
    origin: UnsetType = UNSET
    pin: UnsetType = UNSET
    policy_digest: _Hash = UNSET
    policy_snapshot_canonicalization: _Hash = UNSET
    policy_snapshot_digest: _Hash = UNSET
    policy_snapshot_digest_alg: _Hash = UNSET
    policy_snapshot_schema: _Hash = UNSET
    profile: Literal["assay"] | UnsetType = UNSET
    reason_code: _Identifier
    result: UnsetType = UNSET
    result_hash: _Hash = UNSET
    result_ref: _Reference = UNSET
    server_id: _Identifier
    side_effect: Literal["READ", "WRITE", "EXECUTE"] | UnsetType = UNSET
    signature: UnsetType = UNSET
    snapshot_id: _Text = UNSET
    timing: _Timing | UnsetType = UNSET
    tool: UnsetType = UNSET
    tool_call_id: _Identifier
    tool_definition_canonicalization: UnsetType = UNSET
    tool_definition_digest: UnsetType = UNSET
    tool_definition_digest_alg: UnsetType = UNSET
    tool_definition_schema: UnsetType = UNSET
    tool_definition_source: UnsetType = UNSET
    tool_id: _Text = UNSET
    tool_identity: UnsetType = UNSET
    tool_name: _Identifier
    tool_version: _Text = UNSET
    trace_id: _Text = UNSET
    transport: _Token = UNSET
    unbound_reason: UnsetType = UNSET


class _Event(Struct, omit_defaults=True, kw_only=True, gc=False):
    specversion: Literal["1.0"]
    type: Literal["mcp.tools.call.observed"]
    source: Annotated[str, Meta(min_length=1, max_length=2_048)]
    id: _Identifier
    time: _Time
    datacontenttype: str | UnsetType = UNSET
    traceparent: Annotated[str, Meta(pattern=r"^[0-9a-f-]{1,64}\Z")] | UnsetType = UNSET
    data: _Fields


class _Place(Struct, gc=False):
    offset: int
    partition: int
    topic: str


_CANONICALIZATION = assay.CLUSTER_CONSTANTS["tool_definition_canonicalization"]
_ALGORITHM = assay.CLUSTER_CONSTANTS["tool_definition_digest_alg"]
_SCHEMA = assay.CLUSTER_CONSTANTS["tool_definition_schema"]
_SOURCE = assay.CLUSTER_CONSTANTS["tool_definition_source"]
_DECODER = msgspec.json.Decoder(_Event)
_ENCODER = msgspec.json.Encoder()


class PlainCall(Struct, frozen=True, gc=False):
    """A call that was read here; the same by name as a ``CallEvent``, with its other fields out of sight.

    Args:
        source: CloudEvents source.
        id: CloudEvents id.
        time: event time as it was written.
        time_us: event time, microseconds since the epoch.
        traceparent: W3C trace context, if there is one.
        server_id: the operator's name of the server.
        tool_name: the tool that was called.
        observer_id: who saw the call.
        snapshot_id: the snapshot that the call names, if it names one.
        decision: the proxy's decision.
        fields: what enters the evidence as it is.
    """

    source: str
    id: str
    time: str
    time_us: int
    traceparent: str | None
    server_id: str
    tool_name: str
    observer_id: str
    snapshot_id: str | None
    decision: str
    fields: Any


class PlainPart(NamedTuple):
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


def read_plain(raw: bytes, limits: Limits) -> PlainCall | None:
    """Return a call from its event in structured mode, or ``None`` where the model must decide.

    Args:
        raw: the value of the record.
        limits: bounds on what is accepted.
    """
    if (
        b"\\" in raw
        or len(raw) > limits.record_bytes_max
        or len(raw) > limits.containers_max  # that many bytes may be too many containers: the model counts them
        or limits.depth_max < _DEPTH
        or limits.integer_digits_max < _DIGITS
    ):
        return None
    try:
        event = _DECODER.decode(raw)
        since = datetime.fromisoformat(event.time) - _EPOCH
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError, TypeError):
        return None
    fields: Any = event.data
    if _times(event.time, fields.timing).encode().translate(_DIGITS_AS_0) not in _TIMES:
        return None
    if not _is_whole(raw, event, limits):
        return None
    snapshot_id = None if fields.snapshot_id is UNSET else fields.snapshot_id
    server_id, tool_name, observer_id = fields.server_id, fields.tool_name, fields.observer_id
    if not raw.isascii() or (
        server_id < "!"
        or tool_name < "!"
        or observer_id < "!"
        or event.id < "!"
        or fields.tool_call_id < "!"
        or (snapshot_id is not None and snapshot_id < "!")
    ):
        # Of ASCII without escapes only a space comes before "!"; of other white space the model knows.
        names = (event.id, server_id, observer_id, tool_name, fields.tool_call_id, snapshot_id or "-")
        if any(name.isspace() for name in names):
            return None
    if not _has_sound_policy(fields):
        return None
    time_us = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    call = PlainCall(
        event.source,
        event.id,
        event.time,
        time_us,
        None if event.traceparent is UNSET else event.traceparent,
        server_id,
        tool_name,
        observer_id,
        snapshot_id,
        fields.decision,
        fields,
    )
    fields.tool, fields.tool_name, fields.snapshot_id = tool_name, UNSET, UNSET
    if fields.error is not UNSET:
        fields.error.kind = fields.error.message = UNSET
    if fields.timing is not UNSET:
        duration_ms = fields.timing.duration_ms
        if type(duration_ms) is float and duration_ms.is_integer():
            fields.timing.duration_ms = int(duration_ms)
    return call


def plain_payload(
    call: PlainCall, origin: Origin, part: PlainPart, pin: Raw, signature: Raw | UnsetType = UNSET
) -> bytes:
    """Return the payload of a call's evidence as JCS bytes.

    Args:
        call: the call.
        origin: where its record stands.
        part: what was in force.
        pin: how the definition stands to its pins, canonical.
        signature: what is said of its signature, canonical.
    """
    fields = call.fields
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


def _times(time: str, timing: _Timing | UnsetType) -> str:
    if timing is UNSET:
        return time
    started, ended = timing.started_at, timing.ended_at
    if started is UNSET:
        return time if ended is UNSET else f"{time} {ended}"
    return f"{time} {started}" if ended is UNSET else f"{time} {started} {ended}"


def _is_whole(raw: bytes, event: _Event, limits: Limits) -> bool:
    again = _ENCODER.encode(event)
    timing = event.data.timing
    # Texts and integers are written no longer than they were read; of fractions that does not hold.
    if len(again) == len(raw) and (timing is UNSET or type(timing.duration_ms) is not float):
        return True
    return raw.count(b'"') == again.count(b'"') or is_faithful(raw, limits)


def _has_sound_policy(fields: Any) -> bool:
    if (
        fields.policy_snapshot_digest is UNSET
        and fields.policy_snapshot_digest_alg is UNSET
        and fields.policy_snapshot_canonicalization is UNSET
        and fields.policy_snapshot_schema is UNSET
    ):
        return True
    names = ("policy_digest", "policy_snapshot_digest", *assay.POLICY_CLUSTER_CONSTANTS)
    given = {name: getattr(fields, name) for name in names}
    try:
        assay.check_policy_cluster({name: value for name, value in given.items() if value is not UNSET})
    except InputError:
        return False
    return True
