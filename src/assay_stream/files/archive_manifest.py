"""What an archive of the input topics knows of its own making: ``archive.json`` beside its files.

It is a claim of whoever wrote the archive, and of use only to find what is missing from the evidence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from assay_stream.errors import InputError
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.replay.history import Place

ARCHIVE_MANIFEST = "archive.json"
_SCHEMA = "assay.archive.v1"
_Offset = Annotated[int, msgspec.Meta(ge=0)]


class _Partition(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    partition: _Offset
    end: _Offset
    joined: _Offset | None = None


class _Manifest(msgspec.Struct, forbid_unknown_fields=True):
    schema: str
    partitions: list[_Partition]


def manifest_bytes(ends: Mapping[Place, int], joined: Mapping[Place, int]) -> bytes:
    """Return the content of a manifest.

    Args:
        ends: of each partition that was archived, the first offset that was not read.
        joined: of partitions of calls, the first offset that the join had not committed before that.
    """
    partitions = [_Partition(*place, end, joined.get(place)) for place, end in sorted(ends.items())]
    return msgspec.json.encode(_Manifest(_SCHEMA, partitions)) + b"\n"


def joined_offsets(paths: Iterable[Path]) -> dict[Place, int]:
    """Return how far the join had come when some archives were made, by their manifests; nothing without one.

    Args:
        paths: files of archives, or other files.

    Raises:
        InputError: ``bad_archive_manifest``.
    """
    joined: dict[Place, int] = {}
    for path in sorted({path.parent / ARCHIVE_MANIFEST for path in paths}):
        try:
            with path.open("rb") as file:
                raw = file.read(DEFAULT_LIMITS.record_bytes_max + 1)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise InputError("unreadable_file", f"cannot read {path}: {error.strerror}") from None
        try:
            manifest = msgspec.json.decode(raw, type=_Manifest)
        except (msgspec.DecodeError, UnicodeDecodeError):
            manifest = None
        if manifest is None or manifest.schema != _SCHEMA:
            raise InputError(
                "bad_archive_manifest", f"{path} is no manifest of an archive: move it away, or archive anew"
            )
        for told in manifest.partitions:
            if told.joined is not None:
                place = (told.topic, told.partition)
                joined[place] = max(told.joined, joined.get(place, 0))
    return joined
