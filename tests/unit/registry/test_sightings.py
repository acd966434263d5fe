"""Packed observations: what they cost."""

from __future__ import annotations

import tracemalloc

from assay_stream.registry.sightings import PackedSightings
from tests.support.facts import seen

_COUNT = 512
_HOUR_US = 3_600_000_000


def bytes_of_a_list(*catalogues: str) -> float:
    """Bytes that one more hourly list takes, of lists that go round."""
    tracemalloc.start()
    try:
        entries = PackedSightings()
        for number in range(_COUNT):
            name = f"00000000-0000-4000-8000-{number:012}"
            catalogue = catalogues[number % len(catalogues)]
            entries.append(seen("alice", number * _HOUR_US, catalogue, offset=number * 1_000, snapshot_id=name))
        return tracemalloc.get_traced_memory()[0] / _COUNT
    finally:
        tracemalloc.stop()


def test_a_repeated_list_costs_bytes() -> None:
    """Time, offset, a UUID, and a reference to what it shares with the others."""
    assert bytes_of_a_list("sha256:one") < 48


def test_lists_that_alternate_share_what_they_state() -> None:
    """None holds again what another one states."""
    assert bytes_of_a_list("sha256:one", "sha256:two", "sha256:three") < 48
