"""Laws of comparison by meaning: nothing from nothing, order says nothing, the way back is the mirror."""

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, strategies as st

from assay_stream.canonical.digest import canonicalize
from assay_stream.drift import CODES, Change, compare_definitions, compare_lists
from assay_stream.drift.severity import PROFILES, Level, assess
from assay_stream.errors import InputError
from tests.support.counting import counted_calls
from tests.support.drift import mirrored
from tests.support.schemas import DEFINITIONS, JSON, PAIRS, shuffled

Definition = dict[str, Any]
RANDOMS = st.randoms(use_true_random=False)
NAMED = st.dictionaries(st.sampled_from("abcdef"), DEFINITIONS, max_size=5).map(
    lambda named: [definition | {"name": name} for name, definition in named.items()]
)


def _mirrored(change: Change) -> tuple[Any, ...]:
    values = canonicalize(change.after), canonicalize(change.before)
    return (CODES[change.code].opposite, change.path, *values, mirrored(change.direction))


def _plain(change: Change) -> tuple[Any, ...]:
    return (change.code, change.path, canonicalize(change.before), canonicalize(change.after), change.direction)


@given(DEFINITIONS)
def test_a_definition_compared_with_itself_finds_nothing(definition: Definition) -> None:
    assert compare_definitions(definition, definition) == []


@given(PAIRS)
def test_no_difference_goes_without_a_code(pair: tuple[Definition, Definition]) -> None:
    before, after = pair
    changes = compare_definitions(before, after)
    assert bool(changes) == (canonicalize(before) != canonicalize(after))
    assert all(change.direction is CODES[change.code].direction for change in changes)


@given(DEFINITIONS, DEFINITIONS, RANDOMS)
def test_the_order_of_keys_changes_nothing(before: Definition, after: Definition, choose: random.Random) -> None:
    assert compare_definitions(before, after) == compare_definitions(shuffled(before, choose), shuffled(after, choose))


@given(PAIRS)
def test_the_way_back_is_the_mirror(pair: tuple[Definition, Definition]) -> None:
    before, after = pair
    there, back = compare_definitions(before, after), compare_definitions(after, before)
    assert Counter(map(_mirrored, there)) == Counter(map(_plain, back))


@given(NAMED, NAMED, RANDOMS)
def test_the_order_of_tools_changes_nothing(
    before: list[Definition], after: list[Definition], choose: random.Random
) -> None:
    mixed = choose.sample(before, len(before)), choose.sample(after, len(after))
    assert compare_lists(before, after) == compare_lists(*mixed)


@given(NAMED, NAMED)
def test_lists_mirror_too(before: list[Definition], after: list[Definition]) -> None:
    opposite = {"tool_added": "tool_removed", "tool_removed": "tool_added"}
    there = {(opposite.get(d.kind, d.kind), d.renamed_to or d.name) for d in compare_lists(before, after)}
    assert there == {(d.kind, d.name) for d in compare_lists(after, before)}


@given(NAMED, NAMED)
def test_an_incomplete_list_removes_nothing(before: list[Definition], after: list[Definition]) -> None:
    kinds = {d.kind for d in compare_lists(before, after, complete=False)}
    assert kinds <= {"tool_added", "tool_changed"}
    assert compare_lists(before, before, complete=False) == []


@given(st.dictionaries(st.text(max_size=3), JSON, max_size=4), st.dictionaries(st.text(max_size=3), JSON, max_size=4))
def test_any_objects_are_compared(before: Definition, after: Definition) -> None:
    assert bool(compare_definitions(before, after)) == (canonicalize(before) != canonicalize(after))


FIELDS = st.sampled_from(["name", "description", "inputSchema", "outputSchema", "annotations", "arguments", "_meta"])
KEYWORDS = st.sampled_from(["type", "properties", "required", "$defs", "$ref", "items", "anyOf", "minimum", "enum"])


@given(st.dictionaries(FIELDS, st.one_of(JSON, st.dictionaries(KEYWORDS, JSON))), st.dictionaries(FIELDS, JSON))
def test_known_fields_of_any_form_are_compared(before: Definition, after: Definition) -> None:
    assert bool(compare_definitions(before, after)) == (canonicalize(before) != canonicalize(after))


@pytest.mark.parametrize("bad", ["\ud800", float("nan"), {1: 2}, {"x": object()}])
def test_what_is_no_json_is_refused(bad: Any) -> None:
    with pytest.raises(InputError):
        compare_definitions({"name": "t", "inputSchema": {"default": bad}}, {"name": "t"})


@given(DEFINITIONS, DEFINITIONS, st.sampled_from(list(PROFILES.values())), st.lists(st.sampled_from(Level)))
def test_signs_never_lower_a_level(before: Definition, after: Definition, profile: Any, levels: list[Level]) -> None:
    """More signs give the same level or a higher one, and never less than any sign's."""
    changes = compare_definitions(before, after)
    with_signs = assess(profile, "tool_changed", changes, levels)
    assert with_signs == max(assess(profile, "tool_changed", changes), *levels, Level.INFORMATIONAL)


# --- hostile definitions --------------------------------------------------------------------------------------


def _calls(before: Any, after: Any) -> int:
    old, new = ({"name": "t", "inputSchema": side} for side in (before, after))
    return counted_calls(lambda: compare_definitions(old, new))


def _ring(size: int, keyword: str) -> dict[str, Any]:
    parts = {
        f"d{index}": {"properties": {"next": {"$ref": f"#/{keyword}/d{(index + 1) % size}"}}} for index in range(size)
    }
    return {keyword: parts, "$ref": f"#/{keyword}/d0"}


def _fan(size: int, name: str) -> dict[str, Any]:
    parts = {
        f"d{index}": {"properties": {side: {"$ref": f"#/{name}/d{index + 1}"} for side in "ab"}}
        for index in range(size)
    }
    return {name: {**parts, f"d{size}": {"type": name}}, "$ref": f"#/{name}/d0"}


def test_references_in_a_circle_end() -> None:
    assert _calls(_ring(100, "$defs"), _ring(101, "definitions")) < 4_000_000


def test_references_that_multiply_are_followed_once() -> None:
    """A fan that would double forty times costs a thousand calls for each of its parts."""
    assert _calls(_fan(40, "$defs"), _fan(40, "definitions")) < 200_000


def test_many_parameters_take_linear_time() -> None:
    """Ten thousand parameters that all changed cost some 200 calls each, deep nesting with long lists as many."""
    wide = [{"properties": {f"p{i}": {"type": kind} for i in range(10_000)}} for kind in ("string", "integer")]
    assert _calls(*wide) < 10_000_000
    deep: list[dict[str, Any]] = [{"type": "string"}, {"type": "integer"}]
    for _ in range(80):
        deep = [{"properties": {"x": side, "y": {"enum": list(range(500))}}} for side in deep]
    assert _calls(*deep) < 5_000_000
