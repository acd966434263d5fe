"""What an export is made of: evidence, alerts and definitions, told apart by what they are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from assay_stream.alerts.formats.view import view_of
from assay_stream.canonical.decode import decode_json
from assay_stream.errors import InputError
from assay_stream.export.bundle_file import is_bundle, read_bundle
from assay_stream.files.archive import read_lines
from assay_stream.files.compressed import opened
from assay_stream.files.line_reader import lines_of
from assay_stream.files.spool import Place
from assay_stream.limits import BUNDLE_LIMITS
from assay_stream.model.record import Role
from assay_stream.schemes.assay.bundle import check_event, decode_limits

_EVIDENCE_LIMITS = decode_limits(BUNDLE_LIMITS)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class Kind(StrEnum):
    """What can be exported."""

    EVIDENCE = "evidence"
    ALERTS = "alerts"
    DEFINITIONS = "definitions"


_ROLES = {
    Role.EVIDENCE: Kind.EVIDENCE,
    Role.CHANGES: Kind.EVIDENCE,
    Role.ALERTS: Kind.ALERTS,
    Role.DEFINITIONS: Kind.DEFINITIONS,
}
FOLDER_FILES = tuple(f"{kind.value}.ndjson" for kind in Kind)
"""What is read of a folder: the files that a replay writes."""


class Stored(NamedTuple):
    """Some bytes that may be of use, and where they stand.

    Args:
        where: file and line, or topic, partition and offset.
        raw: the bytes.
        kind: what they must be, ``None`` where only they can tell.
    """

    where: str
    raw: bytes
    kind: Kind | None = None


class Item(NamedTuple):
    """One record to be exported.

    Args:
        kind: what it is.
        place: where it stands in an export.
        raw: its bytes.
        content: the same, decoded.
    """

    kind: Kind
    place: Place
    raw: bytes
    content: dict[str, Any]


def time_us_of(text: object) -> int | None:
    """Return an RFC 3339 time in microseconds since the epoch, finer digits cut off; ``None`` if it is not one.

    Args:
        text: the time as it was written.
    """
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text.upper())
    except ValueError:
        return None
    if moment.tzinfo is None:
        return None
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def stored_in(paths: Iterable[Path]) -> Iterator[Stored]:
    """Yield what some files hold: bundles, archives and plain lines; of a folder the files that a replay writes.

    Args:
        paths: files and folders.

    Raises:
        InputError: ``line_too_long``, ``bad_record_line``, and as ``read_bundle`` and ``compressed.opened``.
    """
    for path in paths:
        if path.is_dir():
            yield from stored_in(path / name for name in FOLDER_FILES if (path / name).exists())
        elif is_bundle(path):
            for number, line in enumerate(read_bundle(path), start=1):
                yield Stored(f"line {number} of {path.name}", line, Kind.EVIDENCE)
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
    # A blank line counts as a line all the same: it is read as a record without a use.
    for line in lines:
        yield line if line.strip() else b"null"


def items(stored: Iterable[Stored], *, kinds: frozenset[Kind] = frozenset(Kind)) -> Iterator[Item]:
    """Yield the records of these kinds.

    Args:
        stored: what was read.
        kinds: what is asked for; other kinds are passed over.

    Raises:
        InputError: ``not_exportable`` for what is of no kind, and whatever is wrong with a record, with its place.
    """
    for where, raw, kind in stored:
        if raw == b"null":
            continue
        try:
            item = _item(raw, kind)
        except InputError as error:
            raise InputError(error.code, f"{where}: {error.message}", path=error.path) from None
        if item.kind in kinds:
            yield item


def _item(raw: bytes, kind: Kind | None) -> Item:
    content = decode_json(raw)
    found = _kind_of(content)
    if found is None or (kind is not None and found is not kind):
        raise InputError(
            "not_exportable",
            "no evidence, alert or definition: observations are replayed first (assay-stream replay)",
        )
    if found is Kind.EVIDENCE:
        check_event(content)
        if raw.count(b"{") + raw.count(b"[") > _EVIDENCE_LIMITS.depth_max or len(raw) >= BUNDLE_LIMITS.line_bytes_max:
            # Once more within the bounds of bundles, so that what is accepted here can be exported as one.
            decode_json(raw, limits=_EVIDENCE_LIMITS)
    return Item(found, _PLACES[found](content), raw, content)


def item_again(kind: Kind, raw: bytes) -> Item:
    """Return a record that ``items`` gave before, from its bytes and without checking it again.

    Args:
        kind: what it is.
        raw: its bytes.
    """
    content = orjson.loads(raw)
    return Item(kind, _PLACES[kind](content), raw, content)


def _kind_of(content: Any) -> Kind | None:
    if not isinstance(content, dict):
        return None
    if "assaycontenthash" in content:
        return Kind.EVIDENCE
    if "class_uid" in content:
        return Kind.ALERTS
    return Kind.DEFINITIONS if content.keys() >= {"full_digest", "definition"} else None


def _evidence_place(content: dict[str, Any]) -> Place:
    time_us = time_us_of(content["time"])
    if time_us is None:
        raise InputError("not_evidence", "the time is RFC 3339 with its offset from UTC", path="$.time")
    data = content["data"]
    origin = data.get("origin") if isinstance(data, dict) else None
    topic, partition, offset = (
        (origin.get("topic"), origin.get("partition"), origin.get("offset"))
        if isinstance(origin, dict)
        # Another producer's: the place in its own run is the only one it has.
        else (content.get("assayrunid"), 0, content.get("assayseq"))
    )
    return Place(
        Kind.EVIDENCE,
        time_us,
        topic if isinstance(topic, str) else "",
        _int64(partition),
        _int64(offset),
    )


def _alert_place(content: dict[str, Any]) -> Place:
    view = view_of(content)
    return Place(Kind.ALERTS, _int64(view.time_ms * 1_000), view.uid, _int64(view.count), _int64(view.activity_id))


def _definition_place(content: dict[str, Any]) -> Place:
    digest = content["full_digest"]
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise InputError("not_a_definition", "the digest is no SHA-256 digest", path="$.full_digest")
    if not isinstance(content["definition"], dict):
        raise InputError("not_a_definition", "the definition must be an object", path="$.definition")
    return Place(Kind.DEFINITIONS, 0, digest)


_PLACES = {
    Kind.EVIDENCE: _evidence_place,
    Kind.ALERTS: _alert_place,
    Kind.DEFINITIONS: _definition_place,
}


def _int64(value: object) -> int:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and 0 <= value < 2**63 else 0  # type: ignore[operator,return-value]
