"""A view that keeps the binding topic on disk reads the rest of it only, and the whole topic on any doubt."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from aiokafka import TopicPartition
from structlog.testing import capture_logs

from assay_stream.errors import ConfigurationError, OperatingError
from assay_stream.files.state_store import Stand, StateStore
from assay_stream.join.processor import Join
from assay_stream.model.envelope import Producer
from assay_stream.model.partition import murmur2_partition
from assay_stream.registry.state import Bindings
from assay_stream.worker.local_state import LocalState
from assay_stream.worker.view import BindingView
from bench.synthetic import facts
from tests.support.memory_cluster import MemoryCluster

TOPIC = "assay.tool.binding"
NAMES = [f"server-{number}" for number in range(40)]
HOUR_MS = 3_600_000


class Fleet:
    """A binding topic of two partitions, a clock, and workers that start and stop."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cluster = MemoryCluster({TOPIC: 2})
        self.cluster_id = "one"
        self.now_ms = 1_000_000_000_000
        self.failing: list[bool] = []
        self.read = 0

    def publish(self, servers: range) -> None:
        """Publish the facts of some servers."""
        for key, value in facts(servers.stop, 2):
            number = int(key.split(b'"')[3].removeprefix(b"server-"))
            if number in servers:
                self.cluster.append(TOPIC, murmur2_partition(b"server-%d" % number, 2), key, value)

    async def _origin(self) -> tuple[str, int]:
        return self.cluster_id, 24 * HOUR_MS

    def state(self) -> LocalState:
        """The local state of a worker."""
        return LocalState(
            self.folder, cost_max=0, origin=self._origin, failing=self.failing.append, clock_ms=lambda: self.now_ms
        )

    def view(self, state: LocalState) -> BindingView:
        """A worker's view."""
        return BindingView(
            new_join=lambda: Join(producer=Producer(version="1")),
            clients=self.cluster,
            topic=TOPIC,
            partitions=2,
            inputs=[],
            heard=self._heard,
            local=state,
        )

    async def run(self) -> list[str]:
        """Run a worker's view until it has caught up and written; returns why state was discarded."""
        state, self.read = self.state(), 0
        view = self.view(state)
        joins = [view.need(number) for number in range(2)]
        with capture_logs() as logs:
            running = asyncio.create_task(view.run())
            while not view.ready:
                await asyncio.wait([running], timeout=0.01)
                assert not running.done() or running.result()
            self.now_ms += 5_000
            await asyncio.sleep(0.6)
            view.stop()
            await running
        self.found = {
            name: len(server.tools) for name in NAMES for join in joins if (server := join.view.find(name)) is not None
        }
        state.close()
        return [str(log["reason"]) for log in logs if log["event"] == "state_snapshot_discarded"]

    def _heard(self, _name: str, _at_ms: int) -> None:
        self.read += 1


@pytest.fixture
async def fleet(tmp_path: Path) -> Fleet:
    """Ten servers with two observers each, and a worker that has read them."""
    made = Fleet(tmp_path)
    made.publish(range(10))
    assert await made.run() == []
    assert made.read == 20
    return made


async def test_a_restart_reads_what_came_since(fleet: Fleet) -> None:
    """And knows everything."""
    fleet.publish(range(10, 12))
    assert await fleet.run() == []
    assert fleet.read == 4
    assert len(fleet.found) == 12
    assert set(fleet.found.values()) == {3}
    assert await fleet.run() == []
    assert fleet.read == 0


async def test_facts_that_are_taken_back_are_gone_after_a_restart(fleet: Fleet) -> None:
    """Whether the state is read or the topic."""
    for partition in range(2):
        for message in fleet.cluster.read(TOPIC):
            if message.partition == partition and message.key and b'"server-3"' in message.key:
                fleet.cluster.append(TOPIC, partition, message.key, None)
    await fleet.run()
    assert set(fleet.found) == {f"server-{number}" for number in range(10)} - {"server-3"}
    await fleet.run()
    assert "server-3" not in fleet.found


async def rebuilt(fleet: Fleet, *reasons: str) -> None:
    """Start a worker that must read the whole topic, and one after it that must not."""
    assert await fleet.run() == list(reasons)
    assert (fleet.read, len(fleet.found)) == (20, 10)
    assert await fleet.run() == []
    assert fleet.read == 0


async def test_state_of_another_cluster_is_discarded(fleet: Fleet) -> None:
    """By name."""
    fleet.cluster_id = "two"
    await rebuilt(fleet, "other_deployment", "other_deployment")


async def test_state_that_is_older_than_deletions_are_told_is_discarded(fleet: Fleet) -> None:
    """The topic no longer says what was taken back; a state that stood at the end an hour ago is good."""
    fleet.now_ms += HOUR_MS
    await fleet.run()
    assert fleet.read == 0
    fleet.now_ms += 12 * HOUR_MS
    await rebuilt(fleet, "too_old", "too_old")


async def test_state_from_the_future_is_discarded(fleet: Fleet) -> None:
    """A clock that was set back says nothing about its age."""
    fleet.now_ms -= HOUR_MS
    await rebuilt(fleet, "too_old", "too_old")


async def test_state_of_a_topic_that_was_made_anew_is_discarded(fleet: Fleet) -> None:
    """Whether it is shorter, or as long by now with other records."""
    fleet.cluster = MemoryCluster({TOPIC: 2})
    fleet.publish(range(2))
    assert await fleet.run() == ["beyond_end", "beyond_end"]
    assert set(fleet.found) == {"server-0", "server-1"}
    fleet.cluster = MemoryCluster({TOPIC: 2})
    fleet.publish(range(20, 40))
    assert set(await fleet.run()) == {"other_log"}
    assert set(fleet.found) == {f"server-{number}" for number in range(20, 40)}


async def test_state_whose_records_are_gone_is_discarded(fleet: Fleet) -> None:
    """It may be another log, or this one, compacted."""
    for partition in range(2):
        place = TopicPartition(TOPIC, partition)
        log = fleet.cluster._logs[place]
        log[-1] = log[-1]._replace(message=None)
    fleet.publish(range(10, 11))
    assert set(await fleet.run()) == {"unknown_log"}


async def test_a_damaged_file_is_discarded(fleet: Fleet) -> None:
    """The other partition's is used."""
    path = next(iter(sorted((fleet.folder / "join").glob("*.sqlite"))))
    content = bytearray(path.read_bytes())
    for place in range(4_096, len(content), 64):
        content[place] ^= 0xFF
    path.write_bytes(content)
    assert await fleet.run() == ["damaged"]
    assert 0 < fleet.read < 20
    assert len(fleet.found) == 10


async def test_a_stale_copy_goes_on_from_where_it_stands(fleet: Fleet) -> None:
    """An older state of the same log is as good, and longer to read."""
    shutil.copytree(fleet.folder / "join", fleet.folder / "older")
    fleet.publish(range(10, 20))
    await fleet.run()
    shutil.rmtree(fleet.folder / "join")
    (fleet.folder / "older").rename(fleet.folder / "join")
    assert await fleet.run() == []
    assert (fleet.read, len(fleet.found)) == (20, 20)


async def test_a_state_that_never_came_to_the_end_is_not_trusted(fleet: Fleet) -> None:
    """Nobody knows since when it is complete."""
    for number in range(2):
        path = fleet.folder / "join" / f"bindings-{number}.sqlite"
        store = StateStore(path, {"cluster": "one", "topic": TOPIC, "partition": number}, cache_kib=1_024)
        store.commit(Stand(store.stand.offset, 0, store.stand.witnesses))
        store.close()
    fleet.now_ms += 12 * HOUR_MS
    assert await fleet.run() == ["too_old", "too_old"]


async def test_a_folder_in_use_is_named(fleet: Fleet) -> None:
    """Two processes never write to one file."""
    state = fleet.state()
    with pytest.raises(ConfigurationError, match="state_dir_in_use"):
        fleet.state()
    state.close()
    fleet.state().close()


async def test_a_full_disk_is_told_and_the_worker_goes_on(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Facts stay in memory; a restart reads them from the topic."""
    is_full, commit = True, StateStore.commit

    def full(store: StateStore, stand: Stand) -> None:
        if is_full:
            raise OperatingError("state_dir_failed", "no room")
        commit(store, stand)

    monkeypatch.setattr(StateStore, "commit", full)
    fleet.publish(range(10, 12))
    assert await fleet.run() == []
    assert (fleet.read, len(fleet.found), fleet.failing) == (4, 12, [True])
    is_full = False
    await fleet.run()
    assert (fleet.read, len(fleet.found)) == (4, 12)
    await fleet.run()
    assert fleet.read == 0


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_partition_that_comes_back_is_read_from_its_state(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partitions come and go with the calls; each has its own state."""
    monkeypatch.setattr("assay_stream.worker.view.KEPT_UNNEEDED_S", 0.0)
    state, fleet.read = fleet.state(), 0
    view = fleet.view(state)
    running = asyncio.create_task(view.run())
    for _ in range(2):
        join = view.need(1)
        await until(lambda: view.ready)
        known = [name for name in NAMES if join.view.find(name) is not None]
        assert known == [name for name in NAMES[:10] if murmur2_partition(name.encode(), 2) == 1]
        view.release(1)
        await until(lambda: not view._joins and not state._stores)
    assert fleet.read == 0
    view.stop()
    await running
    state.close()


async def test_a_partition_that_is_needed_while_another_is_dropped_is_kept(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rebalance releases several at once, and the next one asks for some of them again."""
    monkeypatch.setattr("assay_stream.worker.view.KEPT_UNNEEDED_S", 0.0)
    state = fleet.state()
    view, drop = fleet.view(state), LocalState.drop
    loop = asyncio.get_running_loop()

    def drop_slowly(self: LocalState, tp: TopicPartition, bindings: Bindings) -> None:
        asyncio.run_coroutine_threadsafe(need_other(1 - tp.partition), loop).result(10)
        drop(self, tp, bindings)

    async def need_other(number: int) -> None:
        view.need(number)

    running = asyncio.create_task(view.run())
    for number in (0, 1):
        view.need(number)
    await until(lambda: view.ready)
    monkeypatch.setattr(LocalState, "drop", drop_slowly)
    for number in (0, 1):
        view.release(number)
    await until(lambda: len(view._joins) == 1)
    await asyncio.sleep(0.05)
    assert len(view._joins) == 1
    view.stop()
    await running
    state.close()
