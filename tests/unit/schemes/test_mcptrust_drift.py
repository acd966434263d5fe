"""MCPTrust's drift beyond its vectors: the two severity tables, and what a lock does not cover."""

from typing import Any

from assay_stream.schemes.mcptrust_lockfile import CODE, PUBLISHED, DifferenceKind, check_result, drift, lock

READ: dict[str, Any] = {"name": "read", "description": "Reads.", "inputSchema": {"type": "object"}}
PROMPT: dict[str, Any] = {"name": "sum", "description": "Sums.", "arguments": [{"name": "t"}]}
TEMPLATE: dict[str, Any] = {"uriTemplate": "file:///{path}", "mimeType": "text/plain"}
BEFORE: dict[str, Any] = {"tools": [READ], "prompts": [PROMPT], "resourceTemplates": [TEMPLATE]}


def test_the_published_table_covers_every_change() -> None:
    assert set(PUBLISHED) == set(DifferenceKind)
    assert set(CODE) == set(DifferenceKind) - {DifferenceKind.TOOL_RISK}


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
