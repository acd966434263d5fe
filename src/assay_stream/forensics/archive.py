"""Recorded observations in files: one JSON object a line, plain or compressed (``.gz``, ``.zst``).

Two kinds of line are read. An *event* line is a CloudEvent as a proxy publishes it; its origin is the file and
the line. A *record* line is a Kafka record with its place in the log (``forensics.record_line``).
"""

from __future__ import annotations

import gzip
import itertools
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from typing import Annotated, BinaryIO, cast

import msgspec

from assay_stream.core.errors import ConfigurationError, InputError
from assay_stream.core.lenient import read_leniently
from assay_stream.core.limits import DEFAULT_LIMITS
from assay_stream.core.observation import CALL_TYPE, SNAPSHOT_TYPE
from assay_stream.core.record import Origin, Record, Role, made_of
from assay_stream.forensics.compressed import opened
from assay_stream.forensics.record_line import INT64_MAX, record_of_line

_ROLE_OF_TYPE = {SNAPSHOT_TYPE: Role.SNAPSHOTS, CALL_TYPE: Role.CALLS}
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
            origin = made_of(Origin, (place.topic, place.partition, place.offset))
            fields = (role, origin, plain.key.encode(), plain.value.encode(), (), timestamp_ms, False)
            yield made_of(Record, fields)
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
