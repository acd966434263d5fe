"""Repeated lists become runs: when, and what is written."""

from __future__ import annotations

from dataclasses import replace

from assay_stream.limits.core import Limits
from assay_stream.model.facts import Seen, decode_key
from assay_stream.model.record import Output, Record, Role
from assay_stream.registry.folding import pack_repeats, take_away
from assay_stream.registry.ledger import Ledger
from tests.support.facts import SERVER, seen

LIMITS = Limits(seen_run_rows_min=3, seen_run_rows_max=6)


def told(outputs: list[Output]) -> list[tuple[str, int, bool]]:
    keys = [decode_key(output.key) for output in outputs]
    return [(str(k[0]), int(k[-1]), out.value is not None) for k, out in zip(keys, outputs, strict=True)]


def step(ledger: Ledger, fact: Seen) -> list[tuple[str, int, bool]]:
    record = Record(Role.SNAPSHOTS, fact.origin, b"", b"")
    ledger.publish(record, fact)
    return told(pack_repeats(ledger, record, ledger.bindings.server(SERVER).observers[fact.observer_id], fact))


def lists(*times_us: int, catalogue: str = "one") -> list[Seen]:
    return [seen("alice", time_us, catalogue, offset=time_us) for time_us in times_us]


def test_as_many_repeats_as_a_run_needs_become_one() -> None:
    """With tombstones of the single facts behind it, so that no reader misses a list in between."""
    ledger = Ledger(LIMITS)
    gone = [("seen", offset, False) for offset in (1, 2, 3)]
    assert [step(ledger, fact) for fact in lists(1, 2, 3)] == [[], [], [("seen_run", 1, True), *gone]]


def test_the_next_repeats_join_the_run_until_it_is_full() -> None:
    ledger = Ledger(LIMITS)
    written = [step(ledger, fact)[:1] for fact in lists(*range(1, 10))]
    assert [found[0] for found in written if found] == [("seen_run", n, True) for n in (1, 1, 7)]


def test_another_list_in_between_starts_anew() -> None:
    ledger = Ledger(LIMITS)
    other = replace(lists(6)[0], auth_context="ab")
    history = [*lists(1, 2), *lists(3, catalogue="two"), *lists(4, 5), other, *lists(7, 8)]
    assert not any(step(ledger, fact) for fact in history)
    assert step(ledger, lists(9)[0])[0] == ("seen_run", 7, True)


def test_a_late_list_is_never_packed() -> None:
    """It stands between others by its time, and behind them in the log."""
    ledger = Ledger(LIMITS)
    late = replace(seen("alice", 1, "one", offset=9), time_us=1)
    assert not any(step(ledger, fact) for fact in [*lists(1, 2), late])


def test_a_topic_of_single_facts_is_packed_with_the_next_list() -> None:
    ledger = Ledger(LIMITS)
    for fact in lists(*range(1, 9)):
        ledger.bindings.apply(fact)
    assert step(ledger, lists(9)[0]) == [("seen_run", 4, True), *[("seen", n, False) for n in range(4, 10)]]


def test_rows_are_cut_until_half_are_gone() -> None:
    ledger = Ledger(LIMITS)
    facts = lists(1, 2, 3, 4, 5, 6)
    for fact in facts:
        step(ledger, fact)
    timeline, record = (
        ledger.bindings.server(SERVER).observers["alice"],
        Record(Role.SNAPSHOTS, facts[0].origin, b"", b""),
    )
    cut, run = ("run_cut", 1, True), ("seen_run", 1, True)
    assert [told(take_away(ledger, record, timeline, fact)) for fact in facts] == [
        [cut],
        [cut],
        [cut, run, ("run_cut", 1, False)],
        [cut],
        [cut, run, ("run_cut", 1, False)],
        [("seen_run", 1, False)],
    ]
    assert not timeline
