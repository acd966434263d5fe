"""``assay-stream verify``, ``compare``, ``asof``, ``timeline`` and ``trace`` over files."""

import json
from pathlib import Path

import pytest
from typer.testing import Result

from assay_stream.files.lines import record_line
from assay_stream.model.record import Role
from tests.support.command import error_code, invoke, invoke as run
from tests.support.events import SERVER, TOOL, Story

OTHER = {**TOOL, "description": "\x1b[2J\u202eAnother one"}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    story = Story().lists(TOOL).calls().lists(OTHER).calls().calls("\x1b[2Jghost")
    story.write(tmp_path / "in.ndjson")
    result = run("replay", "--input", tmp_path / "in.ndjson", "--output", tmp_path, "--force")
    assert result.exit_code == 0, result.output
    return tmp_path


def held(files: Path, command: str = "verify", *arguments: object) -> Result:
    return run(command, "--evidence", files / "evidence.ndjson", "--input", files / "in.ndjson", *arguments)


def alter(files: Path, old: bytes, new: bytes, name: str = "evidence.ndjson") -> None:
    content = (files / name).read_bytes()
    assert old in content
    (files / name).write_bytes(content.replace(old, new, 1))


def test_verify_says_nothing_of_what_holds_but_counts_it(files: Path) -> None:
    """Exit code 0; with --all each record is listed."""
    result = held(files)
    assert (result.exit_code, result.stdout) == (0, "")
    assert json.loads(result.stderr)["summary"]["holds"] == 3
    assert [
        json.loads(line)["status"] for line in held(files, "verify", "--all", "--format", "json").stdout.splitlines()
    ] == ["holds"] * 3


def test_verify_ends_with_1_where_something_is_wrong(files: Path) -> None:
    """And with 3 where what it rests on is not there."""
    alter(files, b'"decision":"allow"', b'"decision":"deny"')
    result = held(files)
    assert result.exit_code == 1
    assert result.stdout.startswith("wrong   calls/0/0")
    assert "content_hash_mismatch" in result.stdout


def test_record_lines_of_evidence_are_read_too(files: Path) -> None:
    """Then key, headers, time and partition are checked with the value."""
    story = Story().lists(TOOL).calls()
    [output] = story.tell().of(Role.EVIDENCE)
    line = record_line(
        story.records[0]._replace(
            role=Role.EVIDENCE,
            key=b"server-z",
            value=output.value,
            headers=output.headers,
            timestamp_ms=output.timestamp_ms,
        )
    )
    (files / "evidence.ndjson").write_bytes(line + b"\n")
    story.write(files / "in.ndjson")
    result = held(files, "verify", "--producer", "0.1.0")
    assert "record_differs" in result.stdout


def test_evidence_is_read_from_standard_input(files: Path) -> None:
    """It is kept in a file while the command runs."""
    given = (files / "evidence.ndjson").read_bytes()
    arguments = ["verify", "--evidence", "-", "--input", str(files / "in.ndjson")]
    result = invoke(*arguments, input=given)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stderr)["summary"]["records"] == 3


@pytest.mark.parametrize("command", [("asof", "--at", "now"), ("timeline",)])
def test_standard_input_and_folders_are_read_as_files_are(
    files: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """The state is read first, then what happened: both from the same input."""
    folder = tmp_path / "archive"
    folder.mkdir()
    (folder / "in.ndjson").write_bytes((files / "in.ndjson").read_bytes())
    (folder / "evidence.ndjson").write_bytes((files / "evidence.ndjson").read_bytes())
    options = [command[0], "--server-id", "server-a", *command[1:], "--format", "json", "--input"]
    runs = [
        invoke(*options, str(files / "in.ndjson")),
        invoke(*options, str(folder)),
        invoke(*options, "-", input=(files / "in.ndjson").read_bytes()),
    ]
    assert [done.exit_code for done in runs] == [0, 0, 0]
    rows = [[json.loads(line) | {"origin": None} for line in done.stdout.splitlines()] for done in runs]
    assert rows[0] == rows[1] == rows[2] != []


def test_compare_ends_with_0_where_all_is_identical(files: Path) -> None:
    result = held(files, "compare", "--alerts", files / "alerts.ndjson")
    assert (result.exit_code, result.stdout) == (0, "")
    identical = json.loads(result.stderr)["summary"]["identical"]
    assert (identical["evidence"], identical["alert"]) == (3, 3)


@pytest.mark.parametrize("alerts", [[], ["--alerts", "nothing.ndjson"]])
def test_that_nothing_was_compared_has_an_exit_code_of_its_own(tmp_path: Path, alerts: list[str]) -> None:
    """A build that compares must not take an empty archive for a proof."""
    nothing = tmp_path / "nothing.ndjson"
    nothing.touch()
    given = [nothing if each == nothing.name else each for each in alerts]
    result = run("compare", "--input", nothing, "--evidence", nothing, *given)
    assert result.exit_code == 5
    assert "nothing to compare" in result.stderr


def test_compare_ends_with_1_and_names_each_cause(files: Path) -> None:
    """As a table, as JSON, and after a replay."""
    alter(files, b'"decision":"allow"', b'"decision":"deny"')
    table = held(files, "compare")
    assert table.exit_code == 1
    assert "altered_record" in table.stdout
    assert "alerts were not compared" in table.stderr
    rows = [json.loads(line) for line in held(files, "compare", "--format", "json").stdout.splitlines()]
    assert [row["causes"] for row in rows] == [["altered_record"]]
    recorded = (files / "evidence.ndjson").rename(files / "recorded.ndjson")
    again = run(
        "replay", "--input", files / "in.ndjson", "--output", files, "--force", "--compare", "--evidence", recorded
    )
    assert again.exit_code == 1
    assert "altered_record" in again.stdout


def test_asof_is_about_now_by_default(files: Path) -> None:
    """The answer is that for a time after everything."""
    given = ("asof", "--server-id", SERVER, "--input", files / "in.ndjson", "--format", "json")
    assert run(*given).stdout == run(*given, "--at", "2099-01-01T00:00:00Z").stdout != ""


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("asof", "--server-id", "nobody", "--at", "2026-03-01T10:00:09Z"), "server_not_known"),
        (("asof", "--server-id", SERVER, "--at", "2020-03-01T10:00:09Z"), "nothing_known_then"),
        (("asof", "--server-id", SERVER, "--at", "2026-03-01T10:00:09Z", "--tool", "nix"), "tool_not_known"),
        (("timeline", "--server-id", "nobody"), "server_not_known"),
        (("timeline", "--server-id", SERVER, "--tool", "nix"), "tool_not_known"),
        (("timeline", "--server-id", SERVER, "--until", "2020-03-01T10:00:09Z"), "nothing_known_then"),
        (("trace", "--tool-call-id", "nobody's"), "call_not_known"),
    ],
)
def test_what_is_not_known_has_an_exit_code_of_its_own(files: Path, arguments: tuple[str, ...], code: str) -> None:
    result = run(*arguments, "--input", files / "in.ndjson")
    assert result.exit_code == 5
    assert result.stderr.startswith(f"assay-stream: {code}")


def test_a_time_without_an_offset_is_refused(files: Path) -> None:
    """Nobody is left to guess whose ten o'clock it is."""
    result = run("asof", "--server-id", SERVER, "--at", "2026-03-01T10:00:09", "--input", files / "in.ndjson")
    assert error_code(result) == "bad_time"
