"""Contracts under ``_meta.handshake``: what is read, what is reported, and which changes break the rules."""

from __future__ import annotations

from typing import Any

import pytest

from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.schemes.handshake.contract import Contract, contract, contract_drift, is_denied_by_default
from assay_stream.schemes.members import parse_version

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
        tool_version=parse_version("1.4.0"),
        side_effect="READ",
        idempotency="IDEMPOTENT",
        determinism="BEST_EFFORT",
        availability="REQUIRES_NETWORK",
        required_capabilities=("fs.read", "net.http"),
    )


def test_a_deprecated_tool_says_since_when_until_when_and_what_then() -> None:
    found = declared(deprecated_since="1.3.0", sunset_on="2027-01-31", replaced_by="fs.read_text")
    assert (found.deprecated_since, found.sunset_on, found.replaced_by, found.problems) == (
        parse_version("1.3.0"),
        "2027-01-31",
        "fs.read_text",
        (),
    )
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
    assert getattr(declared(**change), name) is None
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
    """A contract that is taken back is drift; one that appears promises for the first time."""
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
    """A tool without a side effect or without capabilities, declared soundly, is denied by default."""
    assert is_denied_by_default(found) is denied
