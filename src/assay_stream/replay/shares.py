"""A replay shared by several processes: which calls each of them joins, and how what it writes comes back.

1. A partition of calls belongs to one process, since the place of a call follows from the others of its partition.
2. Each process applies all snapshots and control records, so a call finds in force what it finds in a replay by one.
3. A process gives its calls in their order, each with its place and what the join wrote. Places of two calls are never
   equal, so that merging the processes gives the one order that ``order`` states, for any number of them.
4. Registries, alerts and everything that is written belong to the process that merges.
"""

import marshal
from collections.abc import Iterable, Iterator, Sequence
from zlib import crc32

from assay_stream.files.log_spool import Log, LogSpool, too_many_logs
from assay_stream.limits.files import ARCHIVE_LOGS_MAX
from assay_stream.model.record import Origin, Output, Record, Role, made_of
from assay_stream.replay.order import Placed

BLOCK_BYTES = 128 * 1_024
"""About how much a process hands over at once."""
_ROW_BYTES = 200
_ROLES = {role.value: role for role in Role}
_NO_RECORD = Record(role=Role.CALLS, origin=Origin("", 0, 0), key=None, value=None)
"""A call that was joined elsewhere stays there."""


class CallShare:
    """The partitions of calls that one of several processes joins: ``number``, from 0, of ``of``."""

    def __init__(self, number: int, of: int) -> None:
        self._number, self._of = number, of
        self._known: dict[tuple[str, int], bool] = {}

    @property
    def is_first(self) -> bool:
        """Whether it is the share that hands over snapshots and control records."""
        return self._number == 0

    def takes(self, topic: str, partition: int) -> bool:
        """Tell whether the calls of a partition are in this share."""
        known = self._known.get((topic, partition))
        if known is None:
            place = crc32(topic.encode("utf-8", "backslashreplace")) + partition
            known = self._known[topic, partition] = place % self._of == self._number
        return known


class AppliedSpool(LogSpool):
    """Snapshots and control records; of calls only how many each log has."""

    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[Log, int] = {}

    def note(self, counts: Iterable[tuple[Log, int]]) -> None:
        """Note how many records of each log were handed in to a process.

        Raises:
            InputError: ``too_many_logs``.
        """
        for log, count in counts:
            self._counts[log] = count
            if len(self._counts) > ARCHIVE_LOGS_MAX:
                raise too_many_logs(ARCHIVE_LOGS_MAX, log.topic, log.partition)

    def logs(self) -> list[Log]:
        return sorted(self._counts)

    def count(self, log: Log) -> int:
        return self._counts[log]


def applied_blocks(spool: LogSpool) -> Iterator[bytes]:
    """Yield the snapshots and control records of a spool, packed."""
    rows, size_bytes = [], 0
    for log in spool.logs():
        for record in spool.read(log) if log.role is not Role.CALLS else ():
            rows.append((log.role.value, tuple(record.origin), *record[2:]))
            size_bytes += len(record.value or b"") + _ROW_BYTES
            if size_bytes >= BLOCK_BYTES:
                yield marshal.dumps(rows)
                rows, size_bytes = [], 0
    yield marshal.dumps(rows)


def applied_in(block: bytes) -> Iterator[Record]:
    """Yield the records in a block of ``applied_blocks``."""
    for role, origin, *fields in marshal.loads(block):  # noqa: S302 - written by a process of ours
        yield Record(_ROLES[role], Origin(*origin), *fields)


def joined_blocks(joined: Iterable[tuple[Placed, list[Output]]]) -> Iterator[bytes]:
    """Yield calls in their places, and what the join wrote for each, packed."""
    rows, size_bytes = [], 0
    for placed, written in joined:
        outputs = [(output[0]._value_, *output[1:]) for output in written]
        rows.append((placed[0], placed[1], placed[2], placed[5], outputs))
        size_bytes += _ROW_BYTES
        for output in written:
            size_bytes += len(output[2] or b"")
        if size_bytes >= BLOCK_BYTES:
            yield marshal.dumps(rows)
            rows, size_bytes = [], 0
    yield marshal.dumps(rows)


def joined_in(blocks: Iterable[bytes], numbers: Sequence[int]) -> Iterator[Placed]:
    """Yield the calls in the blocks of ``joined_blocks``, as the merging process numbers their logs.

    Args:
        numbers: the number of each log, in the order in which the other process numbers them.
    """
    roles = _ROLES
    for block in blocks:
        for time_ms, log, offset, latest_ms, outputs in marshal.loads(block):  # noqa: S302 - written by a process of ours
            written = [made_of(Output, (roles[role], *fields)) for role, *fields in outputs]
            yield made_of(Placed, (time_ms, numbers[log], offset, _NO_RECORD, written, latest_ms))
