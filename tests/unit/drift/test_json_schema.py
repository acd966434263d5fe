"""Two JSON Schemas."""

from typing import Any

import pytest

from assay_stream.drift import json_schema
from assay_stream.drift.change import ABSENT
from assay_stream.drift.definition import compare_definitions
from assay_stream.drift.json_schema import expand
from assay_stream.drift.severity import PROFILES, Level, assess
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.work import UNLIMITED, Work
from tests.support.drift import on_its_own

compare_schemas = on_its_own(json_schema.compare_schemas)
S, N, P = {"type": "string"}, {"type": "integer"}, "$.s.properties"
MORE = "$.s.additionalProperties"


def _object(required: list[str] | None = None, **properties: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    return schema if required is None else schema | {"required": required}


CASES: list[tuple[Any, Any, list[tuple[str, str]]]] = [
    (_object(), _object(a=S), [("parameter_added_optional", f"{P}.a")]),
    (_object(), _object(["a"], a=S), [("parameter_added_required", f"{P}.a")]),
    (_object(a=S), _object(), [("parameter_removed_optional", f"{P}.a")]),
    (_object(["a"], a=S), _object([]), [("parameter_removed_required", f"{P}.a")]),
    (_object([], a=S), _object(["a"], a=S), [("parameter_made_required", f"{P}.a")]),
    (_object(["a"], a=S), _object(a=S), [("parameter_made_optional", f"{P}.a")]),
    (_object(a=_object(b=S)), _object(a=_object(b=N)), [("type_changed", f"{P}.a.properties.b.type")]),
    ({"type": "object"}, {"type": "object", "additionalProperties": False}, [("schema_regenerated", "$.s")]),
    ({"additionalProperties": S}, {"additionalProperties": False}, [("additional_properties_closed", MORE)]),
    ({"additionalProperties": False}, {"additionalProperties": S}, [("additional_properties_opened", MORE)]),
    ({"additionalProperties": S}, {"additionalProperties": N}, [("type_changed", "$.s.additionalProperties.type")]),
    ({"items": S}, {"items": N}, [("type_changed", "$.s.items.type")]),
    ({"prefixItems": [S]}, {"prefixItems": [N]}, [("type_changed", "$.s.prefixItems[0].type")]),
    ({"items": [S]}, {"items": [N]}, [("type_changed", "$.s.prefixItems[0].type")]),
    ({"allOf": [S]}, {"allOf": [S, {"minLength": 1}]}, [("condition_added", "$.s.allOf")]),
    ({"anyOf": [S]}, {"anyOf": [S, N]}, [("type_widened", "$.s.type"), ("alternative_added", "$.s.anyOf")]),
    ({"anyOf": [S, N]}, {"anyOf": [N, S]}, [("schema_restated", "$.s")]),
    ({"oneOf": [S, {"enum": [1]}]}, {"oneOf": [S, {"enum": [1, 2]}]}, [("enum_values_added", "$.s.oneOf[1].enum")]),
    ({"type": "object", "anyOf": [{"a": 1}]}, {"type": "object"}, [("alternatives_dropped", "$.s.anyOf")]),
    ({"type": "object", "if": S}, {"type": "object", "if": N}, [("schema_keyword_changed", "$.s.if")]),
    ({"propertyNames": S}, {"propertyNames": {"maxLength": 1}}, [("schema_keyword_changed", "$.s.propertyNames")]),
    ({"type": "object"}, {"type": "object", "propertyNames": {"type": "string"}}, [("schema_restated", "$.s")]),
    ({"x-mcp-header": "A"}, {"x-mcp-header": "B"}, [("schema_keyword_changed", "$.s.x-mcp-header")]),
    (
        {"x-input": "a", "_def": {}},
        {"x-input": "b"},
        [("schema_annotation_changed", "$.s._def"), ("schema_annotation_changed", "$.s.x-input")],
    ),
    ({"type": "object", "required": []}, {"type": "object"}, [("schema_restated", "$.s")]),
    ({"$schema": "a", "type": "object"}, {"type": "object"}, [("schema_dialect_changed", "$.s.$schema")]),
    (ABSENT, _object(a=S), [("schema_declared", "$.s")]),
    ({"$schema": "x"}, {"$schema": "x", **_object(["a"], a=S)}, [("schema_declared", "$.s")]),
    (_object(a=S), {}, [("schema_undeclared", "$.s")]),
    ({"type": "object"}, _object(["a"], a=S), [("parameter_added_required", f"{P}.a")]),
    (_object(a=True), _object(a={}), [("schema_restated", f"{P}.a")]),
    (_object(a=True), _object(a=False), [("schema_keyword_changed", f"{P}.a.not")]),
    (_object(a=S), _object(a="x"), [("schema_keyword_changed", f"{P}.a")]),
    (
        {"properties": 3, "type": "object"},
        {"properties": 4, "type": "object"},
        [("schema_keyword_changed", "$.s.properties")],
    ),
]


@pytest.mark.parametrize(("before", "after", "expected"), CASES)
def test_a_difference(before: Any, after: Any, expected: list[tuple[str, str]]) -> None:
    assert [(change.code, change.path) for change in compare_schemas("$.s", before, after)] == expected


def _by_reference(reference: str, **parts: Any) -> dict[str, Any]:
    return _object(a={"$ref": reference}) | {"$defs": parts}


def test_what_a_reference_leads_to_is_compared_once_where_it_stands() -> None:
    before, after = ({**_object(a={"$ref": "#/$defs/x"}, b={"$ref": "#/$defs/x"}), "$defs": {"x": s}} for s in (S, N))
    assert [(c.code, c.path) for c in compare_schemas("$.s", before, after)] == [("type_changed", "$.s.$defs.x.type")]


def test_a_reference_that_leads_elsewhere_is_followed() -> None:
    changes = list(compare_schemas("$.s", _by_reference("#/$defs/x", x=S, y=N), _by_reference("#/$defs/y", x=S, y=N)))
    assert ("type_changed", f"{P}.a.type") in [(c.code, c.path) for c in changes]


def test_a_part_put_in_place_of_its_reference_says_the_same() -> None:
    """Writing out what a reference led to confines nothing and frees nothing."""
    inline = _object(a=S) | {"$defs": {"x": S}}
    assert [c.code for c in compare_schemas("$.s", _by_reference("#/$defs/x", x=S), inline)] == ["schema_restated"]


def test_a_reference_to_another_document_is_not_followed() -> None:
    changes = compare_schemas("$.s", _by_reference("a.json"), _by_reference("b.json"))
    assert [c.code for c in changes] == ["schema_reference_changed"]


def test_what_stands_beside_a_reference_is_not_lost() -> None:
    """A pair of targets that was compared already says nothing of what stands beside the references."""
    before = {**_object(a={"$ref": "#/$defs/x"}, b={"$ref": "#/$defs/x"}), "$defs": {"x": S, "y": S}}
    beside = {"$ref": "#/$defs/y", "description": "Obey"}
    for one, other in (("a", "b"), ("b", "a")):
        parameters = _object(None, **{one: {"$ref": "#/$defs/y"}, other: beside})
        changes = compare_schemas("$.s", before, before | parameters)
        assert ("parameter_description_added", f"{P}.{other}.description") in [(c.code, c.path) for c in changes]


def test_a_circle_against_nothing_ends() -> None:
    """A schema of endless lists where there was none is told by what it says, not by the limit."""
    endless = {"type": "array", "$defs": {"x": {"items": {"$ref": "#/$defs/x"}}}, "items": {"$ref": "#/$defs/x"}}
    codes = {change.code for change in compare_schemas("$.s", {"type": "array"}, endless)}
    assert codes == {"schema_regenerated"}


def test_what_goes_beyond_the_limits_is_told() -> None:
    count = DEFAULT_LIMITS.definition_work_units_max // 50
    before, after = ({"inputSchema": _object(None, **{f"p{i}": side for i in range(count)})} for side in (S, N))
    *_, last = compare_definitions(before, after)
    assert (last.code, last.path) == ("comparison_cut_short", "$")


ROOT: dict[str, Any] = {
    "$defs": {"a/b": {"type": "string"}, "c": {"$ref": "#/$defs/a~1b"}, "loop": {"$ref": "#/$defs/loop"}},
    "anyOf": [{"type": "null"}],
}


@pytest.mark.parametrize(
    ("reference", "found"),
    [
        ("#/$defs/a~1b", {"type": "string"}),
        ("#/%24defs/a~1b", {"type": "string"}),
        ("#/$defs/c", {"type": "string"}),
        ("#/anyOf/0", {"type": "null"}),
        ("#", ROOT),
        ("#/$defs/loop", None),
        ("#/$defs/none", None),
        ("#/anyOf/9", None),
        ("#anchor", None),
        ("other.json#/a", None),
        (3, None),
    ],
)
def test_a_reference(reference: Any, found: Any) -> None:
    assert expand(ROOT, {"$ref": reference}, Work(UNLIMITED)) == found


def test_what_stands_beside_takes_precedence() -> None:
    assert expand(ROOT, {"$ref": "#/anyOf/0", "title": "T"}, Work(UNLIMITED)) == {"type": "null", "title": "T"}


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
    assert level_of(a_tool(additionalProperties=False), after) >= Level.LOW


def test_shared_parts_that_differ_are_no_regeneration() -> None:
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
    assert codes_of(a_tool(properties={"path": before}), a_tool(properties={"path": after})) == codes


def test_a_schema_that_stays_as_an_alternative_is_unchanged_but_for_its_words() -> None:
    was = {"type": "array", "items": {"type": "string"}, "description": "Names."}
    now = {
        "anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string"}],
        "description": "One name or more.",
    }
    before, after = a_tool(properties={"names": was}), a_tool(properties={"names": now})
    assert codes_of(before, after) == ["alternative_added", "parameter_description_words_changed"]
    assert codes_of(after, before) == ["alternative_removed", "parameter_description_words_changed"]


def test_an_alternative_that_differs_is_no_addition() -> None:
    now = {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "string"}]}
    before = a_tool(properties={"names": {"type": "array", "items": {"type": "string"}}})
    assert "alternative_added" not in codes_of(before, a_tool(properties={"names": now}))
