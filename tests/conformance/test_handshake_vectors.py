"""Handshake: events and envelopes, held against the published vectors."""

import json
from pathlib import Path
from typing import Any

import pytest

from assay_stream.errors import InputError
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.schemes import handshake_contract as contract, handshake_event as handshake
from assay_stream.schemes.handshake_event import check_tool_call

VECTORS = json.loads(
    (Path(__file__).resolve().parents[1] / "data/vectors/handshake_tool_call.json").read_text(encoding="utf-8")
)
INVALID = {case["why"]: case["event"] for case in VECTORS["invalid_events"]}

# What each case names, as a code and the place of it.
REFUSALS = {
    "missing type": ("missing_field", "$.type"),
    "missing tool_call_id": ("missing_field", "$.tool_call_id"),
    "missing tool_id": ("missing_field", "$.tool_id"),
    "missing transport": ("missing_field", "$.transport"),
    "missing idempotency": ("missing_field", "$.idempotency"),
    "missing actor": ("missing_field", "$.actor"),
    "missing timing": ("missing_field", "$.timing"),
    "tool_id='read_file'": ("bad_format", "$.tool_id"),
    "tool_id='MCP.read'": ("bad_format", "$.tool_id"),
    "transport='kafka'": ("unknown_value", "$.transport"),
    "idempotency='MAYBE'": ("unknown_value", "$.idempotency"),
    f"args_hash='sha256:{'0' * 64}'": ("bad_format", "$.args_hash"),
    "actor={'kind': 'robot'}": ("unknown_value", "$.actor.kind"),
    "idempotency_key='has space'": ("bad_format", "$.idempotency_key"),
    "extra_field=1": ("unknown_field", "$"),
}
PUBLISHED_TAKES = {
    "missing type",
    "missing transport",
    "missing idempotency",
    "missing actor",
    "missing timing",
    "idempotency_key='has space'",
    "extra_field=1",
}
"""Cases that only the recorder refuses: the published text requires four fields and closes nothing."""


def refusal(event: dict[str, Any], **options: Any) -> tuple[str, str] | None:
    try:
        check_tool_call(event, **options)
    except InputError as error:
        return error.code, error.path
    return None


@pytest.mark.parametrize("profile", handshake.PROFILES.values(), ids=lambda profile: profile.name)
def test_the_valid_event_is_taken(profile: handshake.EventProfile) -> None:
    assert refusal(VECTORS["valid_event"], profile=profile) is None


def test_every_invalid_event_has_its_refusal() -> None:
    assert INVALID.keys() == REFUSALS.keys()


@pytest.mark.parametrize("why", INVALID)
def test_the_recorder_refuses_every_invalid_event(why: str) -> None:
    assert refusal(INVALID[why]) == REFUSALS[why]


@pytest.mark.parametrize("why", INVALID)
def test_the_published_text_refuses_its_own_part_of_them(why: str) -> None:
    """Under the published requirements the same cases are refused with the same codes, or taken."""
    expected = None if why in PUBLISHED_TAKES else REFUSALS[why]
    assert refusal(INVALID[why], profile=handshake.PUBLISHED) == expected


def test_the_published_text_requires_four_fields() -> None:
    event = {name: VECTORS["valid_event"][name] for name in ("trace_id", "tool_call_id", "tool_id", "tool_version")}
    assert refusal(event, profile=handshake.PUBLISHED) is None
    for name in event:
        less = {key: value for key, value in event.items() if key != name}
        assert refusal(less, profile=handshake.PUBLISHED) == ("missing_field", f"$.{name}")


@pytest.mark.parametrize(
    ("part", "required"), [("request", VECTORS["htc_request_required"]), ("response", VECTORS["htc_response_required"])]
)
def test_the_envelopes_require_what_is_published(part: str, required: list[str]) -> None:
    assert sorted(contract.SCHEMA["$defs"][part]["required"]) == sorted(required)


def test_the_kinds_of_error_and_the_cap_are_the_published_ones() -> None:
    assert contract.SCHEMA["$defs"]["error"]["properties"]["kind"]["enum"] == VECTORS["error_kinds"]
    assert DEFAULT_LIMITS.htc_payload_bytes_max == VECTORS["max_payload_bytes"]
