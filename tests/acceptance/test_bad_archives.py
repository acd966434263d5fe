"""What an analyst may be handed instead of sound logs, command by command: each says what is wrong and where."""

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from assay_stream.errors import AssayStreamError
from assay_stream.files.archive import manifest_bytes
from assay_stream.files.lines import record_line
from tests.support.command import invoke as run
from tests.support.events import SERVER, TOOL, Story


def refusal(result: Result) -> AssayStreamError:
    assert isinstance(result.exception, AssayStreamError), result.output
    return result.exception


@pytest.fixture
def files(tmp_path: Path) -> Path:
    story = Story().lists(TOOL)
    for _ in range(40):
        story.calls()
    lines = b"".join(record_line(record) + b"\n" for record in story.records)
    (tmp_path / "in.ndjson").write_bytes(lines)
    assert run("replay", "--input", tmp_path / "in.ndjson", "--output", tmp_path / "out").exit_code == 0
    for path in (tmp_path / "in.ndjson", *(tmp_path / "out").iterdir()):
        (tmp_path / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))
        shutil.copy(path, tmp_path / path.name) if path.parent != tmp_path else None
    return tmp_path


def commands(files: Path, cut: str) -> list[tuple[object, ...]]:
    pairs = {
        "in.ndjson.gz": ["--input", files / "in.ndjson.gz", "--evidence", files / "evidence.ndjson"],
        "evidence.ndjson.gz": ["--input", files / "in.ndjson", "--evidence", files / "evidence.ndjson.gz"],
    }[cut]
    told: list[tuple[object, ...]] = [("verify", *pairs), ("compare", *pairs)]
    if cut == "in.ndjson.gz":
        source = ("--input", files / cut)
        told += [
            ("replay", *source, "--output", files / "again", "--force"),
            ("timeline", "--server-id", SERVER, *source),
            ("asof", "--server-id", SERVER, "--at", "2026-03-01T10:00:09Z", *source),
            ("trace", "--tool-call-id", "call-1", *source),
        ]
    else:
        told.append(("export", "assay-bundle", "--input", files / cut, "--output", files / "bundle.tar.gz"))
    return told


@pytest.mark.parametrize("cut", ["in.ndjson.gz", "evidence.ndjson.gz"])
def test_a_truncated_gzip_is_named_by_every_command(files: Path, cut: str) -> None:
    """With the file, and where lines were used how many of them; nothing that looks whole is left behind."""
    for arguments in commands(files, cut):
        whole = run(*arguments)
        assert whole.exit_code in (0, 5), (arguments, whole.output)
    (files / "bundle.tar.gz").unlink(missing_ok=True)
    content = (files / cut).read_bytes()
    (files / cut).write_bytes(content[: len(content) // 2])
    for arguments in commands(files, cut):
        error = refusal(run(*arguments))
        assert error.code == "archive_truncated", arguments
        assert cut in error.message
        assert arguments[0] == "export" or "whole lines were read" in error.message
    assert not (files / "bundle.tar.gz").exists()


def test_verifying_a_time_range_with_no_data_says_so(files: Path) -> None:
    options = ("--evidence", files / "evidence.ndjson", "--since", "2099-01-01T00:00:00Z")
    done = run("verify", "--input", files / "in.ndjson", *options)
    assert done.exit_code == 5
    assert "no evidence matches" in done.stderr


def without(files: Path, *numbers: int) -> Path:
    lines = (files / "evidence.ndjson").read_bytes().splitlines(keepends=True)
    path = files / "left.ndjson"
    path.write_bytes(b"".join(line for number, line in enumerate(lines) if number not in numbers))
    return path


def verify(files: Path, evidence: Path, *options: object) -> tuple[int, list[dict[str, Any]], dict[str, Any]]:
    done = run("verify", "--input", files / "in.ndjson", "--evidence", evidence, "--format", "json", *options)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return done.exit_code, rows, json.loads(done.stderr.splitlines()[0])["summary"]


def test_deleted_evidence_is_missing(files: Path) -> None:
    code, rows, summary = verify(files, without(files, 3, 17, 20))
    assert (code, summary["records"], summary["missing"], summary["pending"]) == (1, 37, 3, 0)
    assert sorted(row["call"]["offset"] for row in rows) == [3, 17, 20]
    for row in rows:
        assert (row["status"], row["codes"]) == ("missing", ["evidence_missing"])
        assert (row["server_id"], row["tool"]) == (SERVER, TOOL["name"])
        assert row["call"]["topic"] == "calls"


def test_all_evidence_deleted_is_missing_where_it_is_said_to_be_complete(files: Path) -> None:
    nothing = without(files, *range(40))
    assert verify(files, nothing, "--expect", "all")[0] == 1
    code, rows, summary = verify(files, nothing)
    assert (code, rows, summary["pending"]) == (5, [], 40)


def test_calls_behind_the_last_evidence_are_pending(files: Path) -> None:
    """They are counted: the join may not have read them. With --expect all they are missing."""
    evidence = without(files, 38, 39)
    code, rows, summary = verify(files, evidence)
    assert (code, rows, summary["pending"]) == (0, [], 2)
    code, rows, summary = verify(files, evidence, "--expect", "all")
    assert (code, summary["missing"], summary["pending"]) == (1, 2, 0)


def test_an_archive_knows_how_far_the_join_had_come(files: Path) -> None:
    evidence = without(files, 38, 39)
    manifest = manifest_bytes({("calls", 0): 40}, {("calls", 0): 39}, {("calls", 0): 39})
    (files / "archive.json").write_bytes(manifest)
    code, rows, summary = verify(files, evidence)
    assert (code, [row["call"]["offset"] for row in rows], summary["pending"]) == (1, [38], 1)
    (files / "archive.json").write_bytes(manifest.replace(b"v1", b"v9"))
    refused = run("verify", "--input", files / "in.ndjson", "--evidence", evidence)
    assert refusal(refused).code == "bad_archive_manifest"


def test_an_extract_of_evidence_is_verified_as_one(files: Path) -> None:
    evidence = without(files, *range(10, 40), *range(5))
    assert verify(files, evidence, "--expect", "none")[0] == 0
    selected = ("--from-offset", "5", "--to-offset", "10", "--expect", "all")
    assert verify(files, evidence, *selected)[0] == 0
    code, rows, _ = verify(files, evidence, "--from-offset", "3", "--to-offset", "10", "--expect", "all")
    assert (code, [row["call"]["offset"] for row in rows]) == (1, [3, 4])


def test_a_rejected_call_is_not_missing_its_evidence(files: Path) -> None:
    lines = (files / "in.ndjson").read_bytes().splitlines(keepends=True)
    refused = json.loads(lines[-1])
    refused["origin"]["offset"], refused["value"] = 40, "{"
    (files / "in.ndjson").write_bytes(b"".join(lines) + json.dumps(refused).encode() + b"\n")
    assert verify(files, files / "evidence.ndjson", "--expect", "all")[0] == 0


def test_what_retention_deleted_is_named_place_by_place(files: Path) -> None:
    """Exit code 3, each record with the snapshot that it rests on; the same for calls that are gone."""
    lines = (files / "in.ndjson").read_bytes().splitlines(keepends=True)
    for role, missing, code in (("snapshots", "snapshots/0/0", 3), ("calls", "calls/0/7", 3)):
        kept = [line for line in lines if f'"role":"{role}"'.encode() not in line]
        (files / "left.ndjson").write_bytes(b"".join(kept))
        done = run("verify", "--input", files / "left.ndjson", "--evidence", files / "evidence.ndjson")
        assert done.exit_code == code, done.output
        assert f"missing {missing}" in done.stdout
        assert [line.split()[0] for line in done.stdout.splitlines()] == ["gone"] * 40
