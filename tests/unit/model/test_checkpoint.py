"""Checkpoints: what they cover, how they are read, and how they follow one another."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from assay_stream.canonical.digest import Digest
from assay_stream.errors import InputError
from assay_stream.model.checkpoint import RANGE_RECORDS_MAX, SIBLINGS_MAX, Head, decode, encode, follows, leaf_of
from tests.support.seals import KEYS, Fleet, a_record, a_seal, checkpoints_of, some_records

FIRST, SECOND = checkpoints_of(some_records(0, 1, 3), some_records(5, 6))


def test_a_checkpoint_is_read_as_it_was_written() -> None:
    assert encode(decode(SECOND, KEYS)) == SECOND


def test_it_says_its_range_and_the_tree_so_far() -> None:
    made = decode(SECOND, KEYS).checkpoint
    assert (made.sequence, made.first_offset, made.last_offset, made.records, made.tree_size) == (1, 5, 6, 2, 5)
    assert made.previous == decode(FIRST, KEYS).checkpoint.digest()


@pytest.mark.parametrize(
    "change",
    [
        {"key": b"t"},
        {"key": None},
        {"key": b""},
        {"value": b"v1"},
        {"value": None},
        {"headers": ()},
        {"headers": (("h", b"y"),)},
        {"headers": (("hx", b""),)},
        {"headers": (("h", b"x"), ("h", b"x"))},
        {"timestamp_ms": 0},
    ],
)
def test_a_leaf_covers_every_part_of_a_record(change: dict[str, Any]) -> None:
    record = a_record(0)
    assert leaf_of(record._replace(**change)) != leaf_of(record) != leaf_of(record, offset=1)


def test_a_field_cannot_move_into_the_next() -> None:
    """Lengths are written: key and value cannot share their bytes out otherwise."""
    record = a_record(0)
    assert leaf_of(record._replace(key=b"a", value=b"bc")) != leaf_of(record._replace(key=b"ab", value=b"c"))


def test_leaves_that_are_not_the_signed_ones_are_refused() -> None:
    mixed = json.loads(FIRST) | {"leaves": json.loads(SECOND)["leaves"]}
    with pytest.raises(InputError, match="bad_checkpoint"):
        decode(json.dumps(mixed).encode(), KEYS)


@pytest.mark.parametrize("raw", [None, b"", b"[]", b"{}", b'{"checkpoint":{},"leaves":"","note":""}', b"\xff"])
def test_any_other_bytes_are_refused(raw: bytes | None) -> None:
    with pytest.raises(InputError):
        decode(raw, KEYS)


def test_checkpoints_follow_one_another() -> None:
    first, second = decode(FIRST, KEYS), decode(SECOND, KEYS)
    assert follows(first, None) is None
    assert follows(second, first) is None
    assert follows(second, None) == "checkpoint_out_of_sequence"
    assert follows(first, first) == "checkpoint_out_of_sequence"


def test_a_fork_is_told() -> None:
    _, forked = checkpoints_of(some_records(0, 1, 4), some_records(5, 6))
    assert follows(decode(forked, KEYS), decode(FIRST, KEYS)) == "checkpoint_chain_broken"


def test_a_checkpoint_names_the_heads_of_its_siblings() -> None:
    fleet = Fleet(3)
    for partition in (2, 0, 1):
        fleet.grow(partition, 2)
        fleet.seal(partition)
    made = decode(encode(fleet.chains[1][0]), KEYS).checkpoint
    assert made.partitions == 3
    assert made.siblings == (fleet.chains[0][0].checkpoint.head, fleet.chains[2][0].checkpoint.head)


def test_claims_about_siblings_never_go_back() -> None:
    """A checkpoint that knows less than the one before, of siblings or partitions, does not continue it."""
    fleet = Fleet(2)
    for partition in (0, 1, 0, 1):
        fleet.grow(partition, 1)
        fleet.seal(partition)
    chain, other = fleet.chains
    older, newer = (made.checkpoint.head for made in other)
    before = replace(chain[1].checkpoint, siblings=(newer,), partitions=3)
    for partitions, siblings, expected in (
        (3, (newer,), None),
        (4, (newer,), None),
        (2, (newer,), "checkpoint_siblings_went_back"),
        (3, (older,), "checkpoint_siblings_went_back"),
    ):
        made = a_seal(before, some_records(9), partitions=partitions, siblings=siblings)
        assert follows(made, chain[1]._replace(checkpoint=before)) == expected


def test_a_checkpoint_names_so_many_siblings_and_no_more() -> None:
    """Those behind it in a circle, so that each partition is named by as many; a full record fits its topic."""
    heads = [Head(number, 10**12, Digest("0" * 64)) for number in range(3_000)]
    records = some_records(*range(RANGE_RECORDS_MAX))
    made = a_seal(None, records, topic="t" * 200, partition=2_900, partitions=3_000, siblings=heads)
    named = {head.partition for head in made.checkpoint.siblings}
    assert named == {*range(2_901, 3_000), *range(SIBLINGS_MAX - 99)}
    assert len(encode(made)) < 1_048_576 - 4_096


@pytest.mark.parametrize("part", ["checkpoint", "note"])
def test_a_note_signs_one_checkpoint(part: str) -> None:
    """One of another checkpoint with the same tree head does not do: an extension line holds the digest."""
    [other] = checkpoints_of([a_record(0)._replace(timestamp_ms=7)])
    [one] = checkpoints_of([a_record(0)])
    mixed = json.loads(one) | {part: json.loads(other)[part]}
    with pytest.raises(InputError, match="bad_checkpoint"):
        decode(json.dumps(mixed).encode(), KEYS)


def test_a_checkpoint_says_nothing_beside_what_is_signed() -> None:
    for content in (json.loads(FIRST) | {"more": 1}, json.loads(FIRST)):
        content["checkpoint"] |= {} if "more" in content else {"more": 1}
        with pytest.raises(InputError, match="bad_checkpoint"):
            decode(json.dumps(content).encode(), KEYS)
