"""The acceptance sentences of P56b over every published case, from the bytes of a list to evidence."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from assay_stream.model.record import Role
from tests.acceptance.test_p56b import CLUSTER, DENIALS, ROOT, VECTORS, claims
from tests.support.events import SERVER, Story, a_snapshot


def listed_as_received(raw: str, *, server_scoped: bool) -> Story:
    """A story that begins with a list whose only tool is this very text, numbers and escapes untouched."""
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


PROOFS = re.compile(
    r"\b(proves|certifies|confirms|attests|vouches) (for|that) (the|a|this) (tool|server|definition)\b"
    r"|\b(tool|server|definition)s? (you can|can be|to be) trust(ed)?\b|\bsafe to (use|call|run)\b",
    re.IGNORECASE,
)


def test_no_proof_of_any_kind_is_claimed() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        plain = " ".join(page.read_text(encoding="utf-8").split())
        for sentence in re.split(r"(?<=[.:;!?])\s", plain):
            assert not PROOFS.search(sentence) or DENIALS.search(sentence), f"{page.name}: {sentence}"


@pytest.mark.parametrize(
    ("text", "is_claim"),
    [
        ("This tool is safe.", True),
        ("The record reads verified.", True),
        ("A trusted tool was called.", True),
        ("A digest never says that a tool is safe.", False),
        ("No digest makes a trusted tool.", False),
        ("The definition changed.", False),
    ],
)
def test_the_search_for_trust_claims_finds_them_and_knows_denials(text: str, is_claim: bool) -> None:
    """The check itself is checked: it would catch a claim, and lets a denial pass."""
    assert bool(claims(text)) is is_claim
