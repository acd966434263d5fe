"""Files that may be compressed: plain, gzip or zstd, told apart by their first bytes, read and written as streams."""

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import zstandard

from assay_stream.errors import InputError
from assay_stream.files.local import reading
from assay_stream.limits import ARCHIVE_DECODED_BYTES_MAX, ZSTD_WINDOW_BYTES_MAX

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
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
        if magic.startswith(_GZIP):
            stream: Any = _GzipMember(raw) if one_member else gzip.GzipFile(fileobj=raw)
        elif magic == _ZSTD:
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
