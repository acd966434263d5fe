"""What Assay's manifest drift and MCPTrust's check say of two recordings, and of their own baselines."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from assay_stream.drift.severity import Level
from assay_stream.errors import InputError
from assay_stream.report.drift import PEERS

DATA = Path(__file__).resolve().parents[2] / "data" / "vectors"
MCPTRUST = json.loads((DATA / "mcptrust_drift.json").read_text(encoding="utf-8"))["cases"]
P60 = json.loads((DATA / "assay_manifest_drift_p60.json").read_text(encoding="utf-8"))["files"]
PLAIN: dict[str, Any] = {"name": "search", "description": "Finds", "inputSchema": {"type": "object"}}
ADMIN: dict[str, Any] = {"name": "x.grant_admin", "description": "Grants"}
PROMPT: dict[str, Any] = {"name": "p", "description": "Sums"}


def report(peer: str, before: Any, after: Any, fail_on: Level = Level.HIGH) -> tuple[Any, bool]:
    return PEERS[peer](json.dumps(before).encode(), json.dumps(after).encode(), "before.json", fail_on)


@pytest.mark.parametrize("case", P60["granular_diff_cases.json"]["cases"], ids=lambda case: str(case["id"]))
def test_a_published_pair_of_records_gives_the_published_findings(case: dict[str, Any]) -> None:
    found, fails = report("p60", case["declared"], case["observed"], Level.CRITICAL)
    pairs = Counter((each["name"], each["reason_code"]) for each in found["findings"])
    assert pairs == Counter((each["name"], each["reason_code"]) for each in case["expected"]["findings"])
    assert Counter(found["inconclusive"]) == Counter(case["expected"]["inconclusive"])
    assert fails == bool(found["inconclusive"])


def test_two_lists_are_compared_as_assay_does() -> None:
    before, after = {"tools": [PLAIN, ADMIN]}, {"tools": [PLAIN | {"description": "Finds all"}]}
    found, fails = report("p60", before, after)
    assert found == {
        "baseline": "before.json",
        "findings": [
            {"name": "search", "reason_code": "mcp_tool_changed", "severity": "medium"},
            {"name": "search", "reason_code": "mcp_tool_description_changed", "severity": "medium"},
            {"name": "x.grant_admin", "reason_code": "mcp_privileged_tool_removed", "severity": "high"},
        ],
        "inconclusive": [],
    }
    assert fails
    assert not report("p60", before, after, Level.CRITICAL)[1]
    partial, fails = report("p60", before, after | {"nextCursor": "2"}, Level.CRITICAL)
    assert (partial["inconclusive"], len(partial["findings"])) == (["inconclusive_manifest_partial_observation"], 2)
    assert fails


def test_a_list_is_held_against_a_declared_manifest() -> None:
    tools = P60["canonicalization_example.json"]["manifest"]["tools"]
    found, fails = report("p60", P60["declared_per_tool_baseline.json"], {"tools": tools})
    assert (found["findings"], found["inconclusive"], fails) == ([], [], False)


@pytest.mark.parametrize("before", [{"tools": [PLAIN], "nextCursor": ""}, {"tools": [PLAIN, PLAIN]}, PLAIN])
def test_a_baseline_of_assay_is_a_complete_list(before: Any) -> None:
    with pytest.raises(InputError) as caught:
        report("p60", before, {"tools": [PLAIN]})
    assert caught.value.code == "manifest_not_declarable"


@pytest.mark.parametrize("before", ["before", "lockfile_v3"])
@pytest.mark.parametrize("case", MCPTRUST, ids=lambda case: str(case["id"]))
def test_a_check_is_mcptrusts_own(case: dict[str, Any], before: str) -> None:
    found, fails = report("mcptrust", case[before], case["after"])
    expected = dict(case["check_result_v3"])
    for item in (*found["drift"], *expected["drift"]):
        item.pop("message", None)
    names = {"lockfile": "before.json", "server": found["server"]}
    assert found == expected | names
    assert fails == (expected["outcome"] == "FAIL")


def test_what_is_not_recorded_on_both_sides_is_not_compared() -> None:
    before = {"tools": [PLAIN], "prompts": [PROMPT]}
    assert report("mcptrust", before, {"tools": [PLAIN], "resourceTemplates": []})[0]["drift"] == []
    assert report("mcptrust", {"prompts": [PROMPT]}, before)[0]["drift"] == []
    assert report("mcptrust", before, {"tools": [], "nextCursor": "2"})[0]["drift"] == []
    v2 = {"version": "2.0", "server_command": "srv", "tools": {}}
    [added] = report("mcptrust", v2, before)[0]["drift"]
    assert (added["type"], added["identifier"]) == ("TOOL_ADDED", "search")


def test_the_least_severity_that_fails_is_ours() -> None:
    changed = {"tools": [PLAIN | {"description": "Finds all"}]}
    for level, name, fails in (
        (Level.LOW, "moderate", True),
        (Level.MEDIUM, "moderate", True),
        (Level.HIGH, "critical", False),
    ):
        found, failed = report("mcptrust", {"tools": [PLAIN]}, changed, level)
        assert (found["failOn"], failed) == (name, fails)
