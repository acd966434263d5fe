"""Who gets which partitions: even shares, and as few moves as that allows."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
from hypothesis import given, strategies as st

from assay_stream.kafka.runner import StickyAssignor, share_out

CLAIMS = st.dictionaries(st.text("abcdef", min_size=1), st.sets(st.integers(-1, 12)), min_size=1, max_size=6)


@given(st.sets(st.integers(0, 10)), CLAIMS)
def test_every_partition_has_one_owner_and_shares_are_even(numbers: set[int], claims: dict[str, set[int]]) -> None:
    shares = share_out(numbers, claims)
    assert sorted(number for share in shares.values() for number in share) == sorted(numbers)
    assert max(map(len, shares.values())) - min(map(len, shares.values())) <= 1


@given(st.sets(st.integers(0, 10)), CLAIMS)
def test_shares_that_are_even_stay(numbers: set[int], claims: dict[str, set[int]]) -> None:
    """A rebalance without a change moves nothing."""
    shares = share_out(numbers, claims)
    assert share_out(numbers, shares) == shares


@given(st.sets(st.integers(0, 10)), st.sets(st.text("abcdef", min_size=1), min_size=2, max_size=6))
def test_a_member_that_leaves_moves_only_its_own(numbers: set[int], names: set[str]) -> None:
    """The others keep what they have, and share out the rest."""
    shares = share_out(numbers, dict.fromkeys(names, ()))
    shares.pop(min(names))
    after = share_out(numbers, shares)
    assert all(shares[name] <= after[name] for name in shares)


def test_a_member_that_comes_takes_no_more_than_its_share() -> None:
    """Two of eight partitions move, whichever name the new member has."""
    before = {"b": {0, 1, 2, 3}, "d": {4, 5, 6, 7}}
    for name in "ace":
        after = share_out(range(8), {**before, name: ()})
        assert sum(len(after[each] - before[each]) for each in before) == 0
        assert len(after[name]) in (2, 3)


def test_a_member_that_comes_back_gets_what_it_had() -> None:
    """What the other took over last is what it gives up first."""
    assert share_out(range(4), {"b": [3, 1, 0, 2], "a": ()}) == {"a": {0, 2}, "b": {1, 3}}


class Cluster(SimpleNamespace):
    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return {"lists": {0, 1}, "control": {0, 1, 2}}.get(topic)


def assigned(*user_data: bytes) -> list[list[tuple[str, int]]]:
    topics = ["lists", "control", "missing"]
    members = {f"member-{i}": ConsumerProtocolMemberMetadata(0, topics, data) for i, data in enumerate(user_data)}
    found = StickyAssignor(lambda: ()).assign(Cluster(), members)
    decoded = [ConsumerProtocolMemberAssignment.decode(found[name].encode()) for name in members]
    return [sorted(tuple(tp) for tp in each.partitions()) for each in decoded]


def test_a_partition_number_goes_to_one_member_over_all_topics() -> None:
    """State is kept for the number: control records and lists of a server meet in it."""
    assert assigned(b"[1]", b"[0, 2]") == [
        [("control", 1), ("lists", 1)],
        [("control", 0), ("control", 2), ("lists", 0)],
    ]


@pytest.mark.parametrize("user_data", [b"", b"{", b"17", b'[["x"]]', b'["one"]', b"[1e400]", b"null"])
def test_what_cannot_be_read_claims_nothing(user_data: bytes) -> None:
    """A member of another version must not keep the group from working."""
    assert sum(map(len, assigned(user_data, b"[0]"))) == 5
    assert ("lists", 0) in assigned(user_data, b"[0]")[1]


def test_a_member_claims_what_it_has_open() -> None:
    """At the time it joins, not when it was made."""
    mine: list[int] = []
    assignor = StickyAssignor(lambda: mine)
    mine += [3, 1]
    assert assignor.metadata({"lists"}).user_data == b"[3,1]"


def test_a_member_gets_no_partition_of_a_topic_that_it_does_not_read() -> None:
    """While a stage is restarted to read one more topic, the others' numbers of it wait for them."""
    one, two = StickyAssignor(lambda: [0]), StickyAssignor(lambda: [1])
    members = {"a": one.metadata(["lists"]), "b": two.metadata(["lists", "control"])}
    found = one.assign(Cluster(), members)
    assert dict(found["a"].assignment) == {"lists": [0]}
    assert dict(found["b"].assignment) == {"control": [1], "lists": [1]}
