"""Files of records: archives, with the manifest that says how they were made, folders, and what may be compressed.

Files are plain, gzip or zstd, told apart by their first bytes, and read and written as streams. ``files.lines`` has
what stands in a line.

A manifest is a claim of the archive's author, and serves only to find evidence or records that are missing.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final, NamedTuple, cast

import msgspec
import zstandard

from assay_stream.errors import InputError
from assay_stream.files.lines import TooLong, lines_of, observation_lines, read_lines
from assay_stream.files.local import path_text, reading
from assay_stream.limits import ARCHIVE_DECODED_BYTES_MAX, DEFAULT_LIMITS, ZSTD_WINDOW_BYTES_MAX
from assay_stream.model.record import Record

ARCHIVE_MANIFEST = "archive.json"
_SCHEMA = "assay.archive.v1"
_Offset = Annotated[int, msgspec.Meta(ge=0)]

PartitionPlace = tuple[str, int]
"""Topic and partition."""


class ArchivedPartition(msgspec.Struct, forbid_unknown_fields=True):
    """How far a partition was archived.

    Args:
        end: the offset of the next record.
        joined: of partitions of calls, the first offset that the join had not committed.
        last: the last offset in the archive.
        first: the first offset that was there, with a record or not; only where everything was archived.
    """

    topic: str
    partition: _Offset
    end: _Offset
    joined: _Offset | None = None
    last: _Offset | msgspec.UnsetType = msgspec.UNSET
    first: _Offset | msgspec.UnsetType = msgspec.UNSET


class GroupOffset(msgspec.Struct, forbid_unknown_fields=True):
    group: str
    topic: str
    partition: _Offset
    offset: _Offset
    metadata: str


class Manifest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """``archive.json``.

    Args:
        groups: the positions of all consumer groups, where every topic was archived.
        selected: the archive has a selection of the records.
    """

    schema: str
    partitions: list[ArchivedPartition]
    groups: list[GroupOffset] = []
    selected: bool = False


class ArchivedOffsets(NamedTuple):
    """What the manifests of some archives say, by topic and partition.

    Args:
        joined: of partitions of calls, the first offset that the join had not committed.
        last: the last offset in the archive.
    """

    joined: dict[PartitionPlace, int]
    last: dict[PartitionPlace, int]


def manifest_bytes(
    ends: Mapping[PartitionPlace, int],
    joined: Mapping[PartitionPlace, int],
    last: Mapping[PartitionPlace, int],
    *,
    firsts: Mapping[PartitionPlace, int] | None = None,
    groups: Iterable[GroupOffset] = (),
    selected: bool = False,
) -> bytes:
    partitions = [
        ArchivedPartition(
            *place, end, joined.get(place), last.get(place, msgspec.UNSET), (firsts or {}).get(place, msgspec.UNSET)
        )
        for place, end in sorted(ends.items())
    ]
    return msgspec.json.encode(Manifest(_SCHEMA, partitions, list(groups), selected)) + b"\n"


def archived_offsets(paths: Iterable[Path]) -> ArchivedOffsets:
    """Read the manifests beside some files; nothing for files without one.

    Raises:
        InputError: ``bad_archive_manifest``, ``unreadable_file``.
    """
    found = ArchivedOffsets({}, {})
    for path in sorted({path.parent / ARCHIVE_MANIFEST for path in paths}):
        manifest = read_manifest(path)
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


def read_manifest(path: Path) -> Manifest | None:
    """Return the manifest of an archive, ``None`` if there is none.

    Raises:
        InputError: ``bad_archive_manifest``, ``unreadable_file``.
    """
    if not path.exists():
        return None
    with reading(path), path.open("rb") as file:
        raw = file.read(DEFAULT_LIMITS.record_bytes_max + 1)
    try:
        manifest = msgspec.json.decode(raw, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError):
        manifest = None
    if manifest is None or manifest.schema != _SCHEMA:
        raise InputError("bad_archive_manifest", f"{path} is not an archive manifest: move it away, or archive again")
    return manifest


_RECORDS = re.compile(r".+\.(ndjson|jsonl)(\.gz|\.zst)?")
RESULTS = ("evidence", "alerts", "definitions", "changes", "rejected", "checkpoints", "state-")
"""How the files of a replay, of `seal archive`, and of topics that are no observations start."""
_NAMED_MAX = 8


def files_in(
    path: Path, kind: str | tuple[str, ...] | None = None, skipped: Callable[[str], object] = lambda _: None
) -> Iterator[Path]:
    """Yield the files that a path stands for: itself, or of a folder those that hold records of a kind, by name.

    Args:
        kind: how the names of its files start, one or several of ``RESULTS``; ``None`` for observations: everything
            that is no result, and the manifest of an archive.
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
    named = ", ".join(f"{each}*.ndjson" for each in ((kind,) if isinstance(kind, str) else kind or ()))
    if not found:
        wanted = "of observations (*.ndjson, *.jsonl)" if kind is None else f"named {named}"
        hint = "give another folder, or the file itself"
        if kind is None and any(map(_RECORDS.fullmatch, names)):
            hint = "these are results. Give what was observed, or these with --evidence if the command has that option"
        raise InputError("unreadable_file", f"{path} has no file {wanted}: {hint}")
    others = [name for name in names if name not in found and name != ARCHIVE_MANIFEST]
    if kind is not None:
        # Results of other kinds are not asked for; other records may be meant.
        others = [name for name in others if _RECORDS.fullmatch(name) and not name.startswith(RESULTS)]
    if others:
        more = f" and {len(others) - _NAMED_MAX} more" if len(others) > _NAMED_MAX else ""
        why = "named like results of a replay, or not *.ndjson or *.jsonl" if kind is None else f"not {named}"
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


def read_files(paths: Iterable[Path], *, too_long: TooLong | None = None) -> Iterator[Record]:
    """Yield the records of some files, one after the other, each in its order.

    A line of neither kind becomes a record all the same: the engine says what is wrong with it, so that it ends among
    the rejected records with its reason. The manifest of an archive is skipped, so that a whole folder can be given.

    Args:
        too_long: as in ``open_archive``; such a line becomes a record that the engine refuses for its size.

    Raises:
        InputError: as ``open_archive``; ``bad_record_line``.
    """
    for path in paths:
        if path.name != ARCHIVE_MANIFEST:
            lines = open_archive(path, of=observation_lines, too_long=too_long)
            yield from read_lines(lines, name=path_text(path.name))


def open_archive(
    path: Path, *, of: Callable[..., Iterator[bytes]] | None = None, too_long: TooLong | None = None
) -> Iterator[bytes]:
    """Yield the lines of a file; an error says how far it was read.

    Args:
        of: splits it into lines, ``lines_of`` by default.
        too_long: gets the error of a line over the limit, whose beginning is then given; without it that is an
            error.

    Raises:
        InputError: ``line_too_long``; as ``opened``.
    """
    count = 0
    try:
        with opened(path) as stream:
            for line in (of or lines_of)(stream, name=str(path), too_long=too_long):
                yield line
                count += 1
    except InputError as error:
        if not error.code.startswith("archive_"):
            raise
        raise InputError(error.code, f"{error.message} ({path}: {count} whole lines were read)") from None


_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE = b"\x2a\x4d\x18"
"""Behind a byte from 0x50 to 0x5f: a frame to skip (RFC 8878, 3.1.2), with which pzstd begins its files."""
_ZSTD_PIECE_BYTES = 256
"""Fed to the decompressor at once: four bytes can make a block of 128 KiB, so this makes 8 MiB at most."""
_ONE_GZIP_MEMBER: Final = 16 + zlib.MAX_WBITS
_GZIP_PIECE_BYTES: Final = 1 << 16


@contextmanager
def opened(
    path: Path, *, decoded_bytes_max: int = ARCHIVE_DECODED_BYTES_MAX, one_member: bool = False
) -> Iterator[BinaryIO]:
    """Open a file for reading, decompressing it if necessary.

    Args:
        one_member: whether a gzip file must be one member, with nothing behind it.

    Raises:
        InputError: ``unreadable_file``; while reading ``archive_truncated``, ``archive_damaged``,
            ``archive_too_large``, or ``bundle_member`` where it must be one member and is not.
    """
    with reading(path):
        raw = path.open("rb")
    with raw:
        with reading(path):
            magic = raw.read(4)
            raw.seek(0)
        if not magic and path.suffix in (".gz", ".zst"):
            raise InputError("archive_truncated", f"{path.name} is empty, not a compressed file: fetch it again")
        if magic.startswith(_GZIP):
            stream: Any = _GzipMember(raw) if one_member else gzip.GzipFile(fileobj=raw)
        elif magic == _ZSTD or (magic[1:] == _ZSTD_SKIPPABLE and magic[0] >> 4 == 5):
            # The library refuses frames that need more memory than this.
            stream = _Frames(zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES_MAX), raw)
        else:
            stream = raw
        # typeshed asks for a RawIOBase that is a BinaryIO too; at run time it is one.
        yield cast("BinaryIO", io.BufferedReader(_Bounded(stream, path.name, decoded_bytes_max), 1 << 16))


def is_gzip(path: Path) -> bool:
    """Return True if a file starts with the gzip magic; False if it cannot be read."""
    try:
        with path.open("rb") as raw:
            return raw.read(2) == _GZIP
    except OSError:
        return False


def write_archive(path: Path) -> BinaryIO:
    """Open a new archive for writing; its suffix picks the compression: ``.gz``, ``.zst``, anything else for none.

    Raises:
        OSError: if it cannot be written.
    """
    if path.suffix == ".gz":
        raw = path.open("wb")
        # No name and no time: the same records give the same bytes.
        packed = gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=raw, mtime=0)
        packed.myfileobj = raw  # type: ignore[assignment]  # closed with it
        return cast(BinaryIO, packed)
    if path.suffix == ".zst":
        return cast(BinaryIO, zstandard.open(path, "wb"))
    return path.open("wb")


class _GzipMember:
    """A file that is one gzip member to its last byte.

    ``gzip.GzipFile`` reads several members as one and skips zeros behind them: it would read two files where another
    reader sees one.
    """

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._decompressor = zlib.decompressobj(_ONE_GZIP_MEMBER)

    def read(self, size: int) -> bytes:
        while not self._decompressor.eof:
            piece = self._decompressor.unconsumed_tail or self._raw.read(_GZIP_PIECE_BYTES)
            if not piece:
                raise EOFError
            data = self._decompressor.decompress(piece, size)
            if data:
                return data
        if self._decompressor.unused_data or self._raw.read(1):
            raise InputError(
                "bundle_member", "something follows the compressed data: a bundle is one gzip member and no more"
            )
        return b""


class _Frames:
    """The frames of a zstd file, one behind the other; the library's own reader does not report a truncated one."""

    def __init__(self, decompressor: Any, raw: BinaryIO) -> None:
        self._decompressor = decompressor
        self._raw = raw
        self._object: Any = None
        self._rest = b""
        self._ready = memoryview(b"")

    def read(self, size: int) -> bytes:
        while not self._ready:
            piece = self._rest or self._raw.read(_ZSTD_PIECE_BYTES)
            if not piece:
                if self._object is not None:
                    raise EOFError
                return b""
            if self._object is None:
                self._object = self._decompressor.decompressobj()
            self._ready = memoryview(self._object.decompress(piece))
            self._rest = b""
            if self._object.eof:
                self._rest = self._object.unused_data
                self._object = None
        part, self._ready = self._ready[:size], self._ready[size:]
        return bytes(part)


class _Bounded(io.RawIOBase):
    """Counts what is read, and turns errors of a decompressor into ours."""

    def __init__(self, stream: Any, name: str, bytes_max: int) -> None:
        super().__init__()
        self._stream = stream
        self._name = name
        self._left = self._bytes_max = bytes_max

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._stream.read(len(buffer))
        except EOFError:
            raise InputError(
                "archive_truncated", f"{self._name} ends in the middle of its compressed data: fetch it again"
            ) from None
        except (zlib.error, gzip.BadGzipFile, zstandard.ZstdError) as error:
            raise InputError(
                "archive_damaged", f"{self._name} is a damaged compressed file ({type(error).__name__}): fetch it again"
            ) from None
        except OSError as error:
            raise InputError("unreadable_file", f"cannot read {self._name}: {error.strerror}") from None
        self._left -= len(data)
        if self._left < 0:
            raise InputError("archive_too_large", f"{self._name} holds over {self._bytes_max} bytes once decompressed")
        buffer[: len(data)] = data
        return len(data)
