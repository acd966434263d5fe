"""Observations as they are: what laws hold the packed ones against."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import cast

import pytest

from assay_stream.model.facts import Seen
from assay_stream.model.record import Origin
from assay_stream.registry import server
from assay_stream.registry.runs import Row, Shared
from assay_stream.registry.sightings import PackedSightings
from assay_stream.registry.timeline import Timeline


def _time(seen: Seen) -> int:
    return seen.time_us


class PlainSightings(list[Seen]):
    """Observations as they are."""

    def append_rows(self, shared: Shared, rows: list[Row]) -> None:
        """Add observations that come after all others, in their order."""
        self.extend(map(shared.seen, rows))

    def starting_at(self, index: int) -> Iterator[Seen]:
        """Yield the observations from a place on."""
        return islice(self, index, None)

    def index_of(self, origin: Origin) -> int | None:
        """Return the place of the observation with this origin."""
        return next((index for index, seen in enumerate(self) if seen.origin == origin), None)

    def named(self, snapshot_id: str) -> Iterator[Seen]:
        """Yield the observations with this snapshot id, in their order."""
        return (seen for seen in self if seen.snapshot_id == snapshot_id)

    def stand_at(self, time_us: int) -> tuple[Seen | None, int | None]:
        """Return the latest observation at or before a time, and the time of the one after it, if any."""
        if not self or self[-1].time_us <= time_us:
            return (self[-1] if self else None), None
        index = bisect_right(self, time_us, key=_time)
        return (self[index - 1] if index else None), self[index].time_us


@contextmanager
def plain_lists() -> Iterator[None]:
    """Servers keep their observers' lists as they are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server, "PackedSightings", PlainSightings)
        yield


def plain_timeline() -> Timeline:
    """A timeline that keeps them as they are."""
    return Timeline(cast("PackedSightings", PlainSightings()))
