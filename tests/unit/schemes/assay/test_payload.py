"""Payloads and envelopes of tool decisions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay_stream.errors import InputError
from assay_stream.schemes.assay import tool as assay
from assay_stream.schemes.assay.tool import DECISION_TYPE, check_envelope, check_payload

VECTORS = Path(__file__).resolve().parents[3] / "data/vectors"
PAYLOAD: dict[str, Any] = json.loads((VECTORS / "assay_tool_decision_payload.json").read_text())["payload"]
ENVELOPES = json.loads((VECTORS / "assay_evidence_envelope.json").read_text())
GOLDEN: dict[str, Any] = ENVELOPES["golden"]["event"]


def evidence(**changes: Any) -> dict[str, Any]:
    event = GOLDEN | {"type": DECISION_TYPE, "data": PAYLOAD | changes}
    return event | {"assaycontenthash": str(assay.content_hash(event))}


def test_the_published_payload_and_envelopes_are_sound() -> None:
    check_payload(PAYLOAD)
    check_envelope(evidence())
    check_envelope(GOLDEN)


@pytest.mark.parametrize("decision", ["allow", "deny", "requires_approval", "error"])
def test_the_decisions(decision: str) -> None:
    check_payload(PAYLOAD | {"decision": decision})


@pytest.mark.parametrize(
    ("change", "code", "path"),
    [
        ({"decision": "maybe"}, "unknown_value", "$.data.decision"),
        ({"decision": None}, "missing_field", "$.data.decision"),
        ({"tool": None}, "missing_field", "$.data.tool"),
        ({"tool": " "}, "empty_value", "$.data.tool"),
        ({"reason_code": 7}, "wrong_type", "$.data.reason_code"),
        ({"tool_definition_source": None}, "half_definition_cluster", "$.data"),
        ({"tool_definition_source": "tools/call"}, "bad_definition_cluster", "$.data.tool_definition_source"),
        ({"policy_snapshot_digest": None}, "half_policy_cluster", "$.data"),
        ({"policy_digest": "sha256:other"}, "bad_policy_cluster", "$.data"),
    ],
)
def test_what_is_wrong_with_a_payload(change: dict[str, Any], code: str, path: str) -> None:
    with pytest.raises(InputError) as caught:
        check_envelope(evidence(**change))
    assert (caught.value.code, caught.value.path) == (code, path)


def test_an_altered_record_is_found() -> None:
    for change in ({"data": PAYLOAD | {"decision": "deny"}}, {"subject": "other"}, {"type": "other"}):
        with pytest.raises(InputError) as caught:
            check_envelope(evidence() | change)
        assert caught.value.code == "content_hash_mismatch"


def test_a_record_without_a_content_hash_is_checked_as_far_as_it_goes() -> None:
    check_envelope({name: value for name, value in evidence().items() if name != "assaycontenthash"})
    changes: list[dict[str, Any]] = [{"specversion": "0.3"}, {"data": []}]
    for change in changes:
        with pytest.raises(InputError):
            check_envelope({"specversion": "1.0", "type": DECISION_TYPE, "data": PAYLOAD} | change)
