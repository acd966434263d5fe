"""A spool: observations on disk, in order, for as long as the brokers are away.

A folder of segments, of which the lowest is read and the highest written, a lock, and a cursor: how far the lowest was
delivered. A segment is a row of frames (``observe.spool_frames``). What a crash left unfinished at the end of a segment
is cut; damage costs the records that it hit. A lost cursor repeats records.

It holds what would be published and nothing else: no arguments, results or tokens.
"""

from __future__ import annotations

import itertools
import logging
import os
import re
import stat
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

from assay_stream.errors import ConfigurationError
from assay_stream.limits.files import SPOOL_LIMITS, SpoolLimits
from assay_stream.observe.observation import Observation
from assay_stream.observe.spool_frames import framed, frames
from assay_stream.text.counting import counted

_log = logging.getLogger(__name__)

_SALT_BYTES = 4
_CURSOR = struct.Struct(">QQI")
_NAME = re.compile(r"[0-9]{16}\.seg")
_FIRST = 2**32
"""Number of the first segment: there is room before it for what was taken out before and comes back."""


class Spool:
    """The spool of one process. Not thread-safe: the publisher's thread alone uses it.

    Args:
        folder: made if missing, for its owner alone.
        bytes_max: all segments together.

    Raises:
        ConfigurationError: ``spool_in_use``, ``unwritable_file``.
    """

    def __init__(self, folder: Path, *, bytes_max: int, limits: SpoolLimits = SPOOL_LIMITS) -> None:
        self._folder = folder
        self._bytes_max = bytes_max
        self._limits = limits
        self.lost = 0
        """Records that were damaged on disk, or that the end of a segment was cut off with, which counts as one."""
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _check_owner(folder)
            self._lock = _opened(folder / "lock", os.O_RDWR)
            _take(self._lock, folder)
            self._cursor = _opened(folder / "cursor", os.O_RDWR)
            self._salt = self._salted()
            found = [path for path in folder.iterdir() if _NAME.fullmatch(path.name)]
            self._sizes = {int(path.stem): path.stat().st_size for path in found}
            self._records = {number: self._recovered(number) for number in sorted(self._sizes)}
        except OSError as error:
            raise ConfigurationError("unwritable_file", f"cannot use the spool {folder}: {error.strerror}") from None
        self._read, self._done = self._position()
        self._taken: list[int] = []
        if self.records:
            _log.warning("the spool %s holds %s from before", folder, counted(self.records, "observation"))

    @property
    def records(self) -> int:
        """How many are in it."""
        return sum(self._records.values()) - self._done

    @property
    def size_bytes(self) -> int:
        """What it takes on disk."""
        return sum(self._sizes.values())

    def append(self, observations: Sequence[Observation]) -> int:
        """Add observations behind all others, as many as there is room for, and return how many.

        Raises:
            OSError: if the disk does not take them; then none is in it.
        """
        number = max(self._sizes, default=_FIRST)
        if self._sizes.get(number, 0) >= self._limits.segment_bytes_max:
            number += 1
        return self._write(number, observations)

    def prepend(self, observations: Sequence[Observation]) -> int:
        """Put observations before all others, if there is room for all of them, and return how many were put there.

        Raises:
            OSError: as ``append``.
        """
        return self._write(min(self._sizes, default=_FIRST + 1) - 1, observations, first=True)

    def head(self, records_max: int) -> list[Observation]:
        """Return the oldest observations without taking them out; ``drop`` does that."""
        self._taken = []
        for number in sorted(self._sizes):
            try:
                data = self._path(number).read_bytes()[self._read :]
            except FileNotFoundError:
                data = b""
            found = list(itertools.islice(frames(data, self._salt), records_max))
            if found:
                self._taken = [size_bytes for size_bytes, _, _ in found]
                return [observation for _, _, observation in found]
            _log.error("a segment of the spool is damaged and left out: %s", self._path(number))
            self._remove(number)
        return []

    def drop(self, records: int) -> None:
        """Take the first observations of ``head`` out, since they were delivered or given up.

        Raises:
            OSError: if the disk does not take it.
        """
        if not records:
            return
        number = min(self._sizes)
        self._read += sum(self._taken[:records])
        self._done += records
        del self._taken[:records]
        if self._read >= self._sizes[number] or self._done >= self._records[number]:
            self._remove(number)
        else:
            self._note(number)

    def close(self) -> None:
        """Let another process have it."""
        os.close(self._cursor)
        os.close(self._lock)

    def _salted(self) -> int:
        """Return what checksums begin with: a server cannot know it, so nothing in its lists passes for a record."""
        file = _opened(self._folder / "salt", os.O_RDWR)
        try:
            salt = os.pread(file, _SALT_BYTES, 0)
            if len(salt) < _SALT_BYTES:
                salt = os.urandom(_SALT_BYTES)
                os.pwrite(file, salt, 0)
                os.fsync(file)
        finally:
            os.close(file)
        return int.from_bytes(salt, "big")

    def _remove(self, number: int) -> None:
        self.lost += self._records[number] - self._done
        # First: its number may come again.
        self._read = self._done = 0
        self._note(0)
        self._path(number).unlink(missing_ok=True)
        del self._sizes[number], self._records[number]

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:016}.seg"

    def _write(self, number: int, observations: Sequence[Observation], *, first: bool = False) -> int:
        data = bytearray()
        room_bytes, count = self._bytes_max - self.size_bytes, 0
        for observation in observations:
            frame = framed(observation, self._salt)
            if len(data) + len(frame) > room_bytes:
                break
            data += frame
            count += 1
        if not count or (first and count < len(observations)):
            return 0
        start = self._sizes.get(number, 0)
        file = _opened(self._path(number), os.O_WRONLY)
        try:
            try:
                view = memoryview(data)
                written = 0
                while written < len(data):
                    written += os.pwrite(file, view[written:], start + written)
                os.fsync(file)
            except OSError:
                os.ftruncate(file, start)
                raise
        finally:
            os.close(file)
        self._sizes[number] = start + len(data)
        self._records[number] = self._records.get(number, 0) + count
        if first:
            # What was read of the segment behind it comes again: rather twice than never.
            self._read = self._done = 0
            self._note(0)
        return count

    def _recovered(self, number: int) -> int:
        """Count the records of a segment, and cut what is not whole off its end."""
        path = self._path(number)
        data = path.read_bytes()
        end = records = damaged = 0
        for size_bytes, damaged_before, _ in frames(data, self._salt):
            end += size_bytes
            records += 1
            damaged += damaged_before
        if damaged:
            _log.error("left out, since damaged: %s of %s", counted(damaged, "observation"), path)
        self.lost += damaged
        if end < len(data):
            self.lost += 1
            _log.warning("cut %d bytes that are not whole off %s", len(data) - end, path)
            os.truncate(path, end)
            self._sizes[number] = end
        if not records:
            path.unlink()
            del self._sizes[number]
        return records

    def _position(self) -> tuple[int, int]:
        """Return how many bytes and records of the lowest segment were delivered."""
        self._records = {number: count for number, count in self._records.items() if number in self._sizes}
        raw = os.pread(self._cursor, _CURSOR.size, 0)
        if len(raw) < _CURSOR.size or not self._sizes:
            return 0, 0
        number, read, check = _CURSOR.unpack(raw)
        if number != min(self._sizes) or check != zlib.crc32(raw[:16]) or read > self._sizes[number]:
            return 0, 0
        done = end = 0
        for size_bytes, _, _ in frames(self._path(number).read_bytes(), self._salt):
            if end >= read:
                break
            end += size_bytes
            done += 1
        return (read, done) if end == read else (0, 0)

    def _note(self, number: int) -> None:
        place = struct.pack(">QQ", number, self._read)
        os.pwrite(self._cursor, place + struct.pack(">I", zlib.crc32(place)), 0)


def spool_in(folder: Path | None, *, mib_max: int) -> Spool | None:
    """Return a spool below a folder that several processes share: the first one that none of them uses.

    So a process that starts goes on with what one that has ended left there.

    Args:
        folder: ``None`` for no spool.
        mib_max: what each spool may take, mebibytes.

    Raises:
        ConfigurationError: ``spool_in_use`` if all are in use, ``unwritable_file``.
    """
    if folder is None:
        return None
    for number in range(SPOOL_LIMITS.processes_max):
        try:
            return Spool(folder / str(number), bytes_max=mib_max * 1_024 * 1_024)
        except ConfigurationError as error:
            if error.code != "spool_in_use" or number + 1 == SPOOL_LIMITS.processes_max:
                raise
    raise AssertionError("no spool is allowed for")


def _opened(path: Path, flags: int) -> int:
    return os.open(path, flags | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _check_owner(folder: Path) -> None:
    """Refuse a folder that others may write to: what they put there would be published as ours."""
    status = folder.lstat()
    is_ours = stat.S_ISDIR(status.st_mode) and status.st_uid in (os.geteuid(), 0) and not status.st_mode & stat.S_IWOTH
    if not is_ours:
        raise ConfigurationError(
            "unwritable_file", f"the spool {folder} belongs to others, or all may write to it: give one of your own"
        )


def _take(lock: int, folder: Path) -> None:
    import fcntl

    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise ConfigurationError(
            "spool_in_use", f"another process uses the spool {folder}: give each process a folder of its own"
        ) from None
