"""Merkle trees: what is refused. Roots and proofs are in the conformance and property tests."""

import pytest

from assay_stream.errors import InputError
from assay_stream.schemes.rfc9162 import Frontier, consistency_proof, inclusion_proof, leaf_hash

LEAF = leaf_hash(b"")


@pytest.mark.parametrize(("size", "peaks"), [(-1, []), (0, [LEAF]), (1, []), (2, [LEAF, LEAF]), (1, [LEAF[:31]])])
def test_a_frontier_that_does_not_fit_its_size_is_refused(size: int, peaks: list[bytes]) -> None:
    with pytest.raises(InputError, match="bad_frontier"):
        Frontier(size, peaks)


@pytest.mark.parametrize(("index", "size"), [(-1, 1), (1, 1), (0, 0)])
def test_no_inclusion_proof_of_a_leaf_that_is_not_there(index: int, size: int) -> None:
    with pytest.raises(InputError, match="proof_out_of_range"):
        inclusion_proof([LEAF] * 2, index, size)


@pytest.mark.parametrize(("first", "second"), [(0, 1), (2, 1)])
def test_no_consistency_proof_from_nothing_or_backwards(first: int, second: int) -> None:
    """RFC 9162 defines it for 0 < m."""
    with pytest.raises(InputError, match="proof_out_of_range"):
        consistency_proof([LEAF] * 2, first, second)


def test_leaves_that_end_too_early_are_told() -> None:
    with pytest.raises(InputError, match="proof_leaves_missing"):
        inclusion_proof([LEAF] * 2, 0, 3)
