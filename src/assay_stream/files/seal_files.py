"""Evidence, checkpoints and keys in files, as ``seal`` writes and reads them.

A log is one partition of one topic. A file may hold several; a log may span several files. A line that is not a record
line of the wanted kind is reported by its number and skipped: the offset it held is then missing from its log.
"""

from __future__ import annotations

import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from assay_stream.errors import InputError, named_in_errors
from assay_stream.files.archive import opened, write_archive
from assay_stream.files.lines import lines_of, read_lines, record_line
from assay_stream.files.local import Aside, reading, writing_to
from assay_stream.files.spool import Spool, too_many_logs
from assay_stream.limits import ARCHIVE_LOGS_MAX
from assay_stream.model.record import Record, Role
from assay_stream.schemes import tlog
from assay_stream.seal.check import FAULTS_TOLD_MAX, LogName, Logs

_KEY_BYTES_MAX = 16_384
_SHARED = stat.S_IWGRP | stat.S_IRWXO


def read_private_key(path: Path, password: str | None) -> Ed25519PrivateKey:
    """Return the private key in a PEM file that only its owner can write, and only its owner and group can read.

    Raises:
        InputError: ``seal_key_missing``, ``unreadable_file``, ``seal_key_exposed``; as ``tlog.load_private_key``,
            with the path in the message.
    """
    new_key = "`assay-stream seal keygen` makes a new one, which continues its chain with --also-trust OLD_PUBLIC_KEY"
    pem = _read(path, new_key)
    if path.stat().st_mode & _SHARED and b"BEGIN PUBLIC KEY" not in pem:
        why = f"others can read or write {path}: chmod 600, and treat the key as known to them"
        raise InputError("seal_key_exposed", why)
    with named_in_errors(path):
        return tlog.load_private_key(pem, password.encode() if password else None)


def read_public_keys(paths: Iterable[Path]) -> dict[str, Ed25519PublicKey]:
    """Load public keys from PEM files, by key id.

    Raises:
        InputError: ``seal_key_missing``, ``unreadable_file``; as ``tlog.load_public_key``, with the path in the
            message.
    """
    keys = []
    for path in paths:
        pem = _read(path, "whoever holds the private key can derive it again")
        with named_in_errors(path):
            keys.append(tlog.load_public_key(pem))
    return tlog.keys_of(keys)


def _read(path: Path, if_lost: str) -> bytes:
    if not path.exists():
        raise InputError("seal_key_missing", f"there is no key file {path}: check the path. If it is lost: {if_lost}")
    with reading(path), path.open("rb") as file:
        return file.read(_KEY_BYTES_MAX)


FILE_PREFIX = {Role.EVIDENCE: "evidence-", Role.CHECKPOINTS: "checkpoints-"}
"""How the names of the files in an archive folder start."""


class BadLine(NamedTuple):
    """A line, numbered from 1, that is not a record line of the wanted kind."""

    file: str
    line: int


class FileLogs:
    """Logs in files.

    Args:
        starts: partition to the offset at which its log started when the archive was made, where that is not 0.

    Raises:
        InputError: ``unreadable_file``, ``too_many_logs``, and as ``archive.opened``.
        OperatingError: ``no_room``: files that hold several logs are sorted by log into a temporary one.
    """

    def __init__(self, paths: Iterable[Path], role: Role, *, starts: Mapping[int, int] | None = None) -> None:
        self._role = role
        self._starts = starts or {}
        self._files: dict[LogName, dict[Path, int]] = {}
        """The files of each log, with the first offset in each."""
        self._mixed: dict[Path, Spool[LogName]] = {}
        """Number and line of the records in files of several logs: to read one for each log takes too long."""
        self.bad_lines: list[BadLine] = []
        self.bad_lines_count = 0
        folders = (path.glob(f"{FILE_PREFIX[role]}*") if path.is_dir() else [path] for path in paths)
        try:
            for path in (file for files in folders for file in sorted(files)):
                self._index(path)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for spool in self._mixed.values():
            spool.close()

    def _index(self, path: Path) -> None:
        names: set[LogName] = set()
        for record in self._read(path, reports=True):
            name = _name_of(record)
            names.add(name)
            self._files.setdefault(name, {}).setdefault(path, record.origin.offset)
            if len(self._files) > ARCHIVE_LOGS_MAX:
                raise too_many_logs(ARCHIVE_LOGS_MAX, *name)
        if len(names) > 1 and path not in self._mixed:
            spool = self._mixed[path] = Spool(itemgetter(0))
            for number, record in enumerate(self._read(path)):
                spool.put(_name_of(record), (number, record_line(record)))
            spool.finish()

    def names(self) -> list[LogName]:
        return sorted(self._files)

    def records(self, name: LogName) -> Iterator[Record]:
        """Yield the records of a log: file by file, in the order of their first offsets."""
        firsts = self._files.get(name, {})
        for path in sorted(firsts, key=lambda path: firsts[path]):
            if path in self._mixed:
                lines = (line for _, line in self._mixed[path].rows(name))
                yield from filter(None, (record_in(line, path.name, self._role) for line in lines))
            else:
                yield from self._read(path)

    def start(self, name: LogName) -> int:
        return self._starts.get(name.partition, 0)

    def _read(self, path: Path, *, reports: bool = False) -> Iterator[Record]:
        with opened(path) as stream:
            # A line that is too long is cut, and so not a record line.
            lines = lines_of(stream, name=str(path), too_long=lambda _: None)
            for number, line in enumerate(lines, start=1):
                record = record_in(line, path.name, self._role)
                if record is not None:
                    yield record
                elif reports and line.strip():
                    self.bad_lines_count += 1
                    if len(self.bad_lines) < FAULTS_TOLD_MAX:
                        self.bad_lines.append(BadLine(path.name, number))


def _name_of(record: Record) -> LogName:
    return LogName(record.origin.topic, record.origin.partition)


def record_in(line: bytes, name: str, role: Role) -> Record | None:
    """Return the record in a line of the file called ``name``, ``None`` if it is not a record line of this role."""
    try:
        found = next(read_lines([line], name=name, roles=(role,)), None)
    except InputError:
        return None
    return found if found is not None and found.role is role else None


def write_logs(folder: Path, evidence: Logs, checkpoints: Logs, *, compress: bool = False) -> dict[str, int]:
    """Copy both kinds of log to a folder, one file for each log that holds something; return the count of each role.

    Raises:
        InputError: ``folder_not_empty``, ``unwritable_folder``.
    """
    with writing_to(folder), Aside() as aside:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise InputError("folder_not_empty", f"{folder} is not empty: archives are never mixed, choose another")
        suffix = ".ndjson.gz" if compress else ".ndjson"
        counts = Counter({Role.CHECKPOINTS.value: 0, Role.EVIDENCE.value: 0})
        for role, logs in ((Role.CHECKPOINTS, checkpoints), (Role.EVIDENCE, evidence)):
            for name in logs.names():
                records = logs.records(name)
                if (first := next(records, None)) is not None:
                    path = aside.path(folder / f"{FILE_PREFIX[role]}{name.partition}{suffix}")
                    with write_archive(path) as file:
                        for record in chain((first,), records):
                            file.write(record_line(record) + b"\n")
                            counts[role.value] += 1
        return counts
