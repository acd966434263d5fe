"""``assay-stream agents``."""

import json
from pathlib import Path

import pytest

from tests.support.command import run_command_text
from tests.support.events import a_call

SHIPPED = "assay_stream.agents.shipped"


def test_the_agents_of_a_module_are_listed() -> None:
    """With what they read, and the digest that their findings carry."""
    done = run_command_text("agents", "list", SHIPPED)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["name"] for row in rows] == [
        *("denied_burst", "first_use_spree", "open_alert_called", "silent_observer"),
        *("steered_calls", "taken_over", "toxic_flow", "unlisted_server"),
    ]
    assert rows[6]["reads"] == ["evidence", "definitions"]
    assert {len(row["digest"]) for row in rows} == {71}


def test_recorded_observations_are_replayed_through_the_agents(tmp_path: Path) -> None:
    """What is printed are findings, as the finding topic carries them."""
    lines = [a_call(number=n, second=n, decision="deny") for n in range(5)]
    (tmp_path / "calls.ndjson").write_bytes(b"\n".join(lines) + b"\n")
    done = run_command_text("agents", "replay", SHIPPED, "--input", str(tmp_path / "calls.ndjson"))
    assert done.returncode == 0, done.stderr
    [finding] = [json.loads(line) for line in done.stdout.splitlines()]
    assert (finding["kind"], finding["detection"]["agent"]) == ("detection", "denied_burst")
    again = run_command_text("agents", "replay", SHIPPED, "--input", str(tmp_path / "calls.ndjson"))
    assert again.stdout == done.stdout


def test_a_replay_shows_the_alerts_that_would_have_been_raised(tmp_path: Path) -> None:
    """Under the rules in force: what is suppressed is written as such, with the rule's name."""
    rule = ("--server-id", "*", "--id", "doors", "--detection", "denied_burst", "--reason", "r", "--author", "a")
    calls = tmp_path / "calls.ndjson"
    lines = [a_call(number=n, second=n, decision="deny") for n in range(5)]
    calls.write_bytes(b"\n".join(lines) + b"\n")
    control = tmp_path / "control.ndjson"
    assert run_command_text("alerts", "suppress", *rule, "--output", str(control)).returncode == 0
    event = json.loads(control.read_bytes()) | {"time": json.loads(lines[0])["time"]}
    control.write_text(json.dumps(event) + "\n", encoding="utf-8")
    for inputs, status in (((calls,), "New"), ((calls, control), "Suppressed")):
        options = [option for path in inputs for option in ("--input", str(path))]
        done = run_command_text("agents", "replay", SHIPPED, "--alerts", *options)
        assert done.returncode == 0, done.stderr
        [alert] = [json.loads(line) for line in done.stdout.splitlines()]
        assert (alert["unmapped"]["mcp_detection"], alert["status"]) == ("denied_burst", status)


LABELS = '"*/read" = ["untrusted"]\n"*/look" = ["private"]\n"*/post" = ["sends"]\n'


def test_labels_of_operators_are_a_file(tmp_path: Path) -> None:
    """What a tool can do is not in the recording, nor in code; the digest shows that it counts."""
    calls = tmp_path / "calls.ndjson"
    tools = ("read", "look", "post")
    lines = [a_call(number=n, second=n, tool_name=tool, trace_id="t") for n, tool in enumerate(tools)]
    calls.write_bytes(b"\n".join(lines) + b"\n")
    (tmp_path / "labels.toml").write_text(LABELS, encoding="utf-8")
    options = ("--labels", str(tmp_path / "labels.toml"))
    replay = ("agents", "replay", SHIPPED, "--input", str(calls))
    assert run_command_text(*replay).stdout == ""
    assert json.loads(run_command_text(*replay, *options).stdout)["tool_name"] == "post"
    digests = {run_command_text("agents", "list", SHIPPED, *given).stdout for given in ((), options)}
    assert len(digests) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "bad_labels at $: write one line per pattern"),
        ('"mail" = ["private"]', "a pattern is SERVER/TOOL"),
        ('"mail/*" = "private"', "are a list"),
        ('"mail/*" = ["send"]', "'send' is no capability; there are sends, untrusted, private"),
        ('"mail/[" = ["sends"]', "bad_pattern"),
        ("mail", "bad_labels"),
    ],
)
def test_a_bad_file_of_labels_is_refused_with_the_line_to_fix(tmp_path: Path, text: str, message: str) -> None:
    """A label that no agent knows would silently mean harmless."""
    (tmp_path / "labels.toml").write_text(text, encoding="utf-8")
    done = run_command_text("agents", "list", SHIPPED, "--labels", str(tmp_path / "labels.toml"))
    assert done.returncode == 2
    assert message in done.stderr
