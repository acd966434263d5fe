"""Contracts under ``_meta.handshake``: what is read, what is reported, and which changes break the rules."""

from itertools import pairwise
from typing import Any

import pytest

from assay_stream.errors import InputError
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.schemes.handshake_contract import (
    Contract,
    check_tools,
    contract,
    contract_drift,
    form_tool_id,
    is_denied_by_default,
)
from assay_stream.schemes.handshake_event import is_plain, parse_version
from tests.support.errors import raises_code

DECLARED: dict[str, Any] = {
    "tool_version": "1.4.0",
    "side_effect": "READ",
    "idempotency": "IDEMPOTENT",
    "determinism": "BEST_EFFORT",
    "availability": "REQUIRES_NETWORK",
    "required_capabilities": ["net.http", "fs.read", "fs.read"],
}


def declared(**changes: Any) -> Contract:
    fields = {name: value for name, value in (DECLARED | changes).items() if value is not ...}
    found = contract({"name": "fs.read", "_meta": {"handshake": fields}})
    assert found is not None
    return found


def problems(**changes: Any) -> list[tuple[str, str]]:
    return [(problem.code, problem.path.removeprefix("$._meta.handshake")) for problem in declared(**changes).problems]


def test_a_sound_contract_is_read() -> None:
    assert declared() == Contract(
        tool_version=parse_version("1.4.0"), side_effect="READ", required_capabilities=("fs.read", "net.http")
    )


def test_a_deprecated_tool_says_since_when_until_when_and_what_then() -> None:
    assert problems(deprecated_since="1.3.0", sunset_on="2027-01-31", replaced_by="fs.read_text") == []
    assert problems(deprecated_since="1.3.0") == [("missing_field", ".sunset_on")]


@pytest.mark.parametrize("tool", [{}, {"_meta": None}, {"_meta": []}, {"_meta": {}}, {"_meta": {"other": 1}}])
def test_a_tool_without_a_contract_has_none(tool: dict[str, Any]) -> None:
    assert contract(tool) is None


@pytest.mark.parametrize("value", [None, [], "1.0.0", 7])
def test_a_contract_of_another_kind_is_reported(value: Any) -> None:
    found = contract({"_meta": {"handshake": value}})
    assert found is not None
    assert [problem.code for problem in found.problems] == ["wrong_type"]


@pytest.mark.parametrize("name", DECLARED)
def test_a_missing_field_is_reported(name: str) -> None:
    assert problems(**{name: ...}) == problems(**{name: None}) == [("missing_field", f".{name}")]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"tool_version": "1.4"}, "bad_format"),
        ({"tool_version": 1}, "wrong_type"),
        ({"side_effect": "NONE"}, "unknown_value"),
        ({"side_effect": ["READ"]}, "wrong_type"),
        ({"idempotency": ""}, "empty_value"),
        ({"determinism": "read"}, "unknown_value"),
        ({"availability": "ALWAYS"}, "unknown_value"),
        ({"required_capabilities": "fs.read"}, "wrong_type"),
        ({"required_capabilities": ["fs.read", 7]}, "wrong_type"),
        ({"required_capabilities": [" "]}, "empty_value"),
        ({"deprecated_since": "soon", "sunset_on": "2027-01-31"}, "bad_format"),
        ({"sunset_on": "2027-02-30"}, "bad_format"),
        ({"sunset_on": "20270131"}, "bad_format"),
        ({"replaced_by": "read"}, "bad_format"),
    ],
)
def test_a_malformed_field_is_reported_and_counts_as_undeclared(change: dict[str, Any], code: str) -> None:
    name = next(iter(change))
    assert problems(**change) == [(code, f".{name}")]
    assert getattr(declared(**change), name, None) is None
    assert declared(**change).tool_version is not None or name == "tool_version"


def test_what_a_hostile_server_declares_is_bounded() -> None:
    most, longest = DEFAULT_LIMITS.capabilities_max, DEFAULT_LIMITS.contract_text_chars_max
    assert problems(required_capabilities=[f"c{number}" for number in range(most)]) == []
    assert problems(required_capabilities=["c"] * (most + 1)) == [("too_many", ".required_capabilities")]
    assert problems(required_capabilities=["c" * longest]) == []
    assert problems(required_capabilities=["c" * (longest + 1)]) == [("too_long", ".required_capabilities")]
    assert problems(tool_version="1" * 10_000) == [("too_long", ".tool_version")]


def test_problems_never_quote_the_server() -> None:
    found = declared(side_effect="hunter2", tool_version="hunter2", replaced_by="hunter2", determinism={"hunter2": 1})
    assert len(found.problems) == 4
    assert "hunter2" not in repr(found)


@pytest.mark.parametrize(
    ("change", "codes"),
    [
        ({}, []),
        ({"required_capabilities": ["net.http", "fs.read"]}, []),
        ({"tool_version": "1.4.1", "determinism": "DETERMINISTIC", "idempotency": "NON_IDEMPOTENT"}, []),
        ({"side_effect": "WRITE"}, ["side_effect_changed_without_major"]),
        ({"side_effect": "WRITE", "tool_version": "1.5.0"}, ["side_effect_changed_without_major"]),
        ({"side_effect": ...}, ["side_effect_changed_without_major"]),
        ({"side_effect": "WRITE", "tool_version": "2.0.0"}, []),
        ({"required_capabilities": ["fs.read"]}, ["required_capabilities_changed_without_major"]),
        ({"required_capabilities": []}, ["required_capabilities_changed_without_major"]),
        ({"required_capabilities": "all"}, ["required_capabilities_changed_without_major"]),
        ({"required_capabilities": [], "tool_version": "2.0.0"}, []),
        ({"tool_version": "1.3.9"}, ["tool_version_regressed"]),
        ({"tool_version": "1.4.0-rc.1"}, ["tool_version_regressed"]),
        ({"tool_version": ...}, ["tool_version_missing"]),
        ({"tool_version": "two"}, ["tool_version_missing"]),
        ({"tool_version": "0.9.0", "side_effect": "EXECUTE"}, ["tool_version_regressed"]),
        (
            {"tool_version": "1.0.0", "side_effect": "EXECUTE", "required_capabilities": ["x"]},
            [
                "tool_version_regressed",
                "side_effect_changed_without_major",
                "required_capabilities_changed_without_major",
            ],
        ),
        (
            {"tool_version": ..., "side_effect": "EXECUTE"},
            ["tool_version_missing", "side_effect_changed_without_major"],
        ),
    ],
)
def test_changes_against_the_rules_are_drift(change: dict[str, Any], codes: list[str]) -> None:
    assert contract_drift(declared(), declared(**change)) == codes


def test_contracts_that_come_and_go() -> None:
    assert contract_drift(declared(), None) == ["contract_removed"]
    assert contract_drift(None, declared()) == []
    assert contract_drift(None, None) == []
    assert contract_drift(declared(side_effect=..., required_capabilities=...), declared()) == []


@pytest.mark.parametrize(
    ("found", "denied"),
    [
        (None, True),
        (declared(), False),
        (declared(required_capabilities=[]), False),
        (declared(required_capabilities=...), True),
        (declared(side_effect="none"), True),
        (declared(determinism=...), False),
    ],
)
def test_what_is_not_declared_is_denied(found: Contract | None, denied: bool) -> None:
    assert is_denied_by_default(found) is denied


# --- the checks of a list of tools: each passes, fails, or says why it cannot tell ----------------------------

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


# --- semantic versions: what is one, and which comes first. The examples are those of semver.org 2.0.0 --------


def test_all_parts_are_read() -> None:
    assert parse_version("1.22.3-rc.1+exp.5").to_tuple() == (1, 22, 3, "rc.1", "exp.5")


@pytest.mark.parametrize(
    "text",
    ["0.0.4", "10.20.30", "1.0.0-alpha.0valid", "1.0.0-0A.is.legal", "1.0.0+001", "1.0.0--", "1.0.0-alpha-a.b-c+build"],
)
def test_what_the_specification_calls_valid(text: str) -> None:
    assert parse_version(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "1", "1.2", "1.2.3.4", "01.1.1", "1.01.1", "1.1.01", "v1.2.3", " 1.2.3", "1.2.3\n", "1.2.3-", "1.2.3+"),
        *("1.2.3-0123", "1.2.3-a..b", "1.2.3-é", "1.2.3+a+b", "-1.0.0", "١.0.0", "1.1.2+.123", "1.2-SNAPSHOT"),
    ],
)
def test_what_the_specification_calls_invalid(text: str) -> None:
    with raises_code("bad_format"):
        parse_version(text)


def test_a_version_has_a_length() -> None:
    assert parse_version("1.0." + "9" * 60).patch == int("9" * 60)
    with raises_code("too_long"):
        parse_version("1.0." + "9" * 61)


def test_the_order_is_that_of_the_specification() -> None:
    """Clauses 11.2 and 11.4: each precedes the next, and none the one before."""
    order = (
        *("1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta", "1.0.0-beta.2", "1.0.0-beta.11"),
        *("1.0.0-rc.1", "1.0.0", "2.0.0", "2.1.0", "2.1.1", "10.0.0"),
    )
    for lower, higher in pairwise(order):
        assert parse_version(lower) < parse_version(higher)
        assert not parse_version(higher) < parse_version(lower)


def test_builds_have_no_order() -> None:
    """Clause 10: neither of two builds of one version precedes the other."""
    one, other = parse_version("1.0.0+1"), parse_version("1.0.0+2")
    assert not one < other
    assert not other < one


@pytest.mark.parametrize(("text", "plain"), [("1.0.0", True), ("1.0.0-rc", False), ("1.0.0+b", False)])
def test_a_plain_version_has_no_labels(text: str, plain: bool) -> None:
    assert is_plain(parse_version(text)) is plain
