"""Manifest drift beyond its vectors: each rule, each severity, and what is never claimed."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from assay_stream.canonical.digest import Digest
from assay_stream.schemes.assay.manifest import (
    MANIFEST_FIELDS,
    REASON_CODES,
    SEVERITIES,
    Completeness,
    DeclaredManifest,
    ManifestTool,
    ObservedManifest,
    compare_manifests,
    declare_manifest,
    observe_manifest,
)

PLAIN = {"name": "search", "description": "finds", "inputSchema": {"type": "object"}}
PRIVILEGED = {"name": "github.add_deploy_key", "description": "adds"}
CHANGES: dict[str, dict[str, Any]] = {
    "description": {"description": "other"},
    "input_schema": {"inputSchema": {"type": "object", "required": ["q"]}},
    "output_schema": {"outputSchema": {"type": "object"}},
    "annotations": {"annotations": {"readOnlyHint": True}},
}


def seen(*tools: dict[str, Any], completeness: Completeness = "complete") -> ObservedManifest:
    return observe_manifest("s", tools, completeness)


def declared(*tools: dict[str, Any]) -> DeclaredManifest:
    return declare_manifest(seen(*tools))


def told(before: DeclaredManifest, after: ObservedManifest) -> list[tuple[str, str]]:
    return [(finding.reason_code, finding.severity) for finding in compare_manifests(before, after).findings]


@pytest.mark.parametrize(
    ("field", "plain", "privileged"),
    [
        ("description", "medium", "high"),
        ("input_schema", "medium", "high"),
        ("output_schema", "low", "medium"),
        ("annotations", "low", "medium"),
    ],
)
def test_a_changed_field_is_named(field: str, plain: str, privileged: str) -> None:
    change = CHANGES[field]
    assert told(declared(PLAIN), seen(PLAIN | change)) == [
        ("mcp_tool_changed", "medium"),
        (f"mcp_tool_{field}_changed", plain),
    ]
    assert told(declared(PRIVILEGED), seen(PRIVILEGED | change)) == [
        ("mcp_privileged_tool_changed", "high"),
        (f"mcp_tool_{field}_changed", privileged),
    ]


def test_added_and_removed() -> None:
    assert told(declared(), seen(PLAIN, PRIVILEGED)) == [
        ("mcp_new_privileged_tool", "high"),
        ("mcp_tool_added", "medium"),
    ]
    assert told(declared(PLAIN, PRIVILEGED), seen()) == [
        ("mcp_privileged_tool_removed", "high"),
        ("mcp_tool_removed", "medium"),
    ]


@pytest.mark.parametrize("completeness", ["partial", "unknown"])
def test_an_incomplete_list_removes_nothing(completeness: Completeness) -> None:
    other = PLAIN | {"name": "other"}
    drift = compare_manifests(
        declared(PLAIN, PRIVILEGED, other),
        seen(PLAIN | CHANGES["description"], PLAIN | {"name": "new"}, completeness=completeness),
    )
    assert drift.inconclusive == ("inconclusive_manifest_partial_observation",)
    assert [finding.change for finding in drift.findings] == ["tool_added", "tool_changed", "description_changed"]


def test_fields_are_named_where_both_sides_carry_them() -> None:
    bare = dataclasses.replace(
        declared(PLAIN), tools=tuple(dataclasses.replace(t, field_digests=None) for t in declared(PLAIN).tools)
    )
    assert told(bare, seen(PLAIN | CHANGES["description"])) == [("mcp_tool_changed", "medium")]


@pytest.mark.parametrize("side", ["declared", "observed"])
def test_one_side_makes_a_change_privileged(side: str) -> None:
    was, now = declared(PLAIN), seen(PLAIN | CHANGES["description"])
    if side == "declared":
        was = dataclasses.replace(was, tools=(dataclasses.replace(was.tools[0], privileged=True),))
    else:
        now = dataclasses.replace(now, tools=(dataclasses.replace(now.tools[0], privileged=True),))
    assert told(was, now)[0] == ("mcp_privileged_tool_changed", "high")


def test_obstacles_end_the_comparison() -> None:
    was, now = declared(PLAIN), seen(PRIVILEGED)
    twice = ManifestTool(name="search", digest=Digest("0" * 64), privileged=False)
    cases = [
        (dataclasses.replace(was, digest=Digest("0" * 64)), now, "declared_manifest_digest_mismatch"),
        (was, dataclasses.replace(now, server_id="other"), "mcp_manifest_server_mismatch"),
        (was, dataclasses.replace(now, canonicalization="v9"), "mcp_manifest_canonicalization_mismatch"),
        (was, observe_manifest("s", None, "complete"), "inconclusive_manifest_not_observed"),
        (was, seen(PLAIN, PLAIN), "mcp_manifest_observation_ambiguous"),
        (was, dataclasses.replace(now, tools=(twice, twice)), "mcp_manifest_observation_ambiguous"),
    ]
    for before, after, code in cases:
        drift = compare_manifests(before, after)
        assert (drift.findings, drift.inconclusive) == ((), (code,))


def test_tables_cover_the_same_changes() -> None:
    assert SEVERITIES.keys() == REASON_CODES.keys()
    assert {f"{field}_changed" for field in MANIFEST_FIELDS} <= SEVERITIES.keys()
    rank = {"low": 0, "medium": 1, "high": 2}
    assert all(rank[plain] < rank[privileged] for plain, privileged in SEVERITIES.values())
