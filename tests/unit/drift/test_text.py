"""Two texts: what of them changed."""

from functools import partial
from typing import Any

import pytest

from assay_stream.drift.change import ABSENT
from assay_stream.drift.equality import same
from assay_stream.drift.values import compare_texts, compare_values, words_of
from assay_stream.work import UNLIMITED, Work
from tests.support.drift import on_its_own

compare_descriptions = on_its_own(partial(compare_texts, "description"))


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        ("Reads a file", "Reads a file", None),
        (ABSENT, "Reads", "description_added"),
        ("Reads", ABSENT, "description_removed"),
        ("Reads a file\n* one", "Reads  a file \r\n  * one ", "description_whitespace_changed"),
        ("Reads “a” file - now", "reads 'a' FILE — now.", "description_typography_changed"),
        ("cafe\u0301", "café", "description_typography_changed"),
        ("a b", "a\u00a0b", "description_typography_changed"),
        ("Reads a file", "Reads a file from disk", "description_words_added"),
        ("Reads a file from disk", "Reads a file", "description_words_removed"),
        ("in a specific timezones", "in a specific timezone", "description_spelling_changed"),
        ("recieve mail", "receive mail", "description_spelling_changed"),
        ("Reads a file", "Writes a file", "description_words_changed"),
        # One letter is no spelling where it is another word, a digit, an address, or of another script.
        ("do now", "do not", "description_words_changed"),
        ("see https://example.com", "see https://examp1e.com", "description_words_changed"),
        ("admin only", "\u0430dmin only", "description_words_changed"),
        # What nobody sees is no white space.
        ("Reads a file", "Reads a\u200b file", "description_words_changed"),
        ("Reads a file", "Reads a file\U000e0041\U000e0042", "description_words_changed"),
        ("Reads a file", "Reads a file \u202eelif", "description_words_added"),
        # Punctuation within a word makes names and paths.
        ("next_thought", "nextThought", "description_words_changed"),
        ("Reads", 3, "field_changed"),
        (None, None, None),
    ],
)
def test_what_changed(before: Any, after: Any, code: str | None) -> None:
    assert [change.code for change in compare_descriptions("$.d", before, after)] == ([code] if code else [])


def test_four_spellings_are_a_change_of_words() -> None:
    before, after = "houses gardens streets rivers", "house garden street river"
    assert [c.code for c in on_its_own(partial(compare_texts, "title"))("$", before, after)] == ["title_words_changed"]


def test_the_words_of_a_text() -> None:
    assert words_of("“Read” the, FILE: a_b/c.", Work(UNLIMITED)) == ["read", "the", "file", "a_b/c"]


CASES: list[tuple[dict[str, Any], dict[str, Any], list[str]]] = [
    ({"type": "boolean"}, {"type": ["boolean", "string"]}, ["type_widened"]),
    ({"type": "integer"}, {"type": "number"}, ["type_widened"]),
    ({"type": "string"}, {"type": "integer"}, ["type_changed"]),
    ({"type": "string"}, {}, ["type_unconstrained"]),
    ({}, {"type": "string"}, ["type_constrained"]),
    ({"type": "string"}, {"anyOf": [{"type": "string"}, {"type": "null"}]}, ["type_widened"]),
    ({"type": "text"}, {"type": 3}, ["schema_keyword_changed"]),
    ({"enum": ["a"]}, {"enum": ["a", "b"]}, ["enum_values_added"]),
    ({"enum": ["a", "b"]}, {"enum": ["b"]}, ["enum_values_removed"]),
    ({"enum": ["a", "b"]}, {"enum": ["a", "c"]}, ["enum_changed"]),
    ({"enum": ["a", "b"]}, {"enum": ["b", "a"]}, []),
    ({"type": "string", "enum": ["a"]}, {"type": "string"}, ["enum_dropped"]),
    ({"const": "a"}, {"enum": ["a"]}, []),
    ({"const": "a"}, {"const": "b"}, ["const_changed"]),
    ({"type": "string", "const": "a"}, {"type": "string"}, ["const_dropped"]),
    ({"enum": [True]}, {"enum": [1]}, ["type_changed", "enum_changed"]),
    ({"enum": 3}, {"enum": ["a"]}, ["type_constrained", "schema_keyword_changed"]),
    ({"minimum": 1}, {"minimum": 2}, ["bounds_tightened"]),
    ({"maximum": 1}, {"maximum": 2}, ["bounds_loosened"]),
    ({"maximum": 1}, {}, ["bounds_loosened"]),
    ({"minimum": 1}, {"exclusiveMinimum": 1}, ["bounds_tightened"]),
    ({"type": "integer", "exclusiveMaximum": 1_000_000}, {"type": "integer", "maximum": 999_999}, ["bounds_restated"]),
    ({"type": "number", "exclusiveMaximum": 10}, {"type": "number", "maximum": 9}, ["bounds_tightened"]),
    ({"minLength": 1}, {"minLength": 0}, ["bounds_loosened"]),
    ({}, {"minItems": 0}, ["bounds_restated"]),
    ({"maxItems": 2}, {"maxItems": "2"}, ["schema_keyword_changed"]),
    ({"multipleOf": 2}, {"multipleOf": 4}, ["bounds_tightened"]),
    ({"multipleOf": 4}, {"multipleOf": 3}, ["bounds_changed"]),
    ({"pattern": "^a"}, {"pattern": "^b"}, ["pattern_changed"]),
    ({"pattern": "^a"}, {}, ["pattern_dropped"]),
    ({}, {"format": "uri"}, ["format_introduced"]),
    ({"default": 5}, {"default": 6}, ["default_number_changed"]),
    ({"default": True}, {"default": False}, ["default_changed"]),
    ({}, {"default": None}, ["default_added"]),
]


@pytest.mark.parametrize(("before", "after", "codes"), CASES)
def test_what_is_allowed(before: dict[str, Any], after: dict[str, Any], codes: list[str]) -> None:
    assert [change.code for change in on_its_own(compare_values)("$", before, after)] == codes


def test_equal_for_json_is_not_equal_for_python() -> None:
    """``true`` is not 1, and 1 is 1.0, also deep inside."""
    assert not same(True, 1)
    assert not same([{"a": True}], [{"a": 1}])
    assert same([1], [1.0])
