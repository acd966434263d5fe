"""The index of snapshot ids: candidates in eight bytes each."""

from __future__ import annotations

import tracemalloc

import pytest

from assay_stream.registry import snapshot_index
from assay_stream.registry.server import ServerBindings
from assay_stream.registry.snapshot_index import SnapshotIndex
from tests.support.facts import seen

_COUNT = 3_000


def test_an_id_names_its_observers_and_no_others() -> None:
    """Also the ids that are still to be sorted in; an id that was never seen names nobody."""
    index = SnapshotIndex()
    for number in range(_COUNT):
        index.add([f"snapshot-{number // 2}"], number)
    for number in range(0, _COUNT, 2):
        assert list(index.candidates(f"snapshot-{number // 2}", _COUNT)) == [number, number + 1]
    assert list(index.candidates("snapshot", _COUNT)) == []


def test_sorting_in_takes_no_object_for_each_entry() -> None:
    """A server with a hundred thousand observers has fifty million entries."""
    index = SnapshotIndex()
    index.renew((f"old-{number}", 0) for number in range(200_000))
    tracemalloc.start()
    try:
        for number in range(13_000):
            index.add([f"new-{number}"], 1)
        assert tracemalloc.get_traced_memory()[1] < 16 * len(index)
    finally:
        tracemalloc.stop()
    assert list(index.candidates("old-7", 2)) == [0]
    assert list(index.candidates("new-7", 2)) == [1]


def test_more_observers_than_an_entry_can_tell_apart_are_all_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers are cut to their last bits: each observer with these bits is asked."""
    monkeypatch.setattr(snapshot_index, "_NUMBERS", 4)
    index = SnapshotIndex()
    index.add(["s"], 6)
    assert list(index.candidates("s", 11)) == [2, 6, 10]


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
    assert len(index) < 200
    assert [server.names(fact.snapshot_id) for fact in (facts[0], facts[-1])] == [False, True]


def test_colliding_hashes_change_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever chose ids with one hash gets each list by its own id only."""
    monkeypatch.setattr(snapshot_index, "_first_entry", lambda _: 0)
    server = ServerBindings()
    facts = [seen(f"observer-{number}", number, "one", offset=number) for number in range(200)]
    for fact in facts:
        server.see(fact)
    assert all(server.named(fact.snapshot_id) == [fact] for fact in facts)
    assert not server.names("other")
