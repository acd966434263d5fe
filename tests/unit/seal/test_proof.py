"""Proofs: made of checkpoints, checked with a public key alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from assay_stream.errors import InputError
from assay_stream.model.checkpoint import Sealed
from assay_stream.model.record import Origin, Record
from assay_stream.schemes import tlog
from assay_stream.seal.proof import chain_of, check_proof, check_tlog_proof, consistency, inclusion
from tests.support.seals import KEYS, LOG_NAME, OTHER_KEY, TOPIC, a_record, checkpoints_of, some_records

RANGES = [some_records(2, 3, 5), some_records(6), some_records(9, 10, 11, 13)]
SEALS = checkpoints_of(*RANGES)
RECORDS = [record for records in RANGES for record in records]


def chain() -> Iterator[Sealed]:
    return chain_of(enumerate(SEALS), KEYS)


def as_file(proof: dict[str, Any]) -> bytes:
    return json.dumps(proof).encode()


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: str(record.origin.offset))
def test_every_sealed_record_can_be_proven_in_both_forms(record: Record) -> None:
    proof = inclusion(chain, record.origin.offset)
    raw = as_file(proof.as_json())
    shown = check_proof(raw, KEYS, record)
    named = {"offset": record.origin.offset, "leaf_index": RECORDS.index(record), "record_checked": True}
    assert shown.items() >= {**named, "topic": TOPIC, "checkpoint": 2}.items()
    assert check_proof(raw, KEYS)["record_checked"] is False
    shown = check_tlog_proof(proof.as_tlog().encode(), KEYS, record)
    tree = {"origin": f"{LOG_NAME}/{TOPIC}/0", "tree_size": len(RECORDS)}
    assert shown.items() >= {**named, **tree}.items()


@pytest.mark.parametrize(("first", "second"), [(0, 0), (0, 1), (0, 2), (1, 2), (2, 2)])
def test_every_two_checkpoints_are_consistent(first: int, second: int) -> None:
    shown = check_proof(as_file(consistency(chain, first, second)), KEYS)
    assert (shown["kind"], shown["first_checkpoint"], shown["checkpoint"]) == ("consistency", first, second)


@pytest.mark.parametrize("offset", [0, 4, 12, 14])
def test_what_is_not_sealed_cannot_be_proven(offset: int) -> None:
    with pytest.raises(InputError, match="offset_not_sealed"):
        inclusion(chain, offset)


def test_checkpoints_that_are_not_there_cannot_be_proven() -> None:
    with pytest.raises(InputError, match="checkpoint_not_found"):
        consistency(chain, 0, 3)
    with pytest.raises(InputError, match="proof_out_of_range"):
        consistency(chain, 2, 1)


@pytest.mark.parametrize("name", ["path", "leaf", "leaf_index"])
def test_an_altered_proof_fails(name: str) -> None:
    proof = inclusion(chain, 5).as_json()
    other = inclusion(chain, 10).as_json()
    with pytest.raises(InputError, match="proof_fails"):
        check_proof(as_file(proof | {name: other[name]}), KEYS)


def test_another_record_is_not_the_proven_one() -> None:
    raw = as_file(inclusion(chain, 5).as_json())
    moved = a_record(5)._replace(origin=a_record(5).origin._replace(partition=1))
    for record in (a_record(5)._replace(value=b"other"), a_record(6), moved):
        with pytest.raises(InputError, match="proof_of_another_record"):
            check_proof(raw, KEYS, record)


def test_a_proof_with_another_offset_needs_the_record_to_be_refused() -> None:
    """The offset is covered by the leaf alone."""
    raw = as_file(inclusion(chain, 5).as_json() | {"offset": 6})
    assert check_proof(raw, KEYS)["offset"] == 6
    with pytest.raises(InputError, match="proof_of_another_record"):
        check_proof(raw, KEYS, a_record(5))
    with pytest.raises(InputError, match="proof_of_another_record"):
        check_proof(raw, KEYS, a_record(6))


def test_consistency_of_two_logs_is_none() -> None:
    other = next(chain_of(enumerate(checkpoints_of(RANGES[0], topic="other")), KEYS))
    with pytest.raises(InputError, match="proof_fails"):
        check_proof(as_file(consistency(chain, 0, 1) | {"first": other.signed()}), KEYS)
    with pytest.raises(InputError, match="proof_fails"):
        check_proof(as_file(consistency(chain, 0, 2) | {"path": []}), KEYS)


@pytest.mark.parametrize(
    "change",
    [
        {"schema": "assay.evidence.proof.v2"},
        {"kind": "consistency"},
        {"kind": 1},
        {"path": None},
        {"path": [1]},
        {"path": ["zz"]},
        {"leaf": None},
        {"offset": True},
        {"leaf_index": "1"},
        {"more": 1},
    ],
)
def test_what_is_no_proof_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="bad_proof"):
        check_proof(as_file(inclusion(chain, 5).as_json() | change), KEYS)
    with pytest.raises(InputError, match="bad_proof"):
        check_proof(b"[]", KEYS)
    with pytest.raises(InputError, match="bad_proof"):
        check_proof(as_file(consistency(chain, 0, 1)), KEYS, a_record(2))


def test_a_checkpoint_by_another_key_proves_nothing() -> None:
    proof = inclusion(chain, 5).as_json()
    foreign = json.loads(checkpoints_of(RECORDS, keys=[OTHER_KEY])[0])
    del foreign["leaves"]
    with pytest.raises(InputError, match="seal_key_unknown"):
        check_proof(as_file(proof | {"checkpoint": foreign}), KEYS)


def test_no_proof_is_made_of_a_broken_chain() -> None:
    with pytest.raises(InputError, match=r"checkpoint_chain_faulty: checkpoint record 1 .*out_of_sequence"):
        inclusion(lambda: chain_of(enumerate([SEALS[0], SEALS[2]]), KEYS), 5)
    with pytest.raises(InputError, match="not_json: checkpoint record 0"):
        inclusion(lambda: chain_of(enumerate([b"{"]), KEYS), 5)


def test_a_text_proof_of_another_record_fails() -> None:
    text = inclusion(chain, 5).as_tlog().encode()
    with pytest.raises(InputError, match="proof_fails"):
        check_tlog_proof(text, KEYS, a_record(6))
    elsewhere = a_record(5)._replace(origin=Origin(TOPIC, 1, 5))
    with pytest.raises(InputError, match="proof_of_another_record"):
        check_tlog_proof(text, KEYS, elsewhere)
    with pytest.raises(InputError, match="seal_key_unknown"):
        check_tlog_proof(text, tlog.keys_of([OTHER_KEY.public_key()]), a_record(5))
