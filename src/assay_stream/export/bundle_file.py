"""Evidence bundles in files: written and read as streams."""

import hashlib
import shutil
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import cramjam

from assay_stream.canonical.digest import Digest
from assay_stream.errors import InputError
from assay_stream.files.compressed import is_gzip, opened
from assay_stream.files.failures import reading, writing
from assay_stream.limits.files import BUNDLE_LIMITS, BundleLimits
from assay_stream.schemes.assay.bundle import EventCheck, RunRoot, check_run_id, event_line, producer_of, run_event
from assay_stream.schemes.assay.bundle_manifest import EVENTS_NAME, MANIFEST_NAME, Manifest, read_manifest
from assay_stream.schemes.assay.bundle_tar import BLOCK_BYTES, TAR_END, Member, read_tar_header, tar_header, tar_padding

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
