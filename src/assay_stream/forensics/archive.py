"""Recorded observations in files: one JSON object a line, plain or compressed (``.gz``, ``.zst``).

Two kinds of line are read. An *event* line is a CloudEvent as a proxy publishes it; its origin is the file and
the line. A *record* line is a Kafka record with its place in the log::

    {"origin": {"topic": ..., "partition": 0, "offset": 0}, "role": "calls", "timestamp_ms": 0,
     "key": ..., "headers": [[name, value]], "value": ...}

with ``key_base64``, ``value_base64`` (and base64 header values under ``headers_base64``) for bytes that are no
UTF-8. Record lines keep everything, so a replay of them gives the bytes of the live run. A file may be compressed,
as gzip or zstd.
"""

from __future__ import annotations

import base64
import gzip
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, BinaryIO, cast

import msgspec
import orjson

from assay_stream.core.errors import ConfigurationError, InputError
from assay_stream.core.lenient import read_leniently
from assay_stream.core.limits import DEFAULT_LIMITS
from assay_stream.core.observation import CALL_TYPE, SNAPSHOT_TYPE
from assay_stream.core.record import ERROR_HEADERS, Headers, Origin, Output, Record, Role
from assay_stream.forensics.compressed import opened

_ROLE_OF_TYPE = {SNAPSHOT_TYPE: Role.SNAPSHOTS, CALL_TYPE: Role.CALLS}
_CONTROL_PREFIX = "assay.control."
_READ = (Role.SNAPSHOTS, Role.CONTROL, Role.CALLS)
_INT64_MAX = 2**63 - 1
_Place = Annotated[int, msgspec.Meta(ge=0, le=_INT64_MAX)]


class _PlainOrigin(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    partition: _Place
    offset: _Place


class _PlainLine(msgspec.Struct, forbid_unknown_fields=True):
    origin: _PlainOrigin
    role: str
    timestamp_ms: Annotated[int, msgspec.Meta(ge=-1, le=_INT64_MAX)]
    key: str
    value: str


_line_of = itemgetter(0)
_PLAIN_LINES = msgspec.json.Decoder(_PlainLine)


def read_file(path: Path) -> Iterator[Record]:
    """Yield the records of a file, in its order. A line that is neither kind becomes a record all the same.

    What is wrong with it is for the engine to say, so that it ends in the rejected records with its reason.

    Args:
        path: an NDJSON file, plain or in gzip or zstd.

    Raises:
        InputError: as ``open_archive``.
    """
    yield from read_lines(open_archive(path), name=path.name)


def read_files(paths: Iterable[Path]) -> Iterator[Record]:
    """Yield the records of some files, one after the other.

    Args:
        paths: as in ``read_file``.

    Raises:
        InputError: as ``open_archive``.
    """
    for path in paths:
        yield from read_file(path)


def open_archive(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file, decompressed where it is compressed; an error says how far it was read.

    Args:
        path: a file.

    Raises:
        InputError: as ``compressed.opened``.
    """
    counter = itertools.count()
    try:
        with opened(path) as lines:
            yield from map(_line_of, zip(lines, counter, strict=False))
    except InputError as error:
        if not error.code.startswith("archive_"):
            raise
        count = next(counter)
        raise InputError(error.code, f"{error.message} ({path}: {count} whole lines were read)") from None


def write_archive(path: Path) -> BinaryIO:
    """Return a new archive to write lines to; its name's ending says how it is compressed.

    Args:
        path: ``.gz`` for gzip, ``.zst`` for zstd, anything else for plain lines.

    Raises:
        ConfigurationError: ``extra_missing``.
        OSError: where it cannot be written.
    """
    if path.suffix == ".gz":
        raw = path.open("wb")
        # No name and no time: the same records give the same bytes.
        packed = gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=raw, mtime=0)
        packed.myfileobj = raw  # type: ignore[assignment]  # closes it as well
        return cast(BinaryIO, packed)
    if path.suffix == ".zst":
        try:
            import zstandard
        except ModuleNotFoundError:
            raise ConfigurationError(
                "extra_missing", "zstandard is not installed: pip install 'assay-stream[zstd]'"
            ) from None
        return cast(BinaryIO, zstandard.open(path, "wb"))
    return path.open("wb")


def read_lines(lines: Iterable[bytes], *, name: str, roles: Collection[Role] = _READ) -> Iterator[Record]:
    """Yield the records of some lines.

    Args:
        lines: lines with or without their line feed.
        name: what the origin of event lines calls their file.
        roles: what record lines may carry.
    """
    timestamp_ms = 0
    plain_roles = {role.value: role for role in _READ if role in roles}
    for number, line in enumerate(lines):
        try:
            # Record lines that hold texts only, as most do.
            plain = _PLAIN_LINES.decode(line)
            role = plain_roles[plain.role]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError):
            pass
        else:
            timestamp_ms, place = plain.timestamp_ms, plain.origin
            origin = Origin(place.topic, place.partition, place.offset)
            yield Record(role, origin, plain.key.encode(), plain.value.encode(), (), timestamp_ms)
            continue
        raw = line.rstrip(b"\r\n")
        if not raw:
            continue
        record = _record(raw, Origin(topic=name, partition=0, offset=number), timestamp_ms, roles)
        timestamp_ms = record.timestamp_ms
        yield record


def _record(raw: bytes, place: Origin, previous_ms: int, roles: Collection[Role]) -> Record:
    # Lenient on purpose: this only finds out where the line belongs. The engine decodes it strictly.
    content = read_leniently(raw)
    if not isinstance(content, dict):
        return Record(role=Role.CALLS, origin=place, key=None, value=raw, timestamp_ms=previous_ms)
    if isinstance(content.get("origin"), dict) and "specversion" not in content:
        return _record_line(content, place, roles)
    kind = str(content.get("type"))
    role = Role.CONTROL if kind.startswith(_CONTROL_PREFIX) else _ROLE_OF_TYPE.get(kind, Role.CALLS)
    data = content.get("data")
    server_id = data.get("server_id") if isinstance(data, dict) else None
    key = server_id.encode("utf-8", "replace") if isinstance(server_id, str) else None
    from_time = event_timestamp_ms(content.get("time"))
    if from_time is not None and not 0 <= from_time <= DEFAULT_LIMITS.time_max_s * 1_000:
        from_time = None  # a broken clock: the line before tells better when this was
    return Record(
        role=role,
        origin=place,
        key=key,
        value=raw,
        timestamp_ms=previous_ms if from_time is None else from_time,
    )


def event_timestamp_ms(text: object) -> int | None:
    """Return an RFC 3339 time in milliseconds since the epoch, or ``None`` if it is not one.

    Args:
        text: the ``time`` attribute as it stands in an event.
    """
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text.upper())
        return int(moment.timestamp() * 1_000) if moment.tzinfo else None
    except (ValueError, OverflowError):
        return None


def record_line_parts(raw: bytes, place: Origin) -> Record | None:
    """Return the record that a record line holds, whatever its topic carries; ``None`` for another line.

    Args:
        raw: a line.
        place: its file and line.

    Raises:
        InputError: ``bad_record_line``.
    """
    content = read_leniently(raw)
    if not isinstance(content, dict) or not isinstance(content.get("origin"), dict) or "specversion" in content:
        return None
    return _record_line(content, place, roles=tuple(Role))


def _record_line(content: dict[str, Any], place: Origin, roles: Collection[Role]) -> Record:
    try:
        headers: Headers = tuple(
            [(_header_name(name), _header_value(value, _text_bytes)) for name, value in content.get("headers", [])]
            + [
                (_header_name(name), _header_value(value, _base64_bytes))
                for name, value in content.get("headers_base64", [])
            ]
        )
        role = Role(content["role"])
        if role not in roles:
            raise ValueError("no role that is read")
        return Record(
            role=role,
            origin=_origin(**content["origin"]),
            key=_bytes(content, "key"),
            value=_bytes(content, "value"),
            headers=headers,
            timestamp_ms=_whole_number(content["timestamp_ms"], -1),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            "bad_record_line",
            f"line {place.offset + 1} of {place.topic} is no record line ({type(error).__name__}): "
            "write the archive anew",
        ) from None


def _origin(*, topic: object, partition: object, offset: object) -> Origin:
    _text_bytes(topic)
    return Origin(topic=str(topic), partition=_whole_number(partition, 0), offset=_whole_number(offset, 0))


def _whole_number(value: object, least: int) -> int:
    # bool is an int to Python, and a record of partition true is none of ours.
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError("no whole number")
    if not least <= value <= _INT64_MAX:
        raise ValueError("out of range")
    return value


def _header_name(name: object) -> str:
    _text_bytes(name)
    return str(name)


def _header_value(value: object, decoded: Callable[[object], bytes]) -> bytes:
    # Kafka knows headers without a value. None of ours is one, but somebody else's must keep what it is.
    return cast("bytes", None) if value is None else decoded(value)


def _text_bytes(text: object) -> bytes:
    if not isinstance(text, str):
        raise TypeError("no text")
    return text.encode()


def _base64_bytes(text: object) -> bytes:
    return base64.b64decode(_text_bytes(text), validate=True)


def _bytes(content: dict[str, Any], name: str) -> bytes | None:
    if f"{name}_base64" in content:
        return _base64_bytes(content[f"{name}_base64"])
    text = content.get(name)
    return None if text is None else _text_bytes(text)


def record_line(record: Record) -> bytes:
    """Return a record as a record line, without its line feed: everything of it, to the byte.

    Args:
        record: a record of any topic.
    """
    line: dict[str, Any] = {
        "origin": record.origin.as_json(),
        "role": record.role.value,
        "timestamp_ms": record.timestamp_ms,
    }
    _put_bytes(line, "key", record.key)
    if any(value is not None and _text(value) is None for _, value in record.headers):
        # All of them, so that their order is kept.
        line["headers_base64"] = [[name, _optional(value, _base64)] for name, value in record.headers]
    elif record.headers:
        line["headers"] = [[name, _optional(value, _text)] for name, value in record.headers]
    _put_bytes(line, "value", record.value)
    return orjson.dumps(line)


def rejected_line(output: Output) -> bytes:
    """Return a rejected record as a line of a file: original bytes, key and headers, and the error.

    Args:
        output: an output of the rejected role.
    """
    # By place, not by name: a record that was rejected before has headers of these names of its own.
    own, ours = output.headers[: -len(ERROR_HEADERS)], output.headers[-len(ERROR_HEADERS) :]
    line: dict[str, Any] = {"error": {name.removeprefix("error."): value.decode() for name, value in ours}}
    _put_bytes(line, "key", output.key)
    _put_bytes(line, "value", output.value)
    _put_headers(line, own)
    return orjson.dumps(line, option=orjson.OPT_SORT_KEYS)


def _put_headers(line: dict[str, Any], headers: Headers) -> None:
    line["headers"] = [[name, _text(value)] for name, value in headers if _text(value) is not None]
    other = [[name, _base64(value)] for name, value in headers if _text(value) is None]
    if other:
        line["headers_base64"] = other


def _optional(value: bytes | None, written: Callable[[bytes], str | None]) -> str | None:
    return None if value is None else written(value)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _put_bytes(line: dict[str, Any], name: str, value: bytes | None) -> None:
    text = None if value is None else _text(value)
    if value is not None and text is None:
        line[f"{name}_base64"] = _base64(value)
    else:
        line[name] = text


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None
