"""The store's file: made, opened and checked; its progress and content.

A store is never migrated: everything in it follows from the topics, so one of another version is rebuilt.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sqlite3
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import zstandard

from assay_stream.errors import ConfigurationError, InputError, OperatingError
from assay_stream.files.local import locked_folder, writing_to
from assay_stream.limits import STORE_CACHE_KIB, STORE_LOG_PAGES, STORE_WAIT_MS
from assay_stream.readmodel.rows import CALL_COLUMNS

KINDS = ("evidence", "alert", "finding", "definition", "decision", "verdict", "tool_fact", "catalogue", "seen", "fact")
"""Tables whose rows are counted."""

FILES_DEPLOYMENT = "files"
"""Deployment of a store that was loaded from files."""


class PositionRow(NamedTuple):
    """How far one log was read.

    Args:
        following: next offset to read.
        end: end offset when the log was last checked, ``None`` if unknown.
        read: records added.
        refused: invalid records.
        lost: offsets that retention deleted before they were read.
        time_us: log time of the last record.
    """

    role: str
    topic: str
    partition: int
    following: int
    end: int | None
    read: int
    refused: int
    lost: int
    time_us: int

    @property
    def lag(self) -> int | None:
        """Number of records not read yet."""
        return None if self.end is None else max(self.end - self.following, 0)


@dataclass(frozen=True, slots=True)
class DropRow:
    """Number of rows of one kind dropped for one bound: ``age``, ``size``, ``server``, or ``erased`` on record."""

    kind: str
    bound: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStatus:
    """What the store holds, and what it lacks.

    Args:
        counts: rows of each kind.
        size_bytes: of its file.
        oldest_us: event time of the earliest stored evidence.
        complete_since_us: evidence before this event time was dropped for age; ``None`` if none was.
        drops: how many rows were dropped, by kind and bound.
        updated_us: latest log time of any record.
        looked_us: when the ends of the logs were last checked, ``None`` if the store is not filled from topics.
    """

    schema_version: int
    deployment: str
    counts: dict[str, int]
    size_bytes: int
    oldest_us: int | None
    newest_us: int | None
    complete_since_us: int | None
    drops: tuple[DropRow, ...]
    updated_us: int | None
    looked_us: int | None
    positions: tuple[PositionRow, ...]

    @property
    def dropped(self) -> int:
        """Number of evidence records dropped for a bound, not by an erasure."""
        return sum(each.rows for each in self.drops if each.kind == "evidence" and each.bound != "erased")

    @property
    def is_live(self) -> bool:
        """Whether the store is filled from topics."""
        return self.deployment not in ("", FILES_DEPLOYMENT)


def used_bytes(connection: sqlite3.Connection) -> int:
    """Return the size of the content, without free pages."""
    pages, free, size = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)


def meta(connection: sqlite3.Connection, name: str, default: Any) -> Any:
    """Return a metadata value of the store."""
    row = connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
    return default if row is None else row[0]


def put_meta(connection: sqlite3.Connection, name: str, value: int | str) -> None:
    connection.execute("INSERT INTO meta VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value", (name, value))


def insert_into(table: str, columns: Collection[str]) -> str:
    """Return the statement that inserts a row with values of these columns, in their order."""
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"  # noqa: S608


def positions_of(connection: sqlite3.Connection) -> tuple[PositionRow, ...]:
    columns = "role, topic, part, next, ends, read, refused, lost, time_us"
    return tuple(PositionRow(*row) for row in connection.execute(f"SELECT {columns} FROM source ORDER BY 1, 2, 3"))  # noqa: S608


def status_of(connection: sqlite3.Connection) -> StoreStatus:
    """Return what a store holds, and what it lacks."""
    # Each record of evidence is a call that is counted.
    kept = {kind: f"count(*) FROM {kind}" for kind in KINDS} | {"evidence": "coalesce(sum(calls), 0) FROM called"}
    rows = connection.execute("SELECT kind, bound, rows FROM dropped ORDER BY kind, bound")
    drops = tuple(DropRow(*row) for row in rows)
    positions = positions_of(connection)
    ends = "SELECT (SELECT min(time_us) FROM evidence), (SELECT max(time_us) FROM evidence)"
    oldest, newest = connection.execute(ends).fetchone()
    return StoreStatus(
        schema_version=SCHEMA_VERSION,
        deployment=meta(connection, "deployment", ""),
        counts={kind: connection.execute(f"SELECT {what}").fetchone()[0] for kind, what in kept.items()},
        size_bytes=used_bytes(connection),
        oldest_us=oldest,
        newest_us=newest,
        complete_since_us=meta(connection, "horizon_us", None),
        drops=drops,
        updated_us=max((row.time_us for row in positions), default=None),
        looked_us=meta(connection, "looked_us", None),
        positions=positions,
    )


SCHEMA_VERSION = 12
"""Raised with every change of the tables or of what is written to them."""
FILE = "store.sqlite3"
_ASIDE, _REPLACED = ".part.store", "replaced"
_SUFFIXES = ("", "-wal", "-shm")
"""The file goes first and comes last: its log without it is passed over, it without its log may be half written."""

_APPLICATION_ID = 0x41535352
REBUILD = (
    "rebuild it from the topics with assay-stream store run --rebuild --store FOLDER, or from files with assay-stream "
    "store load FILES --rebuild --store FOLDER"
)


@contextmanager
def failures(path: object) -> Iterator[None]:
    """Translate SQLite's errors to our own.

    Raises:
        OperatingError: ``store_failing``.
        InputError: ``store_unreadable``.
    """
    try:
        yield
    except (zstandard.ZstdError, orjson.JSONDecodeError) as error:
        raise InputError("store_unreadable", f"{path} is damaged: {REBUILD}") from error
    except sqlite3.DatabaseError as error:
        name, is_failing = getattr(error, "sqlite_errorname", None), isinstance(error, sqlite3.OperationalError)
        if is_failing and name is not None:
            why = f"the store {path} cannot be used now ({name}): check disk and permissions"
            raise OperatingError("store_failing", why) from error
        # Python's own error for such a text has no name.
        what = "holds text that is not UTF-8" if is_failing else f"is no sound store ({name or type(error).__name__})"
        raise InputError("store_unreadable", f"{path} {what}: {REBUILD}") from error


def temporary(secret: bytes = b"") -> sqlite3.Connection:
    """Open a new, empty store that is deleted with its connection. It spills from the page cache to an unnamed file.

    Args:
        secret: key of the hashes in it.
    """
    connection = _connect("")
    connection.execute("PRAGMA journal_mode = MEMORY")
    _create(connection, secret)
    return connection


@contextmanager
def writing(folder: Path, *, rebuild: bool = False) -> Iterator[sqlite3.Connection]:
    """Open a folder's store for its single writer, creating it if there is none.

    Args:
        rebuild: start with an empty store.

    Raises:
        ConfigurationError: ``store_in_use``, ``store_version``.
        InputError: ``unwritable_folder``, ``store_unreadable``.
        OperatingError: ``store_failing``.
    """
    path = folder / FILE
    with ExitStack() as opened:
        with writing_to(folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            opened.enter_context(_only_writer(folder))
            opened.enter_context(failures(path))
            if rebuild:
                _remove(path)
            # SQLite gives its other files the mode of this one.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            connection = opened.enter_context(closing(_connect(str(path))))
            if not _is_store(connection):
                if connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
                    raise InputError("store_unreadable", f"{path} is a database, but no store: choose another folder")
                _create(connection, secrets.token_bytes(16))
            check_version(connection, path)
            connection.execute("PRAGMA journal_mode = WAL")
            # A commit that a power failure undoes takes its positions with it: it is read again.
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(f"PRAGMA wal_autocheckpoint = {STORE_LOG_PAGES}")
            # What the log has grown to while somebody read for long is given back.
            page_bytes = connection.execute("PRAGMA page_size").fetchone()[0]
            connection.execute(f"PRAGMA journal_size_limit = {STORE_LOG_PAGES * page_bytes}")
        yield connection


@contextmanager
def replacing(folder: Path) -> Iterator[sqlite3.Connection]:
    """Build a new store that replaces the folder's one when complete; on failure nothing changes.

    Raises:
        AssayStreamError: as ``writing``.
    """
    aside = folder / _ASIDE
    with writing_to(folder), _only_writer(folder):
        try:
            with writing(aside, rebuild=True) as connection:
                yield connection
            try:
                _move(folder / FILE, aside / _REPLACED, _SUFFIXES)
                (aside / FILE).replace(folder / FILE)
            except BaseException:
                _move(aside / _REPLACED, folder / FILE, _SUFFIXES[::-1])
                raise
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def _remove(path: Path) -> None:
    for suffix in _SUFFIXES:
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def _move(path: Path, to: Path, suffixes: Iterable[str]) -> None:
    for suffix in suffixes:
        with suppress(FileNotFoundError):
            Path(f"{path}{suffix}").replace(f"{to}{suffix}")


@contextmanager
def _only_writer(folder: Path) -> Iterator[None]:
    try:
        with locked_folder(folder):
            yield
    except ConfigurationError as error:
        if error.code != "output_in_use":
            raise
        raise ConfigurationError(
            "store_in_use",
            f"another process is filling the store in {folder}: one store has one writer, stop that first",
        ) from None


def reading(folder: Path) -> sqlite3.Connection:
    """Open a folder's store for reading; the caller closes the connection.

    Raises:
        ConfigurationError: ``store_missing``, ``store_version``.
        InputError: ``store_unreadable``.
        OperatingError: ``store_failing``.
    """
    path = folder / FILE
    try:
        is_there = path.is_file()
    except OSError as error:
        why = f"the store {path} cannot be used now ({error.strerror}): check disk and permissions"
        raise OperatingError("store_failing", why) from error
    if not is_there:
        raise ConfigurationError(
            "store_missing",
            f"there is no store in {folder}: fill one with assay-stream store run --store {folder}, or from files with "
            "store load",
        )
    with failures(path):
        connection = _connect(f"{path.resolve().as_uri()}?mode=ro")
        try:
            if not _is_store(connection):
                raise InputError("store_unreadable", f"{path} is no store: {REBUILD}")
            check_version(connection, path)
        except BaseException:
            connection.close()
            raise
        connection.execute("PRAGMA query_only = ON")
        return connection


def check_version(connection: sqlite3.Connection, path: object) -> None:
    """Raise ``ConfigurationError`` ``store_version`` if a store has other tables than this version writes."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version != SCHEMA_VERSION:
        raise ConfigurationError(
            "store_version",
            f"the store {path} has version {version}, this software reads and writes {SCHEMA_VERSION}: {REBUILD}",
        )


def _is_store(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("PRAGMA application_id").fetchone()[0] == _APPLICATION_ID)


def _connect(target: str) -> sqlite3.Connection:
    # Calls come from one thread at a time, but not always from the same.
    connection = sqlite3.connect(
        target, isolation_level=None, check_same_thread=False, uri=target.startswith("file:"), cached_statements=256
    )
    connection.execute(f"PRAGMA cache_size = -{STORE_CACHE_KIB}")
    connection.execute(f"PRAGMA busy_timeout = {STORE_WAIT_MS}")
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def _create(connection: sqlite3.Connection, secret: bytes) -> None:
    call_columns = ", ".join(f"{column.name} {column.sql}" for column in CALL_COLUMNS)
    script = files(__package__).joinpath("schema.sql").read_text(encoding="utf-8").format(call_columns=call_columns)
    # At once: a kill leaves a whole store or none.
    connection.executescript(
        f"BEGIN; {script} INSERT INTO meta VALUES ('secret', x'{secret.hex()}'); "  # noqa: S608 -- hexadecimal
        f"PRAGMA application_id = {_APPLICATION_ID}; PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
    )
