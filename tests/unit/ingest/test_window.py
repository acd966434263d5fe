"""What is remembered of accepted events, and for how long."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, strategies as st

from assay_stream.ingest.writer import AcceptedWindow
from assay_stream.limits import INGEST_LIMITS

LIMITS = replace(INGEST_LIMITS, window_ids_max=80, window_age_s=80)


def marks(*numbers: int) -> list[bytes]:
    return [number.to_bytes(16, "big") for number in numbers]


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 3_000))))
def test_the_latest_are_remembered_and_never_more_than_the_bound(events: list[tuple[int, int]]) -> None:
    """Of those that were added within seven eighths of the time, at least seven eighths of the number."""
    window, now_ms, log = AcceptedWindow(LIMITS), 0, []
    for number, pause_ms in events:
        now_ms += pause_ms
        window.add(marks(number), now_ms)
        log.append((number, now_ms))
        assert len(window) <= 80
        latest = dict.fromkeys(n for n, at_ms in reversed(log) if now_ms - at_ms < 10_000)
        assert all(mark in window for mark in marks(*list(latest)[:9]))


def test_what_is_too_old_is_forgotten() -> None:
    window = AcceptedWindow(LIMITS)
    window.add(marks(1), 0)
    window.add(marks(2), 70_000)
    assert marks(1)[0] in window
    window.add(marks(3), 80_001)
    assert marks(1)[0] not in window
    assert marks(2)[0] in window


def test_what_is_read_again_takes_no_room() -> None:
    """A process reads what it wrote itself."""
    window = AcceptedWindow(LIMITS)
    for _ in range(3):
        window.add(marks(*range(40)), 0)
    assert len(window) == 40
