"""What values a schema allows at one place."""

from __future__ import annotations

from typing import Any

import pytest

from assay_stream.drift.equality import same
from assay_stream.drift.values import compare_values

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
    assert [change.code for change in compare_values("$", before, after)] == codes


def test_equal_for_json_is_not_equal_for_python() -> None:
    """``true`` is not 1, and 1 is 1.0, also deep inside."""
    assert not same(True, 1)
    assert not same([{"a": True}], [{"a": 1}])
    assert same([1], [1.0])
