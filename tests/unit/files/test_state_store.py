"""Facts on a local disk: what was written comes back after any stop, and what is in doubt is not used."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay_stream.errors import ConfigurationError, IntegrityError, OperatingError
from assay_stream.files.state_store import Stand, StateStore, Unusable, locked

LOG = {"cluster": "c", "topic": "assay.tool.binding", "partition": 0}
PAGE_BYTES = 8_192
STAND = Stand(offset=40, at_ms=1_000, witnesses=((39, 7),))


def a_store(path: Path) -> StateStore:
    """The store in a file, made if missing."""
    return StateStore(path, LOG, cache_kib=1_024)


def put(store: StateStore, *numbers: int, server: str = "server", text: bytes = b"value") -> None:
    """Write facts."""
    for number in numbers:
        store.write(server, b"key-%d" % number, text + b"-%d" % number, number)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a store that holds forty facts of four servers is, closed."""
    path = tmp_path / "store.sqlite"
    store = a_store(path)
    for server in range(4):
        put(store, *range(server * 10, server * 10 + 10), server=f"server-{server}", text=b"x" * 300)
    store.commit(STAND)
    store.close()
    return path


def content(store: StateStore) -> dict[str, list[tuple[bytes, bytes]]]:
    """Everything that it holds."""
    return {server: store.facts(server) for server in sorted(store.servers)}


def test_what_is_committed_is_there_after_a_restart(path: Path) -> None:
    """With the offset up to which it stands."""
    store = a_store(path)
    assert store.stand == STAND
    assert store.servers == {f"server-{number}" for number in range(4)}
    assert store.facts("server-1") == [(b"key-%d" % n, b"x" * 300 + b"-%d" % n) for n in range(10, 20)]
    store.close()


def test_facts_come_in_the_order_of_the_log(tmp_path: Path) -> None:
    """Ten after nine, written or not yet, and a fact that is written anew at its new place."""
    store = a_store(tmp_path / "store.sqlite")
    put(store, 9, 10)
    store.commit(STAND)
    put(store, 8)
    store.write("server", b"key-9", b"new", 11)
    assert [key for key, _ in store.facts("server")] == [b"key-8", b"key-10", b"key-9"]
    store.commit(STAND)
    assert [key for key, _ in store.facts("server")] == [b"key-8", b"key-10", b"key-9"]
    store.close()


def test_what_is_taken_back_is_gone(path: Path) -> None:
    """At once, after a commit and after a restart; a server without facts is none."""
    store = a_store(path)
    for number in range(10):
        store.write("server-0", b"key-%d" % number, None, 50)
    assert store.facts("server-0") == []
    store.commit(STAND)
    assert "server-0" not in store
    store.close()
    store = a_store(path)
    assert store.servers == {f"server-{number}" for number in range(1, 4)}
    store.close()


def test_what_was_not_committed_is_not_there(path: Path) -> None:
    """Facts and offset stand together: what a kill loses is read from the topic again."""
    store = a_store(path)
    put(store, 100, server="late")
    shutil.copytree(path.parent, path.parent / "killed", ignore=shutil.ignore_patterns("killed"))
    store.close()
    killed = a_store(path.parent / "killed" / path.name)
    assert (killed.stand, "late" in killed) == (STAND, False)
    killed.close()


@pytest.mark.parametrize(("changed", "why"), [({"cluster": "d"}, "other_deployment"), ({"partition": 1}, "other_")])
def test_a_file_of_another_log_is_named(path: Path, changed: dict[str, object], why: str) -> None:
    """It is not read."""
    with pytest.raises(Unusable, match=why):
        StateStore(path, LOG | changed, cache_kib=1_024)


def test_a_file_of_another_format_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not read."""
    monkeypatch.setattr("assay_stream.files.state_store.FORMAT", 2)
    with pytest.raises(Unusable, match="other_version"):
        a_store(path)


@pytest.mark.parametrize("seed", range(8))
def test_a_damaged_file_is_refused_or_gives_the_same_facts(path: Path, seed: int) -> None:
    """Whatever bytes were changed, cut off or put elsewhere."""
    store = a_store(path)
    whole = content(store)
    store.close()
    good, draw = path.read_bytes(), random.Random(seed)
    refused = 0
    for _ in range(40):
        damaged = bytearray(good)
        match draw.randrange(3):
            case 0:
                for _ in range(draw.choice([1, 1, 8])):
                    damaged[draw.randrange(len(good))] = draw.randrange(256)
            case 1:
                del damaged[draw.randrange(len(good)) :]
            case _:
                start, source = draw.randrange(len(good)), draw.randrange(len(good))
                damaged[start : start + 64] = good[source : source + 64]
        path.write_bytes(damaged)
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        try:
            store = a_store(path)
        except Unusable:
            refused += 1
            continue
        assert (content(store), store.stand) == (whole, STAND)
        store.close()
    assert refused


def test_damage_under_a_running_process_is_named_and_the_file_removed(path: Path) -> None:
    """A restart then reads the topic."""
    store = a_store(path)
    other = sqlite3.connect(path)
    other.execute("DELETE FROM facts WHERE key = ?", (b"key-15",))
    other.commit()
    other.close()
    assert len(store.facts("server-0")) == 10
    with pytest.raises(IntegrityError, match="state_dir_damaged"):
        store.facts("server-1")
    assert not path.exists()


def test_damage_that_writing_meets_is_named_and_the_file_removed(path: Path) -> None:
    """It is no full disk: tried again and again, facts would gather in memory."""
    store = a_store(path)
    put(store, *range(5_000), server="large")
    store.commit(STAND)
    store._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = bytearray(path.read_bytes())
    for page in range(PAGE_BYTES, len(content), PAGE_BYTES):
        content[page : page + 100] = b"\xff" * 100
    with path.open("r+b") as file:
        file.write(content)
    store._connection.execute("PRAGMA shrink_memory")
    put(store, *range(0, 5_000, 50), server="large", text=b"other")
    with pytest.raises(IntegrityError, match="state_dir_damaged"):
        store.commit(STAND)
    assert not path.exists()


def test_a_full_disk_loses_no_fact(path: Path) -> None:
    """They stay in memory, and are written once there is room; the file stands where it stood."""
    store = a_store(path)
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count = {pages}")
    put(store, *range(100, 160), server="late", text=b"x" * 1_000)
    for _ in range(2):
        with pytest.raises(OperatingError, match="state_dir_failed"):
            store.commit(Stand(offset=200))
        assert (len(store.facts("late")), len(store.facts("server-0")), store.stand) == (60, 10, STAND)
    store._connection.execute("PRAGMA max_page_count = 1000000")
    store.commit(Stand(offset=200))
    store.close()
    store = a_store(path)
    assert (len(store.facts("late")), store.stand.offset) == (60, 200)
    store.close()


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Path]:
    """A folder that a worker uses."""
    with locked(tmp_path / "state"):
        yield tmp_path / "state"


def test_a_folder_has_one_worker(held: Path) -> None:
    """A second one is told; its files are for their owner's eyes only."""
    with pytest.raises(ConfigurationError, match="state_dir_in_use"), locked(held):
        pass
    assert held.stat().st_mode & 0o077 == 0
    store = a_store(held / "store.sqlite")
    assert (held / "store.sqlite").stat().st_mode & 0o077 == 0
    store.close()
