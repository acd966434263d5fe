"""Which of the recorded observations a replay or an archive takes.

1. A time range is one of the log's timestamps: from its start on, and before its end. It narrows calls. Of
   snapshots and control records everything before its end counts: what was in force rests on all that came before.
2. Offsets are given partition by partition. Of a topic of which one partition is named the others are left out.
3. Server ids narrow calls to those of these servers, and snapshots and control records by their key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from assay_stream.errors import ConfigurationError
from assay_stream.model.record import Record, Role
from assay_stream.model.suppression import ANY_SERVER
from assay_stream.replay.offset_ranges import offset_ranges

Place = tuple[str, int]
Range = tuple[int, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What is asked for; nothing in particular by default.

    Args:
        from_ms: the earliest timestamp of a call, inclusive, milliseconds since the epoch.
        to_ms: the end of the timestamps of all records, exclusive.
        offsets: topic and partition to the first offset and the end, exclusive (``None``: as far as there is).
        server_ids: these servers, all where there is none.
    """

    from_ms: int | None = None
    to_ms: int | None = None
    offsets: Mapping[Place, Range] = field(default_factory=dict)
    server_ids: frozenset[str] = frozenset()

    @property
    def narrows(self) -> bool:
        """Whether it leaves anything out."""
        return self != Selection()

    def range_of(self, topic: str, partition: int) -> Range | None:
        """Return the offsets that are asked for, ``None`` for none of this partition.

        Args:
            topic: topic or file.
            partition: its partition.
        """
        if not any(named == topic for named, _ in self.offsets):
            return (0, None)
        return self.offsets.get((topic, partition))

    def wants(self, record: Record) -> bool:
        """Tell whether a record is taken. Of calls of other servers some are: the replay itself leaves them out.

        Args:
            record: a record of a role that a replay reads.
        """
        if self.to_ms is not None and record.timestamp_ms >= self.to_ms:
            return False
        if self.from_ms is not None and record.role is Role.CALLS and record.timestamp_ms < self.from_ms:
            return False
        if self.offsets:
            asked = self.range_of(record.origin.topic, record.origin.partition)
            if asked is None or record.origin.offset < asked[0]:
                return False
            if asked[1] is not None and record.origin.offset >= asked[1]:
                return False
        return not self.server_ids or self._may_be_of_servers(record)

    def _may_be_of_servers(self, record: Record) -> bool:
        if record.role is not Role.CALLS:
            key = (record.key or b"").decode("utf-8", "replace")
            return key in self.server_ids or key == ANY_SERVER
        # An id may be written in escapes; without any, it stands there as it is.
        value = record.value or b""
        if b"\\" in value or (record.key or b"").decode("utf-8", "replace") in self.server_ids:
            return True
        return any(server_id.encode() in value for server_id in self.server_ids)


def offsets_of(texts: Iterable[str]) -> dict[Place, Range]:
    """Return the offsets that an operator means.

    Args:
        texts: as ``offset_ranges`` takes them, one for each partition at most.

    Raises:
        ConfigurationError: ``bad_offsets``.
    """
    found: dict[Place, Range] = {}
    for topic, partition, first, end in offset_ranges(texts):
        if (topic, partition) in found:
            raise ConfigurationError("bad_offsets", "give each partition one range of offsets")
        found[topic, partition] = (first, end)
    return found
