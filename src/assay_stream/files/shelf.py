"""A shelf on disk: rows of older lists, which a join worker reads back when a call asks about them.

It is a cache of the binding topic: a file without a name, which is gone with its process.
"""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryFile
from weakref import finalize
from zlib import crc32

from assay_stream.errors import IntegrityError, OperatingError

_SUM_BYTES = 4
_SLOT_BYTES = 256
_LENGTH_BITS = 24


class ShelfFile:
    """Rows in a file. A place is the number of its first slot and the length of its text.

    Args:
        folder: where the file is made.

    Raises:
        OperatingError: ``state_dir_failed`` where it cannot be made.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            with TemporaryFile(dir=folder, buffering=0) as unnamed:
                self._file = os.dup(unnamed.fileno())
        except OSError as error:
            raise self._failed(error) from None
        self.close = finalize(self, os.close, self._file)
        self._slots = 0
        self._free: dict[int, list[int]] = {}
        """First slots of free places, by how many slots these have."""

    def put(self, packed: bytes) -> int:
        """Write rows, and return their place.

        Raises:
            OperatingError: ``state_dir_failed`` where the disk is full or fails.
        """
        text = crc32(packed).to_bytes(_SUM_BYTES) + packed
        size = -(-len(text) // _SLOT_BYTES)
        free = self._free.get(size)
        slot = free[-1] if free else self._slots
        try:
            written = 0
            while written < len(text):
                written += os.pwrite(self._file, text[written:], slot * _SLOT_BYTES + written)
        except OSError as error:
            raise self._failed(error) from None
        if free:
            free.pop()
        else:
            self._slots += size
        return slot << _LENGTH_BITS | len(text)

    def get(self, place: int) -> bytes:
        """Read the rows of a place.

        Raises:
            IntegrityError: ``state_dir_damaged`` where they are not what was written.
            OperatingError: ``state_dir_failed`` where the disk fails.
        """
        slot, length = place >> _LENGTH_BITS, place % (1 << _LENGTH_BITS)
        try:
            text = os.pread(self._file, length, slot * _SLOT_BYTES)
        except OSError as error:
            raise self._failed(error) from None
        packed = text[_SUM_BYTES:]
        if len(text) != length or crc32(packed).to_bytes(_SUM_BYTES) != text[:_SUM_BYTES]:
            raise IntegrityError(
                "state_dir_damaged",
                f"the disk under {self._folder} returned something else than was written: use another disk; "
                "a restart reads the lists from the binding topic again",
            )
        return packed

    def free(self, place: int) -> None:
        """Let a place be written again."""
        size = -(-(place % (1 << _LENGTH_BITS)) // _SLOT_BYTES)
        self._free.setdefault(size, []).append(place >> _LENGTH_BITS)

    @property
    def size_bytes(self) -> int:
        """Length of the file."""
        return self._slots * _SLOT_BYTES

    def _failed(self, error: OSError) -> OperatingError:
        return OperatingError(
            "state_dir_failed",
            f"cannot keep lists under {self._folder} ({error.strerror}): the folder must exist, be writable and have "
            "room; a worker without ASSAY_STREAM_STATE_DIR keeps them in memory",
        )
