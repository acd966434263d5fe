"""``assay-stream store`` over files, and what it says where there is nothing to say."""

import gzip
import json
import random
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from assay_stream.files.lines import record_line
from assay_stream.model.record import Origin, Record, Role
from assay_stream.readmodel import schema
from assay_stream.readmodel.queries import Store
from assay_stream.readmodel.rows import EvidenceFilter, Paging
from tests.support.command import run_command_text
from tests.support.fleet import Fleet
from tests.support.readmodel import NOW_US


@pytest.fixture
def observed(tmp_path: Path) -> Path:
    path = tmp_path / "observed.ndjson"
    path.write_bytes(b"\n".join(value for _, _, value in Fleet(servers=2, calls=40, changes=2).history()))
    return path


def test_results_of_a_replay_are_loaded(observed: Path, tmp_path: Path) -> None:
    """Evidence and alerts are those of the files, each line once."""
    results, store = tmp_path / "out", tmp_path / "store"
    assert run_command_text("replay", "--input", str(observed), "--output", str(results)).returncode == 0
    done = run_command_text("store", "load", str(results), str(results / "evidence.ndjson"), "--store", str(store))
    assert done.returncode == 0, done.stderr
    assert "40 records of evidence" in done.stdout
    lines = (results / "evidence.ndjson").read_bytes().splitlines()
    opened = Store(schema.reading(store))
    found = opened.evidence(EvidenceFilter(), Paging(limit=100)).rows
    values = [record.value for row in found if (record := opened.evidence_of(row.reference)) is not None]
    assert sorted(values) == sorted(lines)


def test_observations_are_replayed_into_the_store(observed: Path, tmp_path: Path) -> None:
    """What was listed is there as well, which the results of a replay do not say."""
    store = str(tmp_path / "store")
    assert run_command_text("store", "load", str(observed), ASSAY_STREAM_STORE=store).returncode == 0
    opened = Store(schema.reading(Path(store)))
    assert [row.tools for row in opened.servers(now_us=NOW_US).rows] == [3, 3]
    assert all(row.is_listed for row in opened.tools(now_us=NOW_US).rows)


def test_no_call_is_loaded_twice_from_a_folder_that_holds_both(observed: Path, tmp_path: Path) -> None:
    """Observations, and beside them what a replay made of them."""
    folder, store = observed.parent, tmp_path.parent / f"{tmp_path.name}-store"
    run_command_text("replay", "--input", str(observed), "--output", str(tmp_path / "out"))
    for result in (tmp_path / "out").iterdir():
        result.rename(folder / result.name)
    done = run_command_text("store", "load", str(folder), "--store", str(store))
    assert done.returncode == 0, done.stderr
    assert "40 records of evidence" in done.stdout


def archived(folder: Path, *rows: tuple[int, str]) -> str:
    folder.mkdir()
    records = (Record(Role.EVIDENCE, Origin("t", 0, offset), b"s", value.encode()) for offset, value in rows)
    (folder / "evidence.ndjson").write_bytes(b"".join(record_line(record) + b"\n" for record in records))
    return str(folder)


@pytest.mark.parametrize(
    ("one", "other", "code", "said"),
    [
        ([(2, "x"), (3, "x")], [(0, "x"), (2, "x")], 0, "t: 3 records read"),
        ([(2, "x")], [(2, "y")], 2, "assay-stream: conflicting_records: "),
        ([(2**63 - 1, "x")], [(2, "x")], 0, "t: 2 records read"),
    ],
    ids=["in any order", "cannot both be true", "at the end of all offsets"],
)
def test_no_archive_hides_the_records_of_another(
    one: list[tuple[int, str]], other: list[tuple[int, str]], code: int, said: str, tmp_path: Path
) -> None:
    """Each record is read once; the number behind the last offset, which is none of 64 bits, does not end it."""
    folders = archived(tmp_path / "a", *one), archived(tmp_path / "b", *other)
    done = run_command_text("store", "load", *folders, "--store", str(tmp_path / "store"))
    assert done.returncode == code, done.stderr
    assert said in done.stdout + done.stderr


@pytest.mark.parametrize("rebuild", [(), ("--rebuild",)])
def test_an_archive_that_is_cut_short_leaves_the_store_as_it_was(rebuild: tuple[str, ...], tmp_path: Path) -> None:
    """Half a store would look like a whole one, and the one before it would be gone."""
    store = tmp_path / "store"
    if rebuild:
        whole = archived(tmp_path / "a", (0, "x"))
        assert run_command_text("store", "load", whole, "--store", str(store)).returncode == 0
    before = [(path.name, path.read_bytes()) for path in store.glob("*")]
    cut = tmp_path / "evidence.ndjson.gz"
    cut.write_bytes(gzip.compress(b"x" * 1_000 + b"\n" + random.Random(1).randbytes(9_000))[:-50])
    done = run_command_text("store", "load", str(cut), "--store", str(store), *rebuild)
    assert done.returncode == 2
    assert "archive_truncated" in done.stderr
    assert [(path.name, path.read_bytes()) for path in store.glob("*")] == before


def test_a_store_is_replaced_on_request_only(observed: Path, tmp_path: Path) -> None:
    """Loading into one that is there is refused without ``--rebuild``."""
    load = ("store", "load", str(observed), "--store", str(tmp_path / "store"))
    assert run_command_text(*load).returncode == 0
    again = run_command_text(*load)
    assert again.returncode == 2
    assert "store_exists" in again.stderr
    assert run_command_text(*load, "--rebuild").returncode == 0


def test_status_says_what_is_here_and_what_not(observed: Path, tmp_path: Path) -> None:
    """Version, positions, ages and sizes, for people and programs; escaped, since topics may be anybody's."""
    store = tmp_path / "store"
    run_command_text("store", "load", str(observed), "--store", str(store))
    with schema.writing(store) as connection:
        connection.execute(
            "UPDATE source SET lost = 7, topic = 'x' || char(27) || '[2J' WHERE role = ?", (Role.ALERTS,)
        )
        connection.execute("INSERT INTO meta VALUES ('horizon_us', 1000000)")
        connection.execute("INSERT INTO dropped VALUES ('evidence', 'age', 12)")
    said = run_command_text("store", "status", "--store", str(store))
    assert said.returncode == 1
    assert "7 lost to retention" in said.stdout
    assert "evidence before 1970-01-01T00:00:01.000Z is not here" in said.stdout
    assert "\x1b" not in said.stdout
    status = json.loads(run_command_text("store", "status", "--store", str(store), "--json").stdout)
    assert status["schema_version"] == schema.SCHEMA_VERSION
    assert status["counts"]["evidence"] == 40
    assert status["drops"] == [{"kind": "evidence", "bound": "age", "rows": 12}]
    assert {row["role"] for row in status["positions"]} >= {"evidence", "bindings", "definitions"}


def _deleted(_: Path) -> None:
    pass


def _older(folder: Path) -> None:
    with schema.writing(folder) as connection:
        connection.execute("PRAGMA user_version = 1")


def _damaged(folder: Path) -> None:
    with schema.writing(folder):
        pass
    content = bytearray((folder / schema.FILE).read_bytes())
    content[100:] = b"\xff" * (len(content) - 100)
    (folder / schema.FILE).write_bytes(content)


def _foreign(folder: Path) -> None:
    folder.mkdir()
    with closing(sqlite3.connect(folder / schema.FILE)) as connection:
        connection.execute("CREATE TABLE holiday (photo BLOB)")


@pytest.mark.parametrize(
    ("make", "code", "advice"),
    [
        (_deleted, "store_missing", "store run"),
        (_older, "store_version", "store run --rebuild --store "),
        (_damaged, "store_unreadable", "store run --rebuild --store "),
        (_foreign, "store_unreadable", "store run --rebuild --store "),
    ],
    ids=["deleted", "older", "damaged", "foreign"],
)
def test_a_store_that_cannot_be_read_says_what_to_do(
    make: Callable[[Path], None], code: str, advice: str, tmp_path: Path
) -> None:
    """Whatever became of it, every command that reads it says so, and changes nothing."""
    make(tmp_path / "store")
    content = [path.read_bytes() for path in tmp_path.glob("store/*.sqlite3")]
    for command in (("store", "status"), ("servers", "list"), ("evidence", "list")):
        done = run_command_text(*command, "--store", str(tmp_path / "store"))
        assert done.returncode in (2, 3), done.stderr
        assert code in done.stderr
        assert advice in done.stderr
        assert "Traceback" not in done.stderr
    assert [path.read_bytes() for path in tmp_path.glob("store/*.sqlite3")] == content


def _live(store: Path, observed: Path) -> None:
    run_command_text("store", "load", str(observed), "--store", str(store))
    with schema.writing(store) as connection:
        connection.execute("UPDATE meta SET value = 'cluster c' WHERE name = 'deployment'")
        connection.execute("UPDATE source SET ends = next")
        connection.execute("INSERT INTO meta VALUES ('looked_us', ?)", ((time.time_ns() // 1_000) - 86_400 * 10**6,))


def test_status_says_how_old_it_is(observed: Path, tmp_path: Path) -> None:
    """A store that nothing fills any more does not pass for one that is up to date."""
    store = tmp_path / "store"
    _live(store, observed)
    said = run_command_text("store", "status", "--store", str(store)).stdout
    assert "evidence: 40 records read from 1 partition, up to date" in said
    assert "s ago: nothing fills the store now. Start assay-stream store run" in said


def test_status_says_why_the_lag_is_unknown(observed: Path, tmp_path: Path) -> None:
    """And how much is missing where it is known; one of a thing is one thing."""
    store = tmp_path / "store"
    _live(store, observed)
    with schema.writing(store) as connection:
        connection.execute("UPDATE source SET ends = next + 3 WHERE role = 'evidence'")
        connection.execute("UPDATE source SET ends = NULL, read = 1 WHERE role = 'definitions'")
        connection.execute("DELETE FROM alert WHERE id > 1")
    said = run_command_text("store", "status", "--store", str(store)).stdout
    assert "40 records read from 1 partition, 3 behind" in said
    assert "1 record read from 1 partition, lag unknown" in said
    assert "the end of a topic was not read yet. assay-stream store run reads it" in said
    assert "tool_fact" not in said
    assert "catalogue" not in said


def test_a_folder_without_files_does_not_replace_a_store(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    (store / "store.sqlite3").write_bytes(b"kept")
    (tmp_path / "empty").mkdir()
    done = run_command_text("store", "load", str(tmp_path / "empty"), "--store", str(store), "--rebuild")
    assert (done.returncode, done.stdout) == (2, "")
    assert "unreadable_file" in done.stderr
    assert (store / "store.sqlite3").read_bytes() == b"kept"


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """No empty store is left behind that would pass for one."""
    done = run_command_text("store", "load", str(tmp_path / "nothing"), "--store", str(tmp_path / "store"))
    assert done.returncode == 2
    assert "unreadable_file" in done.stderr
    assert not (tmp_path / "store" / schema.FILE).exists()


def test_standard_input_is_loaded(observed: Path, tmp_path: Path) -> None:
    done = run_command_text("store", "load", "-", "--store", str(tmp_path / "store"), stdin=observed.read_bytes())
    assert done.returncode == 0, done.stderr
    assert "40 records of evidence" in done.stdout


def test_compressed_results_are_results(observed: Path, tmp_path: Path) -> None:
    """They were taken for observations, of which nothing follows; a file that is being written is left alone."""
    results, packed = tmp_path / "out", tmp_path / "packed"
    assert run_command_text("replay", "--input", str(observed), "--output", str(results)).returncode == 0
    packed.mkdir()
    (packed / "evidence.ndjson.gz").write_bytes(gzip.compress((results / "evidence.ndjson").read_bytes()))
    (packed / ".part.evidence.ndjson").write_bytes((results / "evidence.ndjson").read_bytes()[:100])
    done = run_command_text("store", "load", str(packed), "--store", str(tmp_path / "store"))
    assert done.returncode == 0, done.stderr
    assert "40 records of evidence" in done.stdout
    assert "refused" not in done.stdout
