"""Observations in few bytes: an observer that sees the same again adds a row of text, not objects.

The latest observation stays as it is. Older ones stand in runs, the rows of neighbours that differ in nothing but time,
offset and snapshot id; each is made anew when it is asked for. A join keeps its observations like this.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple, overload

import orjson

from assay_stream.model.facts import Seen
from assay_stream.model.fields import Completeness
from assay_stream.model.record import Origin

_ROWS_MAX = 64
"""Rows of a run: what a row costs beside its text is shared by so many, and reading one row parses that many."""
_NEAR = 4
"""Runs that are looked at for something to share with, where lists alternate."""
_PARSED_RUNS_MAX = 256
"""Runs that stay parsed, in all servers together: a search reads the same few runs again and again."""

_Row = tuple[int, int, str]
"""Event time in microseconds, offset, and snapshot id. Within a run times and offsets count from its first row."""


class PlainSightings(list[Seen]):
    """Observations as they are: for whoever looks at all of them with every record, as a registry does."""

    def index_of(self, origin: Origin) -> int | None:
        """Return the place of the observation with this origin."""
        return next((index for index, seen in enumerate(self) if seen.origin == origin), None)

    def named(self, snapshot_id: str) -> Iterator[Seen]:
        """Yield the observations with this snapshot id, in their order."""
        return (seen for seen in self if seen.snapshot_id == snapshot_id)


class _Shared(NamedTuple):
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

    def seen(self, row: _Row) -> Seen:
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


def _shared_by(seen: Seen) -> _Shared:
    return _Shared(
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


class _Run:
    """Neighbouring observations that share everything but time, offset and snapshot id."""

    __slots__ = ("count", "first_offset", "first_us", "packed", "shared")

    def __init__(self, shared: _Shared, rows: list[_Row]) -> None:
        self.shared = shared
        self.first_us, self.first_offset, _ = rows[0]
        self.count = 0
        self.packed = b""
        for row in rows:
            self.append(row)

    def append(self, row: _Row) -> None:
        time_us, offset, snapshot_id = row
        self.packed += orjson.dumps((time_us - self.first_us, offset - self.first_offset, snapshot_id)) + b","
        self.count += 1

    def __getitem__(self, index: int) -> Seen:
        return self.shared.seen(self._row(_parsed(self.packed)[index]))

    def __iter__(self) -> Iterator[Seen]:
        return (self.shared.seen(row) for row in self.rows())

    def rows(self) -> list[_Row]:
        return [self._row(row) for row in _parsed(self.packed)]

    def _row(self, relative: _Row) -> _Row:
        time_us, offset, snapshot_id = relative
        return self.first_us + time_us, self.first_offset + offset, snapshot_id


class PackedSightings:
    """The observations of one observer, packed; a sequence that ``bisect`` works on."""

    __slots__ = ("_latest", "_runs")

    def __init__(self) -> None:
        self._latest: Seen | None = None
        self._runs: list[_Run] = []

    def __len__(self) -> int:
        return sum(run.count for run in self._runs) + (self._latest is not None)

    def __bool__(self) -> bool:
        return self._latest is not None

    def __iter__(self) -> Iterator[Seen]:
        for run in self._runs:
            yield from run
        if self._latest is not None:
            yield self._latest

    def __reversed__(self) -> Iterator[Seen]:
        if self._latest is not None:
            yield self._latest
        for run in reversed(self._runs):
            for index in reversed(range(run.count)):
                yield run[index]

    @overload
    def __getitem__(self, index: int) -> Seen: ...
    @overload
    def __getitem__(self, index: slice) -> list[Seen]: ...
    def __getitem__(self, index: int | slice) -> Seen | list[Seen]:
        if index == -1 and self._latest is not None:
            return self._latest
        count = len(self)
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(count))]
        if not -count <= index < count:
            raise IndexError(index)
        index %= count
        if index == count - 1 and self._latest is not None:
            return self._latest
        number, within = self._place(index)
        return self._runs[number][within]

    def append(self, seen: Seen) -> None:
        """Add an observation that comes after all others."""
        if self._latest is not None:
            self._push(self._latest)
        self._latest = seen

    def insert(self, index: int, seen: Seen) -> None:
        """Add an observation before another one."""
        if index == len(self):
            self.append(seen)
            return
        shared, row = _shared_by(seen), _row_of(seen)
        if index == len(self) - 1:
            self._push(seen)
            return
        number, within = self._place(index)
        run = self._runs[number]
        rows = run.rows()
        if run.shared == shared:
            rows.insert(within, row)
            half = len(rows) // 2 if len(rows) > _ROWS_MAX else len(rows)
            parts = [(shared, rows[:half]), (shared, rows[half:])]
        else:
            parts = [(run.shared, rows[:within]), (shared, [row]), (run.shared, rows[within:])]
        self._runs[number : number + 1] = [_Run(*part) for part in parts if part[1]]
        self._merge(number)

    def pop(self, index: int) -> Seen:
        """Remove an observation, and return it."""
        if index == len(self) - 1 and self._latest is not None:
            seen, self._latest = self._latest, None
            if self._runs:
                self._latest = self._take(len(self._runs) - 1, self._runs[-1].count - 1)
            return seen
        return self._take(*self._place(index))

    def index_of(self, origin: Origin) -> int | None:
        """Return the place of the observation with this origin."""
        before = 0
        for run in self._runs:
            shared, offset = run.shared, origin.offset - run.first_offset
            # The text is searched first: most runs do not hold the number at all, and need not be parsed.
            if (shared.topic, shared.partition) == origin[:2] and b",%d," % offset in run.packed:
                for index, row in enumerate(_parsed(run.packed)):
                    if row[1] == offset:
                        return before + index
            before += run.count
        return before if self._latest is not None and self._latest.origin == origin else None

    def named(self, snapshot_id: str) -> Iterator[Seen]:
        """Yield the observations with this snapshot id, in their order."""
        text = orjson.dumps(snapshot_id)
        for run in self._runs:
            if text in run.packed:
                yield from (run.shared.seen(row) for row in run.rows() if row[2] == snapshot_id)
        if self._latest is not None and self._latest.snapshot_id == snapshot_id:
            yield self._latest

    def _push(self, seen: Seen) -> None:
        """Add an observation behind all that stand in runs."""
        shared, row = _shared_by(seen), _row_of(seen)
        if self._runs and self._runs[-1].count < _ROWS_MAX and self._runs[-1].shared == shared:
            self._runs[-1].append(row)
            return
        near = (run.shared for run in self._runs[-_NEAR:])
        self._runs.append(_Run(next((known for known in near if known == shared), shared), [row]))

    def _take(self, number: int, within: int) -> Seen:
        run = self._runs[number]
        rows = run.rows()
        seen = run.shared.seen(rows.pop(within))
        self._runs[number : number + 1] = [_Run(run.shared, rows)] if rows else []
        self._merge(number)
        return seen

    def _merge(self, number: int) -> None:
        """Make one run of neighbours that fit into one: what is taken away must not leave a run for each row."""
        for left in (number, number - 1):
            if 0 <= left < len(self._runs) - 1:
                one, next_ = self._runs[left : left + 2]
                if one.shared == next_.shared and one.count + next_.count <= _ROWS_MAX:
                    self._runs[left : left + 2] = [_Run(one.shared, one.rows() + next_.rows())]

    def _place(self, index: int) -> tuple[int, int]:
        """Return the run, by number, and the row in it of an observation in a run."""
        ends = list(accumulate(run.count for run in self._runs))
        number = bisect_right(ends, index)
        return number, index - ends[number] + self._runs[number].count


Sightings = PlainSightings | PackedSightings


def _row_of(seen: Seen) -> _Row:
    return seen.time_us, seen.origin.offset, seen.snapshot_id


@lru_cache(_PARSED_RUNS_MAX)
def _parsed(packed: bytes) -> tuple[_Row, ...]:
    rows: list[_Row] = orjson.loads(b"[%b]" % packed[:-1])
    return tuple(rows)
