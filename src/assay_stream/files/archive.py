"""Recorded observations in files: one JSON object a line, in archives that say how they were made, and in folders.

Two kinds of line are read. An *event* line is a CloudEvent as a proxy publishes it; its origin is the file and the
line. A *record* line is a Kafka record with its place in the log (``files.record_line``). Memory is bounded by the
longest line allowed, whatever a file holds.

It is a claim of the archive's author, and serves only to find evidence or records that are missing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, BinaryIO, NamedTuple

import msgspec

from assay_stream.canonical.decode import read_leniently
from assay_stream.errors import InputError
from assay_stream.files.compressed import opened
from assay_stream.files.local import path_text, reading
from assay_stream.files.record_line import LineOrigin, TimestampMs, record_of_line
from assay_stream.limits import DEFAULT_LIMITS, LINE_BYTES_MAX, REFUSED_RECORDS_MAX, SHORT_LINE_BYTES
from assay_stream.model.record import (
    CALL_TYPE,
    LEFT_OUT_HEADER,
    LIST_CHANGED_TYPE,
    LOSS_TYPE,
    SNAPSHOT_TYPE,
    Origin,
    Record,
    Role,
    made_of,
)
from assay_stream.text.times import time_ms_in

ARCHIVE_MANIFEST = "archive.json"
_SCHEMA = "assay.archive.v1"
_Offset = Annotated[int, msgspec.Meta(ge=0)]

PartitionPlace = tuple[str, int]
"""Topic and partition."""


class ArchivedPartition(msgspec.Struct, forbid_unknown_fields=True):
    """How far a partition was archived.

    Args:
        end: the offset of the next record.
        joined: of partitions of calls, the first offset that the join had not committed.
        last: the last offset in the archive.
        first: the first offset that was there, with a record or not; only where everything was archived.
    """

    topic: str
    partition: _Offset
    end: _Offset
    joined: _Offset | None = None
    last: _Offset | msgspec.UnsetType = msgspec.UNSET
    first: _Offset | msgspec.UnsetType = msgspec.UNSET


class GroupOffset(msgspec.Struct, forbid_unknown_fields=True):
    group: str
    topic: str
    partition: _Offset
    offset: _Offset
    metadata: str


class Manifest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """``archive.json``.

    Args:
        groups: the positions of all consumer groups, where every topic was archived.
        selected: the archive has a selection of the records.
    """

    schema: str
    partitions: list[ArchivedPartition]
    groups: list[GroupOffset] = []
    selected: bool = False


class ArchivedOffsets(NamedTuple):
    """What the manifests of some archives say, by topic and partition.

    Args:
        joined: of partitions of calls, the first offset that the join had not committed.
        last: the last offset in the archive.
    """

    joined: dict[PartitionPlace, int]
    last: dict[PartitionPlace, int]


def manifest_bytes(
    ends: Mapping[PartitionPlace, int],
    joined: Mapping[PartitionPlace, int],
    last: Mapping[PartitionPlace, int],
    *,
    firsts: Mapping[PartitionPlace, int] | None = None,
    groups: Iterable[GroupOffset] = (),
    selected: bool = False,
) -> bytes:
    partitions = [
        ArchivedPartition(
            *place, end, joined.get(place), last.get(place, msgspec.UNSET), (firsts or {}).get(place, msgspec.UNSET)
        )
        for place, end in sorted(ends.items())
    ]
    return msgspec.json.encode(Manifest(_SCHEMA, partitions, list(groups), selected)) + b"\n"


def archived_offsets(paths: Iterable[Path]) -> ArchivedOffsets:
    """Read the manifests beside some files; nothing for files without one.

    Raises:
        InputError: ``bad_archive_manifest``, ``unreadable_file``.
    """
    found = ArchivedOffsets({}, {})
    for path in sorted({path.parent / ARCHIVE_MANIFEST for path in paths}):
        manifest = read_manifest(path)
        for partition in [] if manifest is None else manifest.partitions:
            place = (partition.topic, partition.partition)
            if not isinstance(partition.last, msgspec.UnsetType):
                found.last[place] = max(partition.last, found.last.get(place, 0))
            if partition.joined is not None:
                found.joined[place] = max(partition.joined, found.joined.get(place, 0))
    return found


def check_whole(archived: ArchivedOffsets, ranges: Mapping[PartitionPlace, tuple[int, int]]) -> None:
    """Check that no partition lost its end since it was archived, of the topics that were read at all.

    Args:
        ranges: the first and the last offset that was read of each partition.

    Raises:
        InputError: ``archive_truncated``.
    """
    topics = {topic for topic, _ in ranges}
    for place, last in sorted(archived.last.items()):
        if place[0] in topics and ranges.get(place, (0, -1))[1] < last:
            raise InputError(
                "archive_truncated",
                f"partition {place[1]} of {place[0]} ends before offset {last}, up to which {ARCHIVE_MANIFEST} says it "
                f"was archived: fetch the archive again, or move {ARCHIVE_MANIFEST} away to verify a part of it",
            )


def read_manifest(path: Path) -> Manifest | None:
    """Return the manifest of an archive, ``None`` if there is none.

    Raises:
        InputError: ``bad_archive_manifest``, ``unreadable_file``.
    """
    if not path.exists():
        return None
    with reading(path), path.open("rb") as file:
        raw = file.read(DEFAULT_LIMITS.record_bytes_max + 1)
    try:
        manifest = msgspec.json.decode(raw, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError):
        manifest = None
    if manifest is None or manifest.schema != _SCHEMA:
        raise InputError("bad_archive_manifest", f"{path} is not an archive manifest: move it away, or archive again")
    return manifest


_RECORDS = re.compile(r".+\.(ndjson|jsonl)(\.gz|\.zst)?")
RESULTS = ("evidence", "alerts", "definitions", "changes", "rejected", "checkpoints", "state-")
"""How the files of a replay, of `seal archive`, and of topics that are no observations start."""
_NAMED_MAX = 8


def files_in(path: Path, kind: str | None = None, skipped: Callable[[str], object] = lambda _: None) -> Iterator[Path]:
    """Yield the files that a path stands for: itself, or of a folder those that hold records of a kind, by name.

    Args:
        kind: how the names of its files start, one of ``RESULTS``; ``None`` for observations: everything that is no
            result, and the manifest of an archive.
        skipped: is handed a sentence about the files of a folder that are not read, if there are any.

    Raises:
        InputError: ``unreadable_file``, also where a folder has no such file, one both plain and compressed, or
            something that is no file under the name of one (a pipe would be waited for without end).
    """
    if not path.is_dir():
        yield path
        return
    with reading(path):
        names = sorted(entry.name for entry in path.iterdir() if not entry.name.startswith("."))
    found = [name for name in names if _RECORDS.fullmatch(name) and name.startswith(RESULTS if kind is None else kind)]
    if kind is None:
        found = [name for name in names if _RECORDS.fullmatch(name) and name not in found]
    if not found:
        wanted = "of observations (*.ndjson, *.jsonl)" if kind is None else f"named {kind}*.ndjson"
        raise InputError("unreadable_file", f"{path} has no file {wanted}: give another folder, or the file itself")
    others = [name for name in names if name not in found and name != ARCHIVE_MANIFEST]
    if kind is not None:
        # Results of other kinds are not asked for; other records may be meant.
        others = [name for name in others if _RECORDS.fullmatch(name) and not name.startswith(RESULTS)]
    if others:
        more = f" and {len(others) - _NAMED_MAX} more" if len(others) > _NAMED_MAX else ""
        why = "named like results of a replay, or not *.ndjson or *.jsonl" if kind is None else f"not {kind}*.ndjson"
        skipped(f"{path}: skipped {', '.join(others[:_NAMED_MAX])}{more} ({why})")
    plain: dict[str, str] = {}
    for name in found:
        if (path / name).exists() and not (path / name).is_file():
            raise InputError("unreadable_file", f"cannot read {path / name}: it is not a file")
        before = plain.setdefault(name.removesuffix(".gz").removesuffix(".zst"), name)
        if before != name:
            raise InputError(
                "unreadable_file", f"{path} has {before} and {name}, records that would count twice: name one of them"
            )
    if kind is None and ARCHIVE_MANIFEST in names:
        found.append(ARCHIVE_MANIFEST)
    yield from (path / name for name in found)


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


class _PlainLine(msgspec.Struct, forbid_unknown_fields=True):
    origin: LineOrigin
    role: str
    timestamp_ms: TimestampMs
    key: str
    value: str


_PLAIN_LINES = msgspec.json.Decoder(_PlainLine)
_SERVER_ID = re.compile(rb'"server_id"\s*:\s*"([^"\\]{1,4096})"')


def read_files(paths: Iterable[Path], *, too_long: TooLong | None = None) -> Iterator[Record]:
    """Yield the records of some files, one after the other, each in its order.

    A line of neither kind becomes a record all the same: the engine says what is wrong with it, so that it ends among
    the rejected records with its reason. The manifest of an archive is skipped, so that a whole folder can be given.

    Args:
        too_long: as in ``open_archive``; such a line becomes a record that the engine refuses for its size.

    Raises:
        InputError: as ``open_archive``; ``bad_record_line``.
    """
    for path in paths:
        if path.name != ARCHIVE_MANIFEST:
            lines = open_archive(path, of=observation_lines, too_long=too_long)
            yield from read_lines(lines, name=path_text(path.name))


def open_archive(
    path: Path, *, of: Callable[..., Iterator[bytes]] | None = None, too_long: TooLong | None = None
) -> Iterator[bytes]:
    """Yield the lines of a file; an error says how far it was read.

    Args:
        of: splits it into lines, ``lines_of`` by default.
        too_long: gets the error of a line over the limit, whose beginning is then given; without it that is an
            error.

    Raises:
        InputError: ``line_too_long``; as ``compressed.opened``.
    """
    count = 0
    try:
        with opened(path) as stream:
            for line in (of or lines_of)(stream, name=str(path), too_long=too_long):
                yield line
                count += 1
    except InputError as error:
        if not error.code.startswith("archive_"):
            raise
        raise InputError(error.code, f"{error.message} ({path}: {count} whole lines were read)") from None


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
    plain_roles = {role.value: role for role in _READ if role in roles}
    for number, line in enumerate(lines):
        if len(line) < SHORT_LINE_BYTES and (raw := line.rstrip(b"\r\n")):
            short_lines += 1
            if short_lines > REFUSED_RECORDS_MAX:
                rest = rest or Record(Role.CALLS, Origin(name, 0, number), None, raw, timestamp_ms=timestamp_ms)
                continue
        try:
            # Record lines that hold text only, as most do.
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
