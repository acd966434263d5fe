"""MCPTrust's drift beyond its vectors: the two severity tables, and what a lock does not cover."""

from __future__ import annotations

from typing import Any

import pytest

from assay_stream.errors import InputError
from assay_stream.schemes.mcptrust.drift import (
    CODE,
    PROFILES,
    PUBLISHED,
    DifferenceKind,
    DriftItem,
    McpTrustSeverity,
    check_result,
    drift,
    drift_v2,
)
from assay_stream.schemes.mcptrust.lock import Lock, lock

READ: dict[str, Any] = {"name": "read", "description": "Reads.", "inputSchema": {"type": "object"}}
PROMPT: dict[str, Any] = {"name": "sum", "description": "Sums.", "arguments": [{"name": "t"}]}
TEMPLATE: dict[str, Any] = {"uriTemplate": "file:///{path}", "mimeType": "text/plain"}
BEFORE: dict[str, Any] = {"tools": [READ], "prompts": [PROMPT], "resourceTemplates": [TEMPLATE]}


def _severities(after: dict[str, Any], profile: str) -> dict[str, str]:
    items = drift(lock(BEFORE), BEFORE | after)
    found = check_result(items, server="s", lockfile="l", severities=PROFILES[profile])
    assert found["summary"]["total"] == len(found["drift"])
    return {item["type"]: item["severity"] for item in found["drift"]}


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
    """Each row of the two tables: what is published, and what the code does."""
    assert _severities(after, "mcptrust") == published
    assert _severities(after, "mcptrust-code") == code


def test_the_published_table_covers_every_change() -> None:
    """The code's lacks the risk level alone, which it does not report."""
    assert set(PUBLISHED) == set(DifferenceKind)
    assert set(CODE) == set(DifferenceKind) - {DifferenceKind.TOOL_RISK}


def test_what_a_lock_does_not_cover_is_not_compared() -> None:
    """A lock of tools alone is silent on prompts and templates."""
    tools_only = Lock(tools=lock(BEFORE).tools)
    assert drift(tools_only, {"tools": [READ]}) == ()


def test_a_prompt_locked_without_description_is_free_to_get_one() -> None:
    """Descriptions of prompts are compared only where one was locked."""
    before = BEFORE | {"prompts": [PROMPT | {"description": ""}]}
    assert drift(lock(before), BEFORE) == ()


def test_a_risk_level_that_changes_is_drift_of_a_v2_lockfile() -> None:
    """With both levels as values."""
    items = drift(lock(BEFORE), BEFORE | {"tools": [READ | {"description": "Runs and kills."}]})
    assert drift_v2(items)[-1] == {
        "ToolName": "read",
        "DriftType": "risk_level_changed",
        "OldValue": "LOW",
        "NewValue": "HIGH",
    }


@pytest.mark.parametrize(
    ("severity", "failing"),
    [
        (McpTrustSeverity.INFO, {"info"}),
        (McpTrustSeverity.MODERATE, {"info", "moderate"}),
        (McpTrustSeverity.CRITICAL, {"info", "moderate", "critical"}),
    ],
)
def test_the_outcome_goes_by_the_least_severity(severity: McpTrustSeverity, failing: set[str]) -> None:
    """A check fails where anything is as severe as asked for, or more."""
    items = [DriftItem(change=DifferenceKind.TOOL_ADDED, identifier="t")]
    for name in ("info", "moderate", "critical"):
        found = check_result(
            items,
            server="s",
            lockfile="l",
            severities={DifferenceKind.TOOL_ADDED: severity},
            fail_on=McpTrustSeverity.parse(name),
        )
        assert found["failOn"] == name
        assert found["outcome"] == ("FAIL" if name in failing else "PASS")


def test_an_unknown_severity_is_refused() -> None:
    """The error lists the severities."""
    with pytest.raises(InputError) as caught:
        McpTrustSeverity.parse("safe")
    assert caught.value.code == "unknown_value"
