"""Lines of files: recorded observations, one JSON object a line. Memory is bounded by the longest line allowed.

Two kinds are read. An *event* line is a CloudEvent as a proxy publishes it; its origin is the file and the line. A
*record* line is a Kafka record of any topic, whole and to the byte, so that a replay gives what the live run gave::

    {"origin": {"topic": ..., "partition": 0, "offset": 0}, "role": "calls", "timestamp_ms": 0,
     "key": ..., "headers": [[name, value]], "value": ...}

with ``key_base64``, ``value_base64`` and ``headers_base64`` for bytes that are not UTF-8. ``"set_aside": true`` marks a
record that the deployment refused unread (``record_kills_worker``).
"""

import base64
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import Annotated, Any, BinaryIO, TypeVar, cast

import msgspec
import orjson

from assay_stream.canonical.decode import read_leniently
from assay_stream.errors import InputError
from assay_stream.limits import DEFAULT_LIMITS, LINE_BYTES_MAX, REFUSED_RECORDS_MAX, SHORT_LINE_BYTES
from assay_stream.model.record import (
    CALL_TYPE,
    ERROR_HEADERS,
    LEFT_OUT_HEADER,
    LIST_CHANGED_TYPE,
    LOSS_TYPE,
    SNAPSHOT_TYPE,
    Headers,
    Origin,
    Output,
    Record,
    Role,
)
from assay_stream.text.escaping import json_bytes
from assay_stream.text.times import time_ms_in

_INT64_MAX = 2**63 - 1
_T = TypeVar("_T")
_SHORT_BYTES = 64 * 1_024
"""Shorter values are written as text whatever escapes they need."""


_PlaceNumber = Annotated[int, msgspec.Meta(ge=0, le=_INT64_MAX)]
_TimestampMs = Annotated[int, msgspec.Meta(ge=-1, le=_INT64_MAX)]


class _LineOrigin(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    partition: _PlaceNumber
    offset: _PlaceNumber


class _RecordLine(msgspec.Struct):
    origin: _LineOrigin
    role: Role
    timestamp_ms: _TimestampMs
    key: str | None = None
    key_base64: str | msgspec.UnsetType = msgspec.UNSET
    headers: list[tuple[str, str | None]] = []
    headers_base64: list[tuple[str, str | None]] = []
    value: str | None = None
    value_base64: str | msgspec.UnsetType = msgspec.UNSET
    set_aside: bool = False
    specversion: msgspec.UnsetType = msgspec.UNSET  # that of an event


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
        headers: Headers = ()
        if line.headers or line.headers_base64:
            texts = ((name, _optional(value, str.encode)) for name, value in line.headers)
            others = ((name, _optional(value, _from_base64)) for name, value in line.headers_base64)
            # Kafka knows headers without a value. None of ours is one, but somebody else's must keep what it is.
            headers = cast(Headers, (*texts, *others))
        for text in (line.origin.topic, *(name for name, _ in headers)):
            text.encode()  # raises for half a surrogate pair
        origin = Origin(line.origin.topic, line.origin.partition, line.origin.offset)
        key, value = _bytes(line.key, line.key_base64), _bytes(line.value, line.value_base64)
        return Record(line.role, origin, key, value, headers, line.timestamp_ms, set_aside=line.set_aside)
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


TooLong = Callable[[InputError], None]
"""Gets the error of a line over the limit, of which only the beginning is given."""
EVENT_LINE_BYTES_MAX = DEFAULT_LIMITS.record_bytes_max + 2
"""The longest event, and the line feed behind it."""

_RECORD_LINE_START = re.compile(rb'\s*\{\s*"origin"\s*:')
_VALUE_START = re.compile(rb',"value(?:_base64)?":"')
_BEFORE_VALUE_BYTES_MAX = LINE_BYTES_MAX - 2 * DEFAULT_LIMITS.record_bytes_max - 64
"""Of a record line over its limit with no more before its value, the value alone is over that of a record."""
_LINE_FEED = 0x0A
_ROLE_OF_TYPE = {
    SNAPSHOT_TYPE: Role.SNAPSHOTS,
    LIST_CHANGED_TYPE: Role.SNAPSHOTS,
    LOSS_TYPE: Role.SNAPSHOTS,
    CALL_TYPE: Role.CALLS,
}
_CONTROL_PREFIX = "assay.control."
_READ = (Role.SNAPSHOTS, Role.CONTROL, Role.CALLS)


_SERVER_ID = re.compile(rb'"server_id"\s*:\s*"([^"\\]{1,4096})"')


def lines_of(
    stream: BinaryIO, *, name: str, bytes_max: int = LINE_BYTES_MAX, too_long: TooLong | None = None
) -> Iterator[bytes]:
    """Yield the lines of a stream with their line feeds.

    Args:
        bytes_max: bytes of one line at most, line feed included.
        too_long: called for a longer line: its first ``bytes_max`` bytes are given and the rest is skipped in pieces
            of that size. Without it such a line is an error.

    Raises:
        InputError: ``line_too_long``.
    """
    for number, line in enumerate(iter(partial(stream.readline, bytes_max), b""), start=1):
        if len(line) == bytes_max and line[-1] != _LINE_FEED:
            _skip_rest(stream, number, name, bytes_max, too_long)
        yield line


def observation_lines(stream: BinaryIO, *, name: str, too_long: TooLong | None = None) -> Iterator[bytes]:
    """Yield the lines of recorded observations, as ``lines_of`` does: record lines may be longer than events.

    One over their limit is no error where only its value is too long. Brokers take such a record compressed, and stages
    refuse it for its size: it is read as the refused record that it is.

    Raises:
        InputError: ``line_too_long``.
    """
    for number, start in enumerate(iter(partial(stream.readline, EVENT_LINE_BYTES_MAX), b""), start=1):
        line, bytes_max = start, EVENT_LINE_BYTES_MAX
        if len(line) == bytes_max and line[-1] != _LINE_FEED:
            if _RECORD_LINE_START.match(line):
                bytes_max = LINE_BYTES_MAX
                line += stream.readline(bytes_max - len(line))
            if len(line) == bytes_max and line[-1] != _LINE_FEED:
                is_cut_value = bytes_max == LINE_BYTES_MAX and _long_value_at(line) is not None
                _skip_rest(stream, number, name, bytes_max, (lambda _: None) if is_cut_value else too_long)
        yield line


def _long_value_at(line: bytes) -> re.Match[bytes] | None:
    """Return where the value of a record line over the limit begins, if the value is what is too long."""
    return _VALUE_START.search(line, 0, _BEFORE_VALUE_BYTES_MAX)


def _skip_rest(stream: BinaryIO, number: int, name: str, bytes_max: int, too_long: TooLong | None) -> None:
    rest = stream.readline(bytes_max)
    if not rest:
        return
    problem = f"line {number} of {name} is over the limit of {bytes_max} bytes"
    if too_long is None:
        raise InputError("line_too_long", f"{problem}: remove the line, or split what it holds")
    length = bytes_max
    while rest:
        length += len(rest)
        rest = b"" if rest[-1] == _LINE_FEED else stream.readline(bytes_max)
    too_long(InputError("line_too_long", f"{problem} (it has {length}): only its beginning is kept"))


def read_lines(lines: Iterable[bytes], *, name: str, roles: Collection[Role] = _READ) -> Iterator[Record]:
    """Yield the records of some lines, with or without their line feeds.

    Lines too short for a record are refused one by one up to a bound; one more stands for the rest, and comes last.

    Args:
        name: what the origin of event lines calls their file.
        roles: what record lines may carry.

    Raises:
        InputError: ``bad_record_line``.
    """
    timestamp_ms = short_lines = 0
    rest: Record | None = None
    for number, line in enumerate(lines):
        if len(line) < SHORT_LINE_BYTES and (raw := line.rstrip(b"\r\n")):
            short_lines += 1
            if short_lines > REFUSED_RECORDS_MAX:
                rest = rest or Record(Role.CALLS, Origin(name, 0, number), None, raw, timestamp_ms=timestamp_ms)
                continue
        place = Origin(name, 0, number)
        try:
            record = record_of_line(line, place, roles)
        except InputError:
            raw = line.rstrip(b"\r\n")
            if not raw:
                continue
            record = _record(raw, place, timestamp_ms, roles)
        timestamp_ms = record.timestamp_ms
        yield record
    if rest is not None:
        yield rest._replace(headers=((LEFT_OUT_HEADER, b"%d" % (short_lines - REFUSED_RECORDS_MAX)),))


def _record(raw: bytes, place: Origin, previous_ms: int, roles: Collection[Role]) -> Record:
    if len(raw) > DEFAULT_LIMITS.record_bytes_max:
        return _long_record(raw, place, previous_ms, roles)
    # Lenient on purpose: this only finds where the line belongs. The engine decodes it strictly.
    content = read_leniently(raw)
    if not isinstance(content, dict):
        return Record(role=Role.CALLS, origin=place, key=None, value=raw, timestamp_ms=previous_ms)
    if isinstance(content.get("origin"), dict) and "specversion" not in content:
        return record_of_line(content, place, roles)
    kind = str(content.get("type"))
    role = Role.CONTROL if kind.startswith(_CONTROL_PREFIX) else _ROLE_OF_TYPE.get(kind, Role.CALLS)
    data = content.get("data")
    server_id = data.get("server_id") if isinstance(data, dict) else None
    key = server_id.encode("utf-8", "replace") if isinstance(server_id, str) else None
    from_time = time_ms_in(content.get("time"))
    if from_time is not None and not 0 <= from_time <= DEFAULT_LIMITS.time_max_s * 1_000:
        from_time = None  # a broken clock: the line before is a better guess
    timestamp_ms = previous_ms if from_time is None else from_time
    return Record(role=role, origin=place, key=key, value=raw, timestamp_ms=timestamp_ms)


def _long_record(raw: bytes, place: Origin, previous_ms: int, roles: Collection[Role]) -> Record:
    """Return the record of a line longer than any event may be.

    Only a record line is decoded, whose shape bounds what that takes: other JSON of this size makes objects many times
    as large. What may be a list counts as one, so that refusing it ends the lists before it.
    """
    if _RECORD_LINE_START.match(raw):
        if len(raw) < LINE_BYTES_MAX:
            return record_of_line(raw, place, roles)
        if value := _long_value_at(raw):
            whole = record_of_line(raw[: value.start()] + b"}", place, roles)
            return whole._replace(value=raw[value.end() :][: DEFAULT_LIMITS.record_bytes_max + 1])
    is_list = b'"' + SNAPSHOT_TYPE.encode() + b'"' in raw
    server = _SERVER_ID.search(raw) if is_list else None
    return Record(
        role=Role.SNAPSHOTS if is_list else Role.CALLS,
        origin=place,
        key=None if server is None else server[1],
        value=raw[: DEFAULT_LIMITS.record_bytes_max + 1],  # enough for the engine to refuse it
        timestamp_ms=previous_ms,
    )
