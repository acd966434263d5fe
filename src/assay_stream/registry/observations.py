"""An index over a server's observations, for what every record asks about them.

Without it each question takes time in the number of observers or the length of history, and both are up to whoever
writes observations. The index follows from the observations alone: it is built on first use and kept up to date, so
that a restart builds what was there. A process that never asks, such as a join, never builds it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from assay_stream.model.facts import Rejection, Seen
from assay_stream.model.fields import ITEM_SUBJECTS, Subject
from assay_stream.model.record import Position
from assay_stream.registry.timeline import back_from, position_of

_Place = tuple[str, int]
_Key = TypeVar("_Key")


class Observations:
    """The observations of one server by anybody, in order; a position is that of an observation."""

    def __init__(self, observations: Iterable[Seen]) -> None:
        self._all: list[Seen] = []
        self._of_rights: dict[str | None, list[Seen]] = {}
        self._stating: dict[Subject, list[Seen]] = {}
        self._complete: dict[str, list[Seen]] = {}
        self._of_place: dict[_Place, list[Seen]] = {}
        self._offsets: dict[_Place, list[int]] = {}
        self._uses: Counter[tuple[str, str]] = Counter()
        for seen in sorted(observations, key=position_of):
            self.add(seen)

    def add(self, seen: Seen) -> None:
        for entries in self._lists_of(seen):
            if entries and entries[-1].position > seen.position:
                insort(entries, seen, key=position_of)
            else:
                entries.append(seen)
        insort(self._offsets.setdefault(seen.origin[:2], []), seen.origin.offset)
        self._uses.update(_uses_of(seen))

    def remove(self, seen: Seen) -> None:
        for entries in self._lists_of(seen):
            del entries[bisect_left(entries, seen.position, key=position_of)]
        place = seen.origin[:2]
        offsets = self._offsets[place]
        del offsets[bisect_left(offsets, seen.origin.offset)]
        drop_empty(self._offsets, place)
        drop_empty(self._of_place, place)
        drop_empty(self._of_rights, seen.auth_context)
        drop_empty(self._complete, seen.catalogue)
        for subject in ITEM_SUBJECTS:
            drop_empty(self._stating, subject)
        for use in _uses_of(seen):
            take_one(self._uses, use)

    def __len__(self) -> int:
        return len(self._all)

    @property
    def any_complete(self) -> bool:
        """Whether anybody observed a complete list."""
        return bool(self._complete)

    @property
    def latest_us(self) -> int:
        """Event time of the latest observation, 0 where there is none."""
        return self._all[-1].time_us if self._all else 0

    def back_from(self, position: Position) -> Iterator[Seen]:
        return back_from(self._all, position)

    def back_under_rights(self, position: Position, auth_context: str | None) -> Iterator[Seen]:
        return back_from(self._of_rights.get(auth_context, []), position)

    def back_stating(self, position: Position, subject: Subject) -> Iterator[Seen]:
        """Yield the observations before a position that state prompts, or templates, newest first."""
        return back_from(self._stating.get(subject, []), position)

    def since(self, position: Position) -> Sequence[Seen]:
        """Return the observations at or after a position."""
        return self._all[bisect_left(self._all, position, key=position_of) :]

    def was_shown_complete(self, catalogue: str, position: Position) -> bool:
        """Tell whether a complete list with this catalogue was observed before a position."""
        return next(back_from(self._complete.get(catalogue, []), position), None) is not None

    def all_before(self, rejection: Rejection) -> bool:
        """Tell whether a rejection came after every observation."""
        own = rejection.origin[:2]
        return all(
            self._offsets[place][-1] < rejection.origin.offset
            if place == own
            else entries[-1].time_us <= rejection.time_us
            for place, entries in self._of_place.items()
        )

    def uses(self, kind: str, digest: str) -> bool:
        """Tell whether an observation names a ``catalogue``, ``signatures``, or a list of a ``Subject``."""
        return (kind, digest) in self._uses

    def _lists_of(self, seen: Seen) -> Iterator[list[Seen]]:
        yield self._all
        yield self._of_rights.setdefault(seen.auth_context, [])
        yield self._of_place.setdefault(seen.origin[:2], [])
        for subject in ITEM_SUBJECTS:
            if seen.listed(subject) is not None:
                yield self._stating.setdefault(subject, [])
        if seen.completeness == "complete":
            yield self._complete.setdefault(seen.catalogue, [])


def take_one(counts: Counter[_Key], key: _Key) -> None:
    """Count one less of a key that is there, and drop it at zero."""
    counts[key] -= 1
    if not counts[key]:
        del counts[key]


def drop_empty(collections: dict[_Key, Any], key: _Key) -> None:
    """Drop a key whose collection is empty."""
    if key in collections and not collections[key]:
        del collections[key]


def _uses_of(seen: Seen) -> Iterator[tuple[str, str]]:
    yield "catalogue", seen.catalogue
    if seen.signatures is not None:
        yield "signatures", seen.signatures
    for subject in ITEM_SUBJECTS:
        listed = seen.listed(subject)
        if listed is not None:
            yield subject.value, listed
