"""How much may be in progress: requests take room as they are read, and get 429 where there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from assay_stream.ingest.answers import RequestRefused


@dataclass(slots=True)
class Room:
    left_bytes: int


class HeldRoom:
    def __init__(self, rooms: Sequence[Room]) -> None:
        self._rooms = rooms
        self._bytes = 0

    def take(self, size_bytes: int) -> None:
        """Make room.

        Raises:
            RequestRefused: 429 if there is none.
        """
        if any(size_bytes > room.left_bytes for room in self._rooms):
            raise RequestRefused(429, "too_many_requests", "too much is waiting for Kafka: try again")
        for room in self._rooms:
            room.left_bytes -= size_bytes
        self._bytes += size_bytes

    def release(self) -> None:
        for room in self._rooms:
            room.left_bytes += self._bytes
        self._bytes = 0
