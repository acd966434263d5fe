"""Evidence and checkpoints in archives of record lines, as ``seal archive`` writes them.

A log is one partition of one topic. A file may hold several; a log may go through several files. What is no record
line of the wanted kind is told by its line, and passed over: the offset that it held is then missing from its log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from assay_stream.errors import InputError
from assay_stream.files.archive import read_lines
from assay_stream.files.compressed import opened
from assay_stream.files.line_reader import lines_of
from assay_stream.model.record import Record, Role
from assay_stream.seal.check import FAULTS_TOLD_MAX

FILE_PREFIX = {Role.EVIDENCE: "evidence-", Role.CHECKPOINTS: "checkpoints-"}
"""How the names of the files in an archive folder begin."""


class LogName(NamedTuple):
    """One partition of one topic.

    Args:
        topic: full name of the topic.
        partition: its partition.
    """

    topic: str
    partition: int


class BadLine(NamedTuple):
    """A line of an archive that is no record line of the wanted kind.

    Args:
        file: name of the file.
        line: number of the line, from 1.
    """

    file: str
    line: int


class Logs(Protocol):
    """Logs of one kind, wherever they are; each can be read several times."""

    def names(self) -> list[LogName]:
        """Return which logs there are, sorted."""

    def records(self, name: LogName) -> Iterator[Record]:
        """Yield the records of a log in its order; none for a log that is not there."""

    def start(self, name: LogName) -> int:
        """Return the offset at which a log begins now."""


class FileLogs:
    """Logs in files.

    Args:
        paths: archives, plain or compressed, and folders of them.
        role: which kind of record they hold.
        starts: partition to the offset at which its log began when the archive was made, where that is not 0.

    Raises:
        InputError: ``unreadable_file``, and as ``compressed.opened``.
    """

    def __init__(self, paths: Iterable[Path], role: Role, *, starts: Mapping[int, int] | None = None) -> None:
        self._role = role
        self._starts = starts or {}
        self._files: dict[LogName, dict[Path, int]] = {}
        """For each log its files, with the first offset in each."""
        self.bad_lines: list[BadLine] = []
        self.bad_lines_count = 0
        for path in _files_of(paths, role):
            for record in self._read(path, tells=True):
                name = LogName(record.origin.topic, record.origin.partition)
                self._files.setdefault(name, {}).setdefault(path, record.origin.offset)

    def names(self) -> list[LogName]:
        """Return which logs there are, sorted."""
        return sorted(self._files)

    def records(self, name: LogName) -> Iterator[Record]:
        """Yield the records of a log: file by file, in the order of their first offsets.

        Args:
            name: which log.
        """
        firsts = self._files.get(name, {})
        for path in sorted(firsts, key=lambda path: firsts[path]):
            for record in self._read(path):
                if (record.origin.topic, record.origin.partition) == name:
                    yield record

    def start(self, name: LogName) -> int:
        """Return the offset at which a log began.

        Args:
            name: which log.
        """
        return self._starts.get(name.partition, 0)

    def _read(self, path: Path, *, tells: bool = False) -> Iterator[Record]:
        with opened(path) as stream:
            # One that is too long is cut, and so no record line.
            lines = lines_of(stream, name=str(path), too_long=lambda _: None)
            for number, line in enumerate(lines, start=1):
                record = record_in(line, path.name, self._role)
                if record is not None:
                    yield record
                elif tells and line.strip():
                    self.bad_lines_count += 1
                    if len(self.bad_lines) < FAULTS_TOLD_MAX:
                        self.bad_lines.append(BadLine(path.name, number))


def record_in(line: bytes, name: str, role: Role) -> Record | None:
    """Return the record that a line holds, ``None`` where it is no record line of this kind.

    Args:
        line: one line.
        name: name of its file.
        role: which kind of record it should hold.
    """
    try:
        found = next(read_lines([line], name=name, roles=(role,)), None)
    except InputError:
        return None
    return found if found is not None and found.role is role else None


def _files_of(paths: Iterable[Path], role: Role) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from sorted(path.glob(f"{FILE_PREFIX[role]}*"))
        else:
            yield path
