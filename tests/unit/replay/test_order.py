"""The order of a replay: how far refused calls are held back."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable

from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.model.record import Record
from assay_stream.replay.order import REFUSED_AHEAD_MAX, _NamedTimes, _names, time_of_refused_ms
from tests.support.counting import counted_calls
from tests.support.merging import merge_by_event_time
from tests.unit.replay.test_run import call, listing


def test_more_refused_calls_than_are_held_back_keep_their_order() -> None:
    poison: list[Record] = [
        call(offset, 1)._replace(value=b'{"time": "2099-01-01T00:00:00Z"}', timestamp_ms=0)
        for offset in range(REFUSED_AHEAD_MAX + 50)
    ]
    merged = merge_by_event_time([*poison, call(len(poison), 2), listing(0, 0), listing(1, 5)])
    offsets = [record.origin.offset for record in merged if record.role == "calls"]
    assert offsets == list(range(len(poison) + 1))


def test_each_refused_call_is_looked_at_a_few_times() -> None:
    def merged(count: int) -> list[Record]:
        return merge_by_event_time([call(offset, 1)._replace(value=b"{") for offset in range(count)])

    beyond = 2 * REFUSED_AHEAD_MAX
    more = counted_calls(lambda: merged(2 * beyond)) - counted_calls(lambda: merged(beyond))
    assert more / beyond < REFUSED_AHEAD_MAX / 2


def test_a_refused_call_without_a_log_time_is_dated_by_what_it_claims() -> None:
    claimed = call(0, 0)._replace(value=b'{"time": "1970-01-01T00:00:01Z"}')
    assert time_of_refused_ms(claimed, DEFAULT_LIMITS) == claimed.timestamp_ms
    assert time_of_refused_ms(claimed._replace(timestamp_ms=0), DEFAULT_LIMITS) == 1_000
    broken = claimed._replace(timestamp_ms=0, value=b'{"time": "9999-01-01T00:00:00Z"}')
    assert time_of_refused_ms(broken, DEFAULT_LIMITS) == 0


def named_times(lists: Iterable[tuple[str, str, int]]) -> _NamedTimes:
    entries = bytearray()
    for observer_id, snapshot_id, time_ms in lists:
        for name in _names("server", observer_id, snapshot_id):
            entries += name + time_ms.to_bytes(6)
    return _NamedTimes(entries)


def test_the_names_of_a_list_take_few_bytes() -> None:
    """A replay of very many lists keeps two names of each: both take no more than one id as text."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        names = named_times(("proxy", f"00000000-0000-4000-8000-{number:012x}", number) for number in range(20_000))
        _names.cache_clear()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after - before) / 20_000 < 40
    assert names.of("server", "proxy", f"00000000-0000-4000-8000-{7:012x}") == 7


def test_a_call_waits_for_its_own_observers_list_and_for_no_others() -> None:
    """A list under somebody else's id delays no call; an id that only others used leads to the first of theirs."""
    names = named_times([("a", "s", 50), ("b", "s", 10), ("a", "s", 70), ("b", "t", 30)])
    assert [names.of("server", who, "s") for who in "abc"] == [50, 10, 10]
    assert [names.of("server", "a", "t"), names.of("other", "a", "s")] == [30, 0]
    assert named_times([]).of("server", "a", "s") == 0
