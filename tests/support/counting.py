"""Work counted, not timed: the same on a busy machine as on a quiet one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import FrameType


def counted_calls(function: Callable[[], object]) -> int:
    """Return how many calls a function makes until it returns: of Python, of C, and each turn of a generator.

    A loop in C is one call, however long it is: hold the size of what is passed to it against a bound instead.
    """
    count = 0

    def note(_frame: FrameType, event: str, _what: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(before)
    return count


def growth(function: Callable[[int], object], size: int, *, times: int = 4) -> float:
    """Return by how much the calls grow from one size to one that is some times as large: a line has 1, a square
    ``times``.
    """
    function(size)  # whatever is made once
    small, large = (counted_calls(partial(function, each)) for each in (size, times * size))
    return large / small / times
