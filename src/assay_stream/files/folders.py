"""Folders in the place of files: which files of an archive, or of a replay's results, hold the records asked for."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from assay_stream.errors import InputError
from assay_stream.files.archive_manifest import ARCHIVE_MANIFEST
from assay_stream.files.failures import reading

_RECORDS = re.compile(r".+\.(ndjson|jsonl)(\.gz|\.zst)?")
RESULTS = ("evidence", "alerts", "definitions", "changes", "rejected", "checkpoints")
"""How the files of a replay, and of `seal archive`, start."""
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
