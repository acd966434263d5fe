"""How much of what is sent may be in progress."""

from __future__ import annotations

import pytest

from assay_stream.ingest.answers import RequestRefused
from assay_stream.ingest.room import HeldRoom, Room


def test_a_request_takes_of_every_room_and_gives_it_back() -> None:
    """Its client's and that of all."""
    everybody, own = Room(10), Room(5)
    held = HeldRoom((everybody, own))
    held.take(2)
    held.take(3)
    assert (everybody.left_bytes, own.left_bytes) == (5, 0)
    held.release()
    held.release()
    assert (everybody.left_bytes, own.left_bytes) == (10, 5), "once, however often it is released"


def test_where_one_room_is_full_none_is_taken_of_the_others() -> None:
    """The answer is 429, to be tried again."""
    everybody, own = Room(10), Room(5)
    with pytest.raises(RequestRefused) as refused:
        HeldRoom((everybody, own)).take(6)
    assert refused.value.answer.status == 429
    assert (everybody.left_bytes, own.left_bytes) == (10, 5)
