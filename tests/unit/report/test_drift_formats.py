"""How findings are written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from assay_stream.drift.severity import PROFILES, Level
from assay_stream.report.drift import KIND_TITLES, DriftFinding, as_lines, as_sarif, drift_findings, read_offer
from assay_stream.text.escaping import visible

TOOL = {"name": "t\u200b", "description": "Reads", "inputSchema": {"type": "object"}}


def _findings() -> list[DriftFinding]:
    after = TOOL | {"inputSchema": {}, "description": "Reads\nall"}
    return drift_findings(read_offer(TOOL), read_offer(after), profile=PROFILES["soc"])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text", "plain text"),
        ("naïve “é” 漢字", "naïve “é” 漢字"),
        ("a\u200bb", "a\\u{200b}b"),
        ("a\u00a0b\u3000c", "a\\u{a0}b\\u{3000}c"),
        ("\u202eabc\u2066", "\\u{202e}abc\\u{2066}"),
        ("\U000e0041", "\\u{e0041}"),
        ("\x1b[31m\x07", "\\u{1b}[31m\\u{7}"),
        ("a\ufe0f\U000e0101", "a\\u{fe0f}\\u{e0101}"),
        ("\u3164\u2800", "\\u{3164}\\u{2800}"),
        ("a\nb\tc", "a\\nb\\tc"),
    ],
)
def test_what_is_invisible_is_made_visible(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_lines_for_a_person() -> None:
    lines = [line for _, line in as_lines(_findings())]
    assert lines == [
        "medium         tool_changed          t\\u{200b}",
        "    $.description: words were added to the description (description_words_added, widens)",
        "      - Reads",
        "      + Reads\\nall",
        "    $.inputSchema: a schema that said something went away (schema_undeclared, widens)",
        '      - {"type":"object"}',
        "      + {}",
        "1 finding",
    ]


def _check(value: Any, required: dict[str, type]) -> None:
    for name, kind in required.items():
        assert isinstance(value[name], kind), name


def test_sarif_has_the_required_structure() -> None:
    """SARIF 2.1.0, sections 3.13, 3.14, 3.19, 3.27, 3.28, 3.49: what must be there, and what it must be."""
    log = json.loads(as_sarif(_findings(), after_uri="a dir/after.json"))
    _check(log, {"$schema": str, "version": str, "runs": list})
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    driver = run["tool"]["driver"]
    _check(driver, {"name": str, "semanticVersion": str, "rules": list})
    assert [rule["id"] for rule in driver["rules"]] == list(KIND_TITLES)
    for rule in driver["rules"]:
        assert rule["shortDescription"]["text"].endswith(".")
    (result,) = run["results"]
    _check(result, {"ruleId": str, "ruleIndex": int, "level": str, "message": dict, "locations": list})
    assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"] == "tool_changed"
    assert result["level"] == "warning"
    assert "t\\u{200b}" in result["message"]["text"]
    (location,) = result["locations"]
    assert location["physicalLocation"]["artifactLocation"]["uri"] == "a%20dir/after.json"
    assert result["properties"]["severity"] == "medium"


def test_each_level_has_a_sarif_level() -> None:
    levels = []
    for level in Level:
        finding = DriftFinding(kind="tool_added", name="t", level=level)
        levels.append(json.loads(as_sarif([finding], after_uri="a"))["runs"][0]["results"][0]["level"])
    assert levels == ["note", "note", "warning", "error", "error"]


def test_fingerprints_tell_findings_apart() -> None:
    logs = [as_sarif([DriftFinding(kind="tool_added", name=name, level=Level.LOW)], after_uri="a") for name in "aab"]
    one, same, other = (json.loads(log)["runs"][0]["results"][0]["partialFingerprints"] for log in logs)
    assert one == same != other
