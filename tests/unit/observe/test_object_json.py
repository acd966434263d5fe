"""The objects of a gateway's hooks as JSON text."""

from __future__ import annotations

from typing import Any

import pytest

from assay_stream.limits.serving import FeedLimits
from assay_stream.observe.objects import UNSOUND, bare, encoded, encoded_within, shared_members


def test_what_strict_decoding_refuses_stays_in_the_text() -> None:
    """NaN and a lone surrogate reach the decoder, which says why it refuses them."""
    assert encoded({"a": float("nan"), "b": "\ud800"}) == b'{"a":NaN,"b":"\xed\xa0\x80"}'


@pytest.mark.parametrize("value", [object(), {1, 2}, b"bytes"])
def test_what_is_no_json_is_nothing(value: Any) -> None:
    """A hook may hand over whatever Python has."""
    assert encoded({"a": value}) == b""


def test_what_is_too_large_is_not_written() -> None:
    """Characters and values count, names too."""
    assert encoded_within({"a": "x" * 90}, 100) == b'{"a":"' + b"x" * 90 + b'"}'
    assert encoded_within({"a": "x" * 100}, 100) == b""
    assert encoded_within({"a": [0] * 100}, 100) == b""


def test_a_call_is_bare_without_its_arguments() -> None:
    """The tool is all that is left of its parameters."""
    call = {"method": "tools/call", "params": {"name": "t", "arguments": {"secret": 1}}}
    assert bare(call) == {"method": "tools/call", "params": {"name": "t"}}


def test_each_part_of_a_list_gets_what_is_small() -> None:
    """The cursor and the time to live; a long cursor only says that there is one."""
    result = {"tools": [{}], "nextCursor": "c" * 9, "ttlMs": 5, "other": "x"}
    assert shared_members(result) == {"nextCursor": "c" * 9, "ttlMs": 5}
    assert shared_members(result, FeedLimits(cursor_chars_max=8))["nextCursor"] is True


@pytest.mark.parametrize("beside", [{"a": float("nan")}, {"a": object()}])
def test_what_cannot_be_read_beside_the_tools_makes_every_part_unsound(beside: dict[str, Any]) -> None:
    """Each part is on record, and none is hashed."""
    assert shared_members({"tools": [], **beside}).keys() == UNSOUND.keys()
