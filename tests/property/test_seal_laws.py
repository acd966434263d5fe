"""Laws of seals: whatever one thing is taken away, somebody who was told of it, or a sibling, misses it."""

from collections.abc import Callable

from hypothesis import given, strategies as st

from assay_stream.seal.check import Expected, SealOutcome, outcome_of, verify_logs
from tests.support.seals import KEYS, TOPIC, Fleet, MemoryLogs

TURNS = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3)), min_size=1, max_size=8)


def built(turns: list[tuple[int, int]]) -> Fleet:
    fleet = Fleet(3)
    for partition, count in turns:
        fleet.grow(partition, count)
        fleet.seal(partition)
    return fleet


def heads_of(fleet: Fleet) -> list[Expected]:
    return [Expected(*chain[-1].checkpoint.head, TOPIC, "the test") for chain in fleet.chains if chain]


def outcome(fleet: Fleet, expected: list[Expected] | None = None) -> SealOutcome:
    evidence, chains = fleet.logs()
    return outcome_of(verify_logs(MemoryLogs(evidence), MemoryLogs(chains), KEYS, expected=expected or ()))


def is_claimed(fleet: Fleet, partition: int, size: int) -> bool:
    return any(
        head.partition == partition and head.tree_size > size
        for number, chain in enumerate(fleet.chains)
        if number != partition
        for made in chain
        for head in made.checkpoint.siblings
    )


@given(TURNS)
def test_what_nobody_touched_holds(turns: list[tuple[int, int]]) -> None:
    fleet = built(turns)
    assert outcome(fleet) is outcome(fleet, heads_of(fleet)) is SealOutcome.HOLDS


@given(TURNS, st.data())
def test_each_deleted_record_or_tail_is_found(turns: list[tuple[int, int]], data: st.DataObject) -> None:
    fleet = built(turns)
    partition = data.draw(st.sampled_from([number for number, log in enumerate(fleet.records) if log]))
    log = fleet.records[partition]
    at = data.draw(st.integers(0, len(log) - 1))
    del log[at : data.draw(st.sampled_from([at + 1, len(log)]))]
    assert outcome(fleet) is SealOutcome.BROKEN


def cut_of(fleet: Fleet, data: st.DataObject) -> tuple[int, Callable[[], int]]:
    partition = data.draw(st.sampled_from([number for number, chain in enumerate(fleet.chains) if chain]))
    count = data.draw(st.integers(1, len(fleet.chains[partition])))

    def cut() -> int:
        fleet.cut(partition, checkpoints=count)
        chain = fleet.chains[partition]
        return chain[-1].checkpoint.tree_size if chain else 0

    return partition, cut


@given(TURNS, st.data())
def test_each_cut_is_found_by_who_expects_the_head(turns: list[tuple[int, int]], data: st.DataObject) -> None:
    """A suffix of the checkpoints with its evidence, or the whole partition."""
    fleet = built(turns)
    expected = heads_of(fleet)
    _, cut = cut_of(fleet, data)
    cut()
    assert outcome(fleet, expected) is SealOutcome.BROKEN


@given(TURNS, st.data())
def test_each_cut_that_a_sibling_knows_of_is_found(turns: list[tuple[int, int]], data: st.DataObject) -> None:
    """And no other: what is left is then as it once was."""
    fleet = built(turns)
    partition, cut = cut_of(fleet, data)
    left = cut()
    found = outcome(fleet)
    assert (found is SealOutcome.BROKEN) is is_claimed(fleet, partition, left)


@given(TURNS, st.data())
def test_a_cut_chain_over_whole_evidence_is_never_taken_for_whole(
    turns: list[tuple[int, int]], data: st.DataObject
) -> None:
    """Without its checkpoints alone the evidence is unsealed: told as such, or missed by a sibling or the head."""
    fleet = built(turns)
    expected = heads_of(fleet)
    partition, cut = cut_of(fleet, data)
    evidence = list(fleet.records[partition])
    cut()
    fleet.records[partition] = evidence
    assert outcome(fleet, expected) is SealOutcome.BROKEN
    evidence_log, checkpoints = fleet.logs()
    reports = verify_logs(MemoryLogs(evidence_log), MemoryLogs(checkpoints), KEYS)
    assert next(report for report in reports if report.partition == partition).unsealed
