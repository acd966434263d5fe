"""Numbers that Python's own types cannot tell apart, and some readers can."""

from __future__ import annotations


class NegativeZero(int):
    """The JSON number ``-0``: zero to Python, JavaScript and Rust's JCS; ``-0`` to readers that keep doubles."""

    __slots__ = ()

    def __new__(cls) -> NegativeZero:
        return super().__new__(cls, 0)
