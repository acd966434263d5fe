"""Every rule on new text: what it matches, and what stands close to it and does not match."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay_stream.detect.phrases_asia import ASIAN
from assay_stream.detect.phrases_concepts import CONCEPTS
from assay_stream.detect.phrases_east import EASTERN
from assay_stream.detect.phrases_english import ENGLISH
from assay_stream.detect.phrases_europe import EUROPEAN
from assay_stream.detect.phrases_taking import TAKING
from assay_stream.detect.phrases_west import WESTERN
from assay_stream.detect.rules import NAME_RULES, PATTERN_RULES, RULES
from tests.support.signs import signs_between

EXAMPLES = json.loads(
    (Path(__file__).resolve().parents[2] / "data" / "introduced_rules.json").read_text(encoding="utf-8")
)
LANGUAGES = json.loads(
    (Path(__file__).resolve().parents[2] / "data" / "introduced_languages.json").read_text(encoding="utf-8")
)
HIGH = 4
NAMED = {rule.id for rule in NAME_RULES}


def rules_in(text: str, *, as_name: bool) -> set[str]:
    """The rules that this description, or this parameter, gives where a tool had neither."""
    tool = (
        {"name": "x", "inputSchema": {"type": "object", "properties": {text: {"type": "string"}}}}
        if as_name
        else {"name": "x", "description": text}
    )
    before = {"name": "adder", "title": "Adds two given numbers."}
    signs = signs_between(before, {**before, **tool}, tool_names=["send_email"])
    return {sign.rule for sign in signs}


def cases(kind: str) -> list[tuple[str, str]]:
    """Each example of a kind with its rule."""
    return [(rule, spelt_out(text)) for rule, texts in EXAMPLES.items() for text in texts[kind]]


def spelt_out(example: str | dict[str, Any]) -> str:
    """An example as a text; a very long one is given by what is repeated in it."""
    return example if isinstance(example, str) else example["repeat"] * example["times"]


@pytest.mark.parametrize(("rule", "text"), cases("matches"), ids=lambda each: ascii(each[:40]))
def test_rule_matches(rule: str, text: str) -> None:
    """A rule finds what it is for."""
    assert rule in rules_in(text, as_name=rule in NAMED)


@pytest.mark.parametrize(("rule", "text"), cases("near_misses"), ids=lambda each: ascii(each[:40]))
def test_rule_leaves_near_misses(rule: str, text: str) -> None:
    """A rule leaves what only looks like it."""
    assert rule not in rules_in(text, as_name=rule in NAMED)


def test_every_rule_has_examples() -> None:
    """Each rule has two texts that match and two that do not, and no example is left over."""
    assert EXAMPLES.keys() == {rule.id for rule in RULES}
    assert all(len(texts[kind]) >= 2 for texts in EXAMPLES.values() for kind in ("matches", "near_misses"))


def test_every_rule_says_why() -> None:
    """Each rule has a reason, a reference, and a level that OCSF knows."""
    assert all(rule.reason and rule.reference and 1 <= rule.level <= 5 for rule in RULES)


def test_ids_are_unique() -> None:
    """No two rules share an id."""
    assert len({rule.id for rule in RULES}) == len(RULES)


def test_phrases_belong_to_rules() -> None:
    """Every phrase, in every language, stands under a rule."""
    ids = {rule.id for rule in RULES}
    books = [book for books in (WESTERN, EUROPEAN, EASTERN, ASIAN) for book in books.values()]
    assert ids >= {rule for phrases in (ENGLISH, CONCEPTS, TAKING, *books) for rule in phrases}


def test_each_of_the_later_languages_has_examples() -> None:
    """A language comes with sentences that attack and sentences that do not."""
    assert LANGUAGES.keys() == {*EUROPEAN, *ASIAN}
    assert all(len(texts["attacks"]) >= 4 and len(texts["benign"]) >= 2 for texts in LANGUAGES.values())


@pytest.mark.parametrize("text", [text for texts in LANGUAGES.values() for text in texts["attacks"]])
def test_attack_in_another_language_is_found(text: str) -> None:
    """Phrases alone find it: the tool is new, so that its script is no news."""
    signs = signs_between(None, {"name": "x", "description": text})
    assert max((sign.level for sign in signs), default=0) >= HIGH


@pytest.mark.parametrize("text", [text for texts in LANGUAGES.values() for text in texts["benign"]])
def test_translation_is_quiet(text: str) -> None:
    """A description in another language, in place of the English one, brings nothing."""
    before = {"name": "x", "description": "Returns the weather of the city that the user chose."}
    assert signs_between(before, {**before, "description": text}) == []


def test_hints_are_lowercase() -> None:
    """Hints are looked for in the lowercase text."""
    assert all(hint == hint.lower() for rule in PATTERN_RULES for hint in rule.hints)
