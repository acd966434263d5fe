"""A server's observations, sorted and counted for what every record asks about them.

Without an index each of these questions takes time in the number of observers or in the length of history, and
both are up to whoever writes observations. The index follows from the observations alone: it is built when first
asked for and kept up to date afterwards, so that what a restart builds equals what was there. A process that never
asks, such as a join, never builds it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from assay_stream.model.facts import Rejection, Seen
from assay_stream.model.fields import Subject
from assay_stream.model.record import Position

Place = tuple[str, int]
_Key = TypeVar("_Key")


class Sights:
    """The observations of one server.

    Args:
        observations: all of them, in any order.
    """

    def __init__(self, observations: Iterable[Seen]) -> None:
        self._all: list[Seen] = []
        self._of_rights: dict[str | None, list[Seen]] = {}
        self._stating: dict[Subject, list[Seen]] = {}
        self._complete: dict[str, list[Seen]] = {}
        self._of_place: dict[Place, list[Seen]] = {}
        self._offsets: dict[Place, list[int]] = {}
        self._uses: Counter[tuple[str, str]] = Counter()
        for seen in sorted(observations, key=_position):
            self.add(seen)

    def add(self, seen: Seen) -> None:
        """Take in an observation.

        Args:
            seen: one that is not there yet.
        """
        for kept in self._lists_of(seen):
            if kept and kept[-1].position > seen.position:
                insort(kept, seen, key=_position)
            else:
                kept.append(seen)
        insort(self._offsets.setdefault(seen.origin[:2], []), seen.origin.offset)
        self._uses.update(_uses_of(seen))

    def remove(self, seen: Seen) -> None:
        """Take back an observation.

        Args:
            seen: one that is there.
        """
        for kept in self._lists_of(seen):
            del kept[bisect_left(kept, seen.position, key=_position)]
        place = seen.origin[:2]
        offsets = self._offsets[place]
        del offsets[bisect_left(offsets, seen.origin.offset)]
        drop_empty(self._offsets, place)
        drop_empty(self._of_place, place)
        drop_empty(self._of_rights, seen.auth_context)
        drop_empty(self._complete, seen.catalogue)
        for subject in (Subject.PROMPT, Subject.TEMPLATE):
            drop_empty(self._stating, subject)
        for use in _uses_of(seen):
            take_one(self._uses, use)

    def __len__(self) -> int:
        return len(self._all)

    @property
    def any_complete(self) -> bool:
        """Whether a complete list was observed by anybody."""
        return bool(self._complete)

    def latest_before(self, position: Position) -> Seen | None:
        """Return the latest observation by anybody that precedes a position.

        Args:
            position: the position of an observation.
        """
        return _last_before(self._all, position)

    def latest_under_rights(self, position: Position, auth_context: str | None) -> Seen | None:
        """Return the latest observation under some rights that precedes a position.

        Args:
            position: the position of an observation.
            auth_context: the rights, as an observation states them.
        """
        return _last_before(self._of_rights.get(auth_context, []), position)

    def back_from(self, position: Position) -> Iterator[Seen]:
        """Yield the observations by anybody that precede a position, newest first.

        Args:
            position: the position of an observation.
        """
        return _back_from(self._all, position)

    def back_under_rights(self, position: Position, auth_context: str | None) -> Iterator[Seen]:
        """Yield the observations under some rights that precede a position, newest first.

        Args:
            position: the position of an observation.
            auth_context: the rights, as an observation states them.
        """
        return _back_from(self._of_rights.get(auth_context, []), position)

    def since(self, position: Position) -> Sequence[Seen]:
        """Return the observations at or after a position, in order.

        Args:
            position: the first position that counts.
        """
        return self._all[bisect_left(self._all, position, key=_position) :]

    def latest_stating(self, position: Position, subject: Subject) -> Seen | None:
        """Return the latest observation that states prompts, or templates, and precedes a position.

        Args:
            position: the position of an observation.
            subject: which of both.
        """
        return _last_before(self._stating.get(subject, []), position)

    def back_stating(self, position: Position, subject: Subject) -> Iterator[Seen]:
        """Yield the observations that state prompts, or templates, and precede a position, newest first.

        Args:
            position: the position of an observation.
            subject: which of both.
        """
        return _back_from(self._stating.get(subject, []), position)

    def was_shown_complete(self, catalogue: str, position: Position) -> bool:
        """Tell whether a complete list with this catalogue was observed before a position.

        Args:
            catalogue: digest of the catalogue.
            position: the position of an observation.
        """
        return _last_before(self._complete.get(catalogue, []), position) is not None

    @property
    def latest_us(self) -> int:
        """Event time of the latest observation, 0 where there is none."""
        return self._all[-1].time_us if self._all else 0

    def ends_all(self, rejection: Rejection) -> bool:
        """Tell whether a rejection came after every observation.

        Args:
            rejection: a rejected snapshot of the server.
        """
        own = rejection.origin[:2]
        return all(
            self._offsets[place][-1] < rejection.origin.offset
            if place == own
            else kept[-1].time_us <= rejection.time_us
            for place, kept in self._of_place.items()
        )

    def uses_catalogue(self, digest: str) -> bool:
        """Tell whether an observation names a catalogue.

        Args:
            digest: digest of the catalogue.
        """
        return ("catalogue", digest) in self._uses

    def uses_signatures(self, digest: str) -> bool:
        """Tell whether an observation names a set of signatures.

        Args:
            digest: digest of the set.
        """
        return ("signatures", digest) in self._uses

    def uses_item_list(self, subject: Subject, digest: str) -> bool:
        """Tell whether an observation names a list of prompts or of templates.

        Args:
            subject: which of both.
            digest: digest of the list.
        """
        return (subject.value, digest) in self._uses

    def _lists_of(self, seen: Seen) -> Iterator[list[Seen]]:
        yield self._all
        yield self._of_rights.setdefault(seen.auth_context, [])
        yield self._of_place.setdefault(seen.origin[:2], [])
        for subject in (Subject.PROMPT, Subject.TEMPLATE):
            if seen.listed(subject) is not None:
                yield self._stating.setdefault(subject, [])
        if seen.completeness == "complete":
            yield self._complete.setdefault(seen.catalogue, [])


def take_one(counts: Counter[_Key], key: _Key) -> None:
    """Count one less of a key, and drop it at zero.

    Args:
        counts: what is counted.
        key: a key that is there.
    """
    counts[key] -= 1
    if not counts[key]:
        del counts[key]


def drop_empty(kept: dict[_Key, Any], key: _Key) -> None:
    """Drop a key that holds nothing any more.

    Args:
        kept: collections by key.
        key: a key that may be there.
    """
    if key in kept and not kept[key]:
        del kept[key]


def _uses_of(seen: Seen) -> Iterator[tuple[str, str]]:
    yield "catalogue", seen.catalogue
    if seen.signatures is not None:
        yield "signatures", seen.signatures
    for subject in (Subject.PROMPT, Subject.TEMPLATE):
        listed = seen.listed(subject)
        if listed is not None:
            yield subject.value, listed


def _back_from(kept: list[Seen], position: Position) -> Iterator[Seen]:
    for index in reversed(range(bisect_left(kept, position, key=_position))):
        yield kept[index]


def _last_before(kept: list[Seen], position: Position) -> Seen | None:
    if kept and kept[-1].position < position:
        return kept[-1]
    index = bisect_left(kept, position, key=_position)
    return kept[index - 1] if index else None


def _position(seen: Seen) -> Position:
    return seen.position
