"""The texts of a definition, with where they stand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from assay_stream.detect.indicators import structural_matches
from assay_stream.detect.surfaces import Text, TextRole, name_words, required_of, texts_of
from assay_stream.work import UNLIMITED, Work, WorkExhaustedError
from tests.support.indicators import detect_indicators


def listed(definition: Mapping[str, Any]) -> list[Text]:
    return texts_of(definition, Work(UNLIMITED))


def test_parameters_are_told_from_other_names() -> None:
    schema = {"properties": {"properties": {"type": "object", "properties": {"a": {"type": "integer"}}}}}
    named = {text.value: text for text in listed({"inputSchema": schema}) if text.role is TextRole.PARAMETER}
    assert named.keys() == {"properties", "a"}
    assert not named["a"].is_free


def test_keys_and_types_of_the_standards_say_nothing() -> None:
    definition = {"name": "n", "inputSchema": {"type": "object", "x-note": 1}}
    assert [text.value for text in listed(definition)] == ["x-note", "n"]


def test_name_words() -> None:
    assert {name_words(name) for name in ("read_text_file", "read-text-file", "readTextFile", "Read Text File")} == {
        ("read", "text", "file")
    }


def test_required_of_what_is_no_schema() -> None:
    assert required_of({"inputSchema": {"required": ["a", 1]}}) == {"a"}
    assert required_of({"inputSchema": {"required": "a"}}) == required_of({"inputSchema": 1}) == frozenset()


HIGH = 4


def a_tool(schema: dict[str, Any], key: str = "inputSchema") -> dict[str, Any]:
    return {"name": "t", "description": "Reads a row.", key: {"type": "object"} | schema}


def with_parameter(name: str, **keywords: Any) -> dict[str, Any]:
    return a_tool({"properties": {name: {"type": "string"} | keywords}})


def found_in(after: dict[str, Any], before: dict[str, Any] | None = None) -> list[tuple[str, int, str]]:
    rules = ("secret_in_header", "external_reference")
    return [(each.rule, each.level, each.path) for each in detect_indicators(before, after) if each.rule in rules]


@pytest.mark.parametrize(
    ("name", "keywords"),
    [
        ("password", {"x-mcp-header": "Pass"}),
        ("clientSecret", {"x-mcp-header": "Client"}),
        ("auth", {"x-mcp-header": "Authorization"}),
        ("value", {"x-mcp-header": "X-Api-Key"}),
        ("session_cookie", {"x-mcp-header": "Region"}),
        ("pin", {"x-mcp-header": "Region", "format": "password"}),
        ("pin", {"x-mcp-header": "Region", "writeOnly": True}),
        ("token", {"x-mcp-header": "T", "type": ["string", "null"]}),
    ],
)
def test_a_secret_in_a_header_is_high(name: str, keywords: dict[str, Any]) -> None:
    tool = with_parameter(name, **keywords)
    expected = [("secret_in_header", HIGH, f"$.inputSchema.properties.{name}.x-mcp-header")]
    assert found_in(tool) == expected
    plain = {key: value for key, value in keywords.items() if key != "x-mcp-header"}
    assert found_in(tool, with_parameter(name, **plain)) == expected


@pytest.mark.parametrize(
    ("name", "keywords"),
    [
        ("region", {"x-mcp-header": "Region"}),
        ("password", {}),
        ("max_token", {"x-mcp-header": "Max-Token", "type": "integer"}),
        ("password", {"x-mcp-header": 7}),
        ("password", {"default": {"x-mcp-header": "P"}}),
    ],
)
def test_other_headers_and_other_secrets_are_none(name: str, keywords: dict[str, Any]) -> None:
    assert found_in(with_parameter(name, **keywords)) == []


@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef"])
@pytest.mark.parametrize(
    "target",
    ["https://schemas.example/a.json", "other.json#/a", "//x.test/s", "file:///etc/x", "urn:other", "http://["],
)
def test_a_reference_to_another_document_is_high(keyword: str, target: str) -> None:
    for schema in ("inputSchema", "outputSchema"):
        tool = a_tool({"properties": {"p": {"anyOf": [{keyword: target}]}}}, schema)
        assert found_in(tool) == [("external_reference", HIGH, f'$.{schema}.properties.p.anyOf[0]["{keyword}"]')]
        assert found_in(tool, a_tool({}, schema))


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "#/$defs/a", "$defs": {"a": {}}},
        {"$id": "https://s.example/root", "$ref": "https://s.example/root#/$defs/a"},
        {"$id": "https://s.example/root", "$ref": "root#a"},
        {"$id": "https://s.example/root", "$defs": {"a": {"$id": "item"}}, "$ref": "https://s.example/item"},
        {"$defs": {"a": {"$id": "urn:a"}}, "items": {"$ref": "urn:a"}},
        {"$ref": "https://json-schema.org/draft/2020-12/schema"},
        {"properties": {"$ref": {"type": "string"}}},
        {"properties": {"p": {"const": {"$ref": "https://x.test/a"}, "examples": [{"$ref": "https://x.test/a"}]}}},
        {"$ref": 3},
    ],
)
def test_a_reference_within_the_document_is_none(schema: dict[str, Any]) -> None:
    """By JSON pointer, anchor or ``$id``; and the meta-schemas, which every validator has."""
    assert found_in(a_tool(schema)) == []


def test_what_stood_there_before_is_no_news() -> None:
    before = a_tool({"properties": {"key": {"x-mcp-header": "Cookie"}, "p": {"$ref": "https://x.test/a"}}})
    after = a_tool({"properties": {"key": {"x-mcp-header": "Cookie", "title": "K"}, "q": {"$ref": "https://x.test/a"}}})
    assert found_in(after, before) == []
    other = a_tool({"properties": {"q": {"$ref": "https://x.test/b"}}})
    assert [rule for rule, _, _ in found_in(other, before)] == ["external_reference"]


def test_a_parameter_called_like_a_keyword_is_looked_into() -> None:
    tool = a_tool({"properties": {"default": {"$ref": "https://x.test/a"}, "enum": {"items": {"$ref": "b.json"}}}})
    assert len(found_in(tool)) == 2


def test_the_search_is_bounded_by_its_budget() -> None:
    tool = a_tool({"properties": {f"p{n}": {"$ref": "a.json"} for n in range(1_000)}})
    with pytest.raises(WorkExhaustedError):
        structural_matches(None, tool, Work(10_000))
