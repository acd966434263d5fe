"""A server that is made of its stored facts gives the answers of one that was never dropped from memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from assay_stream.errors import IntegrityError
from assay_stream.files.archive import read_lines
from assay_stream.files.state_store import Stand, StateStore
from assay_stream.join.processor import Join, process
from assay_stream.limits.core import Limits
from assay_stream.model.envelope import Producer
from assay_stream.model.facts import encode_key
from assay_stream.model.record import Origin, Output, Record, Role
from assay_stream.registry.processor import Registry
from assay_stream.registry.processor import process as register
from assay_stream.registry.state import Bindings
from assay_stream.registry.stored import FactStore, StoredBindings
from bench.synthetic import facts
from tests.golden.histories import SERVERS, History
from tests.support.shelf import MemoryShelf

PRODUCER = Producer(version="1")
PARTITIONS = 2
EVERYTHING = 2**40


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., StoredBindings]]:
    """Makes bindings over the same files, as a process does that is started anew."""
    opened: list[StateStore] = []

    def bindings(cost_max: int = 0, shelf: MemoryShelf | None = None) -> StoredBindings:
        for store in opened:
            store.close()
        opened[:] = [StateStore(tmp_path / f"{n}.sqlite", {}, cache_kib=1_024) for n in range(PARTITIONS)]
        return StoredBindings(dict(enumerate(opened)), shelf=shelf, cost_max=cost_max)

    yield bindings
    for store in opened:
        store.close()


def records(seed: int, steps: int) -> Iterator[Record]:
    """A random history: facts of two registries with tight limits, and calls in between."""
    registries = [Registry(producer=PRODUCER, limits=Limits(timeline_entries_max=3)) for _ in range(PARTITIONS)]
    offsets: dict[int, int] = defaultdict(int)
    for record in read_lines(History(seed, steps).archive.lines, name="history"):
        if record.role is Role.CALLS:
            yield record
            continue
        # Some servers come by both partitions, as where a producer partitions otherwise.
        partition = (record.origin.offset // 7 + len(record.key or b"")) % PARTITIONS
        record = record._replace(origin=record.origin._replace(partition=partition))
        for output in register(registries[partition], record):
            if output.role is Role.BINDINGS:
                yield Record(Role.BINDINGS, Origin("b", partition, offsets[partition]), output.key, output.value)
                offsets[partition] += 1


def joined(view: Bindings, history: list[Record], between: Callable[[], Bindings] | None = None) -> list[Output]:
    """Evidence and findings of a history; every now and then the view may be exchanged."""
    join, written = Join(producer=PRODUCER, view=view), []
    for number, record in enumerate(history):
        written += process(join, record)
        if between is not None and number % 25 == 24:
            join.view = between()
    return written


@pytest.mark.parametrize("seed", range(12))
def test_dropped_servers_give_the_same_evidence_and_findings(seed: int, make: Callable[..., StoredBindings]) -> None:
    """Every server is dropped as soon as another one is asked for, and the process starts anew again and again."""
    history = list(records(seed, 200))
    plain = joined(Bindings(), history)
    assert any(output.label == "bound:exact" for output in plain)
    shelf = MemoryShelf()
    view = make(0, shelf)

    def restarted() -> Bindings:
        nonlocal view
        for store in view.stores.values():
            assert isinstance(store, StateStore)
            store.commit(Stand(offset=1))
        view = make(0, shelf)
        return view

    assert joined(view, history) == plain
    for store in view.stores.values():
        for server in store.servers:
            for key, _ in store.facts(server):
                store.write(server, key, None, 0)
    assert joined(restarted(), history, between=restarted) == plain
    assert len(view) <= 1


def test_all_in_memory_is_the_same(make: Callable[..., StoredBindings]) -> None:
    """Servers that stay follow the topic without being read again."""
    history = list(records(3, 200))
    view = make(EVERYTHING)
    assert joined(view, history) == joined(Bindings(), history)
    assert 1 < len(view) <= len(SERVERS)


def fill(view: Bindings, servers: int, lists: int = 1) -> None:
    """Facts of a fleet."""
    for place, (key, value) in enumerate(facts(servers, 2, lists)):
        view.take(Record(Role.BINDINGS, Origin("b", place % PARTITIONS, place), key, value))


def test_the_servers_in_memory_are_bounded(make: Callable[..., StoredBindings]) -> None:
    """The one asked for least recently goes first, and none is made by facts alone."""
    view = make(30_000)
    fill(view, 20)
    assert len(view) == 0
    for number in range(20):
        assert view.find("server-0") is not None
        assert view.find(f"server-{number}") is not None
    assert 2 <= len(view) < 10
    assert {"server-0", "server-19"} <= set(view.servers)
    assert view._cost == sum(view._costs.values()) <= 30_000


def test_what_is_replaced_again_and_again_drives_no_other_server_out(make: Callable[..., StoredBindings]) -> None:
    """A server that lists for months costs what it holds, not what it ever held."""
    view = make(100_000)
    fill(view, 2)
    for number in range(2):
        assert view.find(f"server-{number}") is not None
    key, value = view.stores[0].facts("server-0")[0]
    for place in range(100, 2_000):
        view.take(Record(Role.BINDINGS, Origin("b", 0, place), key, value))
        if place % 100 == 0:
            assert view.find("server-0") is not None
    assert "server-1" in view._kept
    assert view._cost == sum(view._costs.values()) < 100_000


def test_dropped_servers_leave_nothing_behind(make: Callable[..., StoredBindings]) -> None:
    """Neither rows on the shelf nor answers: a process that runs for months does not grow."""
    shelf = MemoryShelf()
    view = make(0, shelf)
    fill(view, 3, lists=200)
    sizes = set()
    for _ in range(3):
        for number in range(3):
            server = view.find(f"server-{number}")
            assert server is not None
            assert server.named(f"{number * 2:08x}-0000-4000-8000-{7:012x}", "nobody")
        sizes.add((len(shelf.kept), len(view._answers.of_servers), view._answers.count, len(view._holders)))
    assert len(sizes) == 1
    assert sizes.pop()[1:] == (1, 1, 1)


class Unasked:
    """A store that must not be read."""

    def __init__(self, store: FactStore) -> None:
        self._store = store

    def __contains__(self, server_id: str) -> bool:
        return server_id in self._store


def test_an_unknown_server_is_not_looked_for_on_disk(make: Callable[..., StoredBindings]) -> None:
    """Made-up names cost nothing and keep nothing."""
    view = make()
    fill(view, 1)
    view.stores = {0: Unasked(view.stores[0])}  # type: ignore[dict-item]
    for name in ("nobody", ""):
        assert view.find(name) is None
    assert len(view) == 0


def test_progress_is_there_after_a_restart(make: Callable[..., StoredBindings]) -> None:
    """Calls are ready at once."""
    view = make()
    key = encode_key(("progress", "mcp.tools.list", 1))
    view.take(Record(Role.BINDINGS, Origin("b", 1, 0), key, b'{"position":7}'))
    for store in view.stores.values():
        assert isinstance(store, StateStore)
        store.commit(Stand(offset=1))
    assert make().progress == {("mcp.tools.list", 1): 7}


def test_definitions_themselves_are_not_stored(make: Callable[..., StoredBindings], tmp_path: Path) -> None:
    """A join needs their digests only."""
    view = make()
    fill(view, 1)
    packed = [key for key, value in view.stores[0].facts("server-0") if b'"packed":"' in value and b'":""' not in value]
    assert not packed


def test_a_fact_of_another_version_is_named(make: Callable[..., StoredBindings]) -> None:
    """At the latest when its server is asked for."""
    view = make()
    key = encode_key(("horizon", "server-0", "alice"))
    view.take(Record(Role.BINDINGS, Origin("b", 0, 0), key, b'{"other":7}'))
    with pytest.raises(IntegrityError, match="unknown_fact"):
        view.find("server-0")
    with pytest.raises(IntegrityError, match="foreign_fact"):
        view.take(Record(Role.BINDINGS, Origin("b", 0, 0), b'["tool","server-0",true,"full"]', b"[]"))
