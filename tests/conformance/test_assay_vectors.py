"""Assay's own vectors: definition digest, identity, manifest drift, clusters and envelope."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from assay_stream.canonical.decode import decode_json
from assay_stream.canonical.digest import canonicalize, jcs_digest, sha256_of
from assay_stream.errors import InputError
from assay_stream.schemes.assay import tool as assay

VECTORS = Path(__file__).resolve().parents[1] / "data" / "vectors"


def _load(name: str) -> Any:
    return json.loads((VECTORS / name).read_text(encoding="utf-8"))


DEFINITION = _load("assay_tool_definition_p56b.json")
EQUALITIES = _load("assay_identity_equalities.json")
ENVELOPE = _load("assay_evidence_envelope.json")
DECISION = _load("assay_tool_decision_payload.json")

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
BUNDLES = {bundle["bundle"]: bundle for bundle in ENVELOPE["bundles"]}


def _tool(case: dict[str, Any]) -> Any:
    return decode_json(case["input_raw"].encode())


def _id(case: dict[str, Any]) -> str:
    return str(case["id"])


class TestDefinition:
    def test_every_case_is_used(self) -> None:
        assert len(BOUND) + len(UNBOUND) + len(UNREADABLE) == len(DEFINITION["cases"])
        assert len(IDENTIFIED) + len(NAMELESS) == len(PARSED)

    @pytest.mark.parametrize("case", BOUND, ids=_id)
    def test_unscoped_projection(self, case: dict[str, Any]) -> None:
        projection = assay.definition_projection(_tool(case), server_id=None)
        assert canonicalize(projection) == case["unscoped"]["canonical"].encode()
        digest = assay.definition_digest(_tool(case), server_id=None)
        assert str(digest) == case["unscoped"]["tool_definition_digest"]

    @pytest.mark.parametrize("case", SCOPED, ids=_id)
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

    @pytest.mark.parametrize("case", UNBOUND, ids=_id)
    def test_no_binding(self, case: dict[str, Any]) -> None:
        with pytest.raises(InputError) as caught:
            assay.definition_digest(_tool(case), server_id=case["server_id"])
        assert caught.value.code == UNBOUND_CODES[case["reason"]]

    @pytest.mark.parametrize("case", UNREADABLE, ids=_id)
    def test_unreadable(self, case: dict[str, Any]) -> None:
        assert case["expect"].startswith("parse_error: serde_json refuses a lone surrogate")
        with pytest.raises(InputError) as caught:
            _tool(case)
        assert caught.value.code == "lone_surrogate"

    @pytest.mark.parametrize("case", IDENTIFIED, ids=_id)
    def test_identity(self, case: dict[str, Any]) -> None:
        identity = case["tool_identity"]
        assert assay.schema_hash(_tool(case)) == identity["schema_hash"]
        assert assay.meta_hash(_tool(case)) == identity["meta_hash"]

    @pytest.mark.parametrize("case", NAMELESS, ids=_id)
    def test_no_identity(self, case: dict[str, Any]) -> None:
        assert case["expect_identity"] is None
        for compute in (assay.schema_hash, assay.meta_hash):
            with pytest.raises(InputError) as caught:
                compute(_tool(case))
            assert caught.value.code == "tool_name_missing"

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
        with pytest.raises(InputError) as caught:
            decode_json(f'{{"maximum":{literal}}}'.encode())
        assert caught.value.code == "number_overflow"

    def test_max_nesting(self) -> None:
        deepest = EQUALITIES["max_nesting"]
        assert decode_json(b"[" * deepest + b"]" * deepest)
        with pytest.raises(InputError) as caught:
            decode_json(b"[" * (deepest + 1) + b"]" * (deepest + 1))
        assert caught.value.code == "too_deep"


class TestEnvelope:
    def test_golden_content_hash(self) -> None:
        golden = ENVELOPE["golden"]
        assert str(assay.content_hash(golden["event"])) == golden["content_hash"]
        assert golden["event"]["assaycontenthash"] == golden["content_hash"]

    def test_golden_line(self) -> None:
        golden = ENVELOPE["golden"]
        line = canonicalize(golden["event"]) + b"\n"
        assert line == golden["line"].encode()
        assert sha256(line).hexdigest() == golden["events_ndjson_sha256"]

    def test_golden_run_root(self) -> None:
        golden = ENVELOPE["golden"]
        assert str(sha256_of(f"{assay.content_hash(golden['event'])}\n".encode())) == golden["run_root"]
        assert golden["manifest"]["run_root"] == golden["manifest"]["bundle_id"] == golden["run_root"]

    def test_golden_manifest(self) -> None:
        golden = ENVELOPE["golden"]
        assert jcs_digest(golden["manifest"]).hex == golden["manifest_json_sha256"]

    def test_empty_run_root(self) -> None:
        assert str(sha256_of(b"")) == ENVELOPE["empty_run_root"]

    @pytest.mark.parametrize("name", BUNDLES)
    def test_bundle_content_hashes(self, name: str) -> None:
        for entry in BUNDLES[name]["events"]:
            assert str(assay.content_hash(entry["event"])) == entry["content_hash"]
            assert entry["event"]["assaycontenthash"] == entry["content_hash"]

    @pytest.mark.parametrize("name", BUNDLES)
    def test_bundle_manifest(self, name: str) -> None:
        events = [entry["event"] for entry in BUNDLES[name]["events"]]
        manifest = BUNDLES[name]["manifest"]
        root = sha256_of("".join(f"{assay.content_hash(event)}\n" for event in events).encode())
        lines = b"".join(canonicalize(event) + b"\n" for event in events)
        file = manifest["files"]["events.ndjson"]
        assert str(root) == manifest["run_root"] == manifest["bundle_id"]
        assert (str(sha256_of(lines)), len(lines)) == (file["sha256"], file["bytes"])

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
