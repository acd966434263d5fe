"""An index over a server's observations, for what every record asks about them.

Without it each query takes time in the number of observers or the length of history, both of which the writers of
observations control. The index follows from the observations alone: it is built on first use and kept up to date, so
that a restart rebuilds it. A process that never needs it, such as a join, never builds it.

An answer is what an observation shares with others (``shared_part``): it has neither time nor id.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from assay_stream.bindings.sightings import OrderedRows, Sightings
from assay_stream.model.facts import Rejection, Seen
from assay_stream.model.fields import ITEM_SUBJECTS, Subject
from assay_stream.model.record import Position

_Key = TypeVar("_Key")


class Observations:
    """The observations of one server by any observer, in order; a position is that of an observation."""

    def __init__(self, table: Sightings, numbers: Iterable[int]) -> None:
        self._table = table
        self._all = OrderedRows(table)
        self._of_rights: dict[str | None, OrderedRows] = {}
        self._stating: dict[Subject, OrderedRows] = {}
        self._complete: dict[str, OrderedRows] = {}
        self._of_place: dict[tuple[str, int], OrderedRows] = {}
        self._offsets: dict[tuple[str, int], array[int]] = {}
        self._uses: Counter[tuple[str, str]] = Counter()
        for number in sorted(numbers, key=table.position):
            self.add(number)

    def add(self, number: int) -> None:
        shared, position = self._table.shared(number), self._table.position(number)
        offset = position[1].offset
        self._all.insert(number, position)
        for orders, key in self._orders_of(shared):
            if key not in orders:
                orders[key] = OrderedRows(self._table)
            orders[key].insert(number, position)
        offsets = self._offsets.setdefault(shared.origin[:2], array("q"))
        offsets.insert(bisect_left(offsets, offset), offset)
        self._uses.update(_uses_of(shared))

    def remove(self, number: int) -> None:
        """Remove a row that is still in the table."""
        shared, position = self._table.shared(number), self._table.position(number)
        offset = position[1].offset
        self._all.discard(number, position)
        for orders, key in self._orders_of(shared):
            orders[key].discard(number, position)
            drop_empty(orders, key)
        place = shared.origin[:2]
        del self._offsets[place][bisect_left(self._offsets[place], offset)]
        drop_empty(self._offsets, place)
        for use in _uses_of(shared):
            take_one(self._uses, use)

    def __len__(self) -> int:
        return len(self._all)

    @property
    def any_complete(self) -> bool:
        return bool(self._complete)

    @property
    def latest_us(self) -> int:
        """Event time of the latest observation, 0 where there is none."""
        return self._latest_us(self._all) if len(self._all) else 0

    def back_from(self, position: Position) -> Iterator[Seen]:
        """Yield the shared parts of the observations before a position, newest first."""
        return self._back(self._all, position)

    def back_under_rights(self, position: Position, auth_context: str | None) -> Iterator[Seen]:
        """As ``back_from``, for those under some rights."""
        return self._back(self._of_rights.get(auth_context), position)

    def back_stating(self, position: Position, subject: Subject) -> Iterator[Seen]:
        """As ``back_from``, for those that state prompts, or templates."""
        return self._back(self._stating.get(subject), position)

    def observers_since(self, position: Position) -> Iterable[str]:
        """Return the distinct observers of anything at or after a position."""
        later = self._all.numbers[self._all.count_before(position) :]
        return dict.fromkeys(self._table.shared(number).observer_id for number in later)

    def was_shown_complete(self, catalogue: str, position: Position) -> bool:
        rows = self._complete.get(catalogue)
        return rows is not None and self._table.position(rows.numbers[0]) < position

    def all_before(self, rejection: Rejection) -> bool:
        own = rejection.origin[:2]
        return all(
            self._offsets[place][-1] < rejection.origin.offset
            if place == own
            else self._latest_us(rows) <= rejection.time_us
            for place, rows in self._of_place.items()
        )

    def uses(self, kind: str, digest: str) -> bool:
        """Return True if an observation names a ``catalogue``, ``signatures``, or a list of a ``Subject``."""
        return (kind, digest) in self._uses

    def _latest_us(self, rows: OrderedRows) -> int:
        return self._table.times_us[rows.numbers[-1]]

    def _back(self, rows: OrderedRows | None, position: Position) -> Iterator[Seen]:
        if rows is not None:
            for index in reversed(range(rows.count_before(position))):
                yield self._table.shared(rows.numbers[index])

    def _orders_of(self, shared: Seen) -> Iterator[tuple[dict[Any, OrderedRows], Any]]:
        yield self._of_rights, shared.auth_context
        yield self._of_place, shared.origin[:2]
        for subject in ITEM_SUBJECTS:
            if shared.listed(subject) is not None:
                yield self._stating, subject
        if shared.completeness == "complete":
            yield self._complete, shared.catalogue


def take_one(counts: Counter[_Key], key: _Key) -> None:
    """Decrement the count of a key that is present, and drop it at zero."""
    counts[key] -= 1
    if not counts[key]:
        del counts[key]


def drop_empty(collections: dict[_Key, Any], key: _Key) -> None:
    if key in collections and not collections[key]:
        del collections[key]


def _uses_of(shared: Seen) -> Iterator[tuple[str, str]]:
    yield "catalogue", shared.catalogue
    if shared.signatures is not None:
        yield "signatures", shared.signatures
    for subject in ITEM_SUBJECTS:
        listed = shared.listed(subject)
        if listed is not None:
            yield subject.value, listed
