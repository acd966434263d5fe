"""Records of many logs, given back log by log in the order of their offsets, within bounded memory.

1. What is handed in gathers in memory and is written to one temporary file in blocks, log by log. The file has no
   name, and is gone with the process, however that ends.
2. A block that continues its log is put behind the one before. One that does not begins another *run*; runs are
   merged before anything is given back (an external merge sort), so a log in order costs one write and one read.
3. A record that was handed in twice counts once. Two that differ and claim one place are an error, found before
   anything is given back.
"""

from __future__ import annotations

import heapq
import marshal
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from assay_stream.errors import InputError, OperatingError
from assay_stream.limits import ARCHIVE_LOGS_MAX, HELD_BYTES_MAX
from assay_stream.model.record import Headers, Origin, Record, Role, made_of

IN_MEMORY_BYTES_MAX = 32 * 1_024 * 1_024
"""Of the file: what is smaller is never written to a disk."""
_BLOCK_BYTES = 128 * 1_024
_GATHERED_BYTES_MAX = 16 * 1_024 * 1_024
_RUNS_MAX = 64
"""Runs of one level that are merged at once; each needs one block of memory. Fewer where blocks are large."""
_RECORD_BYTES = 200
"""What a record takes beside its value, about."""

_Row = tuple[int, bytes | None, bytes | None, Headers, int, bool, bool]
"""A record without its log: what ``marshal`` writes fast. The file is read by the process that wrote it alone."""
_offset_of = itemgetter(0)
_is_set_aside = itemgetter(-1)


class Log(NamedTuple):
    """A partition of a topic, or a file's records of one role."""

    role: Role
    topic: str
    partition: int


class _Block(NamedTuple):
    place: int
    length: int
    first: int
    last: int


_Run = list[_Block]


@dataclass(slots=True)
class _Gathered:
    rows: list[_Row] = field(default_factory=list)
    size_bytes: int = 0
    count: int = 0
    levels: list[list[_Run]] = field(default_factory=lambda: [[]])


class LogSpool:
    """Takes records in any order; gives each log back in its own.

    Args:
        in_memory_bytes_max: the file is kept in memory up to this size.
        block_bytes: about how much is read or written at once.
        runs_max: how many runs are merged at once, 2 or more.
        logs_max: how many logs there may be.
    """

    def __init__(
        self,
        *,
        in_memory_bytes_max: int = IN_MEMORY_BYTES_MAX,
        block_bytes: int = _BLOCK_BYTES,
        runs_max: int = _RUNS_MAX,
        logs_max: int = ARCHIVE_LOGS_MAX,
    ) -> None:
        # The caller closes it with the spool.
        self._file = tempfile.SpooledTemporaryFile(max_size=in_memory_bytes_max)  # noqa: SIM115
        self._end = 0
        self._block_bytes = block_bytes
        self._runs_max = runs_max
        self._logs_max = logs_max
        # By the plain text of the role: an enum takes a call of its own to be hashed.
        self._logs: dict[tuple[str, str, int], _Gathered] = {}
        self._gathered_bytes = 0

    def __enter__(self) -> LogSpool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Drop everything."""
        self._file.close()
        self._logs.clear()

    def add(self, record: Record) -> None:
        """Take a record in.

        Args:
            record: of any log.

        Raises:
            InputError: ``conflicting_records``, ``too_many_logs``.
            OperatingError: ``no_room``.
        """
        role, origin, key, value, headers, timestamp_ms, hold_expired, set_aside = record
        place = (role._value_, origin[0], origin[1])
        log = self._logs.get(place)
        if log is None:
            if len(self._logs) >= self._logs_max:
                raise InputError(
                    "too_many_logs",
                    f"the records name over {self._logs_max} logs (partitions of topics), last {origin.topic}/"
                    f"{origin.partition}: split the archives by topic",
                )
            log = self._logs[place] = _Gathered()
        log.rows.append((origin[2], key, value, headers, timestamp_ms, hold_expired, set_aside))
        size = (len(value) if value else 0) + _RECORD_BYTES
        log.size_bytes += size
        self._gathered_bytes += size
        if log.size_bytes >= self._block_bytes:
            self._write_gathered(place, log)
        elif self._gathered_bytes >= _GATHERED_BYTES_MAX:
            for other_place, other in self._logs.items():
                self._write_gathered(other_place, other)

    def finish(self) -> None:
        """Put what came out of order in order; afterwards the logs can be read.

        Raises:
            InputError: ``conflicting_records``.
            OperatingError: ``no_room``.
        """
        for place, log in self._logs.items():
            self._write_gathered(place, log)
            runs = [run for level in log.levels for run in level]
            while len(runs) > 1:
                count = _mergeable(runs, len(runs))
                runs = [*runs[count:], self._merged(_log_at(place), runs[:count])]
            log.levels = [runs]

    def logs(self) -> list[Log]:
        """Return every log there is, in order."""
        return sorted(map(_log_at, self._logs))

    def count(self, log: Log) -> int:
        """Return how many records of a log were handed in, repeated ones counted.

        Args:
            log: one of ``logs``.
        """
        return self._logs[_place_of(log)].count

    def read(self, log: Log, *, after: int = -1) -> Iterator[Record]:
        """Yield the records of a log in the order of their offsets.

        Args:
            log: one of ``logs``.
            after: only those behind this offset.

        Raises:
            OperatingError: ``no_room`` where the temporary file cannot be read.
        """
        role, topic, partition = log
        for run in self._logs[_place_of(log)].levels[0]:
            for offset, *content in self._rows(run, after):
                origin = made_of(Origin, (topic, partition, offset))
                yield made_of(Record, (role, origin, *content))

    def _rows(self, run: _Run, after: int = -1) -> Iterator[_Row]:
        for block in run:
            if block.last <= after:
                continue
            rows = self._read_block(block)
            if block.first <= after:
                rows = [row for row in rows if row[0] > after]
            yield from rows

    def _read_block(self, block: _Block) -> list[_Row]:
        try:
            self._file.seek(block.place)
            rows: list[_Row] = marshal.loads(self._file.read(block.length))  # noqa: S302 - written by this process
        except OSError as error:
            raise _no_room(error) from None
        return rows

    def _write_block(self, rows: list[_Row]) -> _Block:
        packed = marshal.dumps(rows)
        try:
            self._file.seek(self._end)
            self._file.write(packed)
        except OSError as error:
            raise _no_room(error) from None
        block = _Block(self._end, len(packed), rows[0][0], rows[-1][0])
        self._end += len(packed)
        return block

    def _write_gathered(self, place: tuple[str, str, int], log: _Gathered) -> None:
        if not log.rows:
            return
        self._gathered_bytes -= log.size_bytes
        log.count += len(log.rows)
        log.rows.sort(key=_offset_of)
        block = self._write_block(list(_once(_log_at(place), log.rows)))
        log.rows, log.size_bytes = [], 0
        newest = log.levels[0]
        if newest and newest[-1][-1].last < block.first:
            newest[-1].append(block)
            return
        newest.append([block])
        for number, level in enumerate(log.levels):
            if len(level) < self._runs_max and _mergeable(level, self._runs_max) >= len(level):
                break
            if number + 1 == len(log.levels):
                log.levels.append([])
            log.levels[number + 1].append(self._merged(_log_at(place), level))
            log.levels[number] = []

    def _merged(self, log: Log, runs: list[_Run]) -> _Run:
        merged: _Run = []
        rows: list[_Row] = []
        size = 0
        for row in _once(log, heapq.merge(*(self._rows(run) for run in runs), key=_offset_of)):
            rows.append(row)
            size += len(row[2] or b"") + _RECORD_BYTES
            if size >= self._block_bytes:
                merged.append(self._write_block(rows))
                rows, size = [], 0
        if rows:
            merged.append(self._write_block(rows))
        return merged


def _mergeable(runs: list[_Run], most: int) -> int:
    """Return how many of some runs can be merged at once in bounded memory: two at least."""
    size_bytes = 0
    for count, run in enumerate(runs[:most]):
        size_bytes += max(block.length for block in run)
        if size_bytes > HELD_BYTES_MAX and count >= 2:
            return count
    return min(len(runs), most)


def _place_of(log: Log) -> tuple[str, str, int]:
    return log.role.value, log.topic, log.partition


def _log_at(place: tuple[str, str, int]) -> Log:
    role, topic, partition = place
    return Log(Role(role), topic, partition)


def _once(log: Log, rows: Iterable[_Row]) -> Iterator[_Row]:
    """Yield rows that come in order, each once; set aside, where one copy says so."""
    before: _Row | None = None
    for row in rows:
        if before is None or row[0] != before[0]:
            if before is not None:
                yield before
            before = row
        elif row[:-1] == before[:-1]:
            before = max(before, row, key=_is_set_aside)
        else:
            raise InputError(
                "conflicting_records",
                f"two different records claim offset (or line) {row[0]} of partition {log.partition} of "
                f"{log.topic}: give each file a name of its own",
            )
    if before is not None:
        yield before


def _no_room(error: OSError) -> OperatingError:
    return OperatingError(
        "no_room",
        f"the temporary file cannot be used: {error.strerror}. It takes about the size of the calls: "
        "set TMPDIR to a folder with room",
    )
