"""Plain calls: what most calls are, read the short way.

The model in ``observation`` says what a call must be; what is read here is generated from it. This module takes the
calls that plainly are that, and leaves all others to the model, which takes them too or says what is wrong. Whatever
is taken here the model takes as well, and its evidence is the same to the byte. A call is not plain where it gives
arguments or results inline, names the definition itself, follows another profile, says ``null``, or is written with
escapes.

That nothing was lost in reading, no second key and no unknown field, shows when what was read is written: without
escapes each key and each text takes two quotation marks, and no other mark stands there.
"""

from datetime import UTC, datetime
from itertools import product
from typing import Any, get_type_hints

import msgspec
from msgspec import UNSET, UnsetType, defstruct

from assay_stream.canonical.decode import is_faithful
from assay_stream.errors import InputError
from assay_stream.limits.core import Limits
from assay_stream.model.envelope import DecisionFields, plain_form
from assay_stream.model.observation import CallEvent, CallModel
from assay_stream.model.record import made_of
from assay_stream.schemes.assay import tool as assay

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DEPTH = 3
"""Containers in a plain call: the event, its data, and its timing, actor or error."""

_DIGITS = 16
"""Digits of the largest integer of a plain call."""

# In UTC, to the second, the milli- or the microsecond; up to three of them.
_TIME_FORMS = tuple(f"0000-00-00T00:00:00{fraction}Z" for fraction in ("", ".000", ".000000"))
_TIMES = frozenset(" ".join(forms).encode() for count in (1, 2, 3) for forms in product(_TIME_FORMS, repeat=count))
_DIGITS_AS_0 = bytes.maketrans(b"123456789", b"000000000")


_ATTRIBUTES = {
    name: plain_form(hint)
    for name, hint in get_type_hints(CallModel, include_extras=True).items()
    if name in CallModel.model_fields
}
PlainEvent: Any = defstruct(
    "Event",
    [
        (name, DecisionFields if name == "data" else form)
        if CallModel.model_fields[name].is_required()
        else (name, form | UnsetType, UNSET)
        for name, form in _ATTRIBUTES.items()
    ],
    omit_defaults=True,
    kw_only=True,
    gc=False,
)
_DECODER = msgspec.json.Decoder(PlainEvent)
_ENCODER = msgspec.json.Encoder()


def may_be_plain(raw: bytes, limits: Limits) -> bool:
    """Return True if the limits allow the fast path for an event."""
    return len(raw) <= plain_bytes_max(limits) and b"\\" not in raw


def plain_bytes_max(limits: Limits) -> int:
    """Return the maximum size in bytes of an event for the fast path; -1 if none may take it."""
    if limits.depth_max < _DEPTH or limits.integer_digits_max < _DIGITS:
        return -1
    # As many bytes may be too many containers: the model counts them.
    return min(limits.record_bytes_max, limits.containers_max)


def read_plain(raw: bytes, limits: Limits) -> CallEvent | None:
    """Return a call from its event in structured mode, or ``None`` where the model must decide."""
    if not may_be_plain(raw, limits):
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
    traceparent = None if event.traceparent is UNSET else event.traceparent
    envelope = (event.source, event.id, event.time, time_us, traceparent)
    told = (server_id, tool_name, observer_id, snapshot_id, fields.decision)
    call: CallEvent = made_of(CallEvent, (*envelope, *told, {}, fields))
    fields.tool, fields.tool_name, fields.snapshot_id = tool_name, UNSET, UNSET
    if fields.error is not UNSET:
        fields.error.kind = fields.error.message = UNSET
    if fields.timing is not UNSET:
        duration_ms = fields.timing.duration_ms
        if type(duration_ms) is float and duration_ms.is_integer():
            fields.timing.duration_ms = int(duration_ms)
    return call


def _times(time: str, timing: Any) -> str:
    if timing is UNSET:
        return time
    started, ended = timing.started_at, timing.ended_at
    if started is UNSET:
        return time if ended is UNSET else f"{time} {ended}"
    return f"{time} {started}" if ended is UNSET else f"{time} {started} {ended}"


def _is_whole(raw: bytes, event: Any, limits: Limits) -> bool:
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
