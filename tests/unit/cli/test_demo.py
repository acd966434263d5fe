"""``assay-stream demo``: the story as a newcomer sees it, and what it leaves behind."""

import json
import shlex
import subprocess
import sys
import urllib.request
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import pytest
from rich.cells import cell_len
from typer.testing import CliRunner

from assay_stream.alerts.rules import AlertRules
from assay_stream.cli.app import app
from assay_stream.cli.demo import TOLD, DemoStory
from assay_stream.cli.output import Painter
from assay_stream.errors import ConfigurationError, InputError
from assay_stream.files.lines import read_lines
from assay_stream.model.evidence import Producer
from assay_stream.model.record import Role
from deploy.local.demo import open_on
from tests.support.disk import files_of_at_most
from tests.support.replaying import replay

RUNNER = CliRunner()


def told(folder: Path) -> str:
    done = RUNNER.invoke(app, ["demo", "--no-broker", "--output", str(folder)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def commands_of(story: str, section: str) -> list[list[str]]:
    lines = story.split(section)[1].splitlines()
    return [shlex.split(line.removeprefix("  $ assay-stream ")) for line in lines if line.startswith("  $ ")]


@pytest.fixture
def story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    return told(Path("d"))


def test_the_upgrade_is_quiet_and_the_rug_pull_is_one_critical_alert(story: str) -> None:
    """By chapter: nothing above low before the last one, and there one critical alert with what changed."""
    *before, last = story.split("\n4. ")
    assert "low       tool_changed" in before[0]
    assert "closed" in before[0].split("\n3. ")[1]
    assert not {"medium", "high ", "critical"} & set(before[0].split("\n1. ")[1].split())
    assert last.count("critical  tool_changed") == 1
    assert "⟦+. ⟦!Note to the assistant!⟧: before" in last
    assert "deny" in last


def test_every_line_fits_80_columns(story: str) -> None:
    """Tables and commands too: a newcomer's terminal is no wider."""
    assert max(map(cell_len, story.splitlines())) <= 80


def test_what_it_says_next_can_be_pasted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "--input 'my demo/alerts.ndjson'" in told(Path("my demo"))


def test_what_it_says_next_works(story: str) -> None:
    """Each command that it prints at the end runs as printed, and shows the alert."""
    ran = [RUNNER.invoke(app, command, catch_exceptions=False) for command in commands_of(story, "To look at them")[:3]]
    for done in ran:
        assert done.exit_code == 0
        assert "search_notes" in done.output


def test_no_printed_command_ends_in_an_open_line(tmp_path: Path) -> None:
    """A backslash continues a command only where another line of it follows."""
    lines = told(tmp_path / ("long-" * 12)).splitlines()
    following = [after.strip() for line, after in pairwise(lines) if line.endswith("\\")]
    assert following
    assert all(following)


def test_the_console_that_it_ends_with_shows_the_alert(story: str) -> None:
    """The last two commands, as printed: the store is filled, and the page is at the address that is printed."""
    load, console = commands_of(story, "The same in a browser")
    assert RUNNER.invoke(app, load, catch_exceptions=False).exit_code == 0
    assert "http://127.0.0.1:8090/" in story
    command = [sys.executable, "-m", "assay_stream", *console, "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            address = process.stderr.readline().split()[1]
            with urllib.request.urlopen(f"{address}alerts") as answer:  # noqa: S310 -- ours
                page = answer.read().decode()
        finally:
            process.terminate()
    assert "search_notes" in page
    assert "Critical" in page


def test_it_tells_the_same_twice(tmp_path: Path) -> None:
    """Same words, same bytes: nothing of it depends on the clock or on settings."""
    first, second = tmp_path / "one", tmp_path / "two"
    assert told(first).replace(str(first), "") == told(second).replace(str(second), "")
    names = sorted(path.name for path in first.iterdir())
    assert [(first / name).read_bytes() for name in names] == [(second / name).read_bytes() for name in names]


def test_settings_of_a_deployment_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A newcomer may have a real deployment in the environment: the story is neither it nor about it."""
    plain = told(tmp_path / "plain")
    monkeypatch.setenv("ASSAY_STREAM_BOOTSTRAP_SERVERS", "no.such.host:1")
    monkeypatch.setenv("ASSAY_STREAM_SEVERITY_PROFILE", "nothing")
    assert told(tmp_path / "other").replace("/other", "/plain") == plain


def test_each_call_has_one_record_of_evidence(story: str, tmp_path: Path) -> None:
    """The file holds what was told: six calls, all bound, the last one refused."""
    rows = [json.loads(line)["data"] for line in (tmp_path / "d/evidence.ndjson").read_text().splitlines()]
    assert len({row["tool_call_id"] for row in rows}) == len(rows) == 6
    assert all(row["tool_definition_digest"].startswith("sha256:") for row in rows)
    assert [row["decision"] for row in rows] == ["allow"] * 5 + ["deny"]
    assert "6 calls, 6 of them bound" in story.replace("\n", " ")


@pytest.mark.parametrize("kind", ["folder", "file", "dangling link"])
def test_it_overwrites_nothing(tmp_path: Path, kind: str) -> None:
    """What exists under the name stays, empty or not, and the message says what to do."""
    there = tmp_path / "there"
    if kind == "folder":
        there.mkdir()
    elif kind == "file":
        there.write_text("mine")
    else:
        there.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigurationError, match=r"output_exists.*--output"):
        RUNNER.invoke(app, ["demo", "--no-broker", "--output", str(there)], catch_exceptions=False)
    assert kind != "file" or there.read_text() == "mine"
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("size_bytes", [1, 10_000])
def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, size_bytes: int) -> None:
    """Before the first record or after some: the same command works once there is room."""
    folder = tmp_path / "d"
    with files_of_at_most(size_bytes), pytest.raises(InputError, match="unwritable_folder"):
        RUNNER.invoke(app, ["demo", "--no-broker", "--output", str(folder)], catch_exceptions=False)
    assert not folder.exists()
    told(folder)


def test_without_the_option_it_says_where_the_other_demo_is() -> None:
    """The one with Kafka needs a checkout."""
    with pytest.raises(ConfigurationError, match="make demo"):
        RUNNER.invoke(app, ["demo"], catch_exceptions=False)


# --- stories that did not go as they should -------------------------------------------------------------------


def story_of(*chapters: int, without: Role | None = None) -> DemoStory:
    folder = files("assay_stream.cli") / "data" / "demo"
    lines = [line for number in chapters for line in (folder / f"{number}.ndjson").read_bytes().splitlines()]
    story = DemoStory(Painter("never", columns=80), "notes")
    for output in replay(
        read_lines(lines, name="o"), producer=Producer(version="0"), alert_rules=AlertRules(version="0")
    ):
        if output.role in TOLD and output.role is not without:
            story.take(output.role, output.value or b"")
    return story


def test_the_whole_story_is_whole() -> None:
    assert story_of(1, 2, 3, 4).end()


def test_a_story_without_its_rug_pull_is_not_whole() -> None:
    """No alert that pages: the demo failed."""
    story = story_of(1, 2, 3)
    assert not story.end()
    assert open_on(story, "notes") == 0


def test_a_story_without_alerts_is_not_whole() -> None:
    """As where the alert stage does not run."""
    assert not story_of(1, 2, 3, 4, without=Role.ALERTS).end()


def test_a_call_without_a_definition_is_not_told_as_bound() -> None:
    """A chapter whose lists are missing: its calls have evidence, and it says why there is no digest."""
    story = story_of(4)
    story.evidence[0].pop("tool_definition_digest")
    story.evidence[0]["unbound_reason"] = "no_snapshot"
    assert not story.end()


def test_the_upgrade_is_open_until_it_is_approved() -> None:
    """What `make demo` waits for between chapters."""
    assert open_on(story_of(1, 2), "notes") == 1
    assert open_on(story_of(1, 2, 3), "notes") == 0
