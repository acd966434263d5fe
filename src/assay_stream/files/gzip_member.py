"""One gzip member and nothing else: what Assay's reader of bundles takes for a gzip file."""

from __future__ import annotations

import zlib
from typing import BinaryIO, Final

from assay_stream.errors import InputError

_GZIP_ALONE: Final = 16 + zlib.MAX_WBITS
_PIECE_BYTES: Final = 1 << 16


class GzipMember:
    """The content of a file that is one gzip member to its last byte.

    ``gzip.GzipFile`` reads several members as one and passes over zeros behind them. Whoever does that reads two
    files where another reader sees one.

    Args:
        raw: the file, from its start.
    """

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._decompressor = zlib.decompressobj(_GZIP_ALONE)

    def read(self, size: int) -> bytes:
        """Return the next bytes, at most so many; none at the end.

        Args:
            size: how many at the most.

        Raises:
            EOFError: where the file ends within the member.
            zlib.error: where the member is damaged.
            InputError: ``bundle_member`` where anything follows the member.
        """
        while not self._decompressor.eof:
            piece = self._decompressor.unconsumed_tail or self._raw.read(_PIECE_BYTES)
            if not piece:
                raise EOFError
            data = self._decompressor.decompress(piece, size)
            if data:
                return data
        if self._decompressor.unused_data or self._raw.read(1):
            raise InputError(
                "bundle_member",
                "something follows the compressed data: a bundle is one gzip member and no more",
            )
        return b""
