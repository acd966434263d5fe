"""Windows over event time."""

from typing import Any

import pytest
from hypothesis import given, strategies as st

from assay_stream.agents import Memory, Origin
from assay_stream.limits import DEFAULT_LIMITS


def at(state: dict[str, Any], second: float, offset: int = 0) -> Memory:
    return Memory(state, time_us=int(second * 1_000_000), origin=Origin("t", 0, offset), definition=lambda _: None)


@pytest.mark.parametrize(("second", "seen"), [(0, 1), (9.999_999, 1), (10, 0)])
def test_a_window_ends_with_the_record_at_hand_and_is_open_at_its_beginning(second: float, seen: int) -> None:
    """(end - length, end]: a record exactly as old as the window is long is no longer in it."""
    state: dict[str, Any] = {}
    at(state, 0).window("w", seconds=10).add()
    assert len(at(state, second).window("w", seconds=10)) == seen


def test_items_come_in_order_of_time_and_origin() -> None:
    state: dict[str, Any] = {}
    for second, offset in ((3, 0), (1, 2), (1, 1)):
        at(state, second, offset).window("w", seconds=10).add(f"{second}/{offset}")
    window = at(state, 3, 9).window("w", seconds=10)
    assert window.values == ["1/1", "1/2", "3/0"]
    assert [origin.offset for origin in window.origins] == [1, 2, 0]


def test_a_late_record_sees_the_window_that_ends_with_it() -> None:
    """Later items are not in it, and earlier ones were not forgotten for them."""
    state: dict[str, Any] = {}
    for second in (0, 1, 15):
        at(state, second).window("w", seconds=10).add(second)
    assert at(state, 2).window("w", seconds=10).values == [0, 1]


@given(st.lists(st.integers(0, 19), min_size=3, max_size=8), st.data())
def test_records_within_a_window_meet_in_any_order(seconds: list[int], data: st.DataObject) -> None:
    """Some record sees three of them if three lie within the length, and none does otherwise.

    So it is while none is later than another by twice the length: what is older is forgotten.
    """
    ordered = sorted(seconds)
    are_near = any(last - first < 10 for first, last in zip(ordered, ordered[2:], strict=False))
    state: dict[str, Any] = {}
    seen = []
    for offset, second in enumerate(data.draw(st.permutations(seconds))):
        window = at(state, second, offset).window("w", seconds=10)
        window.add()
        seen.append(len(window))
    assert (max(seen) >= 3) == are_near


def test_a_clock_that_runs_ahead_leaves_the_others_their_window() -> None:
    """One record dated a day ahead must not blind the detection."""
    state: dict[str, Any] = {}
    for second in (0, 86_400, 1, 2):
        at(state, second).window("w", seconds=10).add(second)
    assert at(state, 2).window("w", seconds=10).values == [1, 2]


def test_a_window_is_bounded() -> None:
    state: dict[str, Any] = {}
    for number in range(DEFAULT_LIMITS.agent_window_items_max + 5):
        at(state, number / 1_000, number).window("w", seconds=10).add(number)
    window = at(state, 1, 0).window("w", seconds=10)
    assert len(window) == DEFAULT_LIMITS.agent_window_items_max
    assert window.values[0] == 5
    assert len(window.origins) == DEFAULT_LIMITS.agent_references_max


def test_a_window_that_was_only_looked_at_leaves_no_state() -> None:
    state: dict[str, Any] = {}
    assert len(at(state, 0).window("w", seconds=10)) == 0
    window = at(state, 0).window("w", seconds=10)
    window.add()
    window.clear()
    assert state == {}
