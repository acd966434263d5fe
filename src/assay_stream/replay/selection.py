"""Which of the recorded observations a replay or an archive takes.

1. A time range is one of log timestamps: from its start on, and before its end. It narrows calls. Of snapshots and
   control records everything before its end counts, since what was in force rests on all that came before.
2. Offsets are given partition by partition. Naming one partition of a topic leaves the others out.
3. Server ids narrow calls to those of these servers, and snapshots and control records by their key.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from assay_stream.errors import ConfigurationError
from assay_stream.files.archive import PartitionPlace
from assay_stream.model.finding_topic import ANY_SERVER
from assay_stream.model.record import Record, Role

OFFSETS_METAVAR = "TOPIC:PARTITION=FIRST..END"
_WRITTEN = re.compile(r"(?P<topic>[^\s:=]+):(?P<partition>[0-9]{1,9})=(?P<first>[0-9]{1,18})?\.\.(?P<end>[0-9]{1,18})?")

Range = tuple[int, int | None]


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


def offsets_of(texts: Iterable[str]) -> dict[PartitionPlace, Range]:
    """Parse ranges by partition, at most one for each.

    Raises:
        ConfigurationError: ``bad_offsets``.
    """
    found: dict[PartitionPlace, Range] = {}
    for topic, partition, first, end in offset_ranges(texts):
        if (topic, partition) in found:
            raise ConfigurationError("bad_offsets", "give each partition one range of offsets")
        found[topic, partition] = (first, end)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What to take; everything by default.

    Args:
        from_ms: earliest timestamp of a call, inclusive, milliseconds since the epoch.
        to_ms: end of the timestamps of all records, exclusive.
        offsets: topic and partition to the first offset and the end, exclusive (``None`` for no end).
        server_ids: these servers; empty for all.
    """

    from_ms: int | None = None
    to_ms: int | None = None
    offsets: Mapping[PartitionPlace, Range] = field(default_factory=dict)
    server_ids: frozenset[str] = frozenset()

    @property
    def narrows(self) -> bool:
        return self != Selection()

    def range_of(self, topic: str, partition: int) -> Range | None:
        """Return the selected offsets of a partition of a topic or file, ``None`` for none."""
        if not any(named == topic for named, _ in self.offsets):
            return (0, None)
        return self.offsets.get((topic, partition))

    def wants(self, record: Record) -> bool:
        """Return True if a record is selected. Some calls of other servers pass: the replay itself leaves them out."""
        if self.to_ms is not None and record.timestamp_ms >= self.to_ms:
            return False
        if self.from_ms is not None and record.role is Role.CALLS and record.timestamp_ms < self.from_ms:
            return False
        if self.offsets:
            wanted = self.range_of(record.origin.topic, record.origin.partition)
            if wanted is None or record.origin.offset < wanted[0]:
                return False
            if wanted[1] is not None and record.origin.offset >= wanted[1]:
                return False
        return not self.server_ids or self._may_be_of_servers(record)

    def _may_be_of_servers(self, record: Record) -> bool:
        key = (record.key or b"").decode("utf-8", "replace")
        if record.role is not Role.CALLS:
            return key in self.server_ids or key == ANY_SERVER
        # An id may be written in escapes; without any it stands in the value as it is.
        value = record.value or b""
        return b"\\" in value or key in self.server_ids or any(name.encode() in value for name in self.server_ids)
