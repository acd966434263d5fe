"""Recorded observations in files: one JSON object a line, plain or compressed (``.gz``, ``.zst``).

Two kinds of line are read. An *event* line is a CloudEvent as a proxy publishes it; its origin is the file and
the line. A *record* line is a Kafka record with its place in the log (``files.record_line``).
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, BinaryIO, cast

import msgspec

from assay_stream.canonical.lenient import read_leniently
from assay_stream.errors import ConfigurationError, InputError
from assay_stream.files.archive_manifest import ARCHIVE_MANIFEST
from assay_stream.files.compressed import opened
from assay_stream.files.line_reader import RECORD_LINE_START, TooLong, lines_of, observation_lines
from assay_stream.files.record_line import INT64_MAX, record_of_line
from assay_stream.limits import DEFAULT_LIMITS, LINE_BYTES_MAX
from assay_stream.model.observation import CALL_TYPE, LIST_CHANGED_TYPE, SNAPSHOT_TYPE
from assay_stream.model.record import Origin, Record, Role, made_of

_ROLE_OF_TYPE = {SNAPSHOT_TYPE: Role.SNAPSHOTS, LIST_CHANGED_TYPE: Role.SNAPSHOTS, CALL_TYPE: Role.CALLS}
_CONTROL_PREFIX = "assay.control."
_READ = (Role.SNAPSHOTS, Role.CONTROL, Role.CALLS)
_Place = Annotated[int, msgspec.Meta(ge=0, le=INT64_MAX)]


class _PlainOrigin(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    partition: _Place
    offset: _Place


class _PlainLine(msgspec.Struct, forbid_unknown_fields=True):
    origin: _PlainOrigin
    role: str
    timestamp_ms: Annotated[int, msgspec.Meta(ge=-1, le=INT64_MAX)]
    key: str
    value: str


class _LongLine(msgspec.Struct, omit_defaults=True):
    origin: _PlainOrigin
    role: str
    timestamp_ms: int
    key: str | None = None
    key_base64: str | msgspec.UnsetType = msgspec.UNSET
    headers: list[tuple[str, str | None]] | msgspec.UnsetType = msgspec.UNSET
    headers_base64: list[tuple[str, str | None]] | msgspec.UnsetType = msgspec.UNSET
    value: str | None = None
    value_base64: str | msgspec.UnsetType = msgspec.UNSET


_PLAIN_LINES = msgspec.json.Decoder(_PlainLine)
_LONG_LINES = msgspec.json.Decoder(_LongLine)
_SERVER_ID = re.compile(rb'"server_id"\s*:\s*"([^"\\]{1,4096})"')


def read_file(path: Path, *, too_long: TooLong | None = None) -> Iterator[Record]:
    """Yield the records of a file, in its order. A line that is neither kind becomes a record all the same.

    What is wrong with it is for the engine to say, so that it ends in the rejected records with its reason.

    Args:
        path: an NDJSON file, plain or in gzip or zstd.
        too_long: as in ``open_archive``; such a line is given as a record that the engine refuses for its size.

    Raises:
        InputError: as ``open_archive``; ``bad_record_line``.
    """
    lines = open_archive(path, of=observation_lines, too_long=too_long)
    yield from read_lines(lines, name=path.name)


def read_files(paths: Iterable[Path], *, too_long: TooLong | None = None) -> Iterator[Record]:
    """Yield the records of some files, one after the other.

    Args:
        paths: as in ``read_file``.
        too_long: as in ``read_file``.

    Raises:
        InputError: as ``read_file``.
    """
    for path in paths:
        if path.name != ARCHIVE_MANIFEST:  # so that a whole folder can be given
            yield from read_file(path, too_long=too_long)


def open_archive(
    path: Path, *, of: Callable[..., Iterator[bytes]] = lines_of, too_long: TooLong | None = None
) -> Iterator[bytes]:
    """Yield the lines of a file, decompressed where it is compressed; an error says how far it was read.

    Args:
        path: a file.
        of: what cuts it into lines.
        too_long: gets the error of a line over the limit, whose beginning is then given; without it that is an
            error.

    Raises:
        InputError: ``line_too_long``; as ``compressed.opened``.
    """
    count = 0
    try:
        with opened(path) as stream:
            for line in of(stream, name=str(path), too_long=too_long):
                yield line
                count += 1
    except InputError as error:
        if not error.code.startswith("archive_"):
            raise
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
            origin = made_of(Origin, (place.topic, place.partition, place.offset))
            fields = (role, origin, plain.key.encode(), plain.value.encode(), (), timestamp_ms, False, False)
            yield made_of(Record, fields)
            continue
        raw = line.rstrip(b"\r\n")
        if not raw:
            continue
        record = _record(raw, Origin(topic=name, partition=0, offset=number), timestamp_ms, roles)
        timestamp_ms = record.timestamp_ms
        yield record


def _record(raw: bytes, place: Origin, previous_ms: int, roles: Collection[Role]) -> Record:
    if len(raw) > DEFAULT_LIMITS.record_bytes_max:
        return _long_record(raw, place, previous_ms, roles)
    # Lenient on purpose: this only finds out where the line belongs. The engine decodes it strictly.
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


def _long_record(raw: bytes, place: Origin, previous_ms: int, roles: Collection[Role]) -> Record:
    """Return the record of a line that is longer than any event may be.

    Nothing is decoded but a record line, whose shape bounds what that takes: other JSON of this size makes
    objects of many times its own. What may be a list counts as one, so that its refusal ends the force of the
    lists before it.
    """
    if RECORD_LINE_START.match(raw) and len(raw) < LINE_BYTES_MAX:
        try:
            content = msgspec.to_builtins(_LONG_LINES.decode(raw))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            content = {}
        return record_of_line(content, place, roles)
    is_list = b'"' + SNAPSHOT_TYPE.encode() + b'"' in raw
    server = _SERVER_ID.search(raw) if is_list else None
    return Record(
        role=Role.SNAPSHOTS if is_list else Role.CALLS,
        origin=place,
        key=None if server is None else server[1],
        value=raw[: DEFAULT_LIMITS.record_bytes_max + 1],  # enough for the engine to refuse it
        timestamp_ms=previous_ms,
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
