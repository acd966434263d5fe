"""Conformance with Assay's published vectors for manifest drift (P60)."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from assay_stream.schemes.assay import manifest
from assay_stream.schemes.assay.manifest import compare_manifests

VECTORS = Path(__file__).parent.parent / "data" / "vectors" / "assay_manifest_drift_p60.json"
FILES = json.loads(VECTORS.read_text(encoding="utf-8"))["files"]
EXAMPLE = FILES["canonicalization_example.json"]
BASELINES = ("declared_per_tool_baseline.json", "declared_per_tool_baseline_readonly_annotation.json")


def _id(case: dict[str, Any]) -> str:
    return str(case["id"])


def _baseline_tools(name: str) -> list[dict[str, Any]]:
    """The tools a baseline was built from: the example's, annotated where the baseline's note says so."""
    tools: list[dict[str, Any]] = EXAMPLE["manifest"]["tools"]
    if "readonly" not in name:
        return tools
    annotated = {"annotations": {"readOnlyHint": True}}
    return [tool | annotated if tool["name"] == "github.add_deploy_key" else tool for tool in tools]


def test_every_file_is_used() -> None:
    known = {"canonicalization_example.json", *BASELINES, "granular_diff_cases.json", "verdict_corpus.json"}
    assert FILES.keys() == known


def test_tool_projection() -> None:
    wanted = EXAMPLE["per_tool"]["projection"]
    present = {name: value for name, value in wanted.items() if value is not None}
    assert manifest.manifest_projection(present) == wanted


def test_tool_digest() -> None:
    case = EXAMPLE["per_tool"]
    snake = case["projection"]
    camel = {"name": snake["name"], "description": snake["description"], "inputSchema": snake["input_schema"]}
    assert str(manifest.manifest_tool_digest(snake)) == case["expected_tool_digest"]
    assert str(manifest.manifest_tool_digest(camel)) == case["expected_tool_digest"]


def test_field_digests() -> None:
    case = EXAMPLE["per_tool"]
    digests = manifest.manifest_field_digests(case["projection"])
    assert {name: str(digest) for name, digest in digests.items()} == case["expected_field_digests"]


def test_manifest_digest() -> None:
    case = EXAMPLE["manifest"]
    assert case["projection_id"] == manifest.MANIFEST_PROJECTION
    for tools in (case["tools"], case["tools"][::-1]):
        assert str(manifest.observe_manifest("s", tools, "complete").digest()) == case["expected_manifest_digest"]


@pytest.mark.parametrize("name", BASELINES)
def test_a_baseline_is_what_is_declared_from_its_tools(name: str) -> None:
    observed = manifest.observe_manifest("github", _baseline_tools(name), "complete")
    assert manifest.declare_manifest(observed) == manifest.read_declared(FILES[name])


def test_the_two_baselines_differ_by_an_annotation() -> None:
    plain, annotated = (manifest.read_declared(FILES[name]) for name in BASELINES)
    observed = manifest.observe_manifest("github", _baseline_tools(BASELINES[1]), "complete")
    assert [
        (found.tool_name, found.reason_code, found.severity) for found in compare_manifests(plain, observed).findings
    ] == [
        ("github.add_deploy_key", "mcp_privileged_tool_changed", "high"),
        ("github.add_deploy_key", "mcp_tool_annotations_changed", "medium"),
    ]
    assert compare_manifests(annotated, observed).findings == ()


@pytest.mark.parametrize("case", FILES["granular_diff_cases.json"]["cases"], ids=_id)
def test_granular_diff(case: dict[str, Any]) -> None:
    drift = compare_manifests(manifest.read_declared(case["declared"]), manifest.read_observed(case["observed"]))
    found = Counter((finding.tool_name, finding.reason_code) for finding in drift.findings)
    expected = case["expected"]
    assert found == Counter((finding["name"], finding["reason_code"]) for finding in expected["findings"])
    assert Counter(drift.inconclusive) == Counter(expected["inconclusive"])


@pytest.mark.parametrize("case", FILES["granular_diff_cases.json"]["cases"], ids=_id)
def test_the_classifier_agrees_with_the_records(case: dict[str, Any]) -> None:
    for tool in [*case["declared"]["tools"], *case["observed"]["observed"]["tool_digests"]]:
        assert (manifest.action_class(tool["name"]) is not None) is tool["privileged"]
