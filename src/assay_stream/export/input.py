"""What an export is made of: evidence, alerts and definitions, told apart by their content, and which are selected."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from assay_stream.alerts.formats.view import view_of
from assay_stream.canonical.decode import decode_json
from assay_stream.errors import InputError
from assay_stream.export.export import is_bundle, read_bundle
from assay_stream.files.archive import lines_of, read_lines
from assay_stream.files.compressed import opened
from assay_stream.limits.storage import BUNDLE_LIMITS, SHORT_LINE_BYTES
from assay_stream.model.cloudevents import time_us_in
from assay_stream.model.record import Role
from assay_stream.replay.selection import OffsetRange
from assay_stream.schemes.assay.bundle import check_event, decode_limits

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
FOLDER_FILES = tuple(f"{kind.value}.ndjson" for kind in Dataset)
"""What is read from a folder: the files that a replay writes."""


class ExportPlace(NamedTuple):
    """Sort key of a record in an export, compared member by member.

    Args:
        time_us: event time, microseconds since the epoch.
    """

    kind: str
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
        if item.kind is Dataset.DEFINITIONS:
            return True
        place = item.place
        if self.since_us is not None and place.time_us < self.since_us:
            return False
        if self.until_us is not None and place.time_us >= self.until_us:
            return False
        if self.server_ids and _server_id(item) not in self.server_ids:
            return False
        if not self.offsets:
            return True
        return item.kind is Dataset.EVIDENCE and any(
            wanted.holds(place.name, place.partition, place.offset) for wanted in self.offsets
        )


def _server_id(item: ExportRecord) -> object:
    part = item.content.get("data" if item.kind is Dataset.EVIDENCE else "unmapped")
    name = "server_id" if item.kind is Dataset.EVIDENCE else "mcp_server_id"
    return part.get(name) if isinstance(part, dict) else None


def stored_in(paths: Iterable[Path]) -> Iterator[Stored]:
    """Yield what some files hold: bundles, archives and plain lines; of a folder, the files that a replay writes.

    Raises:
        InputError: ``line_too_long``, ``bad_record_line``, and as ``read_bundle`` and ``compressed.opened``.
    """
    for path in paths:
        if path.is_dir():
            yield from stored_in(path / name for name in FOLDER_FILES if (path / name).exists())
        elif is_bundle(path):
            for number, line in enumerate(read_bundle(path), start=1):
                yield Stored(f"line {number} of {path.name}", line, Dataset.EVIDENCE)
        else:
            yield from _archived(path)


def _archived(path: Path) -> Iterator[Stored]:
    with opened(path) as stream:
        lines = lines_of(stream, name=str(path))
        for number, record in enumerate(read_lines(_not_blank(lines), name=path.name, roles=tuple(Role)), start=1):
            if record.value is None or (record.origin.topic != path.name and record.role not in _ROLES):
                continue
            kind = None if record.origin.topic == path.name else _ROLES[record.role]
            yield Stored(f"line {number} of {path.name}", record.value, kind)


def _not_blank(lines: Iterable[bytes]) -> Iterator[bytes]:
    # A blank line still counts as a line: it is read as a record of no use.
    for line in lines:
        yield line if line.strip() else _BLANK


def items(stored: Iterable[Stored], *, kinds: frozenset[Dataset] = frozenset(Dataset)) -> Iterator[ExportRecord]:
    """Yield the records of these kinds.

    Raises:
        InputError: ``not_exportable`` for what is of no kind, and whatever is wrong with a record, with its place.
    """
    for where, raw, kind in stored:
        if raw.rstrip() == b"null":
            continue
        try:
            item = _item(raw, kind)
        except InputError as error:
            raise InputError(error.code, f"{where}: {error.message}", path=error.path) from None
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


def item_again(kind: Dataset, raw: bytes) -> ExportRecord:
    """Rebuild a record that ``items`` yielded before, from its bytes and without checking it again."""
    content = orjson.loads(raw)
    return ExportRecord(kind, _PLACES[kind](content), raw, content)


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
    return ExportPlace(Dataset.EVIDENCE, time_us, name, _int64(partition), _int64(offset))


def _alert_place(content: dict[str, Any]) -> ExportPlace:
    view = view_of(content)
    return ExportPlace(
        Dataset.ALERTS, _int64(view.time_ms * 1_000), view.uid, _int64(view.count), _int64(view.activity_id)
    )


def _definition_place(content: dict[str, Any]) -> ExportPlace:
    digest = content["full_digest"]
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise InputError("not_a_definition", "the digest is not a SHA-256 digest", path="$.full_digest")
    if not isinstance(content["definition"], dict):
        raise InputError("not_a_definition", "the definition must be an object", path="$.definition")
    return ExportPlace(Dataset.DEFINITIONS, 0, digest)


_PLACES = {Dataset.EVIDENCE: _evidence_place, Dataset.ALERTS: _alert_place, Dataset.DEFINITIONS: _definition_place}


def _int64(value: object) -> int:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and 0 <= value < 2**63 else 0  # type: ignore[operator,return-value]
