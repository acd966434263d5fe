"""Progress and content of the store."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field

KINDS = ("evidence", "alert", "finding", "definition", "decision", "verdict", "tool_fact", "catalogue", "seen", "fact")
"""Tables whose rows are counted."""

FILES_DEPLOYMENT = "files"
"""Deployment of a store that was loaded from files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionRow:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class DropRow:
    """Number of rows of one kind dropped for one bound: ``age``, ``size`` or ``server``."""

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
        """Number of evidence records dropped."""
        return sum(each.rows for each in self.drops if each.kind == "evidence")

    @property
    def is_live(self) -> bool:
        """Whether the store is filled from topics."""
        return self.deployment not in ("", FILES_DEPLOYMENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Metrics of a store being filled.

    Args:
        rows: by kind.
        size_bytes: size of the content.
        refused: invalid records, by role.
    """

    rows: dict[str, int] = field(default_factory=dict)
    size_bytes: int = 0
    refused: dict[str, int] = field(default_factory=dict)


def used_bytes(connection: sqlite3.Connection) -> int:
    """Return the size of the content, without free pages."""
    pages, free, size = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)


def rows_of(connection: sqlite3.Connection) -> dict[str, int]:
    counts = dict.fromkeys(KINDS, 0)
    for kind in KINDS:
        # Each record of evidence is a call that is counted.
        what = "coalesce(sum(calls), 0) FROM called" if kind == "evidence" else f"count(*) FROM {kind}"
        counts[kind] = connection.execute(f"SELECT {what}").fetchone()[0]
    return counts


def figures_of(connection: sqlite3.Connection) -> Figures:
    refused = connection.execute("SELECT role, sum(refused) FROM source GROUP BY role")
    return Figures(rows=rows_of(connection), size_bytes=used_bytes(connection), refused=dict(refused))
