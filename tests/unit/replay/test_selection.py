"""Which records are asked for."""

import pytest

from assay_stream.errors import ConfigurationError
from assay_stream.replay.order import OffsetRange, Selection, offset_ranges, offsets_of
from tests.support.errors import raises_code
from tests.unit.replay.test_run import call, listing

MINUTE_MS = 60_000


def test_times_narrow_calls_and_end_everything() -> None:
    start_ms = call(0, 0).timestamp_ms
    selection = Selection(from_ms=start_ms + MINUTE_MS, to_ms=start_ms + 3 * MINUTE_MS)
    assert [selection.wants(call(0, minute)) for minute in range(4)] == [False, True, True, False]
    assert [selection.wants(listing(0, minute)) for minute in (0, 2, 3)] == [True, True, False]


def test_offsets_leave_out_other_partitions_of_their_topic_only() -> None:
    selection = Selection(offsets=offsets_of(["calls:0=1..3"]))
    assert [selection.wants(call(offset, 0)) for offset in range(4)] == [False, True, True, False]
    other = call(1, 0)
    assert not selection.wants(other._replace(origin=other.origin._replace(partition=1)))
    assert selection.wants(listing(9, 0))


def test_servers_are_told_by_value_and_key() -> None:
    mine, other = Selection(server_ids=frozenset({"server-0"})), Selection(server_ids=frozenset({"server-1"}))
    for record in (call(0, 0), listing(0, 0)):
        assert mine.wants(record)
        assert not other.wants(record)
    escaped = call(0, 0)._replace(value=b'{"server_id": "\\u0073erver-1"}', key=None)
    assert other.wants(escaped)


def test_two_ranges_of_one_partition_are_refused() -> None:
    """A replay reads one range of a partition: the second must not take the place of the first."""
    with raises_code("bad_offsets", kind=ConfigurationError):
        offsets_of(["calls:0=1..2", "calls:0=4..5"])


def test_a_range_is_written_in_one_way() -> None:
    assert offset_ranges(["mcp.tools.call:3=100..200", "prefix.calls:0=..7", "c:1=7..", "c:2=.."]) == (
        OffsetRange("mcp.tools.call", 3, 100, 200),
        OffsetRange("prefix.calls", 0, 0, 7),
        OffsetRange("c", 1, 7, None),
        OffsetRange("c", 2, 0, None),
    )


def test_the_end_is_not_in_the_range() -> None:
    [asked] = offset_ranges(["calls:1=2..4"])
    assert [offset for offset in range(6) if asked.holds("calls", 1, offset)] == [2, 3]
    assert not asked.holds("calls", 0, 2)
    assert not asked.holds("other", 1, 2)


@pytest.mark.parametrize(
    "text",
    ["", "calls", "calls:0", "calls:0=1", "calls:x=1..2", "calls:0=-1..2", "3:1-2", "c:0=2..2", "c:0=3..2", "c:٣=1..2"],
)
def test_another_writing_of_a_range_is_refused(text: str) -> None:
    with raises_code("bad_offsets", kind=ConfigurationError, match=r"TOPIC:PARTITION=FIRST\.\.END"):
        offset_ranges([text])
