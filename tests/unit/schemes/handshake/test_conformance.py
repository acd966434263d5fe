"""The checks of a list of tools: each passes, fails, or says why it cannot tell."""

from __future__ import annotations

from typing import Any

import pytest

from assay_stream.errors import InputError
from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.schemes.handshake.contract import check_tools, form_tool_id

CONTRACT: dict[str, Any] = {
    "tool_version": "1.0.0",
    "side_effect": "READ",
    "idempotency": "IDEMPOTENT",
    "determinism": "DETERMINISTIC",
    "availability": "OFFLINE_OK",
    "required_capabilities": [],
}
OBJECT: dict[str, Any] = {"type": "object"}
TOOL: dict[str, Any] = {
    "name": "fs.read",
    "inputSchema": OBJECT,
    "outputSchema": OBJECT,
    "examples": [{"input": {"path": "a"}, "output": {"text": "b"}}],
    "annotations": {"readOnlyHint": True},
    "_meta": {"handshake": CONTRACT},
}
CHECKS = {"identity", "input_schema", "output_schema", "schema_draft", "metadata", "tool_version", "side_effect",
          "capabilities", "payload_size", "event_emission", "idempotency"}  # fmt: skip


def answers(tool: dict[str, Any], server_id: str = "files") -> dict[str, tuple[str, str]]:
    (report,) = check_tools([tool], server_id=server_id)
    return {check: (answer.status.value, answer.code) for check, answer in report.answers.items()}


def answer(check: str, **changes: Any) -> tuple[str, str]:
    return answers(TOOL | changes)[check]


def declares(**changes: Any) -> dict[str, Any]:
    return {"handshake": CONTRACT | changes}


def test_a_tool_that_meets_every_requirement() -> None:
    found = answers(TOOL)
    assert found.keys() == CHECKS
    assert {check for check, (status, _) in found.items() if status != "pass"} == {"event_emission", "idempotency"}
    assert found["event_emission"] == ("not_applicable", "needs_calls")
    assert found["idempotency"] == ("not_applicable", "needs_server")


def test_every_answer_but_a_pass_has_a_reason() -> None:
    (report,) = check_tools([{}], server_id="files")
    assert report.denied_by_default
    for given in report.answers.values():
        assert given.status.value != "pass"
        assert given.code
        assert given.reason


@pytest.mark.parametrize(
    ("name", "server_id", "tool_id"),
    [
        ("fs.read", "files", "fs.read"),
        ("read", "files", "files.read"),
        ("read_file2", "mcp.fs", "mcp.fs.read_file2"),
        ("read-file", "files", None),
        ("Read", "files", None),
        ("read", "My Files", None),
        ("read\n", "files", None),
        ("r" * 257, "files", None),
    ],
)
def test_the_tool_id_is_the_name_or_server_and_name(name: str, server_id: str, tool_id: str | None) -> None:
    assert form_tool_id(name, server_id=server_id) == tool_id
    expected = ("pass", "") if tool_id else ("fail", "bad_format")
    assert answers(TOOL | {"name": name}, server_id)["identity"] == expected


@pytest.mark.parametrize("name", [None, 7, "", "  "])
def test_a_tool_needs_a_name(name: Any) -> None:
    assert answer("identity", name=name) == ("fail", "tool_name_missing")


def test_names_are_unique() -> None:
    reports = check_tools([TOOL, TOOL | {"title": "x"}, TOOL | {"name": "fs.write"}], server_id="files")
    assert [report.answers["identity"].code for report in reports] == ["ambiguous_tool_name"] * 2 + [""]


@pytest.mark.parametrize("field", ["inputSchema", "outputSchema"])
@pytest.mark.parametrize(
    ("schema", "code"),
    [
        ({"type": "object", "properties": {"a": {"type": "text"}}}, "bad_schema"),
        ({"type": "object", "required": "a"}, "bad_schema"),
        ({"type": "string"}, "wrong_type"),
        ({}, "wrong_type"),
        (True, "wrong_type"),
        ([], "wrong_type"),
        ({"type": "object", "$schema": "https://example.org/dialect"}, "unknown_dialect"),
        ({"type": "object", "$schema": 7}, "unknown_dialect"),
    ],
)
def test_schemas_are_schemas(field: str, schema: Any, code: str) -> None:
    check = {"inputSchema": "input_schema", "outputSchema": "output_schema"}[field]
    assert answer(check, **{field: schema}) == ("fail", code)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"a": {}}},
        {"type": "object", "$schema": "http://json-schema.org/draft-04/schema#"},
        {"type": "object", "properties": {"a": {"pattern": r"^\p{L}(?<name>x)$"}}},
        {"type": "object", "properties": {"a": {"$ref": "https://example.invalid/never-fetched"}}},
    ],
)
def test_a_schema_is_held_against_the_dialect_it_names(schema: dict[str, Any]) -> None:
    """Older drafts, ECMA patterns and references that nobody follows are valid."""
    assert answer("input_schema", inputSchema=schema) == ("pass", "")


def test_missing_schemas() -> None:
    assert answer("input_schema", inputSchema=None) == ("fail", "missing_field")
    assert answer("output_schema", outputSchema=None) == ("not_applicable", "missing_field")


def test_another_draft_than_2020_12_is_named() -> None:
    older = {"type": "object", "$schema": "http://json-schema.org/draft-07/schema#"}
    assert answer("schema_draft", outputSchema=older) == ("fail", "other_dialect")
    named = {"type": "object", "$schema": "https://json-schema.org/draft/2020-12/schema"}
    assert answer("schema_draft", inputSchema=named) == ("pass", "")


@pytest.mark.parametrize("levels", [120, 400])
def test_a_schema_of_great_depth_is_an_answer_too(levels: int) -> None:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    assert answer("input_schema", inputSchema=schema) == ("fail", "too_deep")


def test_a_schema_of_great_length_is_not_checked() -> None:
    room = DEFAULT_LIMITS.schema_bytes_max - len('{"description":"","type":"object"}')
    for chars, expected in ((room, ("pass", "")), (room + 1, ("fail", "too_large"))):
        assert answer("input_schema", inputSchema={"type": "object", "description": "x" * chars}) == expected


def test_the_contract_is_asked_for_its_parts() -> None:
    bare = answers(TOOL | {"_meta": {}})
    assert {check for check, (status, _) in bare.items() if status == "fail"} == {
        "metadata", "tool_version", "side_effect", "capabilities",
    }  # fmt: skip
    assert answer("metadata", _meta=declares(determinism="X")) == ("fail", "unknown_value")
    assert answer("tool_version", _meta=declares(tool_version="1")) == ("fail", "tool_version_missing")
    assert answer("tool_version", _meta=declares(tool_version="1.0.0-rc.1")) == ("fail", "bad_format")
    assert answer("side_effect", _meta=declares(side_effect="X")) == ("fail", "side_effect_missing")


@pytest.mark.parametrize("change", [{"side_effect": None}, {"required_capabilities": None}])
def test_deny_by_default(change: dict[str, Any]) -> None:
    """A tool that does not say what it does or needs is reported as denied."""
    (report,) = check_tools([TOOL | {"_meta": declares(**change)}], server_id="files")
    assert report.denied_by_default
    assert report.answers["capabilities"].code == "denied_by_default"


@pytest.mark.parametrize(
    ("effect", "hints", "code"),
    [
        ("READ", {"readOnlyHint": False}, "side_effect_contradicted"),
        ("READ", {"destructiveHint": True}, "side_effect_contradicted"),
        ("WRITE", {"readOnlyHint": True}, "side_effect_contradicted"),
        ("EXECUTE", {"readOnlyHint": False, "destructiveHint": True}, ""),
        ("READ", {"readOnlyHint": "no"}, ""),
        ("READ", None, ""),
    ],
)
def test_annotations_that_say_otherwise(effect: str, hints: Any, code: str) -> None:
    """A declared side effect that the server's own annotations contradict fails."""
    assert answer("side_effect", _meta=declares(side_effect=effect), annotations=hints)[1] == code


def test_examples_have_the_cap_of_payloads() -> None:
    limit = DEFAULT_LIMITS.htc_payload_bytes_max
    assert answer("payload_size", examples=[{"input": "x" * (limit - 2)}]) == ("pass", "")
    assert answer("payload_size", examples=[{"input": "x" * (limit - 1)}]) == ("fail", "payload_too_large")
    assert answer("payload_size", examples=["x" * limit]) == ("fail", "payload_too_large")
    assert answer("payload_size", examples=None) == ("not_applicable", "needs_calls")


def test_a_list_has_a_length() -> None:
    with pytest.raises(InputError, match="too_many_tools"):
        check_tools([{}] * (DEFAULT_LIMITS.tools_max + 1), server_id="files")
