"""Packed observations: what they cost, and what hostile ones cannot make them cost."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest

from assay_stream.model.evidence import Unbound
from assay_stream.model.facts import Seen
from assay_stream.registry.as_of import bind, span_of
from assay_stream.registry.runs import Row, Shared
from assay_stream.registry.server import ServerBindings
from assay_stream.registry.sightings import PackedSightings
from tests.support.facts import a_catalogue, a_fingerprint, seen

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
    """Time, offset and a UUID."""
    assert bytes_of_a_list("sha256:one") < 40


def test_lists_that_alternate_share_what_they_state() -> None:
    """Each refers to it; none holds again what another one states."""
    assert bytes_of_a_list("sha256:one", "sha256:two", "sha256:three") < 48


def a_server(observers: int) -> ServerBindings:
    """A server whose observers saw the same list again and again, under one snapshot id."""
    server = ServerBindings()
    server.list_catalogue(a_catalogue("one", {"t": "a"}))
    server.tools[True, "full:a"] = a_fingerprint("a")
    for number in range(observers):
        for count in range(_COUNT):
            server.see(
                seen(f"observer-{number}", count, "one", offset=count * observers + number, snapshot_id="latest")
            )
    return server


def made_by(question: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> int:
    """How many observations a question makes anew."""
    made, make = 0, Shared.seen

    def counted(shared: Shared, row: Row) -> Seen:
        nonlocal made
        made += 1
        return make(shared, row)

    with monkeypatch.context() as patched:
        patched.setattr(Shared, "seen", counted)
        question()
    return made


def test_a_late_call_reads_one_list_of_each_observer_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that was in force, and for how long; a search list by list would read eighteen."""
    server = a_server(observers=8)

    def late() -> None:
        binding = bind(server, tool_name="t", observer_id="other", snapshot_id=None, time_us=100)
        assert span_of(server, binding, observer_id="other", time_us=100) == (100, 101)

    assert made_by(late, monkeypatch) == 2 * 8


def test_an_id_that_all_lists_have_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not with every call that names it and a tool that nobody listed."""
    server = a_server(observers=4)

    def made_up() -> None:
        binding = bind(server, tool_name="none", observer_id="other", snapshot_id="latest", time_us=9)
        assert binding.unbound is Unbound.NOT_LISTED
        assert binding.seen == server.observers["observer-3"].latest

    assert made_by(made_up, monkeypatch) > 4
    assert made_by(made_up, monkeypatch) == 0
