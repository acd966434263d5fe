"""``assay-stream store`` over files, and what it says where there is nothing to say."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from assay_stream.model.record import Role
from assay_stream.readmodel import schema
from assay_stream.readmodel.queries import Store
from assay_stream.readmodel.rows import EvidenceFilter, Paging
from tests.support.command import run_command_text
from tests.support.fleet import Fleet
from tests.support.readmodel import NOW_US


@pytest.fixture
def observed(tmp_path: Path) -> Path:
    """Recorded observations of a fleet."""
    path = tmp_path / "observed.ndjson"
    path.write_bytes(b"\n".join(value for _, _, value in Fleet(servers=2, calls=40, changes=2).history()))
    return path


def test_results_of_a_replay_are_loaded(observed: Path, tmp_path: Path) -> None:
    """Evidence and alerts are those of the files, each line once."""
    results, store = tmp_path / "out", tmp_path / "store"
    assert run_command_text("replay", "--input", str(observed), "--output", str(results)).returncode == 0
    done = run_command_text("store", "load", str(results), str(results / "evidence.ndjson"), "--store", str(store))
    assert done.returncode == 0, done.stderr
    assert "40 evidence" in done.stdout
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
    assert "40 evidence" in done.stdout


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
        connection.execute("INSERT INTO meta VALUES ('dropped', 12), ('horizon_us', 1000000)")
    said = run_command_text("store", "status", "--store", str(store))
    assert said.returncode == 1
    assert "7 lost to retention" in said.stdout
    assert "evidence before 1970-01-01T00:00:01.000Z is not here" in said.stdout
    assert "\x1b" not in said.stdout
    status = json.loads(run_command_text("store", "status", "--store", str(store), "--json").stdout)
    assert status["schema_version"] == schema.SCHEMA_VERSION
    assert status["counts"]["evidence"] == 40
    assert status["dropped"] == 12
    assert {row["role"] for row in status["positions"]} >= {"evidence", "bindings", "definitions"}


@pytest.mark.parametrize("command", ["status", "run"])
def test_a_store_must_be_named(command: str) -> None:
    """By the option or the variable."""
    done = run_command_text("store", command)
    assert done.returncode == 2
    assert "no_store" in done.stderr


def test_a_store_that_is_not_there_says_how_to_fill_one(tmp_path: Path) -> None:
    """And nothing is made by looking."""
    done = run_command_text("store", "status", "--store", str(tmp_path / "store"))
    assert done.returncode == 2
    assert "store run" in done.stderr
    assert not (tmp_path / "store").exists()


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """No empty store is left behind that would pass for one."""
    done = run_command_text("store", "load", str(tmp_path / "nothing"), "--store", str(tmp_path / "store"))
    assert done.returncode == 2
    assert "unreadable_file" in done.stderr
    assert not (tmp_path / "store" / schema.FILE).exists()


def test_standard_input_is_loaded(observed: Path, tmp_path: Path) -> None:
    """As other commands read it."""
    done = run_command_text("store", "load", "-", "--store", str(tmp_path / "store"), stdin=observed.read_bytes())
    assert done.returncode == 0, done.stderr
    assert "40 evidence" in done.stdout


def test_compressed_results_are_results(observed: Path, tmp_path: Path) -> None:
    """They were taken for observations, of which nothing follows; a file that is being written is left alone."""
    results, packed = tmp_path / "out", tmp_path / "packed"
    assert run_command_text("replay", "--input", str(observed), "--output", str(results)).returncode == 0
    packed.mkdir()
    (packed / "evidence.ndjson.gz").write_bytes(gzip.compress((results / "evidence.ndjson").read_bytes()))
    (packed / ".part.evidence.ndjson").write_bytes((results / "evidence.ndjson").read_bytes()[:100])
    done = run_command_text("store", "load", str(packed), "--store", str(tmp_path / "store"))
    assert done.returncode == 0, done.stderr
    assert "40 evidence" in done.stdout
    assert "refused" not in done.stdout
