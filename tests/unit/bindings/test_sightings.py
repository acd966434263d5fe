"""Sightings: what they cost, what hostile ones cannot make them cost, and which are folded first."""

from __future__ import annotations

import gc
import tracemalloc
from array import array
from bisect import insort
from collections.abc import Callable

import pytest

from assay_stream.bindings import sightings
from assay_stream.bindings.as_of import bind
from assay_stream.bindings.server import ServerBindings
from assay_stream.bindings.sightings import Sightings, SnapshotIndex, row_of, shared_part
from assay_stream.bindings.timeline import Timeline
from assay_stream.model.evidence import Unbound
from assay_stream.model.facts import Seen
from tests.support.counting import counted_calls
from tests.support.facts import a_catalogue, a_fingerprint, seen

_COUNT = 512
_HOUR_US = 3_600_000_000


def a_list(number: int, *catalogues: str) -> Seen:
    name = f"00000000-0000-4000-8000-{number:012}"
    catalogue = catalogues[number % len(catalogues)]
    return seen("alice", number * _HOUR_US, catalogue, offset=number * 1_000, snapshot_id=name)


@pytest.mark.parametrize("catalogues", [("sha256:one",), ("sha256:one", "sha256:two", "sha256:three")])
def test_a_repeated_list_costs_bytes(catalogues: tuple[str, ...]) -> None:
    """Time, offset, a UUID, what it shares with others, and its places in two orders; also where lists alternate."""
    tracemalloc.start()
    try:
        server = ServerBindings()
        for number in range(4 * _COUNT):
            server.add_observation(a_list(number, *catalogues))
        assert server.named("never seen", "alice") == []
        gc.collect()
        # Of ours alone: what runs the tests has threads.
        ours = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/assay_stream/*")])
        assert 20 < sum(trace.size for trace in ours.traces) / (4 * _COUNT) < 55
    finally:
        tracemalloc.stop()


def a_server(observers: int) -> ServerBindings:
    server = ServerBindings()
    server.list_catalogue(a_catalogue("one", {"t": "a"}))
    server.tools[True, "full:a"] = a_fingerprint("a")
    for number in range(observers):
        for count in range(_COUNT):
            server.add_observation(
                seen(f"observer-{number}", count, "one", offset=count * observers + number, snapshot_id="latest")
            )
    return server


def made_by(question: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> int:
    made, make = 0, Sightings.seen

    def counted(table: Sightings, number: int) -> Seen:
        nonlocal made
        made += 1
        return make(table, number)

    with monkeypatch.context() as patched:
        patched.setattr(Sightings, "seen", counted)
        question()
    return made


def test_a_late_call_reads_one_list_of_each_observer(monkeypatch: pytest.MonkeyPatch) -> None:
    server = a_server(observers=8)

    def late() -> None:
        binding = bind(server, tool_name="t", observer_id="other", snapshot_id=None, time_us=100)
        assert binding.span_us == (100, 101)

    assert made_by(late, monkeypatch) == 8


def test_an_id_that_all_lists_have_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    server = a_server(observers=4)
    latest = server.observers["observer-3"].latest

    def made_up() -> None:
        binding = bind(server, tool_name="none", observer_id="other", snapshot_id="latest", time_us=9)
        assert (binding.unbound, binding.seen) == (Unbound.NOT_LISTED, latest)

    assert made_by(made_up, monkeypatch) > 4
    assert made_by(made_up, monkeypatch) == 0


def test_an_id_that_all_lists_have_costs_each_observer_its_own_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    server = a_server(observers=8)
    assert made_by(lambda: server.named("latest", "observer-5"), monkeypatch) == _COUNT


def test_adding_to_the_index_moves_few_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that the whole fleet uses has as many observers as there are proxies."""
    moved = 0

    def counted(part: array[int], entry: int) -> None:
        nonlocal moved
        moved += len(part)
        insort(part, entry)

    monkeypatch.setattr(sightings, "insort", counted)
    table, size = Sightings(), 32_000
    shared = shared_part(a_list(0, "one"))
    numbers = table.add(shared, [row_of(a_list(number, "one")) for number in range(10 * size)])
    index = SnapshotIndex(table)
    index.add(numbers[:size])
    assert 0 < moved < 1_100 * size
    calls = counted_calls(lambda: index.add(numbers[size : size + 1]))
    index.add(numbers[size + 1 : -1])
    assert moved < 1_100 * 10 * size
    assert counted_calls(lambda: index.add(numbers[-1:])) < calls + 10


def test_lists_that_come_and_go_for_ever_take_no_more_room() -> None:
    server = ServerBindings()
    facts = [seen("alice", number, f"list-{number % 3}", offset=number) for number in range(1_000)]
    assert not server.named("other", "alice")
    for number, fact in enumerate(facts):
        server.add_observation(fact)
        if number >= 10:
            server.remove_observation("alice", facts[number - 10].origin)
    assert [bool(server.named(fact.snapshot_id, "alice")) for fact in (facts[0], facts[-1])] == [False, True]
    assert len(server.observers["alice"].table.kinds) == 11


def test_history_is_gone_before_the_latest_horizon_of_any_observer() -> None:
    """Of those that are left; to forget one looks through no list of the others."""
    server = ServerBindings()
    for number in range(100):
        server.truncate_history(f"observer-{number}", 10 * number)
    server.truncate_history("observer-99", 985)
    calls = counted_calls(lambda: server.truncate_history("observer-99", None))
    assert (server.is_folded_at(979), server.is_folded_at(980)) == (True, False)
    for number in range(100, 1_000):
        server.truncate_history(f"observer-{number}", 10 * number)
    assert counted_calls(lambda: server.truncate_history("observer-999", None)) <= calls + 4, "steps of a binary search"
    for number in range(999):
        server.truncate_history(f"observer-{number}", None)
    assert not server.is_folded_at(0)
    assert not server.observers


def test_equal_prompts_are_folded_before_other_ones_and_tools_last() -> None:
    """No call is bound to prompts: what they were goes before an answer on a tool does."""
    timeline = Timeline()
    for offset, prompts in enumerate((None, "p", None, None, None)):
        listed = seen("alice", offset, "one", offset=offset, prompts=prompts)
        timeline.add(shared_part(listed), [row_of(listed)])
    taken = []
    for entries_max in (4, 3, 2):
        surplus = timeline.one_too_many(entries_max, lambda *_: False)
        assert surplus is not None
        taken.append((surplus[0].time_us, surplus[1]))
        number = timeline.row_at(surplus[0].origin)
        assert number is not None
        timeline.remove(number)
    assert taken == [(3, False), (1, False), (2, False)]
