"""Laws of Handshake's schemes, over arbitrary values and bytes."""

import copy
import json
from collections.abc import Callable
from functools import cmp_to_key
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, strategies as st
from jsonschema import Draft202012Validator
from semver import Version

from assay_stream.errors import InputError
from assay_stream.schemes.handshake_contract import (
    SCHEMA,
    Contract,
    check_envelope,
    check_tools,
    contract,
    contract_drift,
)
from assay_stream.schemes.handshake_event import FIELDS, PROFILES, check_tool_call, parse_version

VALID = json.loads((Path(__file__).resolve().parents[1] / "data/vectors/handshake_tool_call.json").read_text())[
    "valid_event"
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
REQUEST = {
    "schema_version": "htc-1.0",
    "tool_call_id": VALID["tool_call_id"],
    "trace_id": VALID["trace_id"],
    "actor": {"kind": "agent"},
    "tool_id": "mcp.fs.read_file",
    "tool_version": "1.0.0",
    "args": {"path": "a.txt"},
    "dry_run": False,
}
RESPONSE = {
    "schema_version": "htc-1.0",
    "tool_call_id": VALID["tool_call_id"],
    "trace_id": VALID["trace_id"],
    "ok": True,
    "result": {"text": "x"},
    "error": None,
    "timing": VALID["timing"],
}
DECLARED = {
    "tool_version": "1.2.3",
    "side_effect": "READ",
    "idempotency": "IDEMPOTENT",
    "determinism": "DETERMINISTIC",
    "availability": "OFFLINE_OK",
    "required_capabilities": ["fs.read"],
}
NUMBERS = st.integers(0, 20)
LABELS = st.lists(st.from_regex(r"\A(0|[1-9][0-9]{0,2}|[a-z-][a-z0-9-]{0,3})\Z"), max_size=3)


def refusal(action: Callable[[], object]) -> InputError | None:
    try:
        action()
    except InputError as error:
        return error
    return None


@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
def test_no_bytes_are_beyond_a_refusal(raw: bytes) -> None:
    assert refusal(lambda: check_envelope(raw)) is not None


@given(st.sampled_from([REQUEST, RESPONSE]), st.sampled_from([*REQUEST, *RESPONSE, "new"]), JSON)
def test_the_verdict_agrees_with_the_whole_schema(envelope: dict[str, Any], name: str, value: Any) -> None:
    """Where no format is concerned, an envelope is valid exactly if the published schema says so."""
    assume(name not in {"tool_call_id", "trace_id", "timing"})
    altered = envelope | {name: value}
    expected = Draft202012Validator(SCHEMA).is_valid(altered)
    assert (refusal(lambda: check_envelope(json.dumps(altered).encode())) is None) == expected


@pytest.mark.parametrize("profile", PROFILES.values(), ids=lambda profile: profile.name)
@given(st.sampled_from([*FIELDS, "new"]), JSON)
def test_an_altered_event_is_taken_or_refused_by_name(profile: Any, name: str, value: Any) -> None:
    error = refusal(lambda: check_tool_call(VALID | {name: value}, profile=profile))
    if error is not None:
        assert error.path.startswith("$" if name == "new" else f"$.{name}")


@given(JSON)
def test_a_contract_never_raises(value: Any) -> None:
    declared = contract({"name": "t", "_meta": {"handshake": value}})
    assert declared is not None
    assert declared.problems


@given(st.sampled_from([*DECLARED, "deprecated_since", "sunset_on", "replaced_by"]), JSON)
def test_the_checks_of_a_tool_never_raise(name: str, value: Any) -> None:
    tool = {"name": "fs.read", "inputSchema": value, "outputSchema": value, "examples": value, "annotations": value}
    (report,) = check_tools([tool | {"_meta": {"handshake": DECLARED | {name: value}}}], server_id="s")
    assert len(report.answers) == 11


CONTRACTS = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "tool_version": st.sampled_from(["1.0.0", "1.1.0", "2.0.0", "bad"]),
        "side_effect": st.sampled_from(["READ", "WRITE", "bad"]),
        "required_capabilities": st.lists(st.sampled_from(["a", "b"]), max_size=3),
    },
).map(lambda declared: contract({"_meta": {"handshake": declared}}))


@given(CONTRACTS)
def test_what_does_not_change_does_not_drift(declared: Contract | None) -> None:
    """A contract held against itself gives nothing but a version that is missing."""
    assert contract_drift(declared, copy.copy(declared)) in ([], ["tool_version_missing"])


def with_version(version: str) -> st.SearchStrategy[Contract]:
    return st.builds(
        lambda effect, needs: Contract(
            tool_version=parse_version(version), side_effect=effect, required_capabilities=needs
        ),
        st.sampled_from([None, "READ", "WRITE"]),
        st.sampled_from([None, (), ("a",), ("a", "b")]),
    )


@given(with_version("1.9.0"), with_version("2.0.0"))
def test_another_major_is_another_contract(older: Contract, newer: Contract) -> None:
    """Between two MAJORs no change of side effect or capabilities is drift; a way back is named."""
    assert contract_drift(older, newer) == []
    assert contract_drift(newer, older) == ["tool_version_regressed"]


VERSIONS = st.tuples(NUMBERS, NUMBERS, NUMBERS, LABELS).map(
    lambda parts: "{}.{}.{}".format(*parts[:3]) + (f"-{'.'.join(parts[3])}" if parts[3] else "")
)


def _compared(one: Version, other: Version) -> int:
    return (other < one) - (one < other)


@given(st.lists(VERSIONS, max_size=6))
def test_versions_are_in_one_order(texts: list[str]) -> None:
    versions = [parse_version(text) for text in texts]
    ordered = sorted(versions, key=cmp_to_key(_compared))
    for index, one in enumerate(ordered):
        for other in ordered[index:]:
            assert not other < one
            assert one < other or one == other
