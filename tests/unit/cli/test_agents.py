"""``assay-stream agents``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command import run_command_text
from tests.support.events import a_call

SHIPPED = "assay_stream.agents.shipped"
GIVEN = {"times": 5, "evidence": {"decision": "deny"}}


def scenario(path: Path, found: list[dict[str, object]]) -> str:
    """A file with one test of the shipped agents."""
    test = {"name": "a burst", "given": [GIVEN], "found": found}
    path.write_text(json.dumps({"agents": SHIPPED, "tests": [test]}), encoding="utf-8")
    return str(path)


def test_the_agents_of_a_module_are_listed() -> None:
    """With what they read, and the digest that their findings carry."""
    done = run_command_text("agents", "list", SHIPPED)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["name"] for row in rows] == [
        *("denied_burst", "first_use_spree", "open_alert_called", "silent_observer", "toxic_flow", "unlisted_server")
    ]
    assert rows[4]["reads"] == ["evidence", "definitions"]
    assert {len(row["digest"]) for row in rows} == {71}


def test_a_scenario_passes_or_fails(tmp_path: Path) -> None:
    """Exit code 0 or 1, with what was found."""
    passed = run_command_text("agents", "test", scenario(tmp_path / "s.json", [{"agent": "denied_burst", "at": 4}]))
    assert (passed.returncode, passed.stdout) == (0, "passed  a burst\n")
    failed = run_command_text("agents", "test", scenario(tmp_path / "s.json", []))
    assert failed.returncode == 1
    assert "0 detections are expected, 1 were found" in failed.stdout
    as_json = run_command_text("agents", "test", "--json", scenario(tmp_path / "s.json", []))
    assert json.loads(as_json.stdout)["passed"] is False


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("s.toml", f'agents = "{SHIPPED}"\n[[tests]]\nname = "t"\ngiven = [{{evidence = {{}}}}]\nfound = []\n'),
        ("s.yaml", f"agents: {SHIPPED}\ntests:\n- name: t\n  given:\n  - evidence: {{}}\n    at: 3\n  found: []\n"),
    ],
)
def test_a_scenario_is_toml_or_yaml_as_well(tmp_path: Path, name: str, text: str) -> None:
    """By the ending of its name."""
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert run_command_text("agents", "test", str(tmp_path / name)).stdout == "passed  t\n"


@pytest.mark.parametrize("text", ["agents = ", "[]"])
def test_what_is_no_scenario_is_refused(tmp_path: Path, text: str) -> None:
    """With a code, not with a trace."""
    (tmp_path / "s.toml").write_text(text, encoding="utf-8")
    done = run_command_text("agents", "test", str(tmp_path / "s.toml"))
    assert (done.returncode, "bad_scenario" in done.stderr) == (2, True)


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


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_names_in_a_scenario_are_inert(tmp_path: Path, options: tuple[str, ...]) -> None:
    """What would steer a terminal is printed as an escape."""
    test = {"name": "a\x1b[2J\u202eburst", "given": [GIVEN], "found": [{"agent": "no\x1b\u202eagent"}]}
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps({"agents": SHIPPED, "tests": [test]}), encoding="utf-8")
    done = run_command_text("agents", "test", str(path), *options)
    assert done.stdout
    assert all(line.isprintable() for line in (done.stdout + done.stderr).splitlines())


FLOW = {
    "name": "a flow",
    "given": [
        {"at": at, "evidence": {"tool": tool, "trace_id": "t"}} for at, tool in enumerate(("read", "look", "post"))
    ],
    "found": [{"agent": "toxic_flow", "at": 2, "tool_name": "post"}],
}
LABELS = '"*/read" = ["untrusted"]\n"*/look" = ["private"]\n"server/*" = ["sends"]\n'


def test_labels_of_operators_are_a_file(tmp_path: Path) -> None:
    """What a tool can do is not in the scenario, nor in code; the digest shows that it counts."""
    (tmp_path / "s.json").write_text(json.dumps({"agents": SHIPPED, "tests": [FLOW]}), encoding="utf-8")
    (tmp_path / "labels.toml").write_text(LABELS, encoding="utf-8")
    options = ("--labels", str(tmp_path / "labels.toml"))
    assert run_command_text("agents", "test", str(tmp_path / "s.json")).returncode == 1
    assert run_command_text("agents", "test", str(tmp_path / "s.json"), *options).returncode == 0
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
