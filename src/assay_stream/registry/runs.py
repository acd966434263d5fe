"""Runs: neighbouring observations of one observer that differ in nothing but time, offset and snapshot id.

Their rows are JSON in one bytes object, in memory or on a shelf. The first row has its time and offset in full, the
others count from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

import orjson

from assay_stream.model.facts import Seen
from assay_stream.model.fields import Completeness, Subject
from assay_stream.model.record import Origin
from assay_stream.model.run_facts import SeenRun

_PARSED_RUNS_MAX = 256
"""Runs that stay parsed, in all servers together: a search reads the same few runs again and again."""
_TEXT_BYTES_MAX = 32_768
"""Text of a run that takes further rows: twice what 256 of them with ids of 36 characters take. With longer ids it has
fewer rows, so whoever chooses the ids chooses neither what a question parses nor how much stays parsed."""
_NUMBERS_BYTES_MAX = 64
"""More than the two numbers at the start of a row take."""

Row = tuple[int, int, str]
"""Event time in microseconds, offset, and snapshot id."""


class Shelf(Protocol):
    """Where the rows of full runs are put so that they take no memory. It lives as long as its process."""

    def put(self, packed: bytes) -> int:
        """Put rows on the shelf, and return their place."""

    def get(self, place: int) -> bytes:
        """Return the rows of a place."""

    def free(self, place: int) -> None:
        """Take rows off the shelf."""


class Shared(NamedTuple):
    """What the rows of a run have in common: the fields of an observation but time, offset and snapshot id."""

    server_id: str
    observer_id: str
    topic: str
    partition: int
    catalogue: str
    completeness: Completeness
    signatures: str | None
    prompts: str | None
    templates: str | None
    instructions: str | None
    auth_context: str | None
    hidden: tuple[tuple[str, str], ...]
    attributed: bool
    rationed: bool

    def listed(self, subject: Subject) -> str | None:
        """Return the digest of what is stated beside the tools, as ``Seen.listed``."""
        match subject:
            case Subject.PROMPT:
                return self.prompts
            case Subject.TEMPLATE:
                return self.templates
            case _:
                return self.instructions

    def seen(self, row: Row) -> Seen:
        time_us, offset, snapshot_id = row
        return Seen(
            server_id=self.server_id,
            observer_id=self.observer_id,
            origin=Origin(self.topic, self.partition, offset),
            time_us=time_us,
            snapshot_id=snapshot_id,
            catalogue=self.catalogue,
            completeness=self.completeness,
            signatures=self.signatures,
            prompts=self.prompts,
            templates=self.templates,
            instructions=self.instructions,
            auth_context=self.auth_context,
            hidden=self.hidden,
            attributed=self.attributed,
            rationed=self.rationed,
        )


def shared_by(seen: Seen | SeenRun) -> Shared:
    return Shared(
        seen.server_id,
        seen.observer_id,
        seen.origin.topic,
        seen.origin.partition,
        seen.catalogue,
        seen.completeness,
        seen.signatures,
        seen.prompts,
        seen.templates,
        seen.instructions,
        seen.auth_context,
        seen.hidden,
        seen.attributed,
        seen.rationed,
    )


def row_of(seen: Seen) -> Row:
    return seen.time_us, seen.origin.offset, seen.snapshot_id


def rows_of(run: SeenRun) -> list[Row]:
    """Return the rows of a run of the binding topic."""
    time_us, offset = run.time_us, run.origin.offset
    return [(time_us + later_us, offset + further, snapshot_id) for later_us, further, snapshot_id in run.rows]


def run_fact(key: Origin, entries: Sequence[Seen]) -> SeenRun:
    """Return the fact that stands for observations.

    Args:
        key: origin of the first observation that the run ever had.
        entries: in the order of their times and of their offsets, equal in everything else.
    """
    first = entries[0]
    return SeenRun(
        server_id=first.server_id,
        observer_id=first.observer_id,
        origin=key,
        time_us=first.time_us,
        rows=tuple((e.time_us - first.time_us, e.origin.offset - key.offset, e.snapshot_id) for e in entries),
        catalogue=first.catalogue,
        completeness=first.completeness,
        signatures=first.signatures,
        prompts=first.prompts,
        templates=first.templates,
        instructions=first.instructions,
        auth_context=first.auth_context,
        hidden=first.hidden,
        attributed=first.attributed,
        rationed=first.rationed,
    )


class Run:
    """Neighbouring observations that share everything but time, offset and snapshot id.

    Args:
        text: their rows, or the place of these on the shelf.
        since_us: event time of the first row that counts, so that a search for a time reads one run.
        first: the first row that counts: of rows on the shelf some may have been taken away.
        count: how many rows count.
    """

    __slots__ = ("count", "first", "shared", "since_us", "text")

    def __init__(self, shared: Shared, text: bytes | int, since_us: int, first: int, count: int) -> None:
        self.shared = shared
        self.text = text
        self.since_us = since_us
        self.first = first
        self.count = count

    def packed(self, shelf: Shelf | None) -> bytes:
        """Return the text of all its rows, also of those that count no more."""
        if isinstance(self.text, bytes):
            return self.text
        assert shelf is not None  # noqa: S101 -- a place comes from a shelf
        return shelf.get(self.text)

    def rows(self, shelf: Shelf | None) -> tuple[Row, ...]:
        rows = _parsed(self.packed(shelf))
        return rows if len(rows) == self.count else rows[self.first : self.first + self.count]

    def part(self, shelf: Shelf | None, start: int, end: int) -> list[Run]:
        """Return a run of some of its rows over the same text, or none."""
        if start >= end:
            return []
        return [Run(self.shared, self.text, self.rows(shelf)[start][0], self.first + start, end - start)]

    def append(self, row: Row) -> None:
        """Add a row to a run in memory."""
        assert isinstance(self.text, bytes)  # noqa: S101 -- what is on the shelf never changes
        first_us, first_offset = _numbers(self.text)
        self.text = b"%b,%b" % (self.text, orjson.dumps((row[0] - first_us, row[1] - first_offset, row[2])))
        self.count += 1


def are_long(runs: Iterable[Run], shelf: Shelf | None) -> bool:
    """Tell whether the text of runs together is so long that one run takes no further rows."""
    return sum(len(run.packed(shelf)) for run in runs) > _TEXT_BYTES_MAX


def pack(rows: Sequence[Row]) -> bytes:
    """Return the text of rows."""
    first_us, first_offset, _ = rows[0]
    later = [(time_us - first_us, offset - first_offset, name) for time_us, offset, name in rows[1:]]
    text = orjson.dumps([rows[0], *later])[1:-1]
    # A copy: what orjson returns keeps the room that it was written in.
    return b"".join((text, b""))


def name_text(snapshot_id: str) -> bytes:
    """Return a snapshot id as it stands in the text of rows."""
    return orjson.dumps(snapshot_id)


def may_hold(packed: bytes, offset: int) -> bool:
    """Tell whether rows may have an offset: most do not hold the number at all, and need not be parsed."""
    first_offset = _numbers(packed)[1]
    return offset == first_offset or b",%d," % (offset - first_offset) in packed


def _numbers(packed: bytes) -> tuple[int, int]:
    """Return time and offset of the first row."""
    time_us, offset, _ = packed[1:_NUMBERS_BYTES_MAX].split(b",", 2)
    return int(time_us), int(offset)


@lru_cache(_PARSED_RUNS_MAX)
def _parsed(packed: bytes) -> tuple[Row, ...]:
    first, *rest = orjson.loads(b"[%b]" % packed)
    first_us, first_offset, _ = first
    return (tuple(first), *[(first_us + time_us, first_offset + offset, name) for time_us, offset, name in rest])
