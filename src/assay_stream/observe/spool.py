"""A spool: observations on disk, in order, for as long as the brokers are away.

One SQLite file with a row per observation, numbered in the order of delivery. SQLite's lock keeps it to one process,
and what ``append`` took is on disk when it returns. Each row has a checksum: damage costs the rows that it hit.

It holds what would be published and nothing else: no arguments, results or tokens.
"""

from __future__ import annotations

import ctypes
import logging
import os
import sqlite3
import stat
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import orjson

from assay_stream.errors import ConfigurationError
from assay_stream.limits import SPOOL_LIMITS, SpoolLimits
from assay_stream.observe.observation import Observation
from assay_stream.text.escaping import counted

_log = logging.getLogger(__name__)

_PAGE_BYTES = 16_384
"""Large pages waste less space behind records of a kilobyte."""

_SETTINGS = f"""
PRAGMA locking_mode = EXCLUSIVE;
PRAGMA page_size = {_PAGE_BYTES};
PRAGMA auto_vacuum = INCREMENTAL;
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
PRAGMA journal_size_limit = 0;
CREATE TABLE IF NOT EXISTS waiting (place INTEGER PRIMARY KEY, checksum INTEGER NOT NULL, body BLOB NOT NULL);
"""
_READ = "SELECT place, checksum, body FROM waiting WHERE place >= ? ORDER BY place"
_START = -(2**63)


class Spool:
    """The spool of one process. Not thread-safe: for the publisher's thread only.

    Args:
        folder: created if missing, accessible only to its owner.
        bytes_max: limit of the file. SQLite's WAL takes up to 4 MiB plus one transaction in addition.

    Raises:
        ConfigurationError: ``spool_in_use``, ``unwritable_file``.
    """

    def __init__(self, folder: Path, *, bytes_max: int, limits: SpoolLimits = SPOOL_LIMITS) -> None:
        self._path = folder / "queue.db"
        self._bytes_max = bytes_max
        self._limits = limits
        self.lost = 0
        """Records damaged on disk; counts as one where the number is unknown."""
        self.records = 0
        self._first = _START
        """Where the records begin. What is before it is done, but a full disk did not take its removal."""
        self._is_removal_refused = False
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _check_owner(folder)
            self._open()
            self._size_bytes = self._used_bytes()
        except (OSError, sqlite3.Error) as error:
            if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_BUSY:
                raise ConfigurationError(
                    "spool_in_use", f"another process uses the spool {folder}: give each process a folder of its own"
                ) from None
            why = error.strerror if isinstance(error, OSError) else error
            raise ConfigurationError("unwritable_file", f"cannot use the spool {folder}: {why}") from None
        if self.records:
            _log.warning("the spool %s holds %s from before", folder, counted(self.records, "observation"))

    @property
    def size_bytes(self) -> int:
        """Disk space of the records."""
        return self._size_bytes if self.records else 0

    def append(self, observations: Sequence[Observation]) -> int:
        """Append as many observations as fit, and return how many; on ``OSError`` none."""
        if self._first != _START:
            self._remove()
        with self._transaction():
            [first] = self._db.execute("SELECT ifnull(max(place), 0) + 1 FROM waiting").fetchone()
            count = 0
            for place, observation in enumerate(observations, first):
                body = _packed(observation)
                self._db.execute("INSERT INTO waiting VALUES (?, ?, ?)", (place, _checksum(place, body), body))
                if self._used_bytes() > self._bytes_max:
                    self._db.execute("DELETE FROM waiting WHERE place = ?", (place,))
                    break
                count += 1
        self.records += count
        return count

    def head(self, records_max: int) -> list[Observation]:
        """Return the oldest observations without removing them, but for damaged ones; raises ``OSError``."""
        found: list[Observation] = []
        damaged, size_bytes = 0, 0
        with self._transaction(), closing(self._db.execute(_READ, (self._first,))) as rows:
            for place, checksum, body in rows:
                observation = _observation(place, checksum, body)
                if observation is None:
                    damaged += self._db.execute("DELETE FROM waiting WHERE place = ?", (place,)).rowcount
                    continue
                found.append(observation)
                size_bytes += len(body)
                if len(found) >= records_max or size_bytes >= self._limits.head_bytes_max:
                    break
        if damaged:
            self.lost += damaged
            _log.error("left out, since damaged: %s of %s", counted(damaged, "observation"), self._path)
            self.records -= damaged
            self._shrink()
        return found

    def drop(self, records: int) -> None:
        """Skip the first of ``head`` once delivered or given up, and remove them as soon as the disk takes it.

        Raises ``OSError`` if the disk cannot be read.
        """
        with self._transaction():
            [after, gone] = self._db.execute(
                "SELECT max(place) + 1, count(*) FROM"
                " (SELECT place FROM waiting WHERE place >= ? ORDER BY place LIMIT ?)",
                (self._first, records),
            ).fetchone()
        if gone:
            self._first = after
            self.records -= gone
            self._try_to_remove()

    def close(self) -> None:
        if self._first != _START:
            self._try_to_remove()
        self._db.close()

    def abandon(self) -> None:
        """Forget it in a forked child, where closing the file would write to the parent's spool."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._db))

    def _try_to_remove(self) -> None:
        try:
            self._remove()
        except OSError as error:
            if not self._is_removal_refused:
                _log.error("cannot remove what was delivered from %s: %s", self._path, error.strerror)
            self._is_removal_refused = True

    def _remove(self) -> None:
        with self._transaction():
            self._db.execute("DELETE FROM waiting WHERE place < ?", (self._first,))
        self._first = _START  # the numbers of an empty table begin again
        self._shrink()

    def _shrink(self) -> None:
        if not self.records:
            with self._transaction():
                # A script, since ``execute`` takes one step of the statement, which frees one page.
                self._db.executescript("PRAGMA incremental_vacuum")

    def _used_bytes(self) -> int:
        [pages] = self._db.execute("PRAGMA page_count").fetchone()
        [free] = self._db.execute("PRAGMA freelist_count").fetchone()
        return (int(pages) - int(free)) * _PAGE_BYTES

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            with self._db:
                yield
                self._size_bytes = self._used_bytes()
        except sqlite3.Error as error:
            raise OSError(0, str(error)) from None

    def _open(self) -> None:
        for name in ("queue.db", "queue.db-wal", "queue.db-journal"):
            if self._path.with_name(name).is_symlink():
                raise OSError(0, f"{name} is a link")
        # SQLite gives the files beside it the same mode. One that is there is not opened: closing it would let go of
        # the lock that another spool of this process has.
        with suppress(FileExistsError):
            os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        self._db = sqlite3.connect(self._path, timeout=0, check_same_thread=False)
        try:
            self._db.executescript(_SETTINGS)
            [damage] = self._db.execute("PRAGMA quick_check(1)").fetchone()
            [self.records] = self._db.execute("SELECT count(*) FROM waiting").fetchone()
        except sqlite3.DatabaseError as error:
            self._db.close()
            # The low byte is the code without its details.
            if getattr(error, "sqlite_errorcode", 0) & 0xFF not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
                raise
            damage = str(error)
        if damage != "ok":
            self._db.close()
            self._salvage()

    def _salvage(self) -> None:
        """Copy the readable rows of a damaged file, before and behind the damage, to a new one."""
        aside = self._path.with_name("damaged.db")
        _move(self._path, aside)
        self._open()
        try:
            with closing(sqlite3.connect(aside, timeout=0)) as damaged, self._db:
                for order in ("ASC", "DESC"):
                    for row in _readable(damaged, f"{_READ} {order}"):
                        if _observation(*row) is not None:
                            self._db.execute("INSERT OR IGNORE INTO waiting VALUES (?, ?, ?)", row)
        except BaseException:
            # Such as a full disk: the next start tries again.
            self._db.close()
            _move(aside, self._path)
            raise
        [self.records] = self._db.execute("SELECT count(*) FROM waiting").fetchone()
        [missing] = self._db.execute("SELECT ifnull(max(place) - min(place) + 1, 0) - count(*) FROM waiting").fetchone()
        self.lost += max(missing, 1)
        _log.error("%s was damaged; it is now %s, and what could be read was copied", self._path, aside)


def _move(source: Path, target: Path) -> None:
    for suffix in ("", "-wal"):
        Path(f"{target}{suffix}").unlink(missing_ok=True)
        with suppress(FileNotFoundError):
            Path(f"{source}{suffix}").replace(f"{target}{suffix}")


def _readable(damaged: sqlite3.Connection, statement: str) -> Iterator[tuple[int, int, bytes]]:
    """Yield rows up to the first that cannot be read."""
    with suppress(sqlite3.DatabaseError):
        yield from damaged.execute(statement, (_START,))


def spool_in(folder: Path | None, *, mib_max: int) -> Spool | None:
    """Return the first unused spool in a folder: a new process goes on with what an ended one left."""
    if folder is None:
        return None
    for number in range(SPOOL_LIMITS.processes_max):
        try:
            return Spool(folder / str(number), bytes_max=mib_max * 1_024 * 1_024)
        except ConfigurationError as error:
            if error.code != "spool_in_use" or number + 1 == SPOOL_LIMITS.processes_max:
                raise
    raise AssertionError("no spool is allowed for")


def _check_owner(folder: Path) -> None:
    """Refuse a folder that others can write to: their files would be published as ours."""
    status = folder.lstat()
    is_ours = stat.S_ISDIR(status.st_mode) and status.st_uid in (os.geteuid(), 0) and not status.st_mode & stat.S_IWOTH
    if not is_ours:
        raise ConfigurationError(
            "unwritable_file", f"the spool {folder} belongs to others, or all may write to it: give one of your own"
        )


def _checksum(place: int, body: bytes) -> int:
    return zlib.crc32(body, place & 0xFFFF_FFFF)


def _packed(observation: Observation) -> bytes:
    head = [
        observation.kind,
        observation.timestamp_ms,
        observation.key.decode("latin-1"),
        [(name, value.decode("latin-1")) for name, value in observation.headers],
    ]
    return orjson.dumps(head) + b"\n" + observation.value


def _observation(place: int, checksum: object, body: bytes) -> Observation | None:
    """Return the observation in a row; ``None`` if it is damaged or was not written by this program."""
    try:
        if checksum != _checksum(place, body):
            return None
        head, _, value = body.partition(b"\n")
        kind, timestamp_ms, key, headers = orjson.loads(head)
        return Observation(
            kind=kind,
            key=key.encode("latin-1"),
            value=value,
            headers=tuple((name, text.encode("latin-1")) for name, text in headers),
            timestamp_ms=timestamp_ms,
        )
    except (ValueError, TypeError, AttributeError):
        return None
