"""The requests byte by byte, as Kafka's message definitions have them (TxnOffsetCommit 3, OffsetFetch 7, Produce 8)."""

from __future__ import annotations

import pytest
from aiokafka import TopicPartition
from aiokafka.protocol.produce import ProduceRequest_v8

from assay_stream.kafka.group_protocol import GroupMember, Produce, StableOffsetFetch, TxnOffsetCommit, by_topic

CALLS = TopicPartition("calls", 2)


def test_offsets_are_committed_with_the_generation_and_the_member() -> None:
    """Compact strings and arrays begin with their length plus one, 0 where absent; each struct ends in tags."""
    member = GroupMember("group", 7, "member")
    request = TxnOffsetCommit("id", (1, 5), member, {CALLS: (9, "mark")}).prepare({28: (0, 5)})
    assert (request.API_KEY, request.API_VERSION, request.FLEXIBLE_VERSION) == (28, 3, True)
    assert request.encode() == (
        b"\x03id\x06group"
        + (1).to_bytes(8, "big")
        + b"\x00\x05\x00\x00\x00\x07\x07member\x00"
        + b"\x02\x06calls\x02\x00\x00\x00\x02"
        + (9).to_bytes(8, "big")
        + b"\xff\xff\xff\xff\x05mark\x00\x00\x00"
    )


def test_the_answer_to_offsets_names_an_error_for_each_partition() -> None:
    """After the throttle time; unknown tags are passed over."""
    request = TxnOffsetCommit("id", (1, 5), GroupMember("group", 7, "member"), {}).prepare({28: (0, 5)})
    answer = request.RESPONSE_TYPE.decode(
        b"\x00\x00\x00\x00\x02\x06calls\x02\x00\x00\x00\x02\x00\x16\x00\x01\x03\x02ab\x00"
    )
    [(name, [(partition, code, _)], tags)] = answer.topics
    assert (name, partition, code, tags) == ("calls", 2, 22, {3: b"ab"})


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


def test_batches_are_written_as_the_schema_has_them() -> None:
    """Lengths of two bytes before names, of four before lists and batches; aiokafka writes the same from its schema."""
    batches = {CALLS: b"second", TopicPartition("calls", 0): b"first", TopicPartition("a", 1): b""}
    request = Produce("id", 40_000, batches).prepare({0: (0, 11)})
    assert (request.API_KEY, request.API_VERSION, request.FLEXIBLE_VERSION) == (0, 8, False)
    assert request.encode() == (
        b"\x00\x02id\xff\xff\x00\x00\x9c\x40\x00\x00\x00\x02"
        b"\x00\x01a\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x00"
        b"\x00\x05calls\x00\x00\x00\x02"
        b"\x00\x00\x00\x00\x00\x00\x00\x05first\x00\x00\x00\x02\x00\x00\x00\x06second"
    )
    assert request.encode() == ProduceRequest_v8.encode(request)


def test_partitions_are_named_in_order() -> None:
    """Equal requests have equal bytes."""
    partitions = [TopicPartition("b", 1), TopicPartition("a", 3), TopicPartition("b", 0)]
    assert by_topic(partitions) == [
        ("a", [TopicPartition("a", 3)]),
        ("b", [TopicPartition("b", 0), TopicPartition("b", 1)]),
    ]


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
