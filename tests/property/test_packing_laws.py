"""Laws of packed lists: a topic of runs adds up to what a topic of single facts does, however it was compacted."""

import random

import pytest
from hypothesis import given, strategies as st

from assay_stream.bindings.sightings import rows_of, seen_at
from assay_stream.bindings.state import Bindings
from assay_stream.limits import Limits
from assay_stream.model.evidence import Producer
from assay_stream.model.facts import RunCut, Seen, SeenRun, decode_fact, decode_key
from assay_stream.model.record import Origin, Output, Record, Role
from assay_stream.registry import retention
from assay_stream.registry.retention import fold, pack_repeats
from assay_stream.registry.step import Registry, Step
from tests.support.facts import SERVER, a_catalogue, seen

OBSERVERS = ("alice", "bob")
USUAL = st.sampled_from([True] * 9 + [False])
Transactions = list[list[Output]]


@st.composite
def histories(draw: st.DrawFn) -> list[Seen]:
    facts, time_us = [], 0
    for offset in range(draw(st.integers(1, 40))):
        time_us += draw(st.integers(0, 2))
        is_late = not draw(USUAL)
        facts.append(
            seen(
                OBSERVERS[0 if draw(USUAL) else 1],
                draw(st.integers(0, time_us + 5)) if is_late else time_us,
                "one" if draw(USUAL) else "two",
                offset=offset,
                snapshot_id=f"s{draw(st.integers(0, 3))}",
            )
        )
    return facts


def step(registry: Registry, fact: Seen) -> list[Output]:
    step = Step(registry, Record(Role.SNAPSHOTS, fact.origin, b"", b"", timestamp_ms=1))
    server = registry.bindings.server(SERVER)
    if fact.catalogue not in server.catalogues:
        server.list_catalogue(a_catalogue(fact.catalogue, {"t": fact.catalogue}))
    step.publish(fact)
    pack_repeats(step, server.observers[fact.observer_id], fact)
    fold(step, server, fact)
    return [output for output in step.outputs if decode_key(output.key)[0] in ("seen", "seen_run", "run_cut")]


def a_registry(limits: Limits) -> Registry:
    return Registry(producer=Producer(version="1"), limits=limits)


def read(bindings: Bindings, output: Output) -> None:
    bindings.take(Record(Role.BINDINGS, Origin("bindings", 0, 0), output.key, output.value))


def written(facts: list[Seen], limits: Limits) -> tuple[Registry, Transactions]:
    registry = a_registry(limits)
    return registry, [step(registry, fact) for fact in facts]


def compacted(transactions: Transactions, chance: random.Random) -> Transactions:
    """Of each key without some of its records: those before one, and perhaps a tombstone that is left alone."""
    of_key: dict[bytes | None, list[Output]] = {}
    for output in (each for outputs in transactions for each in outputs):
        of_key.setdefault(output.key, []).append(output)
    kept: set[int] = set()
    for outputs in of_key.values():
        left = outputs[chance.randrange(len(outputs)) :]
        if len(left) > 1 or left[0].value is not None or chance.random() < 0.5:
            kept |= set(map(id, left))
    return [[output for output in outputs if id(output) in kept] for outputs in transactions]


def reordered(outputs: list[Output], chance: random.Random) -> list[Output]:
    keys = chance.sample([output.key for output in outputs], len(outputs))
    of_key = {key: iter([output for output in outputs if output.key == key]) for key in keys}
    return [next(of_key[key]) for key in keys]


def lists_of(bindings: Bindings) -> dict[str, list[Seen]]:
    return {name: list(timeline) for name, timeline in bindings.server(SERVER).observers.items() if timeline}


def limits(entries_max: int) -> Limits:
    return Limits(timeline_entries_max=entries_max, seen_run_rows_min=3, seen_run_rows_max=8)


ENTRIES_MAX = st.integers(1, 20) | st.just(100)


@given(histories(), ENTRIES_MAX)
def test_packing_changes_nothing_that_is_kept(facts: list[Seen], entries_max: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retention, "take_away", lambda step, _, folded: step.retract(folded.key()))
        plain, _ = written(facts, Limits(timeline_entries_max=entries_max, seen_run_rows_min=len(facts) + 1))
    packed, _ = written(facts, limits(entries_max))
    assert lists_of(packed.bindings) == lists_of(plain.bindings)


@given(histories(), ENTRIES_MAX, st.randoms(use_true_random=False))
def test_whatever_compaction_leaves_adds_up_to_the_same(
    facts: list[Seen], entries_max: int, chance: random.Random
) -> None:
    """In a join and in a registry; whatever the order in a transaction, and if records are read twice."""
    registry, transactions = written(facts, limits(entries_max))
    for bindings in (Bindings(), Bindings(keep_definitions=True)):
        for outputs in compacted(transactions, chance):
            for output in reordered(outputs, chance):
                for _ in range(chance.randint(1, 2)):
                    read(bindings, output)
        assert lists_of(bindings) == lists_of(registry.bindings)


@given(histories(), ENTRIES_MAX, st.randoms(use_true_random=False))
def test_live_records_add_up_in_any_order(facts: list[Seen], entries_max: int, chance: random.Random) -> None:
    """A store of them that keeps no order, and is read in the middle of a transaction, makes the same of them."""
    registry, transactions = written(facts, limits(entries_max))
    *before, last = transactions
    for count in range(len(last) + 1):
        live = {output.key: output for output in [*(each for outputs in before for each in outputs), *last[:count]]}
        shuffled, in_order = Bindings(), Bindings()
        for output in chance.sample(list(live.values()), len(live)):
            if output.value is not None:
                read(shuffled, output)
        for output in [*(each for outputs in before for each in outputs), *last[:count]]:
            read(in_order, output)
        assert lists_of(shuffled) == lists_of(in_order)
    assert lists_of(in_order) == lists_of(registry.bindings)


@given(histories(), ENTRIES_MAX)
def test_each_list_stands_in_the_topic_once(facts: list[Seen], entries_max: int) -> None:
    """As a fact of its own, or as a row of one run that no cut names; and nothing stands there that is not kept."""
    registry, transactions = written(facts, limits(entries_max))
    left = {output.key: output for outputs in transactions for output in outputs}
    found = [decode_fact(decode_key(key), output.value) for key, output in left.items() if output.value is not None]
    gone = {(fact.origin, further) for fact in found if isinstance(fact, RunCut) for further in fact.gone}
    lists = [fact for fact in found if isinstance(fact, Seen)]
    for run in (fact for fact in found if isinstance(fact, SeenRun)):
        entries = (seen_at(run, row) for row in rows_of(run))
        lists += [each for each in entries if (run.origin, each.origin.offset - run.origin.offset) not in gone]
    kept = [each for lists_of_one in lists_of(registry.bindings).values() for each in lists_of_one]
    assert sorted(lists, key=lambda each: each.position) == sorted(kept, key=lambda each: each.position)


@given(histories(), ENTRIES_MAX)
def test_a_restarted_registry_packs_on(facts: list[Seen], entries_max: int) -> None:
    _, transactions = written(facts, limits(entries_max))
    for stopped in range(0, len(facts), 7):
        restarted = a_registry(limits(entries_max))
        for outputs in transactions[:stopped]:
            for output in outputs:
                read(restarted.bindings, output)
        for digest in ("one", "two"):
            restarted.bindings.server(SERVER).list_catalogue(a_catalogue(digest, {"t": digest}))
        assert [step(restarted, fact) for fact in facts[stopped:]] == transactions[stopped:]


def test_a_repeated_list_takes_some_sixty_bytes_of_the_topic() -> None:
    """Compacted, beside the few that wait to be packed: ids of 36 characters, an hour apart."""
    facts = [
        seen("alice", 1_772_323_200_000_000 + n * 3_600_000_000, "one", offset=n * 7, snapshot_id=f"{n:036}")
        for n in range(512)
    ]
    _, transactions = written(facts, Limits())
    left = {output.key: output.value for outputs in transactions for output in outputs}
    size = sum(len(key or b"") + len(value) for key, value in left.items() if value is not None)
    assert len([value for value in left.values() if value is not None]) == 8
    assert size / len(facts) < 75
