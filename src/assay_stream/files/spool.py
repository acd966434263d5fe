"""Records put in order on disk, so that memory stays flat however many there are."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from assay_stream.limits import HELD_BYTES_MAX

_CACHE_KIB = 16 * 1_024
_BATCH = 1_000


class Place(NamedTuple):
    """Where a record stands in an export: the order in which its members are compared.

    Args:
        kind: what it is.
        time_us: event time, microseconds since the epoch.
        name: topic of its origin, or identity.
        partition: partition of its origin, or another number.
        offset: offset of its origin, or another number.
    """

    kind: str
    time_us: int = 0
    name: str = ""
    partition: int = 0
    offset: int = 0


class Spool:
    """Keeps records in a temporary file, each once, and gives them back in order.

    Records of one place are in the order of their digests, and equal bytes count once: the order of arrival never
    shows. The file is deleted with the spool.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="assay-stream-")
        self._base = sqlite3.connect(Path(self._folder.name) / "spool")
        self._base.execute("PRAGMA journal_mode=OFF")
        self._base.execute("PRAGMA synchronous=OFF")
        self._base.execute("PRAGMA temp_store=FILE")
        self._base.execute(f"PRAGMA cache_size=-{_CACHE_KIB}")
        self._base.execute(
            "CREATE TABLE record (kind TEXT, time_us INT, name TEXT, part INT, pos INT, digest BLOB, raw BLOB)"
        )
        self._waiting: list[tuple[object, ...]] = []
        self._waiting_bytes = 0
        self._sorted = False

    def __enter__(self) -> Spool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._base.close()
        self._folder.cleanup()

    def add(self, place: Place, raw: bytes) -> None:
        """Keep a record.

        Args:
            place: where it stands.
            raw: its bytes.
        """
        # SQLite keeps text as UTF-8; half a surrogate pair has been refused long before.
        self._waiting.append((*place, sha256(raw).digest(), raw))
        self._waiting_bytes += len(raw)
        self._sorted = False
        if len(self._waiting) >= _BATCH or self._waiting_bytes >= HELD_BYTES_MAX:
            self._write()

    def records(self, kind: str) -> Iterator[bytes]:
        """Yield the records of a kind in order, each once.

        Args:
            kind: what is asked for.
        """
        self._sort()
        before: bytes | None = None
        before_place: tuple[object, ...] | None = None
        rows = self._base.execute(
            "SELECT time_us, name, part, pos, digest, raw FROM record WHERE kind = ? "
            "ORDER BY kind, time_us, name, part, pos, digest",
            (kind,),
        )
        for *place, digest, raw in rows:
            if digest != before or tuple(place) != before_place:
                yield raw
            before, before_place = digest, tuple(place)

    def _sort(self) -> None:
        self._write()
        if not self._sorted:
            self._base.execute("DROP INDEX IF EXISTS place")
            self._base.execute("CREATE INDEX place ON record (kind, time_us, name, part, pos, digest)")
            self._sorted = True

    def _write(self) -> None:
        self._base.executemany("INSERT INTO record VALUES (?, ?, ?, ?, ?, ?, ?)", self._waiting)
        self._waiting.clear()
        self._waiting_bytes = 0
