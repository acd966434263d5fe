"""Facts of one partition of the binding topic on a local disk, and the offset up to which they stand.

A cache of the topic. Facts, offset and sums change in one transaction, without waiting for the disk: what a crash of
the machine leaves behind is found out by its sums, and read from the topic again.

1. A file is read as a whole when it is opened: each row has a sum, and the head has the sum of all rows.
2. What stands in memory of each server, the number of its rows and their sum, must be what is read later.
3. A fact that cannot be written stays in memory, and is written as soon as the disk takes it.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import orjson

from assay_stream.errors import ConfigurationError, IntegrityError, OperatingError
from assay_stream.limits.files import STATE_LOG_PAGES

FORMAT = 1
"""Version of the file's format: a file of another one is not read."""

_SCHEMA = """
CREATE TABLE head (id INTEGER PRIMARY KEY CHECK (id = 0), text BLOB NOT NULL, sum INTEGER NOT NULL);
CREATE TABLE facts (
    server BLOB NOT NULL, key BLOB NOT NULL, place INTEGER NOT NULL, value BLOB NOT NULL, sum INTEGER NOT NULL,
    PRIMARY KEY (server, key)
) WITHOUT ROWID;
"""
_SUM_BITS = 32
_SUM_MASK = (1 << _SUM_BITS) - 1
_PRIMARY_CODE = 0xFF
_CORRUPT = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_UNREADABLE = (sqlite3.Error, TypeError, ValueError, KeyError, OverflowError, MemoryError)


class Stand(NamedTuple):
    """How far a store has come.

    Attributes:
        offset: the first offset whose record is not in it.
        at_ms: a time, milliseconds since the epoch, at which the log held nothing that is not in it.
        witnesses: offset and sum of records before ``offset``: a log without them is another log.
    """

    offset: int = 0
    at_ms: int = 0
    witnesses: tuple[tuple[int, int], ...] = ()


class Unusable(Exception):  # noqa: N818 -- no failure: the topic is read instead
    """A file that is not used; its text says why."""


def witness(offset: int, key: bytes | None, value: bytes | None) -> tuple[int, int]:
    """Return what a log is known again by: the offset of a record, and a sum of its content."""
    return offset, crc32(b"-" if value is None else b"+" + value, crc32(key or b""))


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make a folder if it is missing, and keep other processes out of it.

    Raises:
        ConfigurationError: ``state_dir_in_use``.
        OperatingError: ``state_dir_failed``.
    """
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise _failed(folder, error.strerror or str(error)) from None
    try:
        with suppress(ModuleNotFoundError):  # Windows
            import fcntl

            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigurationError(
                    "state_dir_in_use",
                    f"another worker keeps its state in {folder}: give each worker a folder of its own",
                ) from None
        yield
    finally:
        os.close(handle)


class StateStore:
    """The facts of a partition. Not thread-safe: opened anywhere, then used by one thread at a time.

    Args:
        path: the file. It is made if missing.
        identity: names the log: cluster, topic and partition.
        cache_kib: pages that are kept in memory, kibibytes.

    Raises:
        Unusable: the file is damaged, of another version or of another log.
        OperatingError: ``state_dir_failed``.
    """

    def __init__(self, path: Path, identity: Mapping[str, Any], *, cache_kib: int) -> None:
        self._path = path
        self._identity = {"format": FORMAT, **identity}
        self._index: dict[str, int] = {}
        """Rows of each server: their number, then the sum of their sums."""
        self._pending: dict[str, dict[bytes, tuple[int, bytes | None]]] = {}
        self.stand = Stand()
        self.pending = 0
        """Facts and tombstones that are not written yet."""
        is_new = not path.exists()
        try:
            if is_new:
                path.touch(mode=0o600)
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        except (OSError, sqlite3.Error) as error:
            raise _failed(path.parent, str(error)) from None
        try:
            if is_new:
                self._connection.execute("PRAGMA page_size = 8192")
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = OFF")
            self._connection.execute(f"PRAGMA wal_autocheckpoint = {STATE_LOG_PAGES}")
            self._connection.execute(f"PRAGMA cache_size = -{cache_kib}")
            if is_new:
                self._connection.executescript(_SCHEMA)
                self.commit(self.stand)
            else:
                self._load()
        except Unusable:
            self._connection.close()
            raise
        except _UNREADABLE as error:
            self._connection.close()
            if is_new:
                raise _failed(path.parent, str(error)) from None
            raise Unusable("damaged") from None

    @property
    def servers(self) -> set[str]:
        """Every server that has facts."""
        return self._index.keys() | self._pending.keys()

    def __contains__(self, server_id: str) -> bool:
        return server_id in self._index or server_id in self._pending

    def write(self, server_id: str, key: bytes, value: bytes | None, place: int) -> None:
        """Take in a fact of a server, or with ``None`` take it back; it is on disk after the next ``commit``.

        Args:
            place: its offset.
        """
        facts = self._pending.setdefault(server_id, {})
        self.pending += key not in facts
        facts[key] = (place, value)

    def facts(self, server_id: str) -> list[tuple[bytes, bytes]]:
        """Return key and value of all facts of a server, in the order of the log.

        Raises:
            IntegrityError: ``state_dir_damaged``; the file is removed.
        """
        name, count, total = server_id.encode(), 0, 0
        found: dict[bytes, tuple[int, bytes | None]] = {}
        try:
            if server_id in self._index:
                for key, place, value, row_sum in self._connection.execute(
                    "SELECT key, place, value, sum FROM facts WHERE server = ?", (name,)
                ):
                    if _sum(name, key, place, value) != row_sum:
                        raise ValueError
                    found[key] = (place, value)
                    count, total = count + 1, total + row_sum
            if count << _SUM_BITS | total & _SUM_MASK != self._index.get(server_id, 0):
                raise ValueError
        except _UNREADABLE:
            raise self._damaged() from None
        found |= self._pending.get(server_id, {})
        ordered = sorted((place, key, value) for key, (place, value) in found.items() if value is not None)
        return [(key, value) for _, key, value in ordered]

    def commit(self, stand: Stand) -> None:
        """Write what was taken in, and how far that goes.

        Raises:
            OperatingError: ``state_dir_failed``. Everything stays in memory, and a later commit writes it.
            IntegrityError: ``state_dir_damaged``; the file is removed.
        """
        index = dict.fromkeys(self._pending, 0)
        puts: list[tuple[bytes, bytes, int, bytes, int]] = []
        drops: list[tuple[bytes, bytes]] = []
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            for server_id, facts in self._pending.items():
                index[server_id] = self._changed(server_id.encode(), facts, self._index.get(server_id, 0), puts, drops)
            connection.executemany("DELETE FROM facts WHERE server = ? AND key = ?", drops)
            connection.executemany("REPLACE INTO facts VALUES (?, ?, ?, ?, ?)", sorted(puts))
            rows, total = self._totals(index)
            head = orjson.dumps({**self._identity, **stand._asdict(), "rows": rows, "sum": total})
            connection.execute("REPLACE INTO head VALUES (0, ?, ?)", (head, crc32(head)))
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            if getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE in _CORRUPT:
                # No later attempt would do better, and facts would gather in memory for ever.
                raise self._damaged() from None
            raise _failed(self._path.parent, str(error)) from None
        self._rows_sum = rows, total
        for server_id, packed in index.items():
            if packed:
                self._index[server_id] = packed
            else:
                self._index.pop(server_id, None)
        self._pending.clear()
        self.pending = 0
        self.stand = stand

    _rows_sum = (0, 0)
    """Number of all rows, and the sum of their sums."""

    def _changed(
        self,
        server: bytes,
        facts: Mapping[bytes, tuple[int, bytes | None]],
        packed: int,
        puts: list[tuple[bytes, bytes, int, bytes, int]],
        drops: list[tuple[bytes, bytes]],
    ) -> int:
        """Add the rows of a server that change to lists; returns the number of its rows and their sum then."""
        count, total = packed >> _SUM_BITS, packed & _SUM_MASK
        for key, (place, value) in facts.items():
            if packed:
                old = self._connection.execute(
                    "SELECT sum FROM facts WHERE server = ? AND key = ?", (server, key)
                ).fetchone()
                if old is not None:
                    count, total = count - 1, total - int(old[0])
                    if value is None:
                        drops.append((server, key))
            if value is not None:
                row_sum = _sum(server, key, place, value)
                puts.append((server, key, place, value, row_sum))
                count, total = count + 1, total + row_sum
        return count << _SUM_BITS | total & _SUM_MASK

    def _totals(self, changed: Mapping[str, int]) -> tuple[int, int]:
        rows, total = self._rows_sum
        for server_id, packed in changed.items():
            before = self._index.get(server_id, 0)
            rows += (packed >> _SUM_BITS) - (before >> _SUM_BITS)
            total += (packed & _SUM_MASK) - (before & _SUM_MASK)
        return rows, total & _SUM_MASK

    def _load(self) -> None:
        """Read the head and every row.

        Raises:
            Unusable: they are not what was written.
        """
        text, head_sum = self._connection.execute("SELECT text, sum FROM head").fetchone()
        if crc32(text) != head_sum:
            raise Unusable("damaged")
        head = orjson.loads(text)
        if head["format"] != FORMAT:
            raise Unusable("other_version")
        if any(head[name] != value for name, value in self._identity.items()):
            raise Unusable("other_deployment")
        sums: dict[bytes, int] = {}
        before = (b"", b"")
        for server, key, place, value, row_sum in self._connection.execute(
            "SELECT server, key, place, value, sum FROM facts"
        ):
            # Rows out of order are read here and not found later.
            if _sum(server, key, place, value) != row_sum or (server, key) <= before:
                raise Unusable("damaged")
            before = (server, key)
            known = sums.get(server, 0)
            sums[server] = ((known >> _SUM_BITS) + 1 << _SUM_BITS) | (known + row_sum) & _SUM_MASK
        rows, total = sum(each >> _SUM_BITS for each in sums.values()), sum(sums.values()) & _SUM_MASK
        if (rows, total) != (head["rows"], head["sum"]):
            raise Unusable("damaged")
        self._rows_sum = rows, total
        self._index = {server.decode(): packed for server, packed in sums.items()}
        witnesses = tuple((offset, content) for offset, content in head["witnesses"])
        self.stand = Stand(head["offset"], head["at_ms"], witnesses)

    def _damaged(self) -> IntegrityError:
        """Remove the file, and return what says so."""
        self.remove()
        return IntegrityError(
            "state_dir_damaged",
            f"{self._path} no longer holds what was written: look at the disk; a restart reads the binding topic",
        )

    def close(self) -> None:
        self._connection.close()

    def remove(self) -> None:
        """Close the file and remove it."""
        with suppress(sqlite3.Error):
            self.close()
        remove(self._path)


def remove(path: Path) -> None:
    """Remove the file of a store, and what belongs to it.

    Raises:
        OperatingError: ``state_dir_failed``.
    """
    try:
        for suffix in ("", "-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
    except OSError as error:
        raise _failed(path.parent, error.strerror or str(error)) from None


def _sum(server: bytes, key: bytes, place: int, value: bytes) -> int:
    return crc32(value, crc32(b"%b %d %d %b" % (server, place, len(key), key)))


def _failed(folder: Path, why: str) -> OperatingError:
    return OperatingError(
        "state_dir_failed",
        f"cannot keep state under {folder} ({why}): the folder must exist, be writable and have room; "
        "without ASSAY_STREAM_STATE_DIR state stays in memory",
    )
