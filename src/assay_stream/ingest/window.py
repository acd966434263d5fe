"""Which events were accepted lately, bounded in number and age."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from assay_stream.limits.serving import INGEST_LIMITS, IngestLimits
from assay_stream.model.ingest import Mark

_GENERATIONS = 8


class AcceptedWindow:
    """The latest accepted events. What is forgotten goes by generations, each an eighth of the window."""

    def __init__(self, limits: IngestLimits = INGEST_LIMITS) -> None:
        self._ids_max = max(1, limits.window_ids_max // _GENERATIONS)
        self._age_ms = limits.window_age_s * 1_000
        self._generations: deque[tuple[int, set[Mark]]] = deque()

    def __contains__(self, mark: Mark) -> bool:
        return any(mark in marks for _, marks in self._generations)

    def __len__(self) -> int:
        return sum(len(marks) for _, marks in self._generations)

    def add(self, marks: Iterable[Mark], at_ms: int) -> None:
        """Remember accepted events.

        Args:
            at_ms: when they were accepted, milliseconds since the epoch.
        """
        generations = self._generations
        for mark in marks:
            if mark in self:
                continue
            if (
                not generations
                or len(generations[-1][1]) >= self._ids_max
                or at_ms - generations[-1][0] >= self._age_ms // _GENERATIONS
            ):
                generations.append((at_ms, set()))
            generations[-1][1].add(mark)
        self.forget(at_ms)

    def forget(self, now_ms: int) -> None:
        generations = self._generations
        while len(generations) > _GENERATIONS or (generations and now_ms - generations[0][0] > self._age_ms):
            generations.popleft()
