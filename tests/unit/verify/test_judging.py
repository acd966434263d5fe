"""Which calls must have evidence."""

from __future__ import annotations

from assay_stream.model.record import Origin
from assay_stream.verify.verification import Coverage, Expect

PLACE = ("mcp.tools.call", 0)


def at(offset: int) -> Origin:
    return Origin(*PLACE, offset)


def test_a_call_before_one_with_evidence_is_due() -> None:
    coverage = Coverage(Expect.JOINED, {PLACE: 2})
    coverage.note(at(7))
    assert coverage.is_missing(at(6))
    assert not coverage.is_missing(at(8))
    assert coverage.pending == 1


def test_where_evidence_is_out_of_order_what_the_join_committed_tells() -> None:
    """A re-routed call may still wait while later ones have evidence."""
    coverage = Coverage(Expect.JOINED, {PLACE: 2})
    coverage.note(at(7))
    coverage.note(at(3))
    assert not coverage.is_missing(at(6))
    assert coverage.is_missing(at(1))


def test_without_committed_offsets_evidence_is_all_that_tells() -> None:
    coverage = Coverage(Expect.JOINED)
    coverage.note(at(7))
    coverage.note(at(3))
    assert coverage.is_missing(at(6))
