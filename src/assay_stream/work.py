"""A budget of work, counted in deterministic units.

Everything about a record that can cost more than a small constant per byte draws on one budget. Units are counted,
never timed, so that a replay stops where the live stage stopped. One unit stands for about 0.1 microseconds on the
machine that the limits were set on.

1. ``spend`` before the work, not after it.
2. Once a budget is exhausted it stays exhausted: what comes after is cut short too.
3. An answer that is cached keeps what it cost. A hit spends the same units as the computation did, so that the
   content of a cache never changes what is found.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final


class WorkExhaustedError(Exception):
    """A budget is used up. Raised by ``spend``, caught by the owner of the budget; never leaves the core."""


class Work:
    """What one record, or one part of it, may still cost.

    Args:
        units_max: the bound, in units.
    """

    __slots__ = ("_spent", "_units_max")

    def __init__(self, units_max: int) -> None:
        if units_max <= 0:
            raise ValueError(f"a work budget must be positive, not {units_max}")
        self._units_max = units_max
        self._spent = 0

    @property
    def spent(self) -> int:
        """Units spent so far; all of them where the budget is exhausted."""
        return self._spent

    @property
    def left(self) -> int:
        return self._units_max - self._spent

    @property
    def is_exhausted(self) -> bool:
        return self._spent >= self._units_max

    def spend(self, units: int) -> None:
        """Spend units before the work that they stand for.

        Raises:
            WorkExhaustedError: where fewer are left. The rest is gone then.
        """
        if units > self._units_max - self._spent:
            self._spent = self._units_max
            raise WorkExhaustedError
        self._spent += units

    @contextmanager
    def quarter(self) -> Iterator[Work]:
        """Give a budget of a quarter of what is left; what it spends is spent here at the end of the block."""
        part = Work(max(1, self.left // 4))
        try:
            yield part
        finally:
            self.spend(min(part.spent, self.left))

    def part(self, units_max: int) -> Work:
        """Return a budget for one part, no larger than what is left here; ``spend`` its ``spent`` here afterwards.

        Args:
            units_max: the bound of the part, in units.

        Raises:
            WorkExhaustedError: where nothing is left.
        """
        if self.is_exhausted:
            raise WorkExhaustedError
        return Work(min(units_max, self.left))


UNLIMITED: Final = 1 << 62
"""Units for callers without a budget: a person who compares two files and waits for the answer."""
