"""What an export is made of: evidence, alerts and definitions, and the evidence bundles in files."""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import cramjam

from assay_stream.alerts.view import view_of
from assay_stream.canonical.decode import decode_json
from assay_stream.canonical.digest import Digest
from assay_stream.errors import InputError, named_in_errors
from assay_stream.files.archive import files_in, is_gzip, opened
from assay_stream.files.lines import lines_of, read_lines
from assay_stream.files.local import is_special, path_text, reading, writing
from assay_stream.limits import BUNDLE_LIMITS, SHORT_LINE_BYTES, BundleLimits
from assay_stream.model.record import Role
from assay_stream.replay.order import OffsetRange
from assay_stream.schemes.assay_bundle import (
    BLOCK_BYTES,
    EVENTS_NAME,
    MANIFEST_NAME,
    TAR_END,
    EventCheck,
    Manifest,
    Member,
    RunRoot,
    check_event,
    check_run_id,
    decode_limits,
    event_line,
    producer_of,
    read_manifest,
    read_tar_header,
    run_event,
    tar_header,
    tar_padding,
)
from assay_stream.text.times import time_us_in

_LEVEL = 9


def write_bundle(
    path: Path, events: Iterable[Mapping[str, Any]], *, run_id: str, limits: BundleLimits = BUNDLE_LIMITS
) -> Manifest:
    """Write Assay envelopes, checked with ``check_event``, as a bundle, and return its manifest.

    The file is replaced whole or not at all.

    Raises:
        InputError: ``bad_run_id``, ``bundle_limit``, ``mixed_sources`` or ``unwritable_file``.
    """
    check_run_id(run_id)
    # Beside the file, so that the last step is a rename.
    beside = None if is_special(path) else path.parent
    with writing(path), tempfile.TemporaryDirectory(prefix=".assay-stream-", dir=beside) as name:
        folder = Path(name)
        manifest = _write_events(folder / EVENTS_NAME, events, run_id, limits)
        raw = manifest.encode()
        with (folder / "tar").open("wb") as tar, (folder / EVENTS_NAME).open("rb") as lines:
            tar.write(tar_header(Member(MANIFEST_NAME, len(raw))) + raw + tar_padding(len(raw)))
            tar.write(tar_header(Member(EVENTS_NAME, manifest.events_bytes)))
            shutil.copyfileobj(lines, tar)
            tar.write(tar_padding(manifest.events_bytes) + TAR_END)
        # Assay's own compressor, behind a binding: equal events give the bytes of Assay's own writer. Its header has
        # neither a name nor a time, and 255 for the operating system.
        source = cramjam.File(str(folder / "tar"), read=True, write=True, truncate=False)
        packed = cramjam.File(str(folder / "bundle"), read=True, write=True, truncate=True)
        cramjam.gzip.compress_into(source, packed, level=_LEVEL)
        if (folder / "bundle").stat().st_size > limits.bundle_bytes_max:
            raise InputError(
                "bundle_limit",
                f"the bundle has over {limits.bundle_bytes_max} bytes: narrow the selection, or use --split",
            )
        if beside is None:
            with (folder / "bundle").open("rb") as made, path.open("wb") as file:
                shutil.copyfileobj(made, file)
        else:
            (folder / "bundle").replace(path)
    return manifest


def _write_events(path: Path, events: Iterable[Mapping[str, Any]], run_id: str, limits: BundleLimits) -> Manifest:
    root, hasher = RunRoot(), hashlib.sha256()
    size_bytes = count = 0
    first: Mapping[str, Any] | None = None
    with path.open("wb") as file:
        for count, event in enumerate(events, start=1):
            first = first or event
            if event["source"] != first["source"]:
                raise InputError(
                    "mixed_sources",
                    "the records come from several sources, and a bundle has one source: export each separately",
                )
            line = event_line(run_event(event, run_id=run_id, seq=count - 1), limits=limits)
            root.add(Digest.parse(event["assaycontenthash"]))
            hasher.update(line)
            size_bytes += len(line)
            if count > limits.events_max or size_bytes > limits.events_bytes_max:
                raise InputError(
                    "bundle_limit",
                    f"over {limits.events_max} events, or {limits.events_bytes_max} bytes of them: no verifier "
                    "takes them in one bundle; narrow the selection, or use --split",
                )
            file.write(line)
    if first is None:
        raise InputError("bundle_event", "a bundle needs at least one event")
    return Manifest(
        run_id=run_id,
        event_count=count,
        run_root=root.digest(),
        producer=producer_of(first),
        events_digest=Digest(hasher.hexdigest()),
        events_bytes=size_bytes,
    )


def verify_bundle(path: Path, *, limits: BundleLimits = BUNDLE_LIMITS) -> Manifest:
    """Check a bundle against every rule of the format, and return its manifest.

    Raises:
        InputError: the first broken rule, with the member or line.
    """
    manifests = deque((manifest for manifest, _ in _verified(path, limits)), maxlen=1)
    return manifests.pop()  # there is one: a bundle has one event at least


def read_bundle(path: Path) -> Iterator[bytes]:
    """Yield the lines of a bundle without their line feeds, once all of it was verified.

    Raises:
        InputError: as ``verify_bundle``.
    """
    verify_bundle(path)
    # Verified again: the file may have been replaced since.
    for _, line in _verified(path, BUNDLE_LIMITS):
        yield line.removesuffix(b"\n")


def is_bundle(path: Path) -> bool:
    """Return True for a gzipped tar, as bundles are. ``verify_bundle`` reports what is wrong with it."""
    if not is_gzip(path):
        return False
    try:
        with opened(path) as stream:
            return read_tar_header(stream.read(BLOCK_BYTES).ljust(BLOCK_BYTES, b"\0")) is not None
    except InputError:
        return False


def _verified(path: Path, limits: BundleLimits) -> Iterator[tuple[Manifest, bytes]]:
    with reading(path):
        size_bytes = path.stat().st_size
    if not is_gzip(path):
        raise InputError("bundle_member", f"{path.name} is not a gzip file: a bundle is a tar in gzip")
    if size_bytes > limits.bundle_bytes_max:
        raise InputError("bundle_limit", f"{path.name} has over {limits.bundle_bytes_max} bytes")
    with opened(path, decoded_bytes_max=limits.decoded_bytes_max, one_member=True) as stream:
        size_bytes = _member(stream, MANIFEST_NAME, limits.manifest_bytes_max)
        raw = _exactly(stream, size_bytes, MANIFEST_NAME)
        _exactly(stream, -size_bytes % BLOCK_BYTES, MANIFEST_NAME)
        manifest = read_manifest(raw, limits=limits)
        left_bytes = size_bytes = _member(stream, EVENTS_NAME, limits.events_bytes_max)
        check = EventCheck(manifest, limits=limits)
        while left_bytes:
            line = stream.readline(min(left_bytes, limits.line_bytes_max + 1))
            if not line:
                raise _cut(EVENTS_NAME)
            left_bytes -= len(line)
            check.add(line)
            yield manifest, line
        check.finish()
        _exactly(stream, -size_bytes % BLOCK_BYTES, EVENTS_NAME)
        while block := stream.read(64 * BLOCK_BYTES):
            if any(block):
                raise InputError("bundle_member", f"something follows {EVENTS_NAME}: a bundle has two members")


def _member(stream: BinaryIO, name: str, bytes_max: int) -> int:
    """Read the header of the next member, which must have this name, and return its size."""
    member = read_tar_header(_exactly(stream, BLOCK_BYTES, name))
    if member is None:
        raise InputError("bundle_member", f"{name} is missing")
    if member.name != name:
        raise InputError("bundle_member", f"{name} is missing, or another member precedes it")
    if member.size_bytes > bytes_max:
        raise InputError("bundle_limit", f"{name} has over {bytes_max} bytes")
    return member.size_bytes


def _exactly(stream: BinaryIO, size_bytes: int, name: str) -> bytes:
    raw = stream.read(size_bytes)
    if len(raw) != size_bytes:
        raise _cut(name)
    return raw


def _cut(name: str) -> InputError:
    return InputError("archive_truncated", f"the tar ends before {name} does: fetch the bundle again")


_EVIDENCE_LIMITS = decode_limits(BUNDLE_LIMITS)
_BLANK = b"null".ljust(SHORT_LINE_BYTES)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class Dataset(StrEnum):
    EVIDENCE = "evidence"
    ALERTS = "alerts"
    DEFINITIONS = "definitions"


_ROLES = {
    Role.EVIDENCE: Dataset.EVIDENCE,
    Role.CHANGES: Dataset.EVIDENCE,
    Role.ALERTS: Dataset.ALERTS,
    Role.DEFINITIONS: Dataset.DEFINITIONS,
}


class ExportPlace(NamedTuple):
    """Sort key of a record among those of its kind, compared member by member.

    Args:
        time_us: event time, microseconds since the epoch.
    """

    time_us: int = 0
    name: str = ""
    partition: int = 0
    offset: int = 0


class Stored(NamedTuple):
    """Bytes that may hold a record, and their position.

    Args:
        kind: the required kind, ``None`` to detect it from the content.
    """

    where: str
    raw: bytes
    kind: Dataset | None = None


class ExportRecord(NamedTuple):
    """One record to export: its place, its bytes, and the same decoded."""

    kind: Dataset
    place: ExportPlace
    raw: bytes
    content: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSelection:
    """Which records to export. Definitions have no time and no server, and are never left out.

    Args:
        since_us: earliest event time, inclusive, microseconds since the epoch.
        until_us: end of the event times, exclusive.
        server_ids: only these servers; empty for all.
        offsets: only evidence of calls in one of these ranges; empty for all. Alerts are not about single calls, so a
            range leaves them out.
    """

    since_us: int | None = None
    until_us: int | None = None
    server_ids: frozenset[str] = frozenset()
    offsets: tuple[OffsetRange, ...] = ()

    def wants(self, item: ExportRecord) -> bool:
        time_us, name, partition, offset = item.place
        is_in_range = item.kind is Dataset.EVIDENCE and any(
            wanted.holds(name, partition, offset) for wanted in self.offsets
        )
        return item.kind is Dataset.DEFINITIONS or (
            (self.since_us is None or time_us >= self.since_us)
            and (self.until_us is None or time_us < self.until_us)
            and (not self.server_ids or _server_id(item) in self.server_ids)
            and (not self.offsets or is_in_range)
        )


def _server_id(item: ExportRecord) -> object:
    part = item.content.get("data" if item.kind is Dataset.EVIDENCE else "unmapped")
    name = "server_id" if item.kind is Dataset.EVIDENCE else "mcp_server_id"
    return part.get(name) if isinstance(part, dict) else None


def stored_in(paths: Iterable[Path]) -> Iterator[Stored]:
    """Yield what some files hold: bundles, archives and plain lines; of a folder, the files named like these results.

    Raises:
        InputError: ``line_too_long``, ``bad_record_line``, and as ``read_bundle``, ``files_in`` and ``archive.opened``.
    """
    for path in paths:
        if path.is_dir():
            files = list(files_in(path, tuple(Dataset)))
            yield from stored_in(file for kind in Dataset for file in files if file.name.startswith(kind))
        elif is_bundle(path):
            for number, line in enumerate(read_bundle(path), start=1):
                yield Stored(f"line {number} of {path.name}", line, Dataset.EVIDENCE)
        else:
            yield from _archived(path)


def _archived(path: Path) -> Iterator[Stored]:
    name = path_text(path.name)
    with opened(path) as stream:
        # A blank line still counts as a line: it is read as a record of no use.
        lines = (line if line.strip() else _BLANK for line in lines_of(stream, name=str(path)))
        for number, record in enumerate(read_lines(lines, name=name, roles=tuple(Role)), start=1):
            if record.value is None or (record.origin.topic != name and record.role not in _ROLES):
                continue
            kind = None if record.origin.topic == name else _ROLES[record.role]
            yield Stored(f"line {number} of {path.name}", record.value, kind)


def items(stored: Iterable[Stored], *, kinds: frozenset[Dataset] = frozenset(Dataset)) -> Iterator[ExportRecord]:
    """Yield the records of these kinds.

    Raises:
        InputError: ``not_exportable`` for what is of no kind, and whatever is wrong with a record, with its place.
    """
    for where, raw, kind in stored:
        if raw.rstrip() == b"null":
            continue
        with named_in_errors(where):
            item = _item(raw, kind)
        if item.kind in kinds:
            yield item


def _item(raw: bytes, kind: Dataset | None) -> ExportRecord:
    content = decode_json(raw)
    found = _kind_of(content)
    if found is None or (kind is not None and found is not kind):
        raise InputError(
            "not_exportable", "not evidence, an alert or a definition: replay observations first (assay-stream replay)"
        )
    if found is Dataset.EVIDENCE:
        check_event(content)
        if raw.count(b"{") + raw.count(b"[") > _EVIDENCE_LIMITS.depth_max or len(raw) >= BUNDLE_LIMITS.line_bytes_max:
            # Again within the bounds of bundles, so that what is accepted here can be exported as one.
            decode_json(raw, limits=_EVIDENCE_LIMITS)
    return ExportRecord(found, _PLACES[found](content), raw, content)


def _kind_of(content: Any) -> Dataset | None:
    if not isinstance(content, dict):
        return None
    if "assaycontenthash" in content:
        return Dataset.EVIDENCE
    if "class_uid" in content:
        return Dataset.ALERTS
    return Dataset.DEFINITIONS if content.keys() >= {"full_digest", "definition"} else None


def _evidence_place(content: dict[str, Any]) -> ExportPlace:
    time_us = time_us_in(content["time"])
    if time_us is None:
        raise InputError("not_evidence", "the time is RFC 3339 with its offset from UTC", path="$.time")
    data = content["data"]
    origin = data.get("origin") if isinstance(data, dict) else None
    topic, partition, offset = (
        (origin.get("topic"), origin.get("partition"), origin.get("offset"))
        if isinstance(origin, dict)
        # Another producer's: its place in its own run is the only one it has.
        else (content.get("assayrunid"), 0, content.get("assayseq"))
    )
    name = topic if isinstance(topic, str) else ""
    return ExportPlace(time_us, name, _int64(partition), _int64(offset))


def _alert_place(content: dict[str, Any]) -> ExportPlace:
    view = view_of(content)
    return ExportPlace(_int64(view.time_ms * 1_000), view.uid, _int64(view.count), _int64(view.activity_id))


def _definition_place(content: dict[str, Any]) -> ExportPlace:
    digest = content["full_digest"]
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise InputError("not_a_definition", "the digest is not a SHA-256 digest", path="$.full_digest")
    if not isinstance(content["definition"], dict):
        raise InputError("not_a_definition", "the definition must be an object", path="$.definition")
    return ExportPlace(name=digest)


_PLACES = {Dataset.EVIDENCE: _evidence_place, Dataset.ALERTS: _alert_place, Dataset.DEFINITIONS: _definition_place}


def _int64(value: object) -> int:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and 0 <= value < 2**63 else 0  # type: ignore[operator,return-value]
