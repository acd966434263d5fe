"""The request byte by byte, as Kafka's message definitions have it (OffsetFetch 7)."""

from __future__ import annotations

import pytest
from aiokafka import TopicPartition

from assay_stream.kafka.group_protocol import GroupMember, StableOffsetFetch

CALLS = TopicPartition("calls", 2)


def test_committed_offsets_are_asked_for_stable() -> None:
    """The byte behind the topics says so."""
    request = StableOffsetFetch("group", [CALLS]).prepare({9: (1, 9)})
    assert (request.API_KEY, request.API_VERSION, request.FLEXIBLE_VERSION) == (9, 7, True)
    assert request.encode() == b"\x06group\x02\x06calls\x02\x00\x00\x00\x02\x00\x01\x00"


def test_the_answer_has_offset_metadata_and_error_of_each_partition() -> None:
    """An offset of -1 is none."""
    request = StableOffsetFetch("group", [CALLS]).prepare({9: (1, 9)})
    answer = request.RESPONSE_TYPE.decode(
        b"\x00\x00\x00\x00\x02\x06calls\x02\x00\x00\x00\x02"
        + b"\xff" * 8
        + b"\x00\x00\x00\x01\x01\x00\x58\x00\x00"
        + b"\x00\x0e\x00"
    )
    [(_, [part], _)] = answer.topics
    assert (part[:5], answer.error_code) == ((2, -1, 1, "", 88), 14)


@pytest.mark.parametrize(
    ("later", "follows"),
    [
        (GroupMember("group", 7, "member"), True),
        (GroupMember("group", 8, "member"), True),
        (GroupMember("group", 9, "member"), False),
        (GroupMember("group", 8, "again"), False),
        (GroupMember("group", -1, "member"), False),
    ],
)
def test_a_membership_follows_another_where_no_generation_lies_between(later: GroupMember, follows: bool) -> None:
    """In a generation that a member missed, what it had may have been another's."""
    assert later.follows(GroupMember("group", 7, "member")) is follows
