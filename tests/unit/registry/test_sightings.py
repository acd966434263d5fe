"""Packed observations: what they cost, and what hostile ones cannot make them cost."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest

from assay_stream.model.evidence import Unbound
from assay_stream.registry.as_of import bind, span_of
from assay_stream.registry.runs import Run, Shelf
from assay_stream.registry.server import ServerBindings
from assay_stream.registry.sightings import PackedSightings
from assay_stream.registry.timeline import Timeline
from tests.support.facts import a_catalogue, a_fingerprint, seen
from tests.support.shelf import MemoryShelf

_COUNT = 512
_HOUR_US = 3_600_000_000


def bytes_of_a_list(*catalogues: str) -> float:
    """Bytes that one more hourly list takes, of lists that go round."""
    tracemalloc.start()
    try:
        entries = PackedSightings()
        for number in range(_COUNT):
            name = f"00000000-0000-4000-8000-{number:012}"
            catalogue = catalogues[number % len(catalogues)]
            entries.append(seen("alice", number * _HOUR_US, catalogue, offset=number * 1_000, snapshot_id=name))
        return tracemalloc.get_traced_memory()[0] / _COUNT
    finally:
        tracemalloc.stop()


def test_a_repeated_list_costs_bytes() -> None:
    """A row of time, offset and a snapshot id of 36 characters, and its part of the run."""
    assert bytes_of_a_list("sha256:one") < 80


def test_lists_that_alternate_share_what_they_state() -> None:
    """Each stands in a run of its own, but none holds again what another one states."""
    assert bytes_of_a_list("sha256:one", "sha256:two", "sha256:three") < 300


def test_lists_that_are_taken_away_leave_no_runs_behind() -> None:
    """Each second one goes: what stays costs what as many lists cost that came alone."""
    entries = PackedSightings()
    for number in range(_COUNT):
        entries.append(seen("alice", number, "one", offset=number))
    for number in range(0, _COUNT, 2):
        index = entries.index_of(seen("alice", number, "one", offset=number).origin)
        assert index is not None
        entries.pop(index)
    assert [kept.time_us for kept in entries] == list(range(1, _COUNT, 2))
    assert len(entries._runs) <= 2 * (_COUNT // 2) // 64


@pytest.mark.parametrize("shelf", [None, MemoryShelf()])
@pytest.mark.parametrize("step", [1, -1])
def test_long_ids_make_no_long_runs(shelf: MemoryShelf | None, step: int) -> None:
    """What one question parses, and what stays parsed, is bounded in bytes, in whichever order the lists come."""
    timeline = Timeline(PackedSightings(shelf))
    observed = [seen("alice", n, "one", offset=n, snapshot_id=f"{n:03}" + "\U0001f600" * 1_021) for n in range(_COUNT)]
    for fact in observed[::step]:
        timeline.add(fact)
    assert list(timeline) == observed
    runs = timeline._entries._runs
    assert max(len(run.packed(shelf)) for run in runs) < 40_000
    assert len(runs) < _COUNT // 3


def a_server(observers: int) -> ServerBindings:
    """A server whose observers saw the same list again and again, under one snapshot id."""
    server = ServerBindings(shelf=MemoryShelf())
    server.list_catalogue(a_catalogue("one", {"t": "a"}))
    server.tools[True, "full:a"] = a_fingerprint("a")
    for number in range(observers):
        for count in range(_COUNT):
            server.see(
                seen(f"observer-{number}", count, "one", offset=count * observers + number, snapshot_id="latest")
            )
    return server


def reads_of(question: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> int:
    """How many runs a question reads."""
    reads: list[Run] = []
    packed = Run.packed

    def counted(run: Run, shelf: Shelf | None) -> bytes:
        reads.append(run)
        return packed(run, shelf)

    with monkeypatch.context() as patched:
        patched.setattr(Run, "packed", counted)
        question()
    return len(reads)


def test_a_late_call_reads_one_run_of_each_observer_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the list that was in force and for how long; a search row by row would read eighteen."""
    server = a_server(observers=8)

    def late() -> None:
        binding = bind(server, tool_name="t", observer_id="other", snapshot_id=None, time_us=100)
        assert span_of(server, binding, observer_id="other", time_us=100) == (100, 101)

    assert reads_of(late, monkeypatch) <= 2 * 8


def test_an_id_that_all_lists_have_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not with every call that names it and a tool that nobody listed."""
    server = a_server(observers=4)

    def made_up() -> None:
        binding = bind(server, tool_name="none", observer_id="other", snapshot_id="latest", time_us=9)
        assert binding.unbound is Unbound.NOT_LISTED
        assert binding.seen == server.observers["observer-3"].latest

    assert reads_of(made_up, monkeypatch) > 4
    assert reads_of(made_up, monkeypatch) == 0
