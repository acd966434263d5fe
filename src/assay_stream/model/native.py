"""Plain calls by the optional extension in Rust: read and written as evidence in one go, the same to the byte.

The extension holds no declaration of its own: what a call may hold is told to it from the declarations that the
Python path is generated from. What it does not take, ``model.plain_call`` reads.
"""

from collections.abc import Sequence
from functools import lru_cache
from types import UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin

import msgspec
import orjson
from msgspec import UNSET, Meta, Struct, UnsetType
from typing_extensions import TypeIs

from assay_stream import __version__
from assay_stream.limits.core import Limits
from assay_stream.model.envelope import CONSTANTS, DecisionFields, InForcePart, PlainTime
from assay_stream.model.observation import CallEvent
from assay_stream.model.plain_call import PlainEvent, may_be_plain, plain_bytes_max
from assay_stream.schemes.assay import tool as assay

try:
    import assay_stream_native as _extension
except ImportError:
    _extension = None

_CLASSES = {r"^[A-Za-z0-9_:./-]+\Z": "token", r"^sha256:[0-9a-f]{64}\Z": "sha256", r"^[0-9a-f-]{1,64}\Z": "traceparent"}
"""What the extension calls the patterns that it knows; a field with another one is left to Python."""
_ANY_LENGTH = 2**53
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
    fields: "tuple[Declared, ...]" = ()
    dropped: bool = False


def declared(struct: type[Struct], dropped: frozenset[str] = frozenset()) -> list[Declared]:
    return sorted(
        (_field(field, is_dropped=field.name in dropped) for field in msgspec.structs.fields(struct)),
        key=lambda each: each.name,
    )


def _field(field: Any, *, is_dropped: bool) -> Declared:
    form = _without_unset(field.type)
    made = _kind(field.name, form)
    return msgspec.structs.replace(made, required=field.required, dropped=is_dropped)


def _without_unset(form: Any) -> Any:
    if get_origin(form) in (Union, UnionType):
        left = [part for part in get_args(form) if part is not UnsetType]
        return left[0] if len(left) == 1 else Union[tuple(left)]  # noqa: UP007 -- of a list
    return form


def _kind(name: str, form: Any) -> Declared:
    if name in _LEFT_TO_PYTHON:
        return Declared(name, False, "never")
    if form == PlainTime:
        return Declared(name, False, "time")
    base, meta = form, Meta()
    if hasattr(form, "__metadata__"):
        base, meta = form.__origin__, form.__metadata__[0]
    if get_origin(base) is Literal:
        return Declared(name, False, "one_of", texts=get_args(base))
    if get_origin(base) is list and get_origin(get_args(base)[0]) is Literal and meta.max_length:
        return Declared(name, False, "list", high=meta.max_length, texts=get_args(get_args(base)[0]))
    if base is str and (meta.pattern is None or meta.pattern in _CLASSES):
        high = _ANY_LENGTH if meta.max_length is None else meta.max_length
        texts = () if meta.pattern is None else (_CLASSES[meta.pattern],)
        return Declared(name, False, "text", low=meta.min_length or 0, high=high, texts=texts)
    if base is int and isinstance(meta.ge, int) and isinstance(meta.le, int):
        return Declared(name, False, "integer", low=meta.ge, high=meta.le)
    if base is bool:
        return Declared(name, False, "boolean")
    if name == "duration_ms":
        return Declared(name, False, "number")
    if isinstance(base, type) and issubclass(base, Struct):
        return Declared(name, False, "object", fields=tuple(declared(base, _DROPPED.get(name, frozenset()))))
    return Declared(name, False, "never")


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
