"""The table of redaction rules, and that of issuers' tokens."""

from __future__ import annotations

import json
import re
from pathlib import Path

from assay_stream.canonical.redaction import ISSUED, RULES, SENSITIVE_NAMES

VECTORS = Path(__file__).resolve().parents[2] / "data" / "vectors"
PUBLISHED = json.loads((VECTORS / "handshake_tool_call.json").read_text(encoding="utf-8"))["redaction"]


def test_ids_are_the_published_ones() -> None:
    assert sorted(rule.id for rule in RULES) == sorted(PUBLISHED["pattern_ids"])


def test_replacement_has_the_published_form() -> None:
    for rule in RULES:
        wanted = PUBLISHED["replacement"].replace("<category>", rule.category).replace("<pattern id>", rule.id)
        assert rule.replacement() == wanted


def test_what_would_blur_evidence_is_off() -> None:
    """Paths and variables are known, and left."""
    assert {rule.id for rule in RULES if not rule.enabled} == {"path_absolute", "env_var"}


def test_sensitive_names_are_as_they_are_compared() -> None:
    assert all(re.fullmatch("[a-z]+", name) for name in SENSITIVE_NAMES)


def test_hints_are_lowercase() -> None:
    for hints in [rule.hints for rule in RULES] + [issuer.hints for issuer in ISSUED]:
        assert all(hint == hint.lower() for hint in hints)


def test_every_rule_says_why() -> None:
    assert all(rule.reason for rule in RULES)
    assert all(issuer.reason for issuer in ISSUED)
