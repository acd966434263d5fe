"""Assay's own vectors: definition digest, identity, manifest drift, clusters and envelope."""

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from assay_stream.canonical.decode import decode_json
from assay_stream.canonical.digest import canonicalize
from assay_stream.report.export_input import read_bundle, verify_bundle, write_bundle
from assay_stream.schemes import assay_manifest as manifest, assay_tool as assay
from assay_stream.schemes.assay_bundle import RunRoot, event_line, read_manifest, run_event
from assay_stream.schemes.assay_manifest import compare_manifests
from tests.support.errors import raises_code
from tests.support.exports import members, rebuilt
from tests.support.vectors import id_of, vectors

DEFINITION = vectors("assay_tool_definition_p56b")
EQUALITIES = vectors("assay_identity_equalities")
ENVELOPE = vectors("assay_evidence_envelope")
DECISION = vectors("assay_tool_decision_payload")

PARSED = [case for case in DEFINITION["cases"] if "expect" not in case]
BOUND = [case for case in PARSED if "unscoped" in case]
SCOPED = [case for case in PARSED if "scoped" in case]
UNBOUND = [case for case in PARSED if "unscoped" not in case]
IDENTIFIED = [case for case in PARSED if "tool_identity" in case]
NAMELESS = [case for case in PARSED if "tool_identity" not in case]
UNREADABLE = [case for case in DEFINITION["cases"] if "expect" in case]
UNBOUND_CODES = {
    "inputSchema present but not an object -> Err -> cluster omitted (identity still computed)": (
        "input_schema_not_object"
    ),
    "name missing/not a string/blank -> no observation": "tool_name_missing",
}


def _tool(case: dict[str, Any]) -> Any:
    return decode_json(case["input_raw"].encode())


class TestDefinition:
    def test_every_case_is_used(self) -> None:
        assert len(BOUND) + len(UNBOUND) + len(UNREADABLE) == len(DEFINITION["cases"])
        assert len(IDENTIFIED) + len(NAMELESS) == len(PARSED)

    @pytest.mark.parametrize("case", BOUND, ids=id_of)
    def test_unscoped_projection(self, case: dict[str, Any]) -> None:
        projection = assay.definition_projection(_tool(case), server_id=None)
        assert canonicalize(projection) == case["unscoped"]["canonical"].encode()
        digest = assay.definition_digest(_tool(case), server_id=None)
        assert str(digest) == case["unscoped"]["tool_definition_digest"]

    @pytest.mark.parametrize("case", SCOPED, ids=id_of)
    def test_scoped_projection(self, case: dict[str, Any]) -> None:
        projection = assay.definition_projection(_tool(case), server_id=case["server_id"])
        assert canonicalize(projection) == case["scoped"]["canonical"].encode()
        digest = assay.definition_digest(_tool(case), server_id=case["server_id"])
        assert str(digest) == case["scoped"]["tool_definition_digest"]

    def test_default_label(self) -> None:
        """The label that Assay's wrapper sets by default scopes the digest like any other."""
        case = DEFINITION["default_label_case"]
        simple = next(case for case in BOUND if case["id"] == "simple")
        projection = assay.definition_projection(_tool(simple), server_id="default-mcp-server")
        assert canonicalize(projection) == case["canonical"].encode()
        digest = assay.definition_digest(_tool(simple), server_id="default-mcp-server")
        assert str(digest) == case["tool_definition_digest"]

    @pytest.mark.parametrize("case", UNBOUND, ids=id_of)
    def test_no_binding(self, case: dict[str, Any]) -> None:
        with raises_code(UNBOUND_CODES[case["reason"]]):
            assay.definition_digest(_tool(case), server_id=case["server_id"])

    @pytest.mark.parametrize("case", UNREADABLE, ids=id_of)
    def test_unreadable(self, case: dict[str, Any]) -> None:
        assert case["expect"].startswith("parse_error: serde_json refuses a lone surrogate")
        with raises_code("lone_surrogate"):
            _tool(case)

    @pytest.mark.parametrize("case", IDENTIFIED, ids=id_of)
    def test_identity(self, case: dict[str, Any]) -> None:
        identity = case["tool_identity"]
        assert assay.schema_hash(_tool(case)) == identity["schema_hash"]
        assert assay.meta_hash(_tool(case)) == identity["meta_hash"]

    @pytest.mark.parametrize("case", NAMELESS, ids=id_of)
    def test_no_identity(self, case: dict[str, Any]) -> None:
        assert case["expect_identity"] is None
        for compute in (assay.schema_hash, assay.meta_hash):
            with raises_code("tool_name_missing"):
                compute(_tool(case))

    def test_cluster_constants(self) -> None:
        assert DEFINITION["cluster"] == assay.CLUSTER_CONSTANTS


class TestIdentityEqualities:
    @pytest.mark.parametrize(("left", "right"), EQUALITIES["equal_schema_hash_pairs"])
    def test_equal_pairs(self, left: str, right: str) -> None:
        hashes = {assay.schema_hash({"name": "t", "inputSchema": decode_json(text.encode())}) for text in (left, right)}
        assert len(hashes) == 1

    @pytest.mark.parametrize("case", EQUALITIES["canonical"])
    def test_canonical(self, case: dict[str, str]) -> None:
        assert canonicalize(decode_json(case["input"].encode())) == case["expected"].encode()

    def test_absent_parts(self) -> None:
        assert assay.schema_hash({"name": "t"}) == EQUALITIES["none_schema_hash"]
        assert assay.meta_hash({"name": "t"}) == EQUALITIES["absent_description_meta_hash"]

    @pytest.mark.parametrize("literal", EQUALITIES["refused_literals"])
    def test_refused_literals(self, literal: str) -> None:
        with raises_code("number_overflow"):
            decode_json(f'{{"maximum":{literal}}}'.encode())

    def test_max_nesting(self) -> None:
        deepest = EQUALITIES["max_nesting"]
        assert decode_json(b"[" * deepest + b"]" * deepest)
        with raises_code("too_deep"):
            decode_json(b"[" * (deepest + 1) + b"]" * (deepest + 1))


class TestEnvelope:
    def test_golden_content_hash(self) -> None:
        golden = ENVELOPE["golden"]
        assert str(assay.content_hash(golden["event"])) == golden["content_hash"]
        assert golden["event"]["assaycontenthash"] == golden["content_hash"]

    def test_subject_is_covered_only_when_present(self) -> None:
        event = ENVELOPE["golden"]["event"]
        assert "subject (only when present)" in ENVELOPE["content_hash_fields"]
        assert str(assay.content_hash(event | {"subject": "s"})) != ENVELOPE["golden"]["content_hash"]
        assert str(assay.content_hash(event | {"id": "other"})) == ENVELOPE["golden"]["content_hash"]


class TestDecisionPayload:
    def test_clusters_are_accepted(self) -> None:
        payload = DECISION["payload"]
        assert assay.check_definition_cluster(payload) == payload["tool_definition_digest"]
        assert assay.check_policy_cluster(payload) == payload["policy_snapshot_digest"]


# --- assay's own evidence bundles: its golden bundle to the byte, and one of its conformance bundles ----------

GOLDEN = ENVELOPE["golden"]
BUNDLE_CASES: list[dict[str, Any]] = ENVELOPE["bundles"]
RUN_ID = GOLDEN["event"]["assayrunid"]


def hex_of(raw: bytes) -> str:
    return sha256(raw).hexdigest()


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    path = tmp_path / "golden.tar.gz"
    write_bundle(path, [GOLDEN["event"]], run_id=RUN_ID)
    return path


def test_the_golden_bundle_has_its_bytes(golden: Path) -> None:
    """The whole file, compressed: the digest that Assay's determinism test has."""
    assert hex_of(golden.read_bytes()) == GOLDEN["bundle_tar_gz_sha256"]


def test_run_id_and_sequence_are_assigned() -> None:
    event = {name: value for name, value in GOLDEN["event"].items() if name not in ("assayrunid", "assayseq")}
    made = run_event(event | {"id": "whatever"}, run_id=RUN_ID, seq=0)
    assert event_line(made) == GOLDEN["line"].encode()


def test_the_root_of_no_event_is_the_vectors() -> None:
    assert str(RunRoot().digest()) == ENVELOPE["empty_run_root"]


@pytest.mark.parametrize("bundle", BUNDLE_CASES, ids=lambda bundle: bundle["bundle"])
def test_a_bundle_of_assay_is_verified(bundle: dict[str, Any], tmp_path: Path) -> None:
    events = [entry["event"] for entry in bundle["events"]]
    lines = [canonicalize(event) for event in events]
    content = {
        "manifest.json": canonicalize(bundle["manifest"]),
        "events.ndjson": b"".join(line + b"\n" for line in lines),
    }
    path = rebuilt(tmp_path / "theirs.tar.gz", content)
    assert str(verify_bundle(path).run_root) == bundle["manifest"]["run_root"]
    assert list(read_bundle(path)) == lines


@pytest.mark.parametrize("bundle", BUNDLE_CASES, ids=lambda bundle: bundle["bundle"])
def test_a_bundle_of_assay_is_written(bundle: dict[str, Any], tmp_path: Path) -> None:
    events = [entry["event"] for entry in bundle["events"]]
    path = tmp_path / "ours.tar.gz"
    write_bundle(path, events, run_id=bundle["manifest"]["run_id"])
    assert members(path)["manifest.json"] == canonicalize(bundle["manifest"])


def test_a_manifest_whose_id_is_not_its_root_is_refused() -> None:
    """As Assay's conformance bundle bad-109 has it."""
    with raises_code("bundle_manifest", "$.bundle_id", match="run root"):
        read_manifest(canonicalize(GOLDEN["manifest"] | {"bundle_id": "sha256:" + "0" * 64}))


# --- conformance with Assay's published vectors for manifest drift (P60) --------------------------------------

FILES = vectors("assay_manifest_drift_p60")["files"]
EXAMPLE = FILES["canonicalization_example.json"]
BASELINES = ("declared_per_tool_baseline.json", "declared_per_tool_baseline_readonly_annotation.json")


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


@pytest.mark.parametrize("case", FILES["granular_diff_cases.json"]["cases"], ids=id_of)
def test_the_classifier_agrees_with_the_records(case: dict[str, Any]) -> None:
    for tool in [*case["declared"]["tools"], *case["observed"]["observed"]["tool_digests"]]:
        assert (manifest.action_class(tool["name"]) is not None) is tool["privileged"]
