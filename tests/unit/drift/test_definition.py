"""Two definitions, field by field."""

from typing import Any

import pytest

from assay_stream.drift import definition
from assay_stream.drift.change import ABSENT
from assay_stream.drift.definition import HINTS, compare_definitions, differing_fields
from assay_stream.drift.severity import PROFILES, Level, assess
from assay_stream.limits import DEFAULT_LIMITS
from tests.support.drift import on_its_own

compare_annotations = on_its_own(definition.compare_annotations)
compare_arguments = on_its_own(definition.compare_arguments)
compare_meta = on_its_own(definition.compare_meta)

TOOL = {"name": "t", "description": "Reads.", "inputSchema": {"type": "object"}}


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("name", "u", "name_changed"),
        ("name", "T", "name_respelt"),
        ("description", "Writes.", "description_words_changed"),
        ("title", "T", "title_added"),
        ("inputSchema", {"type": "string"}, "type_changed"),
        ("outputSchema", {"type": "object"}, "schema_declared"),
        ("annotations", {"readOnlyHint": True}, "read_only_claimed"),
        ("icons", [{"src": "x"}], "icons_changed"),
        ("execution", {"taskSupport": "forbidden"}, "execution_changed"),
        ("_meta", {"x": 1}, "meta_changed"),
        ("mimeType", "text/plain", "mime_type_changed"),
        ("something", 1, "field_changed"),
    ],
)
def test_each_field_is_compared_by_what_it_holds(field: str, value: Any, code: str) -> None:
    after = TOOL | {field: value}
    assert [change.code for change in compare_definitions(TOOL, after)] == [code]
    assert differing_fields(TOOL, after) == [field]


def test_changes_stand_in_the_order_of_their_paths() -> None:
    after = TOOL | {"title": "T", "annotations": {"readOnlyHint": True}, "description": "Reads a file."}
    assert [c.path for c in compare_definitions(TOOL, after)] == [
        "$.annotations.readOnlyHint",
        "$.description",
        "$.title",
    ]


def test_more_changes_than_the_limit_are_told_as_one() -> None:
    properties: dict[str, Any] = {f"p{i}": {} for i in range(DEFAULT_LIMITS.changes_max + 5)}
    changes = compare_definitions(TOOL, TOOL | {"inputSchema": {"type": "object", "properties": properties}})
    assert len(changes) == DEFAULT_LIMITS.changes_max + 1
    assert changes[-1].code == "comparison_cut_short"


def test_the_defaults_are_the_standards() -> None:
    defaults = {name: default for name, (default, *_) in HINTS.items()}
    assert defaults == {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": True}


@pytest.mark.parametrize(
    ("name", "before", "after", "code", "direction"),
    [
        ("readOnlyHint", ABSENT, True, "read_only_claimed", "narrows"),
        ("readOnlyHint", True, ABSENT, "read_only_unclaimed", "widens"),
        ("readOnlyHint", False, True, "read_only_set", "narrows"),
        ("readOnlyHint", True, False, "read_only_unset", "widens"),
        ("readOnlyHint", ABSENT, False, "hint_default_stated", "neutral"),
        ("destructiveHint", ABSENT, False, "non_destructive_claimed", "narrows"),
        ("destructiveHint", False, ABSENT, "non_destructive_unclaimed", "widens"),
        ("destructiveHint", False, True, "destructive_set", "widens"),
        ("destructiveHint", True, False, "destructive_unset", "narrows"),
        ("destructiveHint", True, ABSENT, "hint_default_unstated", "neutral"),
        ("idempotentHint", ABSENT, True, "idempotent_claimed", "narrows"),
        ("idempotentHint", True, False, "idempotent_unset", "widens"),
        ("openWorldHint", ABSENT, False, "closed_world_claimed", "narrows"),
        ("openWorldHint", False, True, "open_world_set", "widens"),
        ("readOnlyHint", True, 1, "annotation_changed", "neutral"),
        ("other", 1, 2, "annotation_changed", "neutral"),
        ("title", "A", "B", "title_words_changed", "neutral"),
    ],
)
def test_a_hint(name: str, before: Any, after: Any, code: str, direction: str) -> None:
    old, new = ({} if side is ABSENT else {name: side} for side in (before, after))
    (change,) = compare_annotations("$.annotations", old, new)
    assert (change.code, change.direction, change.path) == (code, direction, f"$.annotations.{name}")


def test_annotations_of_another_form_are_a_changed_field() -> None:
    assert [c.code for c in compare_annotations("$.a", {}, [])] == ["field_changed"]
    assert [c.code for c in compare_annotations("$.a", ABSENT, {})] == ["annotation_changed"]


A = {"name": "a"}


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        (ABSENT, [A], "parameter_added_optional"),
        ([], [A | {"required": True}], "parameter_added_required"),
        ([A], [], "parameter_removed_optional"),
        ([A], [A | {"required": True}], "parameter_made_required"),
        ([A | {"required": True}], [A], "parameter_made_optional"),
        ([A | {"description": "x"}], [A | {"description": "y"}], "parameter_description_words_changed"),
        ([A, {"name": "b"}], [{"name": "b"}, A], "arguments_reordered"),
        ([A], [A | {"more": 1}], "field_changed"),
        ([A], [A, A], "field_changed"),
        ([A], {"a": 1}, "field_changed"),
        ([A], [A | {"required": False}], "field_changed"),
    ],
)
def test_an_argument(before: Any, after: Any, code: str) -> None:
    assert [change.code for change in compare_arguments("$.arguments", before, after)] == [code]


def test_the_contract_has_a_code_of_its_own() -> None:
    """What changed under ``handshake`` is told apart from other metadata."""
    before = {"handshake": {"side_effect": "READ"}, "x": 1}
    after = {"handshake": {"side_effect": "WRITE"}, "x": 2}
    assert [(c.code, c.path) for c in compare_meta("$._meta", before, after)] == [
        ("contract_changed", "$._meta.handshake"),
        ("meta_changed", "$._meta.x"),
    ]


def test_metadata_of_another_form_changed_as_a_whole() -> None:
    assert [c.path for c in compare_meta("$._meta", {"x": 1}, 3)] == ["$._meta"]
    assert [c.code for c in compare_meta("$._meta", ABSENT, {})] == ["meta_changed"]


@pytest.mark.parametrize(
    ("before", "after", "path"),
    [
        ({"ui": {"resourceUri": "ui://a"}}, {"ui": {"resourceUri": "ui://b"}}, "$._meta.ui"),
        ({}, {"ui/resourceUri": "ui://a"}, '$._meta["ui/resourceUri"]'),
        ({"ui": {"csp": {"connectDomains": []}}}, {"ui": {"csp": {"connectDomains": ["x.test"]}}}, "$._meta.ui"),
        ({"ui": {"permissions": {}}}, {"ui": {"permissions": {"camera": {}}}}, "$._meta.ui"),
        ({"ui": {"resourceUri": "ui://a"}}, ABSENT, "$._meta.ui"),
    ],
)
def test_another_user_interface_is_medium(before: Any, after: Any, path: str) -> None:
    """MCP Apps: a host renders what ``_meta.ui`` names, and grants it what stands beside."""
    changes = list(compare_meta("$._meta", before, after))
    assert [(change.code, change.path) for change in changes] == [("ui_resource_changed", path)]
    assert assess(PROFILES["soc"], "tool_changed", changes) is Level.MEDIUM


TEXT: dict[str, Any] = {"type": "string"}


def a_tool(parameter: dict[str, Any]) -> dict[str, Any]:
    return {"name": "t", "inputSchema": {"type": "object", "properties": {"p": parameter}}}


def level_of(before: dict[str, Any], after: dict[str, Any]) -> Level:
    return assess(PROFILES["soc"], "tool_changed", compare_definitions(a_tool(before), a_tool(after)))


def codes_of(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    return [change.code for change in compare_definitions(a_tool(before), a_tool(after))]


SAME_IN_ANOTHER_ORDER = [
    (TEXT | {"enum": ["a", "b"]}, TEXT | {"enum": ["b", "a", "a"]}),
    ({"type": ["string", "integer"]}, {"type": ["integer", "string"]}),
    ({"type": "object", "required": ["a", "b"]}, {"type": "object", "required": ["b", "a"]}),
    (TEXT | {"examples": ["a", "b"]}, TEXT | {"examples": ["b", "a"]}),
    ({"type": "array", "default": ["a", "b"]}, {"type": "array", "default": ["b", "a"]}),
    (TEXT | {"default": "{'a', 'b', 'c'}"}, TEXT | {"default": "{'c', 'a', 'b'}"}),
    (TEXT | {"default": "['a','b']"}, TEXT | {"default": "['b','a']"}),
    (TEXT | {"default": "frozenset({1, 2})"}, TEXT | {"default": "frozenset({2, 1})"}),
    (TEXT | {"description": "One of {'a', 'b'}."}, TEXT | {"description": "One of {'b', 'a'}."}),
]


@pytest.mark.parametrize("pair", SAME_IN_ANOTHER_ORDER, ids=range(len(SAME_IN_ANOTHER_ORDER)))
def test_a_server_started_twice_raises_nothing(pair: tuple[dict[str, Any], dict[str, Any]]) -> None:
    """A set is written in another order by each process; lists that stand for one compare as sets."""
    for before, after in (pair, pair[::-1]):
        assert level_of(before, after) is Level.INFORMATIONAL


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"type": "array", "default": ["a", "b"]}, {"type": "array", "default": ["a", "c"]}),
        ({"type": "array", "default": ["a", "b"]}, {"type": "array", "default": ["a", "b", "b"]}),
        ({"type": "array", "default": [1]}, {"type": "array", "default": [True]}),
        (TEXT | {"default": "{'a', 'b'}"}, TEXT | {"default": "{'a', 'c'}"}),
        (TEXT | {"default": "{'a', 'b'}"}, TEXT | {"default": "['b', 'a']"}),
        (TEXT | {"default": "rm a, b"}, TEXT | {"default": "rm b, a"}),
    ],
)
def test_another_value_is_no_other_order(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert codes_of(before, after) == ["default_changed"]


def test_examples_are_annotations() -> None:
    """JSON Schema, Validation, 9.5: they confine no value. What they say is searched like any text."""
    was, now = (TEXT | {"examples": [each]} for each in "ab")
    assert codes_of(was, now) == ["examples_changed"]
    assert level_of(was, now) is Level.LOW
