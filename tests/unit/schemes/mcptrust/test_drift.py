"""MCPTrust's drift beyond its vectors: the two severity tables, and what a lock does not cover."""

from __future__ import annotations

from typing import Any

import pytest

from assay_stream.schemes.mcptrust.drift import (
    CODE,
    PROFILES,
    PUBLISHED,
    DifferenceKind,
    DriftItem,
    McpTrustSeverity,
    check_result,
    drift,
)
from assay_stream.schemes.mcptrust.lockfile import Lock, lock

READ: dict[str, Any] = {"name": "read", "description": "Reads.", "inputSchema": {"type": "object"}}
PROMPT: dict[str, Any] = {"name": "sum", "description": "Sums.", "arguments": [{"name": "t"}]}
TEMPLATE: dict[str, Any] = {"uriTemplate": "file:///{path}", "mimeType": "text/plain"}
BEFORE: dict[str, Any] = {"tools": [READ], "prompts": [PROMPT], "resourceTemplates": [TEMPLATE]}


def _severities(after: dict[str, Any], profile: str) -> dict[str, str]:
    items = drift(lock(BEFORE), BEFORE | after)
    table = PROFILES[profile]
    return {item.type: str(table[item.change]) for item in items if item.change in table}


@pytest.mark.parametrize(
    ("after", "published", "code"),
    [
        ({"tools": [READ, {"name": "a"}]}, {"TOOL_ADDED": "critical"}, {"TOOL_ADDED": "critical"}),
        ({"tools": []}, {"TOOL_REMOVED": "info"}, {"TOOL_REMOVED": "critical"}),
        ({"tools": [READ | {"description": "x"}]}, {"TOOL_CHANGED": "info"}, {"TOOL_CHANGED": "moderate"}),
        ({"tools": [READ | {"inputSchema": {"a": 1}}]}, {"TOOL_CHANGED": "critical"}, {"TOOL_CHANGED": "critical"}),
        (
            {"tools": [READ | {"description": "Runs."}]},
            {"TOOL_CHANGED": "info", "TOOL_RISK_LEVEL_CHANGED": "critical"},
            {"TOOL_CHANGED": "moderate"},
        ),
        (
            {"prompts": [PROMPT | {"arguments": []}]},
            {"PROMPT_ARGS_CHANGED": "info"},
            {"PROMPT_ARGS_CHANGED": "critical"},
        ),
        (
            {"prompts": [PROMPT | {"description": "x"}]},
            {"PROMPT_DESC_CHANGED": "info"},
            {"PROMPT_DESC_CHANGED": "moderate"},
        ),
        (
            {"prompts": [PROMPT | {"description": ""}]},
            {"PROMPT_DESC_CHANGED": "info"},
            {"PROMPT_DESC_CHANGED": "moderate"},
        ),
        (
            {"resourceTemplates": [TEMPLATE | {"mimeType": "x/y"}]},
            {"TEMPLATE_CHANGED": "info"},
            {"TEMPLATE_CHANGED": "critical"},
        ),
        ({"resourceTemplates": []}, {"TEMPLATE_REMOVED": "critical"}, {"TEMPLATE_REMOVED": "critical"}),
    ],
)
def test_severities(after: dict[str, Any], published: dict[str, str], code: dict[str, str]) -> None:
    assert _severities(after, "mcptrust") == published
    assert _severities(after, "mcptrust-code") == code


def test_the_published_table_covers_every_change() -> None:
    assert set(PUBLISHED) == set(DifferenceKind)
    assert set(CODE) == set(DifferenceKind) - {DifferenceKind.TOOL_RISK}


def test_what_a_lock_does_not_cover_is_not_compared() -> None:
    tools_only = Lock(tools=lock(BEFORE).tools)
    assert drift(tools_only, {"tools": [READ]}) == ()


def test_a_prompt_locked_without_description_is_free_to_get_one() -> None:
    """Descriptions of prompts are compared only where one was locked."""
    before = BEFORE | {"prompts": [PROMPT | {"description": ""}]}
    assert drift(lock(before), BEFORE) == ()


def test_a_risk_level_that_changes_is_drift() -> None:
    """With both levels as values; a check of MCPTrust's code does not report it."""
    items = drift(lock(BEFORE), BEFORE | {"tools": [READ | {"description": "Runs and kills."}]})
    [risk] = [item for item in items if item.change is DifferenceKind.TOOL_RISK]
    assert (risk.identifier, risk.old, risk.new) == ("read", "LOW", "HIGH")
    found = check_result(items, server="s", lockfile="l")
    assert [item["type"] for item in found["drift"]] == ["TOOL_CHANGED"]


@pytest.mark.parametrize(
    ("change", "failing"),
    [
        (DifferenceKind.TOOL_DESCRIPTION, {"info", "moderate"}),
        (DifferenceKind.TOOL_ADDED, {"info", "moderate", "critical"}),
    ],
)
def test_the_outcome_goes_by_the_least_severity(change: DifferenceKind, failing: set[str]) -> None:
    items = [DriftItem(change=change, identifier="t")]
    for severity in McpTrustSeverity:
        found = check_result(items, server="s", lockfile="l", fail_on=severity)
        assert found["failOn"] == str(severity)
        assert found["outcome"] == ("FAIL" if str(severity) in failing else "PASS")
