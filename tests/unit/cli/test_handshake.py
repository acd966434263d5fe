"""``assay-stream handshake check``."""

import json
import re
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import run_command
from tests.support.events import a_snapshot
from tests.unit.schemes.test_handshake_contract import CHECKS, TOOL

CAPTURES = Path(__file__).resolve().parents[2] / "data/captures"
LIST = CAPTURES / "mcp-server-time@2026.10.19.tools_list.json"


run = partial(run_command, "handshake", "check", "--server-id", "time")


def report(done: subprocess.CompletedProcess[bytes]) -> dict[str, Any]:
    assert done.stderr == b""
    parsed: dict[str, Any] = json.loads(done.stdout)
    return parsed


def statuses(tool: dict[str, Any]) -> dict[str, str]:
    return {check["check"]: check["status"] for check in tool["checks"]}


def test_a_list_that_meets_the_requirements_exits_0() -> None:
    """Every check passes or is not applicable, and the counts say so."""
    done = run("--format", "json", stdin=json.dumps({"tools": [TOOL]}).encode())
    assert done.returncode == 0
    found = report(done)
    assert found["counts"] == {"pass": 9, "fail": 0, "not_applicable": 2}
    assert found["server_id"] == "time"
    (tool,) = found["tools"]
    assert (tool["tool"], tool["tool_id"], tool["denied_by_default"]) == ("fs.read", "fs.read", False)
    assert statuses(tool).keys() == CHECKS


def test_a_real_server_declares_nothing_and_is_denied() -> None:
    """A capture has sound schemas and ids, no contract, and is to be denied by default."""
    done = run(str(LIST), "--format", "json")
    assert done.returncode == 1
    for tool in report(done)["tools"]:
        assert tool["tool_id"] == f"time.{tool['tool']}"
        assert tool["denied_by_default"]
        found = statuses(tool)
        assert found["input_schema"] == found["identity"] == "pass"
        assert {check for check, status in found.items() if status == "fail"} == {
            "metadata", "tool_version", "side_effect", "capabilities",
        }  # fmt: skip


def test_result_response_and_event_are_one() -> None:
    """The list alone, in its response, and as an observed snapshot give the same report."""
    forms = ({"tools": [TOOL]}, {"jsonrpc": "2.0", "id": 1, "result": {"tools": [TOOL]}})
    inputs = [*(json.dumps(form).encode() for form in forms), a_snapshot(TOOL)]
    assert len({run("--format", "json", stdin=raw).stdout for raw in inputs}) == 1


@pytest.mark.parametrize("capture", sorted(CAPTURES.glob("*tools_list*.json")), ids=lambda path: path.name)
def test_the_table_says_every_check_and_claims_nothing(capture: Path) -> None:
    """Each tool has its checks with status and reason; no word says that a tool can be relied on."""
    done = run(str(capture))
    text = done.stdout.decode()
    names = [tool["name"] for tool in json.loads(capture.read_bytes())["result"]["tools"]]
    assert len(re.findall(r"^  \w+ +(?:pass|fail|not_applicable)\b", text, re.MULTILINE)) == len(names) * len(CHECKS)
    assert [line.split("  ")[0] for line in text.splitlines() if "  tool_id: " in line] == names
    assert "must be treated as denied" in text
    assert not re.search(r"\b(safe|trusted|trustworthy|verified)\b", text, re.IGNORECASE)


def test_an_empty_list_is_no_pass() -> None:
    """Where there is nothing to check the answer is no."""
    done = run(stdin=b'{"tools":[]}')
    assert done.returncode == 1
    assert b"0 pass, 0 fail, 0 not_applicable" in done.stdout
