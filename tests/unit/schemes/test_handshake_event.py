"""Tool call events beyond the vectors: every field, both profiles, and calls of the stream."""

import json
from pathlib import Path
from typing import Any

import pytest

from assay_stream.errors import InputError
from assay_stream.schemes.handshake_event import (
    PROFILES,
    PUBLISHED,
    RECORDED,
    EventProfile,
    check_observed_call,
    check_tool_call,
    is_time,
)

VALID: dict[str, Any] = json.loads(
    (Path(__file__).resolve().parents[2] / "data/vectors/handshake_tool_call.json").read_text()
)["valid_event"]
TIMING = VALID["timing"]
CALL_ID = VALID["tool_call_id"]
both = pytest.mark.parametrize("profile", PROFILES.values(), ids=lambda profile: profile.name)


def refusal(change: dict[str, Any], profile: EventProfile = RECORDED) -> tuple[str, str] | None:
    try:
        check_tool_call(VALID | change, profile=profile)
    except InputError as error:
        return error.code, error.path
    return None


@both
@pytest.mark.parametrize(
    ("change", "code", "path"),
    [
        ({"type": "tool_result"}, "unknown_value", "$.type"),
        ({"trace_id": "trace"}, "bad_format", "$.trace_id"),
        ({"trace_id": "00000000-0000-0000-0000-000000000000"}, "bad_format", "$.trace_id"),
        ({"trace_id": CALL_ID.replace("-", "")}, "bad_format", "$.trace_id"),
        ({"trace_id": f" {CALL_ID}"}, "bad_format", "$.trace_id"),
        ({"trace_id": None}, "wrong_type", "$.trace_id"),
        ({"tool_call_id": ""}, "empty_value", "$.tool_call_id"),
        ({"tool_id": "a..b"}, "bad_format", "$.tool_id"),
        ({"tool_id": "a.b\n"}, "bad_format", "$.tool_id"),
        ({"tool_id": "a.b-c"}, "bad_format", "$.tool_id"),
        ({"tool_id": "a." + "b" * 255}, "too_long", "$.tool_id"),
        ({"tool_version": "1.0"}, "bad_format", "$.tool_version"),
        ({"tool_version": "01.0.0"}, "bad_format", "$.tool_version"),
        ({"tool_version": 1}, "wrong_type", "$.tool_version"),
        ({"side_effect": "read"}, "unknown_value", "$.side_effect"),
        ({"side_effect": ["READ"]}, "unknown_value", "$.side_effect"),
        ({"actor": "agent"}, "wrong_type", "$.actor"),
        ({"actor": {}}, "missing_field", "$.actor.kind"),
        ({"actor": {"kind": "agent", "agent_id": 7}}, "wrong_type", "$.actor.agent_id"),
        ({"ok": 1}, "wrong_type", "$.ok"),
        ({"ok": None}, "wrong_type", "$.ok"),
        ({"args_hash": "0" * 63}, "bad_format", "$.args_hash"),
        ({"result_hash": "g" * 64}, "bad_format", "$.result_hash"),
        ({"error": {"code": "E"}}, "missing_field", "$.error.kind"),
        ({"error": {"code": "E", "kind": "tool", "retryable": "yes"}}, "wrong_type", "$.error.retryable"),
        ({"timing": {"started_at": TIMING["started_at"]}}, "missing_field", "$.timing.ended_at"),
        ({"timing": TIMING | {"ended_at": "2026-02-30T00:00:00Z"}}, "bad_time", "$.timing.ended_at"),
        ({"timing": TIMING | {"duration_ms": True}}, "wrong_type", "$.timing.duration_ms"),
        ({"timing": TIMING | {"duration_ms": None}}, "wrong_type", "$.timing.duration_ms"),
        ({"resources_touched": {"files": "a"}}, "wrong_type", "$.resources_touched.files"),
        ({"capability_ids": ["a", 7]}, "wrong_type", "$.capability_ids[1]"),
        ({"args": {}}, "inline_payload", "$.args"),
        ({"result": None}, "inline_payload", "$.result"),
    ],
)
def test_what_both_refuse(profile: EventProfile, change: dict[str, Any], code: str, path: str) -> None:
    assert refusal(change, profile) == (code, path)


@pytest.mark.parametrize(
    ("change", "code", "path"),
    [
        ({"tool_version": "1.0.0-rc.1"}, "bad_format", "$.tool_version"),
        ({"tool_version": "1.0.0+build"}, "bad_format", "$.tool_version"),
        ({"idempotency_key": "a b"}, "bad_format", "$.idempotency_key"),
        ({"actor": {"kind": "agent", "model_id": "gpt-4.1"}}, "bad_format", "$.actor.model_id"),
        ({"actor": {"kind": "agent", "name": "ann"}}, "unknown_field", "$.actor"),
        ({"timing": TIMING | {"clock": "utc"}}, "unknown_field", "$.timing"),
        ({"error": {"code": "no such file", "kind": "tool"}}, "bad_format", "$.error.code"),
        ({"args_ref": "file:///etc/passwd"}, "bad_format", "$.args_ref"),
        ({"args_ref": "artifact:1"}, "bad_format", "$.args_ref"),
        ({"capability_ids": ["a b"]}, "bad_format", "$.capability_ids[0]"),
        ({"event_id": "e"}, "unknown_field", "$"),
    ],
)
def test_what_only_the_recorder_refuses(change: dict[str, Any], code: str, path: str) -> None:
    """The recorder closes its objects and narrows its alphabets; the published text does neither."""
    assert refusal(change) == (code, path)
    assert refusal(change, PUBLISHED) is None


def test_an_inline_payload_is_told_what_to_do() -> None:
    with pytest.raises(InputError, match=r"redact it, hash it \(args_hash\), refer to it \(args_ref\)"):
        check_tool_call(VALID | {"args": {"path": "a.txt"}})


OBSERVED = {name: value for name, value in VALID.items() if name != "type"} | {
    "server_id": "s", "observer_id": "o", "tool_name": "read_file", "decision": "allow", "reason_code": "ok",
}  # fmt: skip


def test_a_call_of_the_stream_is_the_event_it_stands_for() -> None:
    """Fields of ours beside the event's do no harm, and null counts as absent."""
    check_observed_call(OBSERVED | {"error": None, "result_hash": None, "delegation_depth": 1})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-01T00:00:00Z", True),
        ("2024-02-29T23:59:59.5-05:00", True),
        ("2026-02-29T00:00:00Z", False),
        ("2026-01-01T00:00:00", False),
        ("2026-01-01 00:00:00Z", False),
        ("2026-01-01T00:00:00Z\n", False),
        ("20260101T000000Z", False),
        ("2026-01-01T24:00:00Z", False),
    ],
)
def test_times_are_rfc_3339(text: str, expected: bool) -> None:
    assert is_time(text) is expected
