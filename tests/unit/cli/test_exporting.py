"""``assay-stream export`` and ``assay-stream bundle``, from files."""

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import Result

from assay_stream.model.record import Role
from tests.support.command import error_code, invoke as run
from tests.support.exports import a_file, changed, evidence, members, replayed, values


def summary(done: Result) -> dict[str, Any]:
    assert done.exit_code == 0, (done.output, done.exception)
    return json.loads(done.stdout)  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("replayed")
    outputs = replayed()
    for role in (Role.EVIDENCE, Role.ALERTS, Role.DEFINITIONS):
        a_file(path / f"{role.value}.ndjson", *values(outputs, role))
    return path


def test_a_bundle_is_written_and_verified(folder: Path, tmp_path: Path) -> None:
    """The two commands agree on run, root and number."""
    path = tmp_path / "b.tar.gz"
    told = summary(run("export", "assay-bundle", "--input", folder, "--output", path))
    found = summary(run("bundle", "verify", path))
    assert told["written"] == {"evidence": 40}
    assert [(part["run_id"], part["run_root"], part["events"]) for part in told["bundles"]] == [
        (found["run_id"], found["run_root"], 40)
    ]
    assert found["valid"] is True


def test_a_changed_bundle_is_not_valid(folder: Path, tmp_path: Path) -> None:
    """The answer is no, with code and line; and nothing can be exported from it."""
    path = tmp_path / "b.tar.gz"
    summary(run("export", "assay-bundle", "--input", folder, "--output", path))

    def change(content: dict[str, bytes]) -> None:
        content["events.ndjson"] = content["events.ndjson"].replace(b'"tool":"tool_0"', b'"tool":"tool_9"', 1)

    bad = changed(path, change)
    assert members(bad) != members(path)
    done = run("bundle", "verify", bad)
    answer = json.loads(done.stdout)
    assert (done.exit_code, answer["valid"], answer["code"]) == (1, False, "content_hash_mismatch")
    assert "line " in answer["message"]
    done = run("export", "timesketch", "--input", bad, "--output", tmp_path / "t.csv")
    assert error_code(done) == "content_hash_mismatch"
    assert not (tmp_path / "t.csv").exists()


def test_datasets_are_written(folder: Path, tmp_path: Path) -> None:
    """One file each, and the summary has their rows."""
    told = summary(run("export", "parquet", "--input", folder, "--output", tmp_path))
    assert {path.stem: pq.read_metadata(path).num_rows for path in tmp_path.iterdir()} == told["written"]
    assert set(told["written"]) == {"evidence", "alerts", "definitions"}


def test_a_timeline_is_written(folder: Path, tmp_path: Path) -> None:
    """As a table or as lines, by the name of the file."""
    told = summary(run("export", "timesketch", "--input", folder, "--output", tmp_path / "t.csv"))
    summary(run("export", "timesketch", "--input", folder, "--output", tmp_path / "t.jsonl"))
    with (tmp_path / "t.csv").open(encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    assert len(table) == len((tmp_path / "t.jsonl").read_bytes().splitlines()) == sum(told["written"].values())


@pytest.mark.parametrize("name", ["assay-bundle", "parquet", "timesketch"])
@pytest.mark.parametrize(
    ("option", "value"),
    [("--since", "2030-01-01T00:00:00Z"), ("--until", "2020-01-01T00:00:00Z"), ("--server-id", "nobody")],
)
def test_a_selection_without_a_record_says_so(name: str, option: str, value: str, tmp_path: Path) -> None:
    """Exit code 1, a sentence that tells it from an empty input, and no file."""
    file = a_file(tmp_path / "in", evidence())
    done = run("export", name, "--input", file, "--output", tmp_path / "out.csv", option, value)
    assert done.exit_code == 1
    assert "matches none of the 1 records read" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_an_empty_input_says_so(tmp_path: Path) -> None:
    done = run("export", "assay-bundle", "--input", a_file(tmp_path / "in"), "--output", tmp_path / "b.tar.gz")
    assert (done.exit_code, "there is no record" in done.stderr) == (1, True)


@pytest.mark.parametrize(
    ("options", "code"),
    [(("--since", "soon"), "bad_time"), (("--offsets", "1-2"), "bad_offsets"), (("--run-id", "a:b"), "bad_run_id")],
)
def test_an_option_that_cannot_be_meant_is_refused(options: tuple[str, ...], code: str, tmp_path: Path) -> None:
    file = a_file(tmp_path / "in", evidence())
    done = run("export", "assay-bundle", "--input", file, "--output", tmp_path / "b.tar.gz", *options)
    assert error_code(done) == code


def test_ranges_add_up(tmp_path: Path) -> None:
    """Servers and offsets may be given several times."""
    file = a_file(tmp_path / "in", *(evidence(number) for number in range(9)))
    told = summary(
        run(
            *("export", "assay-bundle", "--input", file, "--output", tmp_path / "b.tar.gz"),
            *("--offsets", "mcp.tools.call:3=0..2", "--offsets", "mcp.tools.call:3=7..8"),
            *("--server-id", "x", "--server-id", "server-a"),
        )
    )
    assert (told["written"], told["left_out"]) == ({"evidence": 3}, 6)
