"""Which recorded observations a replay takes, and in which order: merged by event time, within bounded memory.

1. Records of one partition stay in the order of their offsets, the order of the registry and of the evidence. A
   record given twice counts once.
2. A snapshot or control record is applied before every call whose event time is not earlier than its own.
3. A call that names a snapshot of its own observer is joined after it, whatever the clocks said; where the name was
   used again, after the first one, as a live join does. An id that only others used leads to the first of theirs.
4. A refused call does not delay others: its time may be what is wrong with it. It goes with the earliest of those
   behind it, as far as ``REFUSED_AHEAD_MAX`` of them, or ``HELD_BYTES_MAX`` bytes, are refused too.
5. Ties: control before snapshots before calls, then topic, partition and offset.

Snapshots and control records are read twice. The first time only their times are noted, because each is applied as
early as the earliest of those behind it in its partition: a number for each, and 32 bytes for the two names of a list.
Calls are read once, a few of each partition at a time.

1. A time range is one of log timestamps: from its start on, and before its end. It narrows calls. Of snapshots and
   control records everything before its end counts, since what was in force rests on all that came before.
2. Offsets are given partition by partition. Naming one partition of a topic leaves the others out.
3. Server ids narrow calls to those of these servers, and snapshots and control records by their key.
"""

from __future__ import annotations

import heapq
import re
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from itertools import takewhile
from typing import NamedTuple

from assay_stream.canonical.decode import read_leniently
from assay_stream.errors import ConfigurationError, InputError
from assay_stream.files.spool import Log, LogSpool
from assay_stream.limits import HELD_BYTES_MAX, Limits
from assay_stream.model.cloudevents import Call, event_time_us, is_binary, read_call, read_event
from assay_stream.model.finding import ANY_SERVER
from assay_stream.model.observation import CallProfile, SnapshotEvent
from assay_stream.model.record import Headers, Record, Role, made_of
from assay_stream.text.times import time_ms_in

OFFSETS_METAVAR = "TOPIC:PARTITION=FIRST..END"
_WRITTEN = re.compile(r"(?P<topic>[^\s:=]+):(?P<partition>[0-9]{1,9})=(?P<first>[0-9]{1,18})?\.\.(?P<end>[0-9]{1,18})?")


class OffsetRange(NamedTuple):
    """A part of one partition of a topic, or of a file: from ``first`` to ``end``, exclusive, ``None`` for no end."""

    topic: str
    partition: int
    first: int
    end: int | None

    def holds(self, topic: str, partition: int, offset: int) -> bool:
        return (topic, partition) == self[:2] and offset >= self.first and (self.end is None or offset < self.end)


def offset_ranges(texts: Iterable[str]) -> tuple[OffsetRange, ...]:
    """Parse ranges written as ``TOPIC:PARTITION=FIRST..END``, either number optional.

    Raises:
        ConfigurationError: ``bad_offsets``.
    """
    ranges = []
    for text in texts:
        match = _WRITTEN.fullmatch(text)
        first = int(match["first"] or 0) if match else 0
        end = int(match["end"]) if match and match["end"] else None
        if match is None or (end is not None and first >= end):
            raise ConfigurationError(
                "bad_offsets", f"write offsets as {OFFSETS_METAVAR}, the end exclusive and after the first"
            )
        ranges.append(OffsetRange(match["topic"], int(match["partition"]), first, end))
    return tuple(ranges)


def offsets_of(texts: Iterable[str]) -> tuple[OffsetRange, ...]:
    """Parse ranges, at most one for each partition; errors are those of ``offset_ranges``."""
    ranges = offset_ranges(texts)
    if len({each[:2] for each in ranges}) < len(ranges):
        raise ConfigurationError("bad_offsets", "give each partition one range of offsets")
    return ranges


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What to take; everything by default.

    Args:
        from_ms: earliest timestamp of a call, inclusive, milliseconds since the epoch.
        to_ms: end of the timestamps of all records, exclusive.
        offsets: at most one range for each partition.
        server_ids: these servers; empty for all.
    """

    from_ms: int | None = None
    to_ms: int | None = None
    offsets: tuple[OffsetRange, ...] = ()
    server_ids: frozenset[str] = frozenset()

    @property
    def narrows(self) -> bool:
        return self != Selection()

    def range_of(self, topic: str, partition: int) -> OffsetRange | None:
        """Return the selected offsets of a partition of a topic or file, ``None`` for none."""
        named = [each for each in self.offsets if each.topic == topic]
        if not named:
            return OffsetRange(topic, partition, 0, None)
        return next((each for each in named if each.partition == partition), None)

    def wants(self, record: Record) -> bool:
        """Return True if a record is selected. Some calls of other servers pass: the replay itself leaves them out."""
        if self.to_ms is not None and record.timestamp_ms >= self.to_ms:
            return False
        if self.from_ms is not None and record.role is Role.CALLS and record.timestamp_ms < self.from_ms:
            return False
        if self.offsets:
            wanted = self.range_of(record.origin.topic, record.origin.partition)
            if wanted is None or not wanted.holds(*record.origin):
                return False
        if not self.server_ids:
            return True
        key = (record.key or b"").decode("utf-8", "replace")
        if record.role is not Role.CALLS:
            return key in self.server_ids or key == ANY_SERVER
        # An id may be written in escapes; without any it stands in the value as it is.
        value = record.value or b""
        return b"\\" in value or key in self.server_ids or any(name.encode() in value for name in self.server_ids)


REFUSED_AHEAD_MAX = 256
"""Refused calls of one partition that wait for the time of those behind them."""

_NAME_BYTES, _TIME_BYTES = 10, 6
_ENTRY_BYTES = _NAME_BYTES + _TIME_BYTES

_RANK = {Role.CONTROL: 0, Role.SNAPSHOTS: 1, Role.CALLS: 2}


class LogPosition(NamedTuple):
    """How far a log was replayed.

    Args:
        latest_ms: of calls: the latest time at which one was joined, milliseconds since the epoch.
    """

    offset: int = -1
    latest_ms: int = 0


_START = LogPosition()


class Placed(NamedTuple):
    """A record in its place in the merged order.

    Args:
        time_ms: event time at which it is applied, milliseconds since the epoch.
        log: number of its log in ``Merge.logs``.
        read: for a call: the event, or why it is refused.
        latest_ms: as in ``Position``.
    """

    time_ms: int
    log: int
    offset: int
    record: Record
    read: Call | InputError | None
    latest_ms: int


class Merge:
    """Everything in a finished spool, in the order stated at the top of this module."""

    def __init__(self, spool: LogSpool, *, limits: Limits, call_profile: CallProfile) -> None:
        self._spool = spool
        self._limits = limits
        self._call_profile: CallProfile = call_profile
        self.logs = sorted(spool.logs(), key=lambda log: (_RANK[log.role], log.topic, log.partition))
        entries = bytearray()
        self._times_ms = {log: self._note_times(log, entries) for log in self.logs if log.role is not Role.CALLS}
        self._named = _NamedTimes(entries)

    def read(self, after: Mapping[Log, LogPosition]) -> Iterator[Placed]:
        """Yield the records in order, from the positions of an earlier replay on."""
        streams = [
            self._calls(number, log, after.get(log, _START))
            if log.role is Role.CALLS
            else self._applied(number, log, after.get(log, _START).offset)
            for number, log in enumerate(self.logs)
        ]
        # Log and offset tell any two records apart: nothing behind them is compared.
        return heapq.merge(*streams)

    def read_applied(self, until: Mapping[Log, LogPosition]) -> Iterator[Placed]:
        """Yield the snapshots and control records in order, up to the positions of an earlier replay."""
        last = [until.get(log, _START).offset for log in self.logs]
        streams = [
            takewhile(lambda placed: placed.offset <= last[placed.log], self._applied(number, log, -1))
            for number, log in enumerate(self.logs)
            if log.role is not Role.CALLS
        ]
        return heapq.merge(*streams)

    def _note_times(self, log: Log, entries: bytearray) -> array[int]:
        """Return when each record of a registry's partition is applied, and add the names of snapshots to entries."""
        times_ms = array("q")
        names: list[bytes] = []
        for record in self._spool.read(log):
            time_ms, name = self._date(record)
            times_ms.append(time_ms)
            names.append(name)
        for index in range(len(times_ms) - 2, -1, -1):
            times_ms[index] = min(times_ms[index], times_ms[index + 1])
        for time_ms, name in zip(times_ms, names, strict=True):
            for start in range(0, len(name), _NAME_BYTES):
                entries += name[start : start + _NAME_BYTES] + time_ms.to_bytes(_TIME_BYTES)
        return times_ms

    def _applied(self, number: int, log: Log, after: int) -> Iterator[Placed]:
        for time_ms, record in zip(self._times_ms[log], self._spool.read(log), strict=True):
            if record.origin.offset > after:
                yield Placed(time_ms, number, record.origin.offset, record, None, 0)

    def _calls(self, number: int, log: Log, after: LogPosition) -> Iterator[Placed]:
        limits, profile, named = self._limits, self._call_profile, self._named
        latest_ms = after.latest_ms
        held: deque[Placed] = deque()
        earliest_ms: deque[int] = deque()  # rising: of those held, each with no earlier one behind it
        held_bytes = 0
        for record in self._spool.read(log, after=after.offset):
            offset = record.origin.offset
            refusal = None
            try:
                event = read_call(record, limits=limits, call_profile=profile)
            except InputError as error:
                # A copy, since the traceback of this one holds on to everything decoded.
                refusal = InputError(error.code, error.message, path=error.path)
            if refusal is not None:
                own_ms = max(latest_ms, time_of_refused_ms(record, limits))
                held.append(Placed(own_ms, number, offset, record, refusal, latest_ms))
                held_bytes += len(record.value or b"")
                while earliest_ms and earliest_ms[-1] > own_ms:
                    earliest_ms.pop()
                earliest_ms.append(own_ms)
                while len(held) > REFUSED_AHEAD_MAX or (held_bytes > HELD_BYTES_MAX and len(held) > 1):
                    first = held.popleft()
                    held_bytes -= len(first.record.value or b"")
                    yield first._replace(time_ms=earliest_ms[0])
                    if first.time_ms == earliest_ms[0]:
                        earliest_ms.popleft()
                continue
            time_ms = event.time_us // 1_000
            snapshot_id = event.snapshot_id
            if snapshot_id is not None:
                time_ms = max(time_ms, named.of(event.server_id, event.observer_id, snapshot_id))
            if time_ms > latest_ms:
                latest_ms = time_ms
            if held:
                yield from _released(held, latest_ms)
                earliest_ms.clear()
                held_bytes = 0
            yield made_of(Placed, (latest_ms, number, offset, record, event, latest_ms))
        if held:
            yield from _released(held, held[-1].time_ms)

    def _date(self, record: Record) -> tuple[int, bytes]:
        """Return when a snapshot or control record takes effect, and the two names of a snapshot."""
        event = None
        with suppress(InputError):
            event = read_event(record, limits=self._limits)
        if event is None:
            # Here, where nothing holds on to what was decoded any more.
            return time_of_refused_ms(record, self._limits), b""
        time_ms = event_time_us(event) // 1_000
        if record.timestamp_ms > 0:
            # One that the registry refuses takes effect at log time; another may be applied early.
            time_ms = min(time_ms, record.timestamp_ms)
        if isinstance(event, SnapshotEvent):
            data = event.data
            return time_ms, b"".join(_names(data.server_id, data.observer_id, data.snapshot_id))
        return time_ms, b""


class _NamedTimes:
    """Time at which the first list of each name is applied, as sorted digests of names with a time each."""

    def __init__(self, entries: bytearray) -> None:
        parts = (bytes(entries[start : start + _ENTRY_BYTES]) for start in range(0, len(entries), _ENTRY_BYTES))
        self._entries = b"".join(sorted(parts))

    def of(self, server_id: str, observer_id: str, snapshot_id: str) -> int:
        """Return the time of the observer's list with this id, else of another observer's, else 0."""
        for name in _names(server_id, observer_id, snapshot_id):
            number = bisect_left(range(len(self._entries) // _ENTRY_BYTES), name, key=self._entry)
            entry = self._entry(number)
            if entry.startswith(name):
                return int.from_bytes(entry[_NAME_BYTES:])
        return 0

    def _entry(self, number: int) -> bytes:
        return self._entries[number * _ENTRY_BYTES : (number + 1) * _ENTRY_BYTES]


@lru_cache(1_024)
def _names(server_id: str, observer_id: str, snapshot_id: str) -> tuple[bytes, bytes]:
    """Return the digests of a snapshot id for one observer, and for any."""
    own, anybodys = repr((server_id, observer_id, snapshot_id)), repr((server_id, snapshot_id))
    return (
        blake2b(own.encode(), digest_size=_NAME_BYTES).digest(),
        blake2b(anybodys.encode(), digest_size=_NAME_BYTES).digest(),
    )


def _released(held: deque[Placed], following_ms: int) -> list[Placed]:
    """Return held refused calls, none of them later than what follows it."""
    released = []
    while held:
        placed = held.pop()
        following_ms = min(placed.time_ms, following_ms)
        released.append(placed._replace(time_ms=following_ms))
    released.reverse()
    return released


def time_of_refused_ms(record: Record, limits: Limits) -> int:
    """Return the log time of a refused record, when its rejection takes effect; of a call without one, its claim."""
    latest_ms = limits.time_max_s * 1_000
    if record.timestamp_ms > 0 or record.role is not Role.CALLS:
        return min(max(record.timestamp_ms, 0), latest_ms)
    claimed_ms = None
    if is_binary(record.headers) or not record.value:
        claimed_ms = _header_time_ms(record.headers)
    else:
        content = read_leniently(record.value)
        if isinstance(content, dict):
            claimed_ms = time_ms_in(content.get("time"))
        claimed_ms = _header_time_ms(record.headers) if claimed_ms is None else claimed_ms
    return claimed_ms if claimed_ms is not None and 0 <= claimed_ms <= latest_ms else 0


def _header_time_ms(headers: Headers) -> int | None:
    times = (time_ms_in(value.decode("ascii", "replace")) for name, value in headers if name == "ce_time")
    return next((time_ms for time_ms in times if time_ms is not None), None)
