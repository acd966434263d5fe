"""``assay-stream policy`` and ``assay-stream keys`` over a given state."""

import json
from pathlib import Path
from typing import Any

import pytest

from assay_stream.cli import decisions
from tests.support import facts
from tests.support.command import invoke as run
from tests.support.operators import a_state

WHY = ("--reason", "reviewed", "--author", "ann")
HERE = ("--server-id", facts.SERVER)
KEY = "sha256:" + "a" * 64


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "known_bindings", lambda *_: a_state())


def decided(path: Path, *arguments: object) -> tuple[str, dict[str, Any]]:
    result = run(*arguments, *HERE, *WHY, "--output", path)
    assert result.exit_code == 0, result.output
    event = json.loads(path.read_bytes().splitlines()[-1])
    assert event["data"] | {"server_id": facts.SERVER, "author": "ann", "reason": "reviewed"} == event["data"]
    return event["type"].removeprefix("assay.control."), event["data"]


def test_a_policy_is_set_for_a_server_or_a_tool(tmp_path: Path) -> None:
    """Without --unknown, what has no pin is let through."""
    kind, data = decided(tmp_path / "o", "policy", "set", "--enforcement", "block")
    assert (kind, data["enforcement"], data["unknown"]) == ("policy.set", "block", "allow_degraded")
    assert "tool_name" not in data
    _, data = decided(tmp_path / "o", "policy", "set", "--enforcement", "warn", "--unknown", "block", "--tool", "t")
    assert (data["tool_name"], data["unknown"]) == ("t", "block")


def test_a_policy_is_taken_back(tmp_path: Path) -> None:
    kind, data = decided(tmp_path / "o", "policy", "remove")
    assert (kind, "tool_name" in data) == ("policy.remove", False)
    _, data = decided(tmp_path / "o", "policy", "remove", "--tool", "t")
    assert data["tool_name"] == "t"


def test_a_key_is_accepted_and_revoked(tmp_path: Path) -> None:
    kind, data = decided(tmp_path / "o", "keys", "accept", "--domain", "example.com", "--fingerprint", KEY)
    assert (kind, data["domain"], data["fingerprint"]) == ("key.accept", "example.com", KEY)
    kind, data = decided(tmp_path / "o", "keys", "revoke", "--fingerprint", KEY)
    assert (kind, data["fingerprint"]) == ("key.revoke", KEY)


@pytest.mark.parametrize("what", ["policy", "keys"])
def test_lists_are_tables_or_objects(state: None, what: str) -> None:
    table = run(what, "list").stdout.splitlines()
    rows = [json.loads(line) for line in run(what, "list", "--json").stdout.splitlines()]
    assert len(table) == len(rows) + 1 > 2
    assert all(row["server_id"] == facts.SERVER for row in rows)
    assert run(what, "list", "--server-id", "other").stdout.count("\n") == 1
