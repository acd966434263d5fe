"""Kafka records as lines of a file, whole and to the byte, so that a replay gives what the live run gave::

    {"origin": {"topic": ..., "partition": 0, "offset": 0}, "role": "calls", "timestamp_ms": 0,
     "key": ..., "headers": [[name, value]], "value": ...}

with ``key_base64``, ``value_base64`` and ``headers_base64`` for bytes that are not UTF-8. ``"set_aside": true`` marks a
record that the deployment refused unread (``record_kills_worker``).
"""

import base64
from collections.abc import Callable, Collection
from functools import partial
from typing import Annotated, Any, TypeVar, cast

import msgspec
import orjson

from assay_stream.canonical.decode import read_leniently
from assay_stream.errors import InputError
from assay_stream.model.record import ERROR_HEADERS, Headers, Origin, Output, Record, Role
from assay_stream.text.escaping import json_bytes

INT64_MAX = 2**63 - 1
_T = TypeVar("_T")
_SHORT_BYTES = 64 * 1_024
"""Shorter values are written as text whatever escapes they need."""


PlaceNumber = Annotated[int, msgspec.Meta(ge=0, le=INT64_MAX)]
TimestampMs = Annotated[int, msgspec.Meta(ge=-1, le=INT64_MAX)]


class LineOrigin(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    partition: PlaceNumber
    offset: PlaceNumber


class _RecordLine(msgspec.Struct):
    origin: LineOrigin
    role: Role
    timestamp_ms: TimestampMs
    key: str | None = None
    key_base64: str | msgspec.UnsetType = msgspec.UNSET
    headers: list[tuple[str, str | None]] = []
    headers_base64: list[tuple[str, str | None]] = []
    value: str | None = None
    value_base64: str | msgspec.UnsetType = msgspec.UNSET
    set_aside: bool = False


_LINES = msgspec.json.Decoder(_RecordLine)


def record_line_parts(raw: bytes, place: Origin) -> Record | None:
    """Return the record in a record line, whatever its topic carries; ``None`` for another line.

    Raises:
        InputError: ``bad_record_line``.
    """
    content = read_leniently(raw)
    if not isinstance(content, dict) or not isinstance(content.get("origin"), dict) or "specversion" in content:
        return None
    return record_of_line(content, place, roles=tuple(Role))


def record_of_line(content: dict[str, Any] | bytes, place: Origin, roles: Collection[Role]) -> Record:
    """Return the record in a record line.

    Raises:
        InputError: ``bad_record_line``.
    """
    try:
        line = _LINES.decode(content) if isinstance(content, bytes) else msgspec.convert(content, _RecordLine)
        if line.role not in roles:
            raise ValueError("a role that is not read")
        headers = [(name, _optional(value, str.encode)) for name, value in line.headers]
        headers += [(name, _optional(value, _from_base64)) for name, value in line.headers_base64]
        for text in (line.origin.topic, *(name for name, _ in headers)):
            text.encode()  # raises for half a surrogate pair
        return Record(
            role=line.role,
            origin=Origin(line.origin.topic, line.origin.partition, line.origin.offset),
            key=_bytes(line.key, line.key_base64),
            value=_bytes(line.value, line.value_base64),
            # Kafka knows headers without a value. None of ours is one, but somebody else's must keep what it is.
            headers=cast(Headers, tuple(headers)),
            timestamp_ms=line.timestamp_ms,
            set_aside=line.set_aside,
        )
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise InputError(
            "bad_record_line",
            f"line {place.offset + 1} of {place.topic} is not a valid record line ({type(error).__name__}): "
            "write the archive again",
        ) from None


_from_base64 = partial(base64.b64decode, validate=True)


def _bytes(text: str | None, as_base64: str | msgspec.UnsetType) -> bytes | None:
    if not isinstance(as_base64, msgspec.UnsetType):
        return _from_base64(as_base64)
    return _optional(text, str.encode)


def record_line(record: Record) -> bytes:
    """Return a record of any topic as a record line, whole and without a line feed."""
    line: dict[str, Any] = {
        "origin": record.origin.as_json(),
        "role": record.role.value,
        "timestamp_ms": record.timestamp_ms,
    }
    _put_bytes(line, "key", record.key)
    if any(value is not None and _as_text(value) is None for _, value in record.headers):
        # All of them, so that their order is kept.
        line["headers_base64"] = [[name, _optional(value, _base64)] for name, value in record.headers]
    elif record.headers:
        line["headers"] = [[name, _optional(value, _as_text)] for name, value in record.headers]
    _put_bytes(line, "value", record.value)
    if record.set_aside:
        line["set_aside"] = True
    return json_bytes(orjson.dumps(line))


def rejected_line(output: Output) -> bytes:
    """Return an output of the rejected role as a line: original bytes, key and headers, and the error."""
    # By place, not by name: a record that was rejected before has headers of these names of its own.
    own, ours = output.headers[: -len(ERROR_HEADERS)], output.headers[-len(ERROR_HEADERS) :]
    line: dict[str, Any] = {"error": {name.removeprefix("error."): value.decode() for name, value in ours}}
    _put_bytes(line, "key", output.key)
    _put_bytes(line, "value", output.value)
    texts = [(name, _as_text(value), value) for name, value in own]
    line["headers"] = [[name, text] for name, text, _ in texts if text is not None]
    if other := [[name, _base64(value)] for name, text, value in texts if text is None]:
        line["headers_base64"] = other
    return json_bytes(orjson.dumps(line, option=orjson.OPT_SORT_KEYS))


def _optional(value: Any, convert: Callable[[Any], _T | None]) -> _T | None:
    return None if value is None else convert(value)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _put_bytes(line: dict[str, Any], name: str, value: bytes | None) -> None:
    text = _optional(value, _as_text)
    if value is not None and len(value) > _SHORT_BYTES and len(orjson.dumps(text)) > 2 * len(value):
        # A control character takes six bytes as text: base64 keeps every record within LINE_BYTES_MAX.
        text = None
    if value is not None and text is None:
        line[f"{name}_base64"] = _base64(value)
    else:
        line[name] = text


def _as_text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None
