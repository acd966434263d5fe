"""``assay-stream alerts suppress`` and ``unsuppress``."""

import json
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.command import invoke

HERE = ("--server-id", "server", "--id", "rule-1", "--reason", "noise", "--author", "ann")


run = partial(invoke, "alerts")


def decided(path: Path, *arguments: object) -> tuple[str, dict[str, Any]]:
    result = run(*arguments, "--output", path)
    assert result.exit_code == 0, result.output
    event = json.loads(path.read_bytes())
    return event["type"].removeprefix("assay.control."), event["data"]


def test_a_rule_is_set_with_all_it_says(tmp_path: Path) -> None:
    options = ("--tool", "read_*", "--kind", "tool_changed", "--field", "title", "--until", "2999-03-01T10:00:00Z")
    kind, data = decided(tmp_path / "o", "suppress", *HERE, *options)
    assert kind == "suppression.set"
    assert data["until"].startswith("2999-03-01T10:00:00")
    del data["until"]
    assert data == {
        "server_id": "server",
        "id": "rule-1",
        "tool": "read_*",
        "kind": "tool_changed",
        "field": "title",
        "author": "ann",
        "reason": "noise",
    }


def test_a_rule_may_be_for_what_one_agent_finds(tmp_path: Path) -> None:
    _, data = decided(tmp_path / "o", "suppress", *HERE, "--detection", "denied_burst")
    assert data["detection"] == "denied_burst"


def test_what_is_left_out_is_not_in_the_rule(tmp_path: Path) -> None:
    """It applies to all then; a rule may be for every server."""
    _, data = decided(tmp_path / "o", "suppress", *HERE, "--server-id", "*")
    assert data == {"server_id": "*", "id": "rule-1", "author": "ann", "reason": "noise"}


def test_a_rule_is_taken_back(tmp_path: Path) -> None:
    kind, data = decided(tmp_path / "o", "unsuppress", *HERE)
    assert (kind, data["id"], data["server_id"]) == ("suppression.remove", "rule-1", "server")


def test_a_field_that_mcp_does_not_define_is_warned_of(tmp_path: Path) -> None:
    """A slip would cover nothing; the rule is set all the same, since servers have fields of their own."""
    slip = run("suppress", *HERE, "--field", "titel", "--output", tmp_path / "o")
    assert slip.exit_code == 0
    assert "not a field that MCP defines" in slip.stderr
    assert "no field" not in run("suppress", *HERE, "--field", "title", "--output", tmp_path / "p").stderr


def test_it_says_from_when_on_open_alerts_are_suppressed(tmp_path: Path) -> None:
    """Not at once: what was written stays as it is."""
    assert "from its next record on" in run("suppress", *HERE, "--output", tmp_path / "o").stderr


def test_taking_back_claims_no_more_than_it_knows(tmp_path: Path) -> None:
    """Whether the rule exists is not looked up."""
    assert "if there is one" in run("unsuppress", *HERE, "--output", tmp_path / "o").stderr
