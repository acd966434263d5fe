"""What an archive of the input topics says about its own making: ``archive.json`` beside its files.

It is the word of whoever wrote the archive, and serves only to find evidence or records that are missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from assay_stream.errors import InputError
from assay_stream.limits import DEFAULT_LIMITS

ARCHIVE_MANIFEST = "archive.json"
_SCHEMA = "assay.archive.v1"
_Offset = Annotated[int, msgspec.Meta(ge=0)]

Place = tuple[str, int]
"""Topic and partition."""


class _Partition(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    partition: _Offset
    end: _Offset
    joined: _Offset | None = None


class _Manifest(msgspec.Struct, forbid_unknown_fields=True):
    schema: str
    partitions: list[_Partition]


class ArchivedOffsets(NamedTuple):
    """What the manifests of some archives say, by topic and partition.

    Args:
        joined: of partitions of calls, the first offset that the join had not committed.
        ends: the first offset that was not archived.
    """

    joined: dict[Place, int]
    ends: dict[Place, int]


def manifest_bytes(ends: Mapping[Place, int], joined: Mapping[Place, int]) -> bytes:
    """Return the content of a manifest; the arguments are those of ``ArchivedOffsets``."""
    partitions = [_Partition(*place, end, joined.get(place)) for place, end in sorted(ends.items())]
    return msgspec.json.encode(_Manifest(_SCHEMA, partitions)) + b"\n"


def archived_offsets(paths: Iterable[Path]) -> ArchivedOffsets:
    """Return what the manifests beside some files say; nothing of files without one.

    Raises:
        InputError: ``bad_archive_manifest``, ``unreadable_file``.
    """
    found = ArchivedOffsets({}, {})
    for path in sorted({path.parent / ARCHIVE_MANIFEST for path in paths}):
        manifest = _read(path)
        for partition in [] if manifest is None else manifest.partitions:
            place = (partition.topic, partition.partition)
            found.ends[place] = max(partition.end, found.ends.get(place, 0))
            if partition.joined is not None:
                found.joined[place] = max(partition.joined, found.joined.get(place, 0))
    return found


def _read(path: Path) -> _Manifest | None:
    try:
        with path.open("rb") as file:
            raw = file.read(DEFAULT_LIMITS.record_bytes_max + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError("unreadable_file", f"cannot read {path}: {error.strerror}") from None
    try:
        manifest = msgspec.json.decode(raw, type=_Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError):
        manifest = None
    if manifest is None or manifest.schema != _SCHEMA:
        raise InputError("bad_archive_manifest", f"{path} is no archive manifest: move it away, or archive anew")
    return manifest
