"""Records put in order within bounded memory: an external merge sort of many streams in one temporary file.

1. Rows gather in memory and go to the file in blocks, stream by stream. The file has no name and is gone with the
   process, however that ends.
2. A block that continues its stream is appended to it. Any other block starts another *run*; runs are merged before
   anything is read, so a stream that arrives in order costs one write and one read.
"""

from __future__ import annotations

import heapq
import marshal
import tempfile
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, field
from operator import itemgetter
from typing import Any, Generic, NamedTuple, Self, TypeVar

from assay_stream.errors import InputError, OperatingError
from assay_stream.limits import ARCHIVE_LOGS_MAX, HELD_BYTES_MAX
from assay_stream.model.record import Origin, Record, Role, made_of

IN_MEMORY_BYTES_MAX = 32 * 1_024 * 1_024
"""Of the file: anything smaller never reaches a disk."""
BLOCK_BYTES = 128 * 1_024
_GATHERED_BYTES_MAX = 16 * 1_024 * 1_024
RUNS_MAX = 64
"""Runs merged at once; each needs one block of memory. Fewer where blocks are large."""
_ROW_BYTES = 200
"""What a row takes beside its value, about."""

SpoolRow = tuple[Any, ...]
"""What ``marshal`` writes fast. Only the process that wrote the file reads it."""
Stream = TypeVar("Stream", bound=Hashable)


class _Block(NamedTuple):
    place: int
    length: int
    first: Any
    last: Any


_Run = list[_Block]


@dataclass(slots=True)
class StreamRows:
    rows: list[SpoolRow] = field(default_factory=list)
    size_bytes: int = 0
    count: int = 0
    runs: list[_Run] = field(default_factory=list)


@dataclass(eq=False, repr=False)
class Spool(Generic[Stream]):
    """Takes rows in any order and gives each stream back in the order of its keys; of equal keys the first row.

    Args:
        value_at: index of the bytes that make a row large.
        in_memory_bytes_max: the file stays in memory up to this size.
        block_bytes: about how much is read or written at once.
        runs_max: how many runs are merged at once, 2 or more.
    """

    key: Callable[[SpoolRow], Any]
    _: KW_ONLY
    value_at: int = -1
    in_memory_bytes_max: int = IN_MEMORY_BYTES_MAX
    block_bytes: int = BLOCK_BYTES
    runs_max: int = RUNS_MAX

    def __post_init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=self.in_memory_bytes_max)  # noqa: SIM115 - closed by close()
        self._end = 0
        self._streams: dict[Stream, StreamRows] = {}
        self._gathered_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()
        self._streams.clear()

    def put(self, stream: Stream, row: SpoolRow) -> None:
        """Take a row in.

        Raises:
            OperatingError: ``no_room``.
        """
        gathered = self._streams.get(stream)
        if gathered is None:
            gathered = self._streams[stream] = self._begin(stream)
        gathered.rows.append(row)
        value = row[self.value_at]
        size_bytes = (len(value) if value else 0) + _ROW_BYTES
        gathered.size_bytes += size_bytes
        self._gathered_bytes += size_bytes
        if gathered.size_bytes >= self.block_bytes:
            self._write_gathered(stream, gathered)
        elif self._gathered_bytes >= _GATHERED_BYTES_MAX:
            for other, others in self._streams.items():
                self._write_gathered(other, others)

    def finish(self) -> None:
        """Merge what came out of order; the streams can be read afterwards.

        Raises:
            OperatingError: ``no_room``.
        """
        for stream, gathered in self._streams.items():
            self._write_gathered(stream, gathered)
            while len(gathered.runs) > 1:
                runs, gathered.runs = gathered.runs, []
                while runs:
                    count = _mergeable(runs, self.runs_max)
                    gathered.runs.append(self._merged(stream, runs[:count]))
                    runs = runs[count:]

    def rows(self, stream: Stream, *, after: Any = None) -> Iterator[SpoolRow]:
        """Yield the rows of a stream in the order of their keys; none of a stream that got none.

        Raises:
            OperatingError: ``no_room`` if the temporary file cannot be read.
        """
        gathered = self._streams.get(stream)
        for run in gathered.runs if gathered else ():
            yield from self._rows(run, after)

    def _begin(self, stream: Stream) -> StreamRows:  # noqa: ARG002 - a subclass looks at it
        return StreamRows()

    def _once(self, stream: Stream, rows: Iterable[SpoolRow]) -> Iterator[SpoolRow]:  # noqa: ARG002 - as above
        """Yield sorted rows, of equal keys the first."""
        key, before = self.key, None
        for row in rows:
            if key(row) != before:
                yield row
                before = key(row)

    def _rows(self, run: _Run, after: Any = None) -> Iterator[SpoolRow]:
        for block in run:
            if after is None or block.first > after:
                yield from self._read_block(block)
            elif block.last > after:
                yield from [row for row in self._read_block(block) if self.key(row) > after]

    def _read_block(self, block: _Block) -> list[SpoolRow]:
        try:
            self._file.seek(block.place)
            rows: list[SpoolRow] = marshal.loads(self._file.read(block.length))  # noqa: S302 - written by this process
        except OSError as error:
            raise _no_room(error) from None
        return rows

    def _write_block(self, rows: list[SpoolRow]) -> _Block:
        packed = marshal.dumps(rows)
        try:
            self._file.seek(self._end)
            self._file.write(packed)
        except OSError as error:
            raise _no_room(error) from None
        block = _Block(self._end, len(packed), self.key(rows[0]), self.key(rows[-1]))
        self._end += len(packed)
        return block

    def _write_gathered(self, stream: Stream, gathered: StreamRows) -> None:
        if not gathered.rows:
            return
        self._gathered_bytes -= gathered.size_bytes
        gathered.count += len(gathered.rows)
        gathered.rows.sort(key=self.key)
        block = self._write_block(list(self._once(stream, gathered.rows)))
        gathered.rows, gathered.size_bytes = [], 0
        if gathered.runs and gathered.runs[-1][-1].last < block.first:
            gathered.runs[-1].append(block)
        else:
            gathered.runs.append([block])

    def _merged(self, stream: Stream, runs: list[_Run]) -> _Run:
        merged: _Run = []
        rows: list[SpoolRow] = []
        size_bytes = 0
        for row in self._once(stream, heapq.merge(*(self._rows(run) for run in runs), key=self.key)):
            rows.append(row)
            size_bytes += len(row[self.value_at] or b"") + _ROW_BYTES
            if size_bytes >= self.block_bytes:
                merged.append(self._write_block(rows))
                rows, size_bytes = [], 0
        if rows:
            merged.append(self._write_block(rows))
        return merged


def _mergeable(runs: list[_Run], most: int) -> int:
    """Return how many runs can be merged at once in bounded memory: two at least."""
    size_bytes = 0
    for count, run in enumerate(runs[:most]):
        size_bytes += max(block.length for block in run)
        if size_bytes > HELD_BYTES_MAX and count >= 2:
            return count
    return min(len(runs), most)


def _no_room(error: OSError) -> OperatingError:
    return OperatingError(
        "no_room",
        f"cannot use the temporary file: {error.strerror}. It takes about as much room as the records read: "
        "set TMPDIR to a folder that has it",
    )


class Log(NamedTuple):
    """A partition of a topic, or a file's records of one role."""

    role: Role
    topic: str
    partition: int


_LogKey = tuple[str, str, int]
"""A log by the plain text of its role: hashing an enum takes a call of its own."""
_is_set_aside = itemgetter(-1)


class LogSpool(Spool[_LogKey]):
    """Records of many logs, given back log by log in the order of their offsets.

    A record handed in twice counts once. Two that differ and claim one place are an error, found by ``finish`` at the
    latest.
    """

    def __init__(self, *, logs_max: int = ARCHIVE_LOGS_MAX, **bounds: int) -> None:
        super().__init__(itemgetter(0), value_at=2, **bounds)
        self._logs_max = logs_max

    def add(self, record: Record) -> None:
        """Take a record in.

        Raises:
            InputError: ``conflicting_records``, ``too_many_logs``.
            OperatingError: ``no_room``.
        """
        role, origin, key, value, headers, timestamp_ms, hold_expired, set_aside = record
        row = (origin[2], key, value, headers, timestamp_ms, hold_expired, set_aside)
        self.put((role._value_, origin[0], origin[1]), row)

    def logs(self) -> list[Log]:
        return sorted(Log(Role(role), topic, partition) for role, topic, partition in self._streams)

    def count(self, log: Log) -> int:
        """Return how many records of a log were added, duplicates included."""
        return self._streams[log.role.value, log.topic, log.partition].count

    def read(self, log: Log, *, after: int = -1) -> Iterator[Record]:
        """Yield the records of a log in the order of their offsets.

        Args:
            after: only records behind this offset.

        Raises:
            OperatingError: ``no_room`` if the temporary file cannot be read.
        """
        role, topic, partition = log
        for offset, *content in self.rows((role.value, topic, partition), after=after):
            origin = made_of(Origin, (topic, partition, offset))
            yield made_of(Record, (role, origin, *content))

    def _begin(self, stream: _LogKey) -> StreamRows:
        if len(self._streams) >= self._logs_max:
            raise too_many_logs(self._logs_max, *stream[1:])
        return StreamRows()

    def _once(self, stream: _LogKey, rows: Iterable[SpoolRow]) -> Iterator[SpoolRow]:
        """Yield sorted rows, each once; set aside, where one copy says so."""
        before: SpoolRow | None = None
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
                    f"two different records claim offset (or line) {row[0]} of partition {stream[2]} of "
                    f"{stream[1]}: give each file a name of its own",
                )
        if before is not None:
            yield before


def too_many_logs(logs_max: int, topic: str, partition: int) -> InputError:
    return InputError(
        "too_many_logs",
        f"the records name over {logs_max} logs (partitions of topics), last {topic}/{partition}: "
        "split the archives by topic",
    )
