"""Values whose order says nothing (JSON Schema draft 2020-12, Validation)."""

from __future__ import annotations

from typing import Any

import pytest

from assay_stream.drift import compare_definitions
from assay_stream.drift.severity import PROFILES, Level, assess

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
