"""Records of many logs, given back log by log in the order of their offsets, within bounded memory."""

from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import NamedTuple

from assay_stream.errors import InputError
from assay_stream.files.spool import Spool, SpoolRow, StreamRows
from assay_stream.limits.files import ARCHIVE_LOGS_MAX
from assay_stream.model.record import Origin, Record, Role, made_of


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
