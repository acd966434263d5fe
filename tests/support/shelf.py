"""A shelf in memory that knows what was put on it."""

from __future__ import annotations


class MemoryShelf:
    """A shelf that gives out places once, and fails on demand."""

    def __init__(self) -> None:
        self.kept: dict[int, bytes] = {}
        self.is_full = False
        self._next = 0

    def put(self, packed: bytes) -> int:
        """Keep rows."""
        if self.is_full:
            raise OSError
        self._next += 1
        self.kept[self._next] = packed
        return self._next

    def get(self, place: int) -> bytes:
        """Return rows."""
        return self.kept[place]

    def free(self, place: int) -> None:
        """Forget rows."""
        del self.kept[place]
