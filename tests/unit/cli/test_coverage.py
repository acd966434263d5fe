"""``assay-stream coverage`` over files."""

import csv
import json
from pathlib import Path

import pytest
from typer.testing import Result

from tests.support.command import invoke
from tests.support.events import SERVER, TOOL, Story


def report(tmp_path: Path, story: Story, *arguments: str) -> Result:
    return invoke("coverage", "--input", story.write(tmp_path / "in.ndjson"), *arguments)


def test_calls_that_rest_on_lists_are_a_success(tmp_path: Path) -> None:
    """A row for the server and one for the observer."""
    result = report(tmp_path, Story().lists(TOOL).calls(), "--format", "json")
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(row["what"], row["name"], row["exact"] + row["observer"]) for row in rows] == [
        ("server", SERVER, 1),
        ("observer", "proxy-1", 1),
    ]


@pytest.mark.parametrize("story", [Story().calls(), Story().lists(TOOL).calls(server_id="dark")])
def test_a_server_that_nobody_lists_sets_the_exit_code(tmp_path: Path, story: Story) -> None:
    """So that a check that runs every day notices."""
    result = report(tmp_path, story)
    assert result.exit_code == 1, result.output
    assert "never_listed, calls_unlisted" in result.stdout


def test_a_spreadsheet_runs_nothing_of_a_name(tmp_path: Path) -> None:
    """Strangers choose names of servers and observers."""
    result = report(tmp_path, Story().lists(TOOL).calls(observer_id="=HYPERLINK(1)"), "--format", "csv")
    header, *rows = csv.reader(result.stdout.splitlines())
    assert [row[header.index("name")] for row in rows] == [SERVER, "'=HYPERLINK(1)", "proxy-1"]
    assert rows[1][header.index("gaps")] == "calls_only"


def test_nothing_recorded_is_said(tmp_path: Path) -> None:
    """An empty report must not look like a covered fleet."""
    result = report(tmp_path, Story())
    assert result.exit_code == 5
    assert "no list and no call" in result.stderr
