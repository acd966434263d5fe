"""The acceptance sentences of the tool definition binding (P56b), each a test named after its sentence."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from assay_stream.model.record import Role
from assay_stream.schemes import assay_tool as assay
from tests.support.events import SERVER, TOOL, Story, a_snapshot
from tests.support.vectors import vectors

ROOT = Path(__file__).resolve().parents[2]
VECTORS = vectors("assay_tool_definition_p56b")
CASES = {case["id"]: case for case in VECTORS["cases"]}
CLUSTER = {"tool_definition_digest", *VECTORS["cluster"]}
POLICY = {
    "policy_digest": "sha256:policy123",
    "policy_snapshot_digest": "sha256:policy123",
    "policy_snapshot_digest_alg": "sha256",
    "policy_snapshot_canonicalization": "jcs:mcp_policy",
    "policy_snapshot_schema": "assay.mcp.policy.snapshot.v1",
}


def digest_of(tool: Any, **snapshot: Any) -> str | None:
    name = tool.get("name", "read_file") if isinstance(tool, dict) else "read_file"
    (payload,) = Story().lists(tool, **snapshot).calls(name).tell().evidence
    digest: str | None = payload.get("tool_definition_digest")
    return digest


def test_supported_list_to_call_flows_emit_assay_tool_decision_with_the_atomic_cluster() -> None:
    outcome = Story().lists(TOOL).calls().tell()
    (output,) = outcome.of(Role.EVIDENCE)
    event = json.loads(output.value or b"")
    assert event["type"] == "assay.tool.decision"
    digest = CASES["simple"]["unscoped"]["tool_definition_digest"]
    assert {name: event["data"][name] for name in CLUSTER} == {"tool_definition_digest": digest, **VECTORS["cluster"]}


@pytest.mark.parametrize(
    "story",
    [
        Story().calls(),
        Story().calls().lists(TOOL),
        Story().lists(TOOL).calls("another_tool"),
        Story().lists(TOOL).calls(server_id="server-b"),
        Story().lists({**TOOL, "inputSchema": None}).calls(),
        Story().lists(TOOL, {**TOOL, "description": "another"}).calls(),
        Story().lists(TOOL).raw(Role.SNAPSHOTS, b"{").calls(),
    ],
    ids=["no list", "list after", "not listed", "other server", "no object", "ambiguous", "rejected"],
)
def test_paths_without_an_observed_definition_omit_it(story: Story) -> None:
    (payload,) = story.tell().evidence
    assert not CLUSTER & payload.keys()
    assert payload["unbound_reason"]


def test_key_order_does_not_matter() -> None:
    case = CASES["key_order"]
    assert digest_of(json.loads(case["input_raw"])) == digest_of(TOOL) == case["unscoped"]["tool_definition_digest"]


def test_unknown_top_level_fields_are_excluded() -> None:
    extended = {**TOOL, "x-vendor": {"a": 1}, "title": "Reader", "icons": [], "_meta": {"b": 2}}
    assert digest_of(extended) == digest_of(TOOL)


def test_inputschema_and_input_schema_give_one_digest() -> None:
    case = CASES["snake_input_schema"]
    assert digest_of(json.loads(case["input_raw"])) == case["unscoped"]["tool_definition_digest"] == digest_of(TOOL)


def test_white_space_only_description_is_absent() -> None:
    blank = json.loads(CASES["description_whitespace_only"]["input_raw"])
    missing = json.loads(CASES["description_missing"]["input_raw"])
    assert digest_of(blank) == digest_of(missing) == CASES["description_missing"]["unscoped"]["tool_definition_digest"]


def test_server_id_inclusion_follows_the_scoping_rule() -> None:
    """The server's id is part of the digest for a server-scoped observation, and only then."""
    case = CASES["simple_scoped"]
    assert digest_of(TOOL, server_scoped=True) == case["scoped"]["tool_definition_digest"]
    assert digest_of(TOOL, server_scoped=False) == case["unscoped"]["tool_definition_digest"]


def test_x_assay_sig_does_not_matter() -> None:
    case = CASES["x_assay_sig"]
    assert digest_of(json.loads(case["input_raw"])) == case["unscoped"]["tool_definition_digest"]


def test_signed_and_unsigned_equal_definitions_share_a_digest() -> None:
    signed = {**TOOL, "x-assay-sig": {"signature": "opaque"}}
    with_sig, without = (Story().lists(tool).calls().tell().evidence[0] for tool in (signed, TOOL))
    assert with_sig["tool_definition_digest"] == without["tool_definition_digest"]
    assert with_sig["tool_identity"] == without["tool_identity"]


def test_provider_metadata_vendor_fields_and_bodies_never_enter_evidence() -> None:
    marks = ["MARK_" + name for name in ("DESCRIPTION", "SCHEMA", "META", "ARGS", "RESULT", "MESSAGE", "VENDOR")]
    tool = {
        **TOOL,
        "description": marks[0],
        "inputSchema": {"type": "object", "title": marks[1]},
        "_meta": {"provider": marks[2]},
    }
    story = (
        Story()
        .lists(tool)
        .calls(
            args={"text": marks[3]},
            result={"text": marks[4]},
            error={"code": "tool_error", "message": marks[5]},
            vendor={"x": marks[6]},
        )
    )
    written = story.tell().all_bytes(Role.EVIDENCE, Role.FINDINGS, Role.ALERTS)
    assert not [mark for mark in marks if mark.encode() in written]


def test_half_clusters_are_neither_emitted_nor_accepted() -> None:
    definition = {"tool_definition_digest": "sha256:tooldef123", **assay.CLUSTER_CONSTANTS}
    for whole, code in ((definition, "half_definition_cluster"), (POLICY, "half_policy_cluster")):
        for missing in whole:
            part = {name: value for name, value in whole.items() if name != missing}
            outcome = Story().lists(TOOL).calls(**part).tell()
            assert outcome.refusals == [code], missing
            assert not outcome.evidence
    (payload,) = Story().lists(TOOL).calls(**definition, **POLICY).tell().evidence
    assert payload.keys() >= CLUSTER | POLICY.keys()
    assert payload["tool_definition_digest"] == CASES["simple"]["unscoped"]["tool_definition_digest"]


CLAIMS = re.compile(
    r"\b(is|are|as|be|reads?) (safe|trusted|trustworthy|verified|secure|harmless|benign|legitimate)\b"
    r"|\b(safe|trusted|verified|trustworthy) (tool|server|definition|call|record)s?\b"
    r"|\bguarantees? (safety|security|trust)\b"
    r"|\b(proves|certifies|confirms|attests|vouches) (for|that) (the|a|this) (tool|server|definition)\b"
    r"|\b(tool|server|definition)s? (you can|can be|to be) trust(ed)?\b|\bsafe to (use|call|run)\b",
    re.IGNORECASE,
)
DENIALS = re.compile(r"\b(not|never|no|nor|nothing|neither|none|without|cannot|n't|does not)\b", re.IGNORECASE)


def claims(text: str) -> list[str]:
    sentences = re.split(r"(?<=[.:!?])\s+|\n\n|\n[*|#-]", text)
    return [s for s in sentences if CLAIMS.search(" ".join(s.split())) and not DENIALS.search(s)]


def test_a_missing_digest_never_reads_as_safe_or_verified() -> None:
    """An unbound record says why it is unbound; no word of approval stands in it."""
    outcome = Story().calls().lists(TOOL).calls("missing").tell()
    words = outcome.all_bytes(Role.EVIDENCE).lower()
    assert all(payload["unbound_reason"] for payload in outcome.evidence)
    assert not re.search(rb"safe|trust|verified|valid|approved|clean", words)


def test_the_docs_tell_the_neighbouring_notions_apart() -> None:
    page = (ROOT / "docs/digests-and-signatures.md").read_text()
    headings = [line for line in page.splitlines() if line.startswith("#")]
    for notion in ("ToolIdentity", "tool_definition_digest", "x-assay-sig", "DSSE", "ransparency log"):
        assert any(notion in heading for heading in headings), notion
    assert "does not mean" in page


def test_no_trust_claim_of_any_kind_is_made() -> None:
    outcome = Story().lists(TOOL).calls().lists({**TOOL, "description": "x"}, {"name": "new"}).calls("missing").tell()
    written = outcome.all_bytes(Role.EVIDENCE, Role.FINDINGS, Role.ALERTS).decode()
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "schemas").glob("*.json")]
    helps = [
        subprocess.run(
            [sys.executable, "-m", "assay_stream", *command, "--help"], capture_output=True, text=True, check=True
        ).stdout
        for command in ([], ["worker"], ["tap"], ["publish"], ["replay"], ["fingerprint"], ["topics"])
    ]
    for text in (written, *(page.read_text() for page in pages), *helps):
        assert claims(text) == []


def listed_as_received(raw: str, *, server_scoped: bool) -> Story:
    value = a_snapshot("THE TOOL", server_scoped=server_scoped).replace(b'"THE TOOL"', raw.encode(), 1)
    return Story().raw(Role.SNAPSHOTS, value)


@pytest.mark.parametrize("case", [case for case in VECTORS["cases"] if "unscoped" in case], ids=lambda c: c["id"])
def test_digests_are_deterministic_and_those_of_every_published_case(case: dict[str, Any]) -> None:
    name = json.loads(case["input_raw"])["name"]
    scopes = [(False, case["unscoped"])]
    if case["server_id"] == SERVER:
        scopes.append((True, case["scoped"]))
    for server_scoped, expected in scopes:
        story = listed_as_received(case["input_raw"], server_scoped=server_scoped).calls(name)
        (payload,) = story.tell().evidence
        assert payload["tool_definition_digest"] == expected["tool_definition_digest"]
        identity = case.get("tool_identity")
        if identity is not None:
            assert payload["tool_identity"] == {**identity, "server_id": SERVER}


@pytest.mark.parametrize("case", [case for case in VECTORS["cases"] if "unscoped" not in case], ids=lambda c: c["id"])
def test_paths_of_every_published_case_without_a_binding_omit_it(case: dict[str, Any]) -> None:
    (payload,) = listed_as_received(case["input_raw"], server_scoped=False).calls("t").tell().evidence
    assert not CLUSTER & payload.keys()
    expected = {
        "schema_null": "definition_not_digestible",
        "name_empty": "tool_not_listed",
        "name_missing": "tool_not_listed",
        "lone_surrogate": "snapshot_rejected",
    }
    assert payload["unbound_reason"] == expected[case["id"]]
