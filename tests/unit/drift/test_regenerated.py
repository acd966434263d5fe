"""A schema that its generator wrote anew (JSON Schema draft 2020-12)."""

from __future__ import annotations

from typing import Any

import pytest

from assay_stream.drift import compare_definitions
from assay_stream.drift.severity import PROFILES, Level, assess

TEXT: dict[str, Any] = {"type": "string"}
NULLABLE = {"anyOf": [{"type": "string", "minLength": 1}, {"type": "null"}], "default": None}
REFERRED = {"$defs": {"Point": {"type": "object", "required": ["x"]}}, "properties": {"at": {"$ref": "#/$defs/Point"}}}


def a_tool(**keywords: Any) -> dict[str, Any]:
    return {"name": "t", "inputSchema": {"type": "object", "properties": {"path": TEXT}} | keywords}


def codes_of(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    return [change.code for change in compare_definitions(before, after)]


def level_of(before: dict[str, Any], after: dict[str, Any]) -> Level:
    return assess(PROFILES["soc"], "tool_changed", compare_definitions(before, after))


REGENERATED = [
    (a_tool(additionalProperties=False), a_tool()),
    (a_tool(additionalProperties=False), a_tool(additionalProperties={}, **{"$schema": "urn:other"})),
    (
        a_tool(additionalProperties=False, properties={"o": {"type": "object", "additionalProperties": True}}),
        a_tool(properties={"o": {"type": "object", "additionalProperties": False}}),
    ),
    (a_tool(**REFERRED), a_tool(properties={"at": {"type": "object", "required": ["x"]}})),
    (
        a_tool(additionalProperties=False, properties={"path": NULLABLE}),
        a_tool(properties={"path": {"type": "string", "minLength": 1}}),
    ),
]


@pytest.mark.parametrize("pair", REGENERATED, ids=range(len(REGENERATED)))
def test_a_regenerated_schema_is_one_low_change(pair: tuple[dict[str, Any], dict[str, Any]]) -> None:
    """Dialect, unnamed parameters, shared parts and null alone: every named parameter takes what it took."""
    for before, after in (pair, pair[::-1]):
        (change,) = compare_definitions(before, after)
        assert (change.code, change.path) == ("schema_regenerated", "$.inputSchema")
        assert level_of(before, after) is Level.LOW


def test_words_in_a_regenerated_schema_count_by_themselves() -> None:
    after = a_tool(properties={"path": TEXT | {"description": "Where to read."}})
    found = compare_definitions(a_tool(additionalProperties=False), after)
    assert [(change.code, change.path) for change in found] == [
        ("schema_regenerated", "$.inputSchema"),
        ("parameter_description_added", "$.inputSchema.properties.path.description"),
    ]


@pytest.mark.parametrize(
    ("after", "codes"),
    [
        (a_tool(properties={"path": TEXT, "note": TEXT}), ["additional_properties_opened", "parameter_added_optional"]),
        (a_tool(properties={"path": TEXT | {"default": "/"}}), ["additional_properties_opened", "default_added"]),
        (a_tool(additionalProperties=TEXT), ["additional_properties_opened"]),
        (a_tool(properties={"path": {"type": "integer"}}), ["additional_properties_opened", "type_changed"]),
    ],
)
def test_nothing_hides_behind_a_regenerated_schema(after: dict[str, Any], codes: list[str]) -> None:
    assert codes_of(a_tool(additionalProperties=False), after) == codes
    assert level_of(a_tool(additionalProperties=False), after) is Level.MEDIUM


def test_shared_parts_that_differ_are_no_regeneration() -> None:
    """A reference that leads to a part which asks for more is a change of that part."""
    after = a_tool(properties={"at": {"type": "object", "required": ["x", "secret"], "properties": {"secret": TEXT}}})
    assert "parameter_added_required" in codes_of(a_tool(**REFERRED), after)


@pytest.mark.parametrize(
    ("before", "after", "codes"),
    [
        (NULLABLE, {"type": "string", "minLength": 1}, ["null_refused"]),
        ({"type": "string"}, {"type": ["null", "string"]}, ["null_allowed"]),
        ({"type": "string", "enum": ["a"]}, {"type": ["string", "null"], "enum": ["a", None]}, ["null_allowed"]),
        (NULLABLE, {"type": ["string", "null"], "minLength": 1, "default": None}, ["schema_restated"]),
        (NULLABLE, {"type": "string"}, ["null_refused", "bounds_loosened"]),
        (NULLABLE, {"type": "string", "minLength": 1, "default": "x"}, ["null_refused", "default_changed"]),
        (
            {"anyOf": [{"type": "string"}, {"type": "null"}]},
            {"anyOf": [{"type": "string"}, {"type": "null"}, {"type": "integer"}]},
            ["alternative_added", "type_widened"],
        ),
    ],
)
def test_null_in_either_form(before: Any, after: Any, codes: list[str]) -> None:
    """``anyOf`` with null, a list of types with null, and neither: what is left is compared as it is."""
    assert codes_of(a_tool(properties={"path": before}), a_tool(properties={"path": after})) == codes
