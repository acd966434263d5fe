"""Every rule on new text: what it matches, and what stands close to it and does not match."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay_stream.detect import RULES
from tests.support.indicators import detect_indicators

EXAMPLES = json.loads((Path(__file__).resolve().parents[2] / "data" / "detect_rules.json").read_text(encoding="utf-8"))
LANGUAGES = json.loads(
    (Path(__file__).resolve().parents[2] / "data" / "detect_languages.json").read_text(encoding="utf-8")
)
HIGH = 4
NAMED = {rule.id for rule in RULES if rule.names}


def rules_in(text: str, *, as_name: bool) -> set[str]:
    tool = (
        {"name": "x", "inputSchema": {"type": "object", "properties": {text: {"type": "string"}}}}
        if as_name
        else {"name": "x", "description": text}
    )
    before = {"name": "adder", "title": "Adds two given numbers."}
    found = detect_indicators(before, {**before, **tool}, tool_names=["send_email"])
    return {indicator.rule for indicator in found}


def cases(kind: str) -> list[tuple[str, str]]:
    return [(rule, spelt_out(text)) for rule, texts in EXAMPLES.items() for text in texts[kind]]


def spelt_out(example: str | dict[str, Any]) -> str:
    return example if isinstance(example, str) else example["repeat"] * example["times"]


@pytest.mark.parametrize(("rule", "text"), cases("matches"), ids=lambda each: ascii(each[:40]))
def test_rule_matches(rule: str, text: str) -> None:
    assert rule in rules_in(text, as_name=rule in NAMED)


@pytest.mark.parametrize(("rule", "text"), cases("near_misses"), ids=lambda each: ascii(each[:40]))
def test_rule_leaves_near_misses(rule: str, text: str) -> None:
    assert rule not in rules_in(text, as_name=rule in NAMED)


def test_every_rule_has_examples() -> None:
    """Each rule on text has two texts that match and two that do not, and no example is left over."""
    on_structure = {"secret_in_header", "external_reference"}
    assert EXAMPLES.keys() == {rule.id for rule in RULES} - on_structure
    assert all(len(texts[kind]) >= 2 for texts in EXAMPLES.values() for kind in ("matches", "near_misses"))


@pytest.mark.parametrize("text", [text for texts in LANGUAGES.values() for text in texts["attacks"]])
def test_attack_in_another_language_is_found(text: str) -> None:
    """Phrases alone find it: the tool is new, so that its script is no news."""
    found = detect_indicators(None, {"name": "x", "description": text})
    assert max((indicator.level for indicator in found), default=0) >= HIGH


@pytest.mark.parametrize("text", [text for texts in LANGUAGES.values() for text in texts["benign"]])
def test_translation_is_quiet(text: str) -> None:
    before = {"name": "x", "description": "Returns the weather of the city that the user chose."}
    assert detect_indicators(before, {**before, "description": text}) == []
