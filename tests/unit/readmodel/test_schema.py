"""The store's file: who may write it, who may read it, and what is said of one that cannot be used."""

from __future__ import annotations

import multiprocessing
import sqlite3
import stat
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from assay_stream.errors import ConfigurationError, InputError, OperatingError
from assay_stream.limits import STORE_CACHE_KIB
from assay_stream.readmodel import schema
from assay_stream.readmodel.filling import Filler, fill
from assay_stream.readmodel.queries import Store
from assay_stream.readmodel.rows import EvidenceFilter
from tests.support.readmodel import history, tables


def _write(folder: Path) -> None:
    with schema.writing(folder):
        pass


def test_nobody_else_may_read_the_file(tmp_path: Path) -> None:
    """It holds evidence: folder and files are the owner's alone."""
    folder = tmp_path / "store"
    with schema.writing(folder) as connection:
        fill(connection, history())
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        for path in folder.iterdir():
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_filling_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """A store opened again is the store that was closed."""
    with schema.writing(tmp_path) as connection:
        fill(connection, history()[:-20])
    with schema.writing(tmp_path) as connection:
        fill(connection, history())
        found, secret = tables(connection), schema.meta(connection, "secret", b"")
    whole = schema.temporary(secret)
    fill(whole, history())
    assert found == tables(whole)


def test_a_store_has_one_writer(tmp_path: Path) -> None:
    """The second is told so; readers are not concerned."""
    with schema.writing(tmp_path):
        with pytest.raises(ConfigurationError, match="store_in_use"), schema.writing(tmp_path):
            pass
        schema.reading(tmp_path).close()
    with schema.writing(tmp_path):
        pass


def test_a_store_of_another_version_is_rebuilt_on_request_only(tmp_path: Path) -> None:
    """Neither reading nor writing touches it; ``rebuild`` begins anew."""
    with schema.writing(tmp_path) as connection:
        fill(connection, history())
        connection.execute("PRAGMA user_version = 99")
    for attempt in (schema.reading, _write):
        with pytest.raises(ConfigurationError, match=r"store_version.*99.*--rebuild"):
            attempt(tmp_path)
    with schema.writing(tmp_path, rebuild=True) as connection:
        assert connection.execute("SELECT count(*) FROM evidence").fetchone() == (0,)


def test_a_version_has_the_tables_that_it_always_had() -> None:
    """A store of the same version is opened as it is: whoever changes a table raises the version with this digest."""
    found = schema.temporary().execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name")
    digest = sha256("".join(text for (sql,) in found for text in sql.split()).encode()).hexdigest()
    assert (schema.SCHEMA_VERSION, digest[:16]) == (12, "08f93353f5d33408")


@pytest.mark.parametrize("content", [b"no database", b"SQLite format 3\x00" + b"\x00" * 5_000])
def test_a_file_that_is_no_store_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / schema.FILE).write_bytes(content)
    for attempt in (schema.reading, _write):
        with pytest.raises((InputError, OperatingError), match="store_"):
            attempt(tmp_path)
    assert (tmp_path / schema.FILE).read_bytes() == content


def test_another_database_is_not_taken_for_a_store(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / schema.FILE)
    other.execute("CREATE TABLE theirs (x)")
    other.close()
    before = (tmp_path / schema.FILE).read_bytes()
    with pytest.raises(InputError, match="store_unreadable"), schema.writing(tmp_path):
        pass
    with pytest.raises(InputError, match="store_unreadable"):
        schema.reading(tmp_path)
    assert (tmp_path / schema.FILE).read_bytes() == before


def test_a_reader_cannot_write(tmp_path: Path) -> None:
    with schema.writing(tmp_path) as connection:
        fill(connection, history())
    reader = schema.reading(tmp_path)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader.execute("DELETE FROM evidence")
    reader.close()


def _read(folder: Path, rounds: int, answers: multiprocessing.Queue[list[int]]) -> None:
    store, counts = Store(schema.reading(folder)), []
    for _ in range(rounds):
        status = store.status()
        # Counts and positions are of one moment: the read of both is one transaction.
        counts.append(status.counts["evidence"] - sum(row.read for row in status.positions if row.role == "evidence"))
        store.evidence(EvidenceFilter(server_id="server-0"))
    answers.put(counts)


def test_readers_of_other_processes_see_whole_batches(tmp_path: Path) -> None:
    """While a writer is at work, a reader waits for nobody, and never sees half of a batch."""
    answers: multiprocessing.Queue[list[int]] = multiprocessing.get_context("spawn").Queue()
    with schema.writing(tmp_path) as connection:
        filler = Filler(connection)
        filler.take(history()[:10])
        reader = multiprocessing.get_context("spawn").Process(target=_read, args=(tmp_path, 40, answers))
        reader.start()
        for begin in range(10, len(history()), 2):
            filler.take(history()[begin : begin + 2])
        counts = answers.get(timeout=60)
        reader.join(10)
    assert counts == [0] * 40


def test_a_store_is_made_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is killed in between leaves one that the next takes for new."""
    monkeypatch.setattr(schema, "_APPLICATION_ID", "no number")
    with pytest.raises(OperatingError), schema.writing(tmp_path):
        pass
    monkeypatch.undo()
    _write(tmp_path)


def test_a_rebuild_that_is_killed_leaves_no_file_without_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file whose log is gone may be half written, and would pass for whole."""
    _write(tmp_path)
    (tmp_path / f"{schema.FILE}-wal").write_bytes(b"a log")
    gone: list[str] = []

    def unlink(path: Path, missing_ok: bool = False) -> None:
        gone.append(path.name)
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "unlink", unlink)
    with pytest.raises(KeyboardInterrupt), schema.writing(tmp_path, rebuild=True):
        pass
    assert gone == [schema.FILE]


def test_a_store_stays_where_it_cannot_be_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its log: what is only there counts as well."""
    with schema.writing(tmp_path) as connection:
        fill(connection, history())
    (tmp_path / f"{schema.FILE}-shm").write_bytes(b"an index")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    replace = Path.replace

    def replaced(path: Path, target: str | Path) -> Path:
        if path.parent != tmp_path and path.name == schema.FILE:
            raise OSError(5, "an error of the disk")
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", replaced)
    with pytest.raises(OperatingError, match="unwritable_folder"), schema.replacing(tmp_path):
        pass
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE evidence SET body = zeroblob(40)",
        "UPDATE evidence SET body = substr(body, 1, 40)",
        "UPDATE evidence SET body = CAST(substr(body, 1, length(body) - 1) || x'00' AS BLOB)",
        "UPDATE evidence SET tool = CAST(x'ff' || id AS TEXT)",
        "UPDATE subject SET digests = 'x' || id",
    ],
)
def test_damage_is_an_error_that_says_so(damage: str, tmp_path: Path) -> None:
    """Bytes that are not those that were written are never shown as evidence."""
    with schema.writing(tmp_path) as connection:
        fill(connection, history())
        connection.execute(damage)
    store = Store(schema.reading(tmp_path))
    with pytest.raises(InputError) as caught, schema.failures(tmp_path):
        store.evidence_of(store.evidence(EvidenceFilter()).rows[0].reference)
    assert caught.value.code == "store_unreadable"
    assert "--rebuild" in caught.value.message


def test_the_log_shrinks_again_when_a_long_read_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While somebody reads it cannot be emptied; afterwards its room is given back."""
    monkeypatch.setattr(schema, "STORE_LOG_PAGES", 8)
    log = tmp_path / f"{schema.FILE}-wal"
    with schema.writing(tmp_path) as connection:
        filler = Filler(connection)
        filler.take(history()[:5])
        store = Store(schema.reading(tmp_path))
        with store.moment():
            store.status()
            for begin in range(5, len(history()), 5):
                filler.take(history()[begin : begin + 5])
            grown = log.stat().st_size
        store.close()
        for number in range(5):
            filler.note({}, looked_us=number)
        assert log.stat().st_size <= 16 * 4_096 < grown


_FILL = """
import os, resource
from assay_stream.readmodel import schema
connection = schema.temporary()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for batch in range(20):
    rows = ((f"{batch}-{number}", os.urandom(20_000)) for number in range(500))
    connection.execute("BEGIN")
    connection.executemany("INSERT INTO definition (full, body) VALUES (?, ?)", rows)
    connection.execute("COMMIT")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_a_temporary_store_takes_no_more_memory_than_its_page_cache() -> None:
    """What a question reads of topics or files may be more than fits: here 200 MB."""
    done = subprocess.run([sys.executable, "-c", _FILL], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 2 * STORE_CACHE_KIB


def test_what_fails_while_a_store_is_written_is_no_fault_of_its_folder(tmp_path: Path) -> None:
    """A broker that goes away raises an ``OSError`` as well."""
    with pytest.raises(ConnectionResetError), schema.writing(tmp_path):
        raise ConnectionResetError
