"""The index of snapshot ids: candidates in a few bytes each."""

from __future__ import annotations

import tracemalloc
from array import array
from bisect import insort

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_stream.registry import snapshot_index
from assay_stream.registry.server import ServerBindings
from assay_stream.registry.snapshot_index import SnapshotIndex
from tests.support.counting import counted_calls
from tests.support.facts import seen

_COUNT = 3_000


def test_an_id_names_its_observers_and_no_others() -> None:
    """An id that was never seen names nobody."""
    index = SnapshotIndex()
    for number in range(_COUNT):
        index.add([f"snapshot-{number // 2}"], number)
    for number in range(0, _COUNT, 2):
        assert index.candidates(f"snapshot-{number // 2}", _COUNT) == [number, number + 1]
    assert index.candidates("snapshot", _COUNT) == []


_HASHES = [0, 1, 1 << 40, (1 << 40) + 1]
"""Of ids that are one in the bits that an entry has, or not."""


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.lists(st.sampled_from(range(len(_HASHES))), max_size=80), st.integers(0, 20)),
            st.integers(0, 3_000),
        ),
        max_size=40,
    ),
    part_max=st.sampled_from([2, 100]),
)
def test_whoever_has_seen_an_id_is_a_candidate(steps: list[tuple[list[int], int] | int], part_max: int) -> None:
    """Whatever was added and removed, also of ids with one hash."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshot_index, "_PART_MAX", part_max)
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
        for name in range(len(_HASHES)):
            like = {number for each, number in there if _HASHES[each] % (1 << 40) == _HASHES[name] % (1 << 40)}
            assert index.candidates(str(name), 21) == sorted(like)


def test_an_id_takes_some_twelve_bytes() -> None:
    """Also after half of them have gone."""
    names = [[f"snapshot-{observer}-{number}" for number in range(512)] for observer in range(250)]
    index = SnapshotIndex()
    tracemalloc.start()
    try:
        for number, each in enumerate(names):
            index.add(each, number)
        assert tracemalloc.get_traced_memory()[0] < 13 * len(index)
        for number, each in enumerate(names[25:]):
            for name in each:
                index.remove(name, 25 + number)
        assert tracemalloc.get_traced_memory()[0] < 32 * len(index)
    finally:
        tracemalloc.stop()


def test_adding_an_entry_moves_few_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that the whole fleet uses has as many observers as there are proxies."""
    moved = 0

    def counted(part: array[int], entry: int) -> None:
        nonlocal moved
        moved += len(part)
        insort(part, entry)

    monkeypatch.setattr(snapshot_index, "insort", counted)
    index = SnapshotIndex()
    for observer in range(500):
        index.add([f"{observer}-{number}" for number in range(64)], observer)
    assert 0 < moved < 1_100 * len(index)
    calls = counted_calls(lambda: index.add(["another"], 0))
    for observer in range(500, 5_000):
        index.add([f"{observer}-{number}" for number in range(64)], observer)
    assert len(index) > 300_000
    assert moved < 1_100 * len(index)
    assert counted_calls(lambda: index.add(["one more"], 0)) < calls + 10


def test_more_observers_than_an_entry_can_tell_apart_are_all_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers are cut to their last bits: each observer with these bits is asked."""
    monkeypatch.setattr(snapshot_index, "_NUMBERS", 4)
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
