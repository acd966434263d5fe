"""What one observer saw on one server, in the order of event time.

The as-of contract: ``as_of(t)`` is the latest observation at or before ``t`` (inclusive); of two at the same
time the later origin wins. Arrival order never matters.

The number of observations kept is bounded. Folding takes away, first, the oldest one whose neighbours saw the
same catalogue (no as-of answer changes, only which of several equal observations is named); where there is none,
the oldest one, and then the horizon says that earlier history is gone. What was folded away cannot stand against
a list that arrives later with an earlier time: one that is late by as many observations as are kept changes
answers.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Sequence

from assay_stream.model.facts import Seen
from assay_stream.model.record import Origin, Position

BEFORE_ALL_US, AFTER_ALL_US = -(2**63), 2**63 - 1
"""Event times before and after everything."""


class Timeline:
    """The observations of one observer on one server."""

    __slots__ = ("_entries", "horizon_us")

    def __init__(self) -> None:
        self._entries: list[Seen] = []
        self.horizon_us: int | None = None

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Seen]:
        return iter(self._entries)

    def add(self, seen: Seen) -> bool:
        """Add an observation, and tell whether it is new; adding it again changes nothing.

        Args:
            seen: an observation by this observer on this server.
        """
        if self._entries and self._entries[-1].position < seen.position:
            self._entries.append(seen)
        elif seen not in self._entries:
            insort(self._entries, seen, key=_position)
        else:
            return False
        return True

    def remove(self, origin: Origin) -> Seen | None:
        """Take an observation away and return it.

        Args:
            origin: its origin.
        """
        for index, seen in enumerate(self._entries):
            if seen.origin == origin:
                return self._entries.pop(index)
        return None

    def at(self, time_us: int) -> Sequence[Seen]:
        """Return the observations of exactly this time.

        Args:
            time_us: event time, microseconds since the epoch.
        """
        first = bisect_left(self._entries, time_us, key=_time)
        return self._entries[first : bisect_right(self._entries, time_us, key=_time)]

    def as_of(self, time_us: int) -> Seen | None:
        """Return the latest observation at or before a time.

        Args:
            time_us: event time, microseconds since the epoch.
        """
        if not self._entries:
            return None
        if self._entries[-1].time_us <= time_us:
            return self._entries[-1]
        index = bisect_right(self._entries, time_us, key=_time)
        return self._entries[index - 1] if index else None

    def span_at(self, time_us: int) -> tuple[int, int]:
        """Return the times from which on, and before which, every answer is the same as at a time.

        Args:
            time_us: event time, microseconds since the epoch.
        """
        index = bisect_right(self._entries, time_us, key=_time)
        since_us = self._entries[index - 1].time_us if index else BEFORE_ALL_US
        until_us = self._entries[index].time_us if index < len(self._entries) else AFTER_ALL_US
        if self.horizon_us is None:
            return since_us, until_us
        if self.horizon_us <= time_us:
            return max(since_us, self.horizon_us), until_us
        return since_us, min(until_us, self.horizon_us)

    def is_folded_at(self, time_us: int) -> bool:
        """Tell whether what was seen at a time may have been folded away.

        Args:
            time_us: event time, microseconds since the epoch.
        """
        return self.horizon_us is not None and time_us < self.horizon_us

    def before(self, position: Position) -> list[Seen]:
        """Return the observations that precede a position, oldest first.

        Args:
            position: the position of an observation.
        """
        return [seen for seen in self._entries if seen.position < position]

    def back_from(self, position: Position) -> Iterator[Seen]:
        """Yield the observations that precede a position, newest first.

        Args:
            position: the position of an observation.
        """
        for index in reversed(range(bisect_left(self._entries, position, key=_position))):
            yield self._entries[index]

    def newest_first(self) -> Iterator[Seen]:
        """Yield every observation, newest first."""
        return reversed(self._entries)

    @property
    def latest(self) -> Seen | None:
        """The latest observation, ``None`` where there is none."""
        return self._entries[-1] if self._entries else None

    @property
    def latest_us(self) -> int:
        """Event time of the latest observation, 0 where there is none."""
        return self._entries[-1].time_us if self._entries else 0

    def in_force_since(self, position: Position) -> Iterator[tuple[Seen, Position | None]]:
        """Yield what was in force at a position and after it, with the position at which its force ended.

        Args:
            position: where to begin.
        """
        entries = self._entries
        first = max(0, bisect_right(entries, position, key=_position) - 1)
        for index in range(first, len(entries)):
            end = entries[index + 1].position if index + 1 < len(entries) else None
            yield entries[index], end

    def first_after(self, position: Position) -> Seen | None:
        """Return the earliest observation after a position.

        Args:
            position: any position.
        """
        index = bisect_right(self._entries, position, key=_position)
        return self._entries[index] if index < len(self._entries) else None

    def one_too_many(
        self, entries_max: int, parts: Callable[[Seen, Seen], bool] = lambda _older, _newer: False
    ) -> tuple[Seen, bool] | None:
        """Return the observation to fold away, and whether history is lost with it, or ``None``.

        Args:
            entries_max: how many observations may be kept.
            parts: whether the force of the first of two observations had ended when the second was taken, which
                makes the second one news.
        """
        entries = self._entries
        if len(entries) <= entries_max:
            return None
        same_tools: Seen | None = None
        for older, seen, newer in zip(entries, entries[1:], entries[2:], strict=False):
            repeats = _same_sight(older, seen) and _same_sight(seen, newer)
            if repeats and not parts(older, seen):
                if _same_lists(older, seen) and _same_lists(seen, newer):
                    return seen, False
                same_tools = same_tools or seen
        # No call is bound to prompts and templates: what they were is given up before an answer on a tool is.
        return (entries[0], True) if same_tools is None else (same_tools, False)


def _position(seen: Seen) -> Position:
    return seen.position


def _time(seen: Seen) -> int:
    return seen.time_us


def _same_sight(one: Seen, other: Seen) -> bool:
    return (one.catalogue, one.completeness, one.signatures) == (
        other.catalogue,
        other.completeness,
        other.signatures,
    )


def _same_lists(one: Seen, other: Seen) -> bool:
    return (one.prompts, one.templates) == (other.prompts, other.templates)
