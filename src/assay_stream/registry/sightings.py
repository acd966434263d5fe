"""Observations in few bytes: an observer that sees the same again adds a row of text, not objects.

The latest observation stays as it is. Older ones stand in runs (``registry.runs``); each is made anew when it is asked
for.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import overload

from assay_stream.model.facts import Seen
from assay_stream.model.record import Origin
from assay_stream.registry.runs import Row, Run, Shared, Shelf, are_long, may_hold, name_text, pack, row_of, shared_by

_ROWS_MAX = 64
"""Rows of a run: what a row costs beside its text is shared by so many, and reading one row parses that many."""
_SHELVED_ROWS = 16
"""Rows of a run when it is put on the shelf: fewer stay in memory of each observer."""
_SHELVED_ROWS_MAX = 256
"""Rows of a run on the shelf, once runs are made one: what a run costs in memory is shared by so many."""
_MADE_ONE = 4
"""Runs of a length on the shelf that are made one. Each row is written three times."""
_NEAR = 4
"""Runs that are looked at for something to share with, where lists alternate."""
LONG_IDS_CHARS = 8_192
"""Characters of the ids of rows that are added at once: with longer ones a run may be full before its rows are."""
_NEAR_END = 2
"""Rows at either end of a run on the shelf that are taken away without writing the others anew. Folding takes the
second observation of all, again and again."""


def _since(run: Run) -> int:
    return run.since_us


def _row_time(row: Row) -> int:
    return row[0]


class PackedSightings:
    """The observations of one observer, packed; a sequence that ``bisect`` works on.

    Args:
        shelf: where the rows of full runs are put, ``None`` for memory.
    """

    __slots__ = ("_latest", "_runs", "_shelf")

    def __init__(self, shelf: Shelf | None = None) -> None:
        self._latest: Seen | None = None
        self._runs: list[Run] = []
        self._shelf = shelf

    def __len__(self) -> int:
        return sum(run.count for run in self._runs) + (self._latest is not None)

    def __bool__(self) -> bool:
        return self._latest is not None

    def __iter__(self) -> Iterator[Seen]:
        for run in self._runs:
            yield from map(run.shared.seen, run.rows(self._shelf))
        if self._latest is not None:
            yield self._latest

    def __reversed__(self) -> Iterator[Seen]:
        if self._latest is not None:
            yield self._latest
        for run in reversed(self._runs):
            yield from map(run.shared.seen, reversed(run.rows(self._shelf)))

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
        run = self._runs[number]
        return run.shared.seen(run.rows(self._shelf)[within])

    def starting_at(self, index: int) -> Iterator[Seen]:
        """Yield the observations from a place on."""
        for run in self._runs:
            if index < run.count:
                yield from map(run.shared.seen, run.rows(self._shelf)[index:])
            index = max(0, index - run.count)
        if not index and self._latest is not None:
            yield self._latest

    def append(self, seen: Seen) -> None:
        """Add an observation that comes after all others."""
        if self._latest is not None:
            self._push(self._latest)
        self._latest = seen

    def append_rows(self, shared: Shared, rows: list[Row]) -> None:
        """Add observations that come after all others, in their order."""
        if sum(len(row[2]) for row in rows) > LONG_IDS_CHARS:
            for row in rows:
                self.append(shared.seen(row))
            return
        if self._latest is not None:
            self._push(self._latest)
        older, shared = rows[:-1], self._known(shared)
        last = self._runs[-1] if self._runs else None
        if last is not None and isinstance(last.text, bytes) and last.shared == shared and last.count < self._rows_max:
            room = self._rows_max - last.count
            last.text, last.count = pack([*last.rows(self._shelf), *older[:room]]), last.count + len(older[:room])
            older = older[room:]
        self._shelve_full()
        for begin in range(0, len(older), self._rows_max):
            self._runs.append(self._run(shared, older[begin : begin + self._rows_max]))
            self._make_one()
        self._latest = shared.seen(rows[-1])

    def insert(self, index: int, seen: Seen) -> None:
        """Add an observation before another one."""
        if index == len(self):
            self.append(seen)
            return
        if index == len(self) - 1:
            self._push(seen)
            return
        number, within = self._place(index)
        run, shared = self._runs[number], shared_by(seen)
        rows = list(run.rows(self._shelf))
        if run.shared == shared:
            rows.insert(within, row_of(seen))
            most = _ROWS_MAX if self._shelf is None else _SHELVED_ROWS_MAX
            half = len(rows) // 2 if len(rows) > most or are_long([run], self._shelf) else len(rows)
            parts = [(run.shared, rows[:half]), (run.shared, rows[half:])]
        else:
            parts = [(run.shared, rows[:within]), (shared, [row_of(seen)]), (run.shared, rows[within:])]
        self._replace(number, 1, [self._run(*part) for part in parts if part[1]])
        self._merge(number)

    def pop(self, index: int) -> Seen:
        """Remove an observation, and return it."""
        if index == len(self) - 1 and self._latest is not None:
            seen, before = self._latest, None
            if self._runs:
                before = self._take(len(self._runs) - 1, self._runs[-1].count - 1)
            self._latest = before
            return seen
        return self._take(*self._place(index))

    def index_of(self, origin: Origin) -> int | None:
        """Return the place of the observation with this origin."""
        before = 0
        for run in self._runs:
            if run.shared[2:4] == origin[:2] and may_hold(run.packed(self._shelf), origin.offset):
                for index, row in enumerate(run.rows(self._shelf)):
                    if row[1] == origin.offset:
                        return before + index
            before += run.count
        return before if self._latest is not None and self._latest.origin == origin else None

    def stand_at(self, time_us: int) -> tuple[Seen | None, int | None]:
        """Return the latest observation at or before a time, and the time of the one after it. One run is read."""
        if self._latest is None or self._latest.time_us <= time_us:
            return self._latest, None
        number = bisect_right(self._runs, time_us, key=_since)
        until_us = self._runs[number].since_us if number < len(self._runs) else self._latest.time_us
        if not number:
            return None, until_us
        run = self._runs[number - 1]
        rows = run.rows(self._shelf)
        within = bisect_right(rows, time_us, key=_row_time)
        return run.shared.seen(rows[within - 1]), rows[within][0] if within < len(rows) else until_us

    def named(self, snapshot_id: str) -> Iterator[Seen]:
        """Yield the observations with this snapshot id, in their order."""
        text = name_text(snapshot_id)
        for run in self._runs:
            if text in run.packed(self._shelf):
                yield from (run.shared.seen(row) for row in run.rows(self._shelf) if row[2] == snapshot_id)
        if self._latest is not None and self._latest.snapshot_id == snapshot_id:
            yield self._latest

    def release(self) -> None:
        """Take everything off the shelf."""
        for place in {run.text for run in self._runs if isinstance(run.text, int)}:
            if self._shelf is not None:
                self._shelf.free(place)
        self._runs, self._latest = [], None

    def _push(self, seen: Seen) -> None:
        """Add an observation behind all that stand in runs."""
        shared, row = shared_by(seen), row_of(seen)
        last = self._runs[-1] if self._runs else None
        if last is not None and isinstance(last.text, bytes):
            is_full = last.count >= self._rows_max or are_long([last], self._shelf)
            if not is_full and last.shared == shared:
                last.append(row)
                return
            self._shelve_full()
        self._runs.append(self._run(self._known(shared), [row]))

    def _shelve_full(self) -> None:
        """Put the last run on the shelf, if there is one and it takes no further rows."""
        last = self._runs[-1] if self._runs else None
        if self._shelf is None or last is None or not isinstance(last.text, bytes):
            return
        if last.count >= self._rows_max or are_long([last], self._shelf):
            last.text = self._shelf.put(last.text)
            self._make_one()

    def _known(self, shared: Shared) -> Shared:
        """Return the equal one of a run nearby, if there is one."""
        return next((run.shared for run in self._runs[-_NEAR:] if run.shared == shared), shared)

    @property
    def _rows_max(self) -> int:
        """How many rows a run in memory has at most."""
        return _ROWS_MAX if self._shelf is None else _SHELVED_ROWS

    def _run(self, shared: Shared, rows: list[Row]) -> Run:
        text = pack(rows)
        if self._shelf is None or len(rows) < self._rows_max:
            return Run(shared, text, rows[0][0], 0, len(rows))
        return Run(shared, self._shelf.put(text), rows[0][0], 0, len(rows))

    def _make_one(self) -> None:
        """Make one run of the last ones on the shelf, as long as these are equally long and fit into one."""
        while len(self._runs) >= _MADE_ONE:
            last = self._runs[-_MADE_ONE:]
            like = last[0]
            if like.count * _MADE_ONE > _SHELVED_ROWS_MAX or any(
                isinstance(run.text, bytes) or run.count != like.count or run.shared != like.shared for run in last
            ):
                return
            if are_long(last, self._shelf):
                return
            rows = [row for run in last for row in run.rows(self._shelf)]
            self._replace(len(self._runs) - _MADE_ONE, _MADE_ONE, [self._run(like.shared, rows)])

    def _take(self, number: int, within: int) -> Seen:
        run = self._runs[number]
        rows = list(run.rows(self._shelf))
        seen = run.shared.seen(rows.pop(within))
        if isinstance(run.text, int) and not _NEAR_END <= within < run.count - _NEAR_END:
            rest = [*run.part(self._shelf, 0, within), *run.part(self._shelf, within + 1, run.count)]
        else:
            rest = [self._run(run.shared, rows)] if rows else []
        self._replace(number, 1, rest)
        self._merge(number)
        return seen

    def _merge(self, number: int) -> None:
        """Make one run of neighbours that fit into one: what is taken away must not leave a run for each row."""
        for left in (number, number - 1):
            if 0 <= left < len(self._runs) - 1:
                one, other = self._runs[left : left + 2]
                if isinstance(one.text, int) or isinstance(other.text, int):
                    continue
                # Not full: nothing is put on the shelf here.
                fits = one.shared == other.shared and one.count + other.count < self._rows_max
                if fits and not are_long([one, other], self._shelf):
                    rows = [*one.rows(self._shelf), *other.rows(self._shelf)]
                    self._replace(left, 2, [self._run(one.shared, rows)])

    def _replace(self, number: int, count: int, runs: list[Run]) -> None:
        """Put runs in the place of others, and take off the shelf what no run needs any more."""
        gone = self._runs[number : number + count]
        self._runs[number : number + count] = runs
        for run in gone:
            if isinstance(run.text, int) and self._shelf is not None and all(r.text != run.text for r in self._runs):
                self._shelf.free(run.text)

    def _place(self, index: int) -> tuple[int, int]:
        """Return the run, by number, and the row in it of an observation in a run."""
        ends = list(accumulate(run.count for run in self._runs))
        number = bisect_right(ends, index)
        return number, index - ends[number] + self._runs[number].count
