"""Exports: records collected, put in order, and written as bundles, datasets or a timeline.

Evidence is ordered by event time, then by topic, partition and offset of its call; alerts by event time, then by uid
and count; definitions by digest. Equal records count once. So equal records give equal files, in whatever order they
were read.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO

import cramjam
import orjson

from assay_stream.canonical.digest import Digest
from assay_stream.errors import InputError
from assay_stream.export.input import Dataset, ExportRecord, ExportSelection, Stored, item_again, items
from assay_stream.export.rows import as_csv, as_jsonl, row_of, write_parquet
from assay_stream.files.compressed import is_gzip, opened
from assay_stream.files.local import Aside, locked_folder, reading, writing, writing_to
from assay_stream.files.spool import Spool
from assay_stream.limits.storage import BUNDLE_LIMITS, BundleLimits
from assay_stream.schemes.assay.bundle import (
    BLOCK_BYTES,
    EVENTS_NAME,
    MANIFEST_NAME,
    TAR_END,
    EventCheck,
    Manifest,
    Member,
    RunRoot,
    check_run_id,
    event_line,
    producer_of,
    read_manifest,
    read_tar_header,
    run_event,
    tar_header,
    tar_padding,
)

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
    with writing(path), tempfile.TemporaryDirectory(prefix=".assay-stream-", dir=path.parent) as name:
        folder = Path(name)
        manifest = _write_events(folder / EVENTS_NAME, events, run_id, limits)
        _write_tar(folder, manifest)
        _compress(folder / "tar", folder / "bundle")
        if (folder / "bundle").stat().st_size > limits.bundle_bytes_max:
            raise InputError(
                "bundle_limit",
                f"the bundle has over {limits.bundle_bytes_max} bytes: narrow the selection, or use --split",
            )
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


def _write_tar(folder: Path, manifest: Manifest) -> None:
    raw = manifest.encode()
    with (folder / "tar").open("wb") as tar, (folder / EVENTS_NAME).open("rb") as events:
        tar.write(tar_header(Member(MANIFEST_NAME, len(raw))) + raw + tar_padding(len(raw)))
        tar.write(tar_header(Member(EVENTS_NAME, manifest.events_bytes)))
        shutil.copyfileobj(events, tar)
        tar.write(tar_padding(manifest.events_bytes) + TAR_END)


def _compress(tar: Path, target: Path) -> None:
    # Assay's own compressor, behind a binding: equal events give the bytes of Assay's own writer. Its header has
    # neither a name nor a time, and 255 for the operating system.
    source = cramjam.File(str(tar), read=True, write=True, truncate=False)
    packed = cramjam.File(str(target), read=True, write=True, truncate=True)
    cramjam.gzip.compress_into(source, packed, level=_LEVEL)


def verify_bundle(path: Path, *, limits: BundleLimits = BUNDLE_LIMITS) -> Manifest:
    """Check a bundle against every rule of the format, and return its manifest.

    Raises:
        InputError: the first broken rule, with the member or line.
    """
    manifests = deque((manifest for manifest, _ in _verified(path, limits)), maxlen=1)
    return manifests.pop()  # there is one: a bundle has one event at least


def read_bundle(path: Path, *, limits: BundleLimits = BUNDLE_LIMITS) -> Iterator[bytes]:
    """Yield the lines of a bundle without their line feeds, once all of it was verified.

    Raises:
        InputError: as ``verify_bundle``.
    """
    verify_bundle(path, limits=limits)
    # Verified again: the file may have been replaced since.
    for _, line in _verified(path, limits):
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
        manifest = read_manifest(_manifest_bytes(stream, limits), limits=limits)
        size_bytes = _member(stream, EVENTS_NAME, limits.events_bytes_max)
        check = EventCheck(manifest, limits=limits)
        for line in _lines(stream, size_bytes, limits):
            check.add(line)
            yield manifest, line
        check.finish()
        _finish(stream, size_bytes)


def _manifest_bytes(stream: BinaryIO, limits: BundleLimits) -> bytes:
    size_bytes = _member(stream, MANIFEST_NAME, limits.manifest_bytes_max)
    raw = _exactly(stream, size_bytes, MANIFEST_NAME)
    _skip_padding(stream, size_bytes, MANIFEST_NAME)
    return raw


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


def _lines(stream: BinaryIO, size_bytes: int, limits: BundleLimits) -> Iterator[bytes]:
    left = size_bytes
    while left:
        line = stream.readline(min(left, limits.line_bytes_max + 1))
        if not line:
            raise _cut(EVENTS_NAME)
        left -= len(line)
        yield line


def _finish(stream: BinaryIO, size_bytes: int) -> None:
    """Read what follows the last member: zeros, and nothing else."""
    _skip_padding(stream, size_bytes, EVENTS_NAME)
    while block := stream.read(64 * BLOCK_BYTES):
        if any(block):
            raise InputError("bundle_member", f"something follows {EVENTS_NAME}: a bundle has two members")


def _skip_padding(stream: BinaryIO, size_bytes: int, name: str) -> None:
    _exactly(stream, -size_bytes % BLOCK_BYTES, name)


def _exactly(stream: BinaryIO, size_bytes: int, name: str) -> bytes:
    raw = stream.read(size_bytes)
    if len(raw) != size_bytes:
        raise _cut(name)
    return raw


def _cut(name: str) -> InputError:
    return InputError("archive_truncated", f"the tar ends before {name} does: fetch the bundle again")


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

    def raw(self, kind: Dataset) -> Iterator[bytes]:
        self._spool.finish()
        return (row[-1] for row in self._spool.rows(kind))

    def items(self, kind: Dataset) -> Iterator[ExportRecord]:
        return (item_again(kind, raw) for raw in self.raw(kind))

    def events(self) -> Iterator[dict[str, Any]]:
        # Decoded strictly when it came in, so a fast decoder reads the same.
        return map(orjson.loads, self.raw(Dataset.EVIDENCE))

    def count(self, kind: Dataset) -> int:
        return sum(1 for _ in self.raw(kind))


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
    parts = [slice(start, min(start + size, total)) for start in range(0, total, max(size, 1))]
    written = []
    with writing(path), Aside() as aside:
        for number, part in enumerate(parts, start=1):
            several = len(parts) > 1
            target = path.with_name(f"{_stem(path)}-{number:04}{_BUNDLE_SUFFIX}") if several else path
            run = _run_id(islice(collection.events(), part.start, part.stop)) if run_id is None else run_id
            if several and run_id is not None:
                run = f"{run_id}-{number:04}"
            events = islice(collection.events(), part.start, part.stop)
            written.append((target, write_bundle(aside.path(target), events, run_id=run)))
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
