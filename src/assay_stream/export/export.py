"""Exports: records collected, put in order, and written as bundles, datasets or a timeline.

Evidence is ordered by event time, then by topic, partition and offset of its call; alerts by event time, then by uid
and count; definitions by digest. Equal records count once. So equal records give equal files, in whatever order they
were read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import orjson

from assay_stream.canonical.digest import Digest
from assay_stream.export.input import Dataset, ExportPlace, ExportRecord, ExportSelection, Stored, items, write_bundle
from assay_stream.export.rows import as_csv, as_jsonl, row_of, write_parquet
from assay_stream.files.local import Aside, locked_folder, writing, writing_to
from assay_stream.files.spool import Spool
from assay_stream.schemes.assay.bundle import Manifest, RunRoot, check_run_id

_RUN_PREFIX = "assay-stream-"
_RUN_DIGITS = 32
_BUNDLE_SUFFIX = ".tar.gz"


class Collection:
    """The records of an export, on disk."""

    def __init__(self, selection: ExportSelection, kinds: frozenset[Dataset]) -> None:
        self._selection = selection
        self._kinds = kinds
        # Each once: the digest ends the key.
        self._spool: Spool[Dataset] = Spool(itemgetter(slice(5)))
        self.left_out = 0
        """How many records of these kinds were not selected."""

    def __enter__(self) -> Collection:
        return self

    def __exit__(self, *_: object) -> None:
        self._spool.close()

    def take(self, stored: Iterable[Stored]) -> None:
        """Add the selected records.

        Raises:
            InputError: as ``items``.
            OperatingError: ``no_room``.
        """
        for item in items(stored, kinds=self._kinds):
            if self._selection.wants(item):
                self._spool.put(item.kind, (*item.place[1:], sha256(item.raw).digest(), item.raw))
            else:
                self.left_out += 1

    def items(self, kind: Dataset) -> Iterator[ExportRecord]:
        self._spool.finish()
        for *place, _, raw in self._spool.rows(kind):
            # Decoded strictly when it came in, so a fast decoder reads the same.
            yield ExportRecord(kind, ExportPlace(kind, *place), raw, orjson.loads(raw))

    def events(self) -> Iterator[dict[str, Any]]:
        return (item.content for item in self.items(Dataset.EVIDENCE))

    def count(self, kind: Dataset) -> int:
        self._spool.finish()
        return sum(1 for _ in self._spool.rows(kind))


def export_bundles(
    collection: Collection, path: Path, *, run_id: str | None, split: int | None
) -> list[tuple[Path, Manifest]]:
    """Write the evidence as a bundle, or as several; none if there is no evidence.

    Args:
        path: the file; of several, ``evidence.tar.gz`` becomes ``evidence-0001.tar.gz`` and so on.
        run_id: name of the run, to which each of several adds its number. ``None`` makes it from the content hashes:
            equal evidence has the same run id.
        split: events of one bundle at most, ``None`` for one bundle.

    Raises:
        InputError: as ``write_bundle``.
    """
    if run_id is not None:
        check_run_id(run_id)
    total = collection.count(Dataset.EVIDENCE)
    size = total if split is None else split
    written = []
    ahead, events = collection.events(), collection.events()
    with writing(path), Aside() as aside:
        for number in range(1, -(-total // max(size, 1)) + 1):
            part = f"-{number:04}" if total > size else ""
            target = path.with_name(f"{_stem(path)}{part}{_BUNDLE_SUFFIX}") if part else path
            run = _run_id(islice(ahead, size)) if run_id is None else f"{run_id}{part}"
            written.append((target, write_bundle(aside.path(target), islice(events, size), run_id=run)))
        if written:
            for stale in (path, *numbered_bundles(path)):
                aside.remove(stale)
    return written


def numbered_bundles(path: Path) -> list[Path]:
    """Return the bundles that an earlier split export left under the name of a single bundle, sorted."""
    try:
        names = sorted(entry.name for entry in path.parent.iterdir())
    except OSError:
        return []  # writing there fails with what is wrong
    pattern = re.compile(re.escape(_stem(path)) + r"-\d{4,}" + re.escape(_BUNDLE_SUFFIX))
    return [path.with_name(name) for name in names if pattern.fullmatch(name)]


def _stem(path: Path) -> str:
    return path.name.removesuffix(_BUNDLE_SUFFIX)


def _run_id(events: Iterable[Mapping[str, Any]]) -> str:
    root = RunRoot()
    for event in events:
        root.add(Digest.parse(event["assaycontenthash"]))
    return f"{_RUN_PREFIX}{root.digest().hex[:_RUN_DIGITS]}"


def export_parquet(collection: Collection, folder: Path) -> dict[Dataset, int]:
    """Write one file for each kind that has records, and return the numbers of rows.

    The folder is made if missing. A file of a kind without records is removed: exports are never mixed.

    Raises:
        InputError: ``unwritable_folder`` or ``unwritable_file``.
        ConfigurationError: ``extra_missing``, ``output_in_use``.
    """
    counts = {kind: collection.count(kind) for kind in Dataset}
    if collection.left_out and not counts[Dataset.EVIDENCE] and not counts[Dataset.ALERTS]:
        # A selection does not narrow definitions: they alone are not what was asked for.
        counts = dict.fromkeys(Dataset, 0)
    if not any(counts.values()):
        return counts
    with writing_to(folder), locked_folder(folder), Aside() as aside:
        for kind, count in counts.items():
            path = folder / f"{kind.value}.parquet"
            aside.remove(path)
            if count:
                write_parquet(aside.path(path), kind, map(row_of, collection.items(kind)))
    return counts


def export_timesketch(collection: Collection, path: Path) -> dict[Dataset, int]:
    """Write evidence and alerts as one timeline, and return how many of each; no file if there are none.

    The name of the file ends in ``.csv`` or ``.jsonl``, which is also the format.

    Raises:
        InputError: ``unwritable_file``.
    """
    counts = Counter({kind: collection.count(kind) for kind in (Dataset.EVIDENCE, Dataset.ALERTS)})
    if not counts.total():
        return dict(counts)
    events = (item for kind in counts for item in collection.items(kind))
    with writing(path), Aside() as aside, aside.path(path).open("wb") as file:
        file.writelines(as_csv(events) if path.suffix == ".csv" else as_jsonl(events))
    return dict(counts)
