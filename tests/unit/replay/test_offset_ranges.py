"""Ranges of offsets as an operator writes them."""

from __future__ import annotations

import pytest

from assay_stream.errors import ConfigurationError
from assay_stream.replay.offset_ranges import OffsetRange, offset_ranges


def test_a_range_is_written_in_one_way() -> None:
    """Topic, partition, first and end; a missing number is the beginning, or as far as there is."""
    assert offset_ranges(["mcp.tools.call:3=100..200", "prefix.calls:0=..7", "c:1=7..", "c:2=.."]) == (
        OffsetRange("mcp.tools.call", 3, 100, 200),
        OffsetRange("prefix.calls", 0, 0, 7),
        OffsetRange("c", 1, 7, None),
        OffsetRange("c", 2, 0, None),
    )


def test_the_end_is_not_in_the_range() -> None:
    """The first offset is; another topic or partition is not."""
    [asked] = offset_ranges(["calls:1=2..4"])
    assert [offset for offset in range(6) if asked.holds("calls", 1, offset)] == [2, 3]
    assert not asked.holds("calls", 0, 2)
    assert not asked.holds("other", 1, 2)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "calls",
        "calls:0",
        "calls:0=1",
        "calls:x=1..2",
        "calls:0=-1..2",
        "3:1-2",
        "c:0=2..2",
        "c:0=3..2",
        "c:٣=1..2",
    ],
)
def test_another_writing_of_a_range_is_refused(text: str) -> None:
    """Nothing is guessed, and the error says how to write them."""
    with pytest.raises(ConfigurationError, match=r"TOPIC:PARTITION=FIRST\.\.END") as caught:
        offset_ranges([text])
    assert caught.value.code == "bad_offsets"
