"""What an archive of the input topics says about its own making: ``archive.json`` beside its files.

It is a claim of the archive's author, and serves only to find evidence or records that are missing.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from assay_stream.errors import InputError
from assay_stream.files.failures import reading
from assay_stream.limits.core import DEFAULT_LIMITS

ARCHIVE_MANIFEST = "archive.json"
_SCHEMA = "assay.archive.v1"
_Offset = Annotated[int, msgspec.Meta(ge=0)]

PartitionPlace = tuple[str, int]
"""Topic and partition."""


class _Partition(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    partition: _Offset
    end: _Offset
    joined: _Offset | None = None
    last: _Offset | msgspec.UnsetType = msgspec.UNSET


class _Manifest(msgspec.Struct, forbid_unknown_fields=True):
    schema: str
    partitions: list[_Partition]


class ArchivedOffsets(NamedTuple):
    """What the manifests of some archives say, by topic and partition.

    Args:
        joined: of partitions of calls, the first offset that the join had not committed.
        last: the last offset in the archive.
    """

    joined: dict[PartitionPlace, int]
    last: dict[PartitionPlace, int]


def manifest_bytes(
    ends: Mapping[PartitionPlace, int], joined: Mapping[PartitionPlace, int], last: Mapping[PartitionPlace, int]
) -> bytes:
    partitions = [
        _Partition(*place, end, joined.get(place), last.get(place, msgspec.UNSET))
        for place, end in sorted(ends.items())
    ]
    return msgspec.json.encode(_Manifest(_SCHEMA, partitions)) + b"\n"


def archived_offsets(paths: Iterable[Path]) -> ArchivedOffsets:
    """Read the manifests beside some files; nothing for files without one.

    Raises:
        InputError: ``bad_archive_manifest``, ``unreadable_file``.
    """
    found = ArchivedOffsets({}, {})
    for path in sorted({path.parent / ARCHIVE_MANIFEST for path in paths}):
        manifest = _read(path)
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


def _read(path: Path) -> _Manifest | None:
    if not path.exists():
        return None
    with reading(path), path.open("rb") as file:
        raw = file.read(DEFAULT_LIMITS.record_bytes_max + 1)
    try:
        manifest = msgspec.json.decode(raw, type=_Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError):
        manifest = None
    if manifest is None or manifest.schema != _SCHEMA:
        raise InputError("bad_archive_manifest", f"{path} is not an archive manifest: move it away, or archive again")
    return manifest
