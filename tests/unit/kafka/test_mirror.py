"""A mirror whose offsets differ: which offsets its records had, where that is not certain, and what is left out."""

from __future__ import annotations

import json
from struct import pack
from typing import Any

import pytest

from assay_stream.bindings.erasures import ERASURE
from assay_stream.config import load_settings
from assay_stream.errors import IntegrityError
from assay_stream.files.erasing import stub_of
from assay_stream.files.spool import LogSpool
from assay_stream.kafka.mirror import (
    UNPAIRED_MAX,
    Mirror,
    NamedCalls,
    SealedOffsets,
    Sealing,
    SourceOffsets,
    dropped_checkpoints,
    pair_of,
)
from assay_stream.model.checkpoint import leaf_of
from assay_stream.model.record import Origin, Record, Role
from tests.support.seals import a_record
from tests.unit.bindings.test_erasures import act


def mirrored(*offsets: int) -> list[Record]:
    return [Record(Role.CALLS, Origin("primary.calls", 0, offset), b"key", b"%d" % offset) for offset in offsets]


def source_offsets(pairs: dict[int, int], *offsets: int) -> list[tuple[int, int]]:
    """Source offset and mirror offset of records."""
    found = SourceOffsets("partition 0 of calls", pairs)
    placed = [each for record in mirrored(*offsets) for each in found.take(record)]
    found.finish()
    return [(offset, record.origin.offset) for offset, record in placed]


def test_records_between_pairs_that_agree_have_certain_offsets() -> None:
    """Gaps on the mirror, from its own transactions, do not matter; the end goes on from the last pair."""
    assert source_offsets({0: 40, 7: 43}, 0, 1, 3, 7, 8) == [(40, 0), (41, 1), (42, 3), (43, 7), (44, 8)]


def test_records_before_the_first_pair_are_counted_back_from_it() -> None:
    """Retention may have deleted what MirrorMaker noted first."""
    assert source_offsets({9: 52}, 7, 8, 9) == [(50, 7), (51, 8), (52, 9)]


def test_a_gap_between_two_pairs_that_follow_each_other_is_certain() -> None:
    """The source deleted records before they were mirrored."""
    assert source_offsets({0: 0, 1: 9}, 0, 1, 2) == [(0, 0), (9, 1), (10, 2)]


@pytest.mark.parametrize(
    ("pairs", "offsets", "code"),
    [
        ({0: 0, 3: 4}, (0, 1, 2, 3), "mirror_unsure"),
        ({}, (0,), "mirror_unsure"),
        ({0: 0, 3: 2}, (0, 1, 2, 3), "mirror_repeats"),
        ({0: 5, 1: 5}, (0, 1), "mirror_repeats"),
        ({2: 1}, (0, 1, 2), "mirror_repeats"),
    ],
    ids=["a-gap-somewhere", "no-pair", "a-repeat-somewhere", "read-again", "more-records-than-offsets"],
)
def test_what_is_not_certain_is_refused(pairs: dict[int, int], offsets: tuple[int, ...], code: str) -> None:
    with pytest.raises(IntegrityError, match=code):
        source_offsets(pairs, *offsets)


def test_a_log_whose_first_pairs_are_gone_is_refused() -> None:
    """The topic of pairs was compacted."""
    with pytest.raises(IntegrityError, match="mirror_unsure"):
        source_offsets({10**9: 10**9}, *range(UNPAIRED_MAX))


def test_an_empty_partition_needs_no_pair() -> None:
    assert source_offsets({}) == []


def sealed_offsets(leaves: list[int], *records: int) -> tuple[list[int], int]:
    """Place records that had these offsets, given the offsets of leaves; and the number of leaves that are there."""
    found = SealedOffsets("partition 0 of evidence", iter([(each, leaf_of(a_record(each))) for each in leaves]))
    placed = [
        found.take(a_record(offset)._replace(origin=Origin("primary.evidence", 0, at)))
        for at, offset in enumerate(records)
    ]
    return placed, found.sealed


def test_sealed_evidence_gets_the_offsets_of_its_leaves_and_the_rest_goes_on() -> None:
    assert sealed_offsets([2, 3, 6], 2, 3, 6, 8) == ([2, 3, 6, 7], 3)


def test_evidence_that_was_not_replicated_is_not_sealed() -> None:
    assert sealed_offsets([2, 3, 6], 2, 3) == ([2, 3], 2)


def test_evidence_that_expired_before_it_was_mirrored_is_skipped() -> None:
    assert sealed_offsets([2, 3, 6], 3, 6) == ([3, 6], 3)


@pytest.mark.parametrize("records", [(2, 6), (2, 3, 4, 6), (9,)], ids=["missing", "inserted", "another"])
def test_evidence_that_is_not_what_was_sealed_is_refused(records: tuple[int, ...]) -> None:
    with pytest.raises(IntegrityError, match="mirror_differs"):
        sealed_offsets([2, 3, 6], *records)


def test_what_stands_in_place_of_erased_evidence_has_the_offset_of_its_leaf() -> None:
    """Topics that were rewritten without it are mirrored as they are; the stub of another record is refused."""
    stubs = [stub_of(a_record(each), act(ERASURE, 0)) for each in (2, 3)]
    found = SealedOffsets("partition 0 of evidence", iter([(each, leaf_of(a_record(each))) for each in (2, 3, 6)]))
    assert [found.take(stub) for stub in stubs] == [2, 3]
    with pytest.raises(IntegrityError, match="mirror_differs"):
        found.take(stubs[0])


def test_evidence_that_was_erased_before_it_was_sealed_is_found_by_its_stub() -> None:
    """The sealer had not come to it when the topics were rewritten: what it sealed there is the stub."""
    records = [a_record(2), stub_of(a_record(3), act(ERASURE, 0)), a_record(6)]
    leaves = [(record.origin.offset, leaf_of(record)) for record in records]
    found = SealedOffsets("partition 0 of evidence", iter(leaves))
    assert [found.take(record) for record in records] == [2, 3, 6]
    assert found.sealed == 3


ABOUT: dict[str, Any] = {
    "id": "0" * 32,
    "data": {"origin": {"topic": "mcp.tools.call", "partition": 0, "offset": 7}, "binding": {}},
}


@pytest.mark.parametrize(
    "other",
    [
        {"id": "-" + "f" * 31},
        {"data": ABOUT["data"] | {"origin": ABOUT["data"]["origin"] | {"offset": 2**63}}},
        {"data": ABOUT["data"] | {"origin": ABOUT["data"]["origin"] | {"offset": -1}}},
        {"data": ABOUT["data"] | {"origin": ABOUT["data"]["origin"] | {"partition": "0"}}},
        {"data": ABOUT["data"] | {"binding": {"origin": {"partition": 0, "offset": 1.5}}}},
    ],
    ids=["id", "too-large", "negative", "text", "fraction"],
)
def test_evidence_that_names_no_place_in_a_log_is_refused(other: dict[str, Any]) -> None:
    with LogSpool() as spool:
        mirror = Mirror(load_settings(), "primary", spool)
        mirror._note(a_record(0)._replace(value=json.dumps(ABOUT).encode()))
        with pytest.raises(IntegrityError, match="mirror_differs"):
            mirror._note(a_record(1)._replace(value=json.dumps(ABOUT | other).encode()))


def test_checkpoints_are_kept_while_what_they_seal_and_name_is_there() -> None:
    """Partition 1 lacks evidence, so the checkpoints of 0 that name its later heads go, and what names those."""
    chains = {
        0: [Sealing(10, {}), Sealing(20, {1: 5}), Sealing(30, {1: 15})],
        1: [Sealing(5, {0: 10}), Sealing(15, {0: 20})],
        2: [Sealing(7, {0: 20}), Sealing(9, {0: 30})],
    }
    assert dropped_checkpoints(chains, {0: 30, 1: 15, 2: 9}) == {0: 0, 1: 0, 2: 0}
    assert dropped_checkpoints(chains, {0: 30, 1: 14, 2: 9}) == {0: 1, 1: 1, 2: 1}
    assert dropped_checkpoints(chains, {0: 30, 1: 0, 2: 9}) == {0: 2, 1: 2, 2: 2}


def test_calls_are_looked_up_by_offset() -> None:
    """Evidence of re-routed calls comes out of order."""
    named = NamedCalls()
    for offset in (7, 3, 5):
        named.add(offset, offset)
    named.sort("partition 0 of calls")
    assert [named.id_at(offset) for offset in (2, 3, 4, 5, 7, 8)] == [None, 3, None, 5, 7, None]
    assert (len(named), named.end) == (3, 8)


def test_evidence_that_names_a_call_twice_is_refused() -> None:
    named = NamedCalls()
    named.add(3, 0)
    named.add(3, 1)
    with pytest.raises(IntegrityError, match="mirror_repeats"):
        named.sort("partition 0 of calls")


def test_a_pair_is_read_as_mirrormaker_writes_it() -> None:
    """Kafka's STRING is its length in two bytes and UTF-8; INT32 and INT64 are big endian."""
    key = pack(">h", 5) + "töpf".encode() + pack(">i", 3)
    assert pair_of(key, pack(">qq", 1_000, 7)) == ("töpf", 3, 1_000, 7)
