"""Plain calls, which most are: their fast readers, in Python and in the optional extension in Rust.

The model in ``observation`` says what a call must be; what is read here is generated from it. This module takes the
calls that plainly are that, and leaves all others to the model, which takes them too or says what is wrong. The model
accepts every call that is accepted here, and its evidence is the same to the byte. A call is not plain where it gives
arguments or results inline, names the definition itself, follows another profile, says ``null``, or is written with
escapes.

To prove that decoding dropped nothing (a duplicate key, an unknown field), the result is encoded again and its
quotation marks are counted: without escapes each key and each text takes two, and there are no others.

The extension holds no declarations of its own: it gets those that the Python path is generated from. Calls that it does
not take go to ``read_plain``.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from itertools import product
from typing import Any, Final, get_type_hints

import msgspec
import orjson
from msgspec import UNSET, Struct, UnsetType, defstruct, inspect
from typing_extensions import TypeIs

from assay_stream import __version__
from assay_stream.canonical.decode import is_faithful
from assay_stream.errors import InputError
from assay_stream.limits import Limits
from assay_stream.model.evidence import CONSTANTS, DecisionFields, InForcePart, PlainTime, plain_form
from assay_stream.model.observation import CallEvent, CallModel
from assay_stream.model.record import made_of
from assay_stream.schemes import assay_tool as assay
from assay_stream.text.times import EPOCH

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
        since = datetime.fromisoformat(event.time) - EPOCH
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
        # In ASCII without escapes only a space sorts before "!"; the model decides on other white space.
        names = (event.id, server_id, observer_id, tool_name, fields.tool_call_id, snapshot_id or "-")
        if any(name.isspace() for name in names):
            return None
    if not _has_sound_policy(fields):
        return None
    time_us = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    traceparent = None if event.traceparent is UNSET else event.traceparent
    envelope = (event.source, event.id, event.time, time_us, traceparent)
    attributes = (server_id, tool_name, observer_id, snapshot_id, fields.decision)
    call: CallEvent = made_of(CallEvent, (*envelope, *attributes, {}, fields))
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


try:
    import assay_stream_native as _extension
except ImportError:
    _extension = None

_CLASSES = {r"^[A-Za-z0-9_:./-]+\Z": "token", r"^sha256:[0-9a-f]{64}\Z": "sha256", r"^[0-9a-f-]{1,64}\Z": "traceparent"}
"""What the extension calls the patterns that it knows; a field with another one is left to Python."""
_ANY_LENGTH = 2**53
_TIME = inspect.type_info(PlainTime)
_LEFT_TO_PYTHON = frozenset(assay.POLICY_CLUSTER_CONSTANTS) | {"policy_snapshot_digest"}
"""Fields that must agree with one another."""
_DROPPED = {"data": frozenset({"tool_name", "snapshot_id"}), "error": frozenset({"kind", "message"})}
"""Fields that evidence leaves out, or has under another name."""


class NativeCall(CallEvent):
    """What a call that the extension read is typed as: its own class has the same attributes, but for the last two."""


class Declared(msgspec.Struct, frozen=True):
    """A field as the extension takes it (``native/src/schema.rs``)."""

    name: str
    required: bool
    kind: str
    low: int = 0
    high: int = 0
    texts: tuple[str, ...] = ()
    fields: tuple[Declared, ...] = ()
    dropped: bool = False


def declared(struct: type[Struct], dropped: frozenset[str] = frozenset()) -> list[Declared]:
    form: Any = inspect.type_info(struct)
    fields = sorted(form.fields, key=lambda field: field.name)
    return [
        Declared(each.name, each.required, dropped=each.name in dropped, **_values(each.name, each.type))
        for each in fields
    ]


def _values(name: str, form: inspect.Type) -> dict[str, Any]:
    if name in _LEFT_TO_PYTHON:
        return {"kind": "never"}
    match form:
        case inspect.StrType() if form == _TIME:
            return {"kind": "time"}
        case inspect.StrType(pattern=None, min_length=low, max_length=high):
            return {"kind": "text", "low": low or 0, "high": high or _ANY_LENGTH}
        case inspect.StrType(pattern=str(pattern), min_length=low, max_length=high) if pattern in _CLASSES:
            return {"kind": "text", "low": low or 0, "high": high or _ANY_LENGTH, "texts": (_CLASSES[pattern],)}
        case inspect.LiteralType(values=texts):
            return {"kind": "one_of", "texts": texts}
        case inspect.ListType(item_type=inspect.LiteralType(values=texts), max_length=int(high)):
            return {"kind": "list", "high": high, "texts": texts}
        case inspect.IntType(ge=int(low), le=int(high)):
            return {"kind": "integer", "low": low, "high": high}
        case inspect.BoolType():
            return {"kind": "boolean"}
        case inspect.UnionType() if name == "duration_ms":
            return {"kind": "number"}
        case inspect.StructType(cls=struct):
            return {"kind": "object", "fields": tuple(declared(struct, _DROPPED.get(name, frozenset())))}
    return {"kind": "never"}


def _reader() -> Any:
    # What an uninstallation left half done may be a package that holds nothing.
    if getattr(_extension, "VERSION", None) != __version__:
        return None
    event = [Declared("data", True, "never") if each.name == "data" else each for each in declared(PlainEvent)]
    return _extension.Reader(event, declared(DecisionFields, _DROPPED["data"]), list(CONSTANTS.items()))


_READER: Final[Any] = _reader()
Writing = tuple[NativeCall, bytes, int, int, Any, bytes, bytes | None]
"""What a record of evidence is made of.

The call; where it stands (the topic as a JSON text, partition, offset); what was in force (``native_part``); how that
compares with its pins, and the result of checking its signature, both canonical.
"""
NATIVE_CALLS: Final[tuple[type, ...]] = () if _READER is None else (_extension.Call,)
"""The class of the extension's calls; none where it is not installed, or of another version."""


def read_native(raw: bytes, limits: Limits) -> NativeCall | None:
    """Return a plain call, or ``None`` where Python must decide."""
    if _READER is None or not may_be_plain(raw, limits):
        return None
    call: NativeCall | None = _READER.read(raw)
    return call


def read_native_many(raws: Sequence[bytes], limits: Limits) -> list[NativeCall | None]:
    """Return the result of ``read_native`` for each; other threads run meanwhile."""
    if _READER is None:
        return [None] * len(raws)
    bytes_max = plain_bytes_max(limits)
    calls: list[NativeCall | None] = _READER.read_many(
        [raw if len(raw) <= bytes_max and b"\\" not in raw else b"" for raw in raws]
    )
    return calls


def native_part(part: InForcePart) -> Any:
    """Return what was in force in the extension's form; ``None`` if it is not installed."""
    if _READER is None:
        return None
    binding, identity, digest, reason = part
    return _extension.Part(
        bytes(binding),
        None if identity is UNSET else bytes(identity),
        None if digest is UNSET else orjson.dumps(digest),
        None if reason is UNSET else orjson.dumps(reason),
    )


def write_native(writings: Sequence[Writing], producer: bytes) -> list[bytes]:
    """Return the record of evidence of each call; other threads run meanwhile.

    Args:
        producer: the producer's part of the envelope.
    """
    written: list[bytes] = _extension.write(writings, producer) if writings else []
    return written


@lru_cache(maxsize=64)
def quoted(topic: str) -> bytes:
    return orjson.dumps(topic)


def is_native(call: object) -> TypeIs[NativeCall]:
    return isinstance(call, NATIVE_CALLS)
