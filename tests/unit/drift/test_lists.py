"""Two lists: what came, went, changed, or goes by another name."""

from typing import Any

from assay_stream.drift.lists import compare_lists
from assay_stream.model.fields import Subject
from tests.support.errors import raises_code

PATH = {"type": "object", "properties": {"path": {"type": "string"}}}


def _tool(name: str, description: str = "Reads a file from disk", schema: Any = PATH) -> dict[str, Any]:
    return {"name": name, "description": description, "inputSchema": schema}


def _kinds(before: Any, after: Any, **options: Any) -> list[tuple[str, str, str | None]]:
    return [(d.kind, d.name, d.renamed_to) for d in compare_lists(before, after, **options)]


def test_added_removed_and_changed() -> None:
    before = [_tool("b"), _tool("c", "Writes", {})]
    after = [_tool("b", "Reads"), _tool("a", "Lists all", {"type": "object"})]
    assert _kinds(before, after) == [
        ("tool_added", "a", None),
        ("tool_changed", "b", None),
        ("tool_removed", "c", None),
    ]


def test_the_same_schema_and_similar_words_are_a_rename() -> None:
    assert _kinds([_tool("a")], [_tool("b", "Reads a file from tape")]) == [("tool_renamed", "a", "b")]
    assert [kind for kind, *_ in _kinds([_tool("a")], [_tool("b", "Sends mail to people")])] == [
        "tool_removed",
        "tool_added",
    ]


def test_another_schema_is_no_rename() -> None:
    assert {kind for kind, *_ in _kinds([_tool("a")], [_tool("b", schema={})])} == {"tool_added", "tool_removed"}


def test_without_parameters_the_words_must_be_the_same() -> None:
    """A schema that many tools share says little."""
    before = [_tool("a", schema={"type": "object"})]
    assert _kinds(before, [_tool("b", "reads a FILE from disk.", {"type": "object"})]) == [("tool_renamed", "a", "b")]
    assert len(_kinds(before, [_tool("b", "Reads a file from tape", {"type": "object"})])) == 2


def test_of_several_that_fit_the_most_alike_go_first() -> None:
    before = [_tool("a"), _tool("b", "Reads a file from tape")]
    after = [_tool("x", "Reads a file from tape"), _tool("y")]
    assert _kinds(before, after) == [("tool_renamed", "a", "y"), ("tool_renamed", "b", "x")]
    assert _kinds([_tool("a"), _tool("b")], [_tool("x")]) == [("tool_renamed", "a", "x"), ("tool_removed", "b", None)]


def test_a_name_with_two_definitions_is_ambiguous() -> None:
    twice = [_tool("a"), _tool("a", "Other")]
    assert _kinds([_tool("a")], twice) == [("definition_ambiguous", "a", None)]
    assert _kinds([], twice) == [("definition_ambiguous", "a", None)]
    assert _kinds([_tool("a")], [_tool("a"), _tool("a")]) == []
    assert _kinds(twice, twice[::-1]) == []
    assert _kinds(twice, [_tool("a")]) == []


def test_prompts_and_templates_are_matched_by_their_own_keys_and_never_renamed() -> None:
    template = {"uriTemplate": "file:///{p}", "name": "f"}
    moved = template | {"uriTemplate": "http:///{p}"}
    assert [kind for kind, *_ in _kinds([template], [moved], subject=Subject.TEMPLATE)] == [
        "template_removed",
        "template_added",
    ]
    assert _kinds([template], [template | {"name": "g"}], subject=Subject.TEMPLATE) == [
        ("template_changed", "file:///{p}", None)
    ]
    assert _kinds([_tool("a")], [_tool("b")], subject=Subject.PROMPT)[0][0] == "prompt_removed"


def test_an_item_without_a_name_is_refused() -> None:
    with raises_code("missing_field", "$[1].name"):
        compare_lists([], [_tool("a"), {"description": "x"}])


def test_many_renames_with_one_schema_take_linear_time() -> None:
    """Beyond the limit of pairs only equal words make a rename."""
    before = [_tool(f"a{i}", f"Number {i}") for i in range(300)]
    after = [_tool(f"b{i}", f"Number {i}") for i in range(300)]
    assert _kinds(before, after) == sorted(("tool_renamed", f"a{i}", f"b{i}") for i in range(300))
