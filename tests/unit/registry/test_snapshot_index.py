"""The index of snapshot ids: candidates in four or eight bytes each."""

from __future__ import annotations

import tracemalloc
from array import array
from sys import getsizeof

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_stream.registry import snapshot_index
from assay_stream.registry.server import ServerBindings
from assay_stream.registry.snapshot_index import SnapshotIndex, _Table
from tests.support.facts import seen

_COUNT = 3_000


def test_an_id_names_its_observers_and_no_others() -> None:
    """Also the ids that are still to be sorted in; an id that was never seen names nobody."""
    index = SnapshotIndex()
    for number in range(_COUNT):
        index.add([f"snapshot-{number // 2}"], number)
    for number in range(0, _COUNT, 2):
        assert index.candidates(f"snapshot-{number // 2}", _COUNT) == [number, number + 1]
    assert index.candidates("snapshot", _COUNT) == []


_HASHES = [0, 1, 1 << 24, 1 << 40, (1 << 40) + 1]
"""Of ids that are one in both tables, in the one of short entries only, or in neither."""


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.lists(st.sampled_from(range(len(_HASHES))), max_size=80), st.integers(0, 20)),
            st.integers(0, 3_000),
        ),
        max_size=40,
    ),
    short_numbers=st.sampled_from([2, 16, 256]),
    short_max=st.sampled_from([0, 100, 10_000]),
    run_max=st.sampled_from([100, 10_000]),
)
def test_whoever_has_seen_an_id_is_a_candidate(
    steps: list[tuple[list[int], int] | int], short_numbers: int, short_max: int, run_max: int
) -> None:
    """Whatever was added and removed, however wide entries are, and also of ids with one hash."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshot_index, "_SHORT_NUMBERS", short_numbers)
        patch.setattr(snapshot_index, "_SHORT_MAX", short_max)
        patch.setattr(snapshot_index, "_RUN_MAX", run_max)
        patch.setattr(snapshot_index, "_hash", lambda name: _HASHES[int(name)])
        index = SnapshotIndex()
        there: list[tuple[int, int]] = []
        for step in steps:
            if isinstance(step, tuple):
                ids, number = step
                index.add([str(each) for each in ids], number)
                there += [(each, number) for each in ids]
            elif there:
                each, number = there.pop(step % len(there))
                index.remove(str(each), number)
        assert len(index) == len(there)
        for each, number in there:
            assert number in index.candidates(str(each), 21)


def test_ids_of_a_few_hundred_observers_take_four_bytes_each() -> None:
    """What a join worker of a large fleet keeps in memory is mostly these."""
    names = [[f"snapshot-{observer}-{number}" for number in range(512)] for observer in range(250)]
    index = SnapshotIndex()
    tracemalloc.start()
    try:
        for number, each in enumerate(names):
            index.add(each, number)
        assert tracemalloc.get_traced_memory()[0] < 5 * len(index)
    finally:
        tracemalloc.stop()


def test_sorting_in_takes_no_object_for_each_entry() -> None:
    """A server with a hundred thousand observers has fifty million entries."""
    index = SnapshotIndex()
    for number in range(1_000):
        index.add([f"old-{number}-{each}" for each in range(200)], 0)
    tracemalloc.start()
    try:
        for number in range(13_000):
            index.add([f"new-{number}"], 1)
        assert tracemalloc.get_traced_memory()[1] < 16 * len(index)
    finally:
        tracemalloc.stop()
    assert index.candidates("old-7-199", 2) == [0]
    assert index.candidates("new-7", 2) == [1]


def test_an_entry_is_copied_a_few_times_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that the whole fleet uses has as many observers as there are proxies."""
    merge, copied = _Table._merged, 0

    def counted(table: _Table, longer: array[int], shorter: array[int]) -> array[int]:
        nonlocal copied
        copied += len(longer) + len(shorter)
        return merge(table, longer, shorter)

    monkeypatch.setattr(_Table, "_merged", counted)
    index = SnapshotIndex()
    for observer in range(5_000):
        index.add([f"{observer}-{number}" for number in range(64)], observer)
    assert len(index._long or ()) > 300_000
    assert copied < 16 * len(index)


def test_entries_that_come_and_go_leave_no_runs_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest lists of a server that the whole fleet uses go while new ones come: its long runs drain."""
    monkeypatch.setattr(snapshot_index, "_RUN_MAX", 1_024)
    table = _Table("Q", 4)
    for number in range(50_000):
        table.add([f"snapshot-{number}"], 1)
        if number >= _COUNT:
            assert table.remove(f"snapshot-{number - _COUNT}", 1)
    assert len(table) == _COUNT
    assert len(table._runs) < 16
    assert sum(map(getsizeof, table._runs)) < 3 * 8 * _COUNT


def test_more_observers_than_an_entry_can_tell_apart_are_all_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers are cut to their last bits: each observer with these bits is asked."""
    monkeypatch.setattr(snapshot_index, "_SHORT_NUMBERS", 4)
    monkeypatch.setattr(snapshot_index, "_LONG_NUMBERS", 4)
    index = SnapshotIndex()
    index.add(["s"], 6)
    assert index.candidates("s", 11) == [2, 6, 10]


def test_what_is_gone_is_collected() -> None:
    """Lists that come and go for ever do not make the index grow."""
    server = ServerBindings()
    facts = [seen("alice", number, "one", offset=number) for number in range(_COUNT)]
    for number, fact in enumerate(facts):
        server.see(fact)
        if number >= 10:
            server.unsee("alice", facts[number - 10].origin)
    index = server._snapshots
    assert index is not None
    assert len(index) == 10
    assert [bool(server.named(fact.snapshot_id, "alice")) for fact in (facts[0], facts[-1])] == [False, True]


def test_colliding_hashes_change_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever chose ids with one hash gets each list by its own id only."""
    monkeypatch.setattr(snapshot_index, "_hash", lambda _: 0)
    server = ServerBindings()
    facts = [seen(f"observer-{number}", number, "one", offset=number) for number in range(200)]
    for fact in facts:
        server.see(fact)
    assert all(server.named(fact.snapshot_id, fact.observer_id) == [fact] for fact in facts)
    assert not server.named("other", "observer-1")
