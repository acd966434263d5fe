"""HTC-1.0 envelopes: what is valid, and the verdict on what is not."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from assay_stream.errors import InputError
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.schemes.handshake_contract import SCHEMA, check_envelope
from assay_stream.schemes.handshake_event import ACTOR_KINDS, TOOL_ID

ID = "11111111-1111-4111-8111-111111111111"
TIMING = {"started_at": "2026-01-01T00:00:00Z", "ended_at": "2026-01-01T00:00:01Z", "duration_ms": 1000}
REQUEST: dict[str, Any] = {
    "schema_version": "htc-1.0",
    "tool_call_id": ID,
    "trace_id": ID,
    "actor": {"kind": "agent", "agent_id": "a"},
    "tool_id": "mcp.fs.read_file",
    "tool_version": "1.0.0",
    "args": {"path": "a.txt"},
    "dry_run": False,
}
RESPONSE: dict[str, Any] = {
    "schema_version": "htc-1.0",
    "tool_call_id": ID,
    "trace_id": ID,
    "ok": True,
    "result": {"text": "hello"},
    "error": None,
    "timing": TIMING,
}
FAILURE = RESPONSE | {"ok": False, "error": {"code": "E-7", "kind": "timeout", "retryable": True}}


def problem(envelope: Any) -> tuple[str, str] | None:
    try:
        check_envelope(envelope if isinstance(envelope, bytes) else json.dumps(envelope).encode())
    except InputError as error:
        return error.code, error.path or "$"
    return None


@pytest.mark.parametrize(
    "envelope",
    [
        REQUEST,
        REQUEST | {"session_id": "s", "args_ref": "artifact://x", "idempotency_key": None, "dry_run": True},
        RESPONSE,
        RESPONSE | {"result_ref": None, "resources": {"files": ["a"], "urls": ["https://example.org/"]}},
        FAILURE,
        FAILURE | {"error": FAILURE["error"] | {"message": "late", "details": {"any": [1]}, "attempt": 2}},
        {name: value for name, value in RESPONSE.items() if name != "result"},
    ],
)
def test_what_is_valid(envelope: dict[str, Any]) -> None:
    assert problem(envelope) is None
    check_envelope(json.dumps(envelope).encode())


@pytest.mark.parametrize(
    ("envelope", "reason", "path"),
    [
        (b"", "not_json", "$"),
        (b"\xff", "not_utf8", "$"),
        (b'{"a":1,"a":2}', "duplicate_key", "$.a"),
        ([], "not_an_envelope", "$"),
        ({}, "missing_field", "$.actor"),
        (REQUEST | {"schema_version": "htc-2.0"}, "unknown_value", "$.schema_version"),
        (REQUEST | {"trace_id": "t"}, "bad_format", "$.trace_id"),
        (REQUEST | {"tool_id": "read"}, "bad_format", "$.tool_id"),
        (REQUEST | {"tool_id": "a.b\n"}, "bad_format", "$.tool_id"),
        (REQUEST | {"tool_version": "1.0"}, "bad_format", "$.tool_version"),
        (REQUEST | {"args": []}, "wrong_type", "$.args"),
        (REQUEST | {"args": None}, "wrong_type", "$.args"),
        (REQUEST | {"dry_run": 0}, "wrong_type", "$.dry_run"),
        (REQUEST | {"actor": {"kind": "robot"}}, "unknown_value", "$.actor.kind"),
        (REQUEST | {"actor": {"kind": "agent", "x": 1}}, "unknown_field", "$.actor"),
        (REQUEST | {"session_id": ""}, "empty_value", "$.session_id"),
        (REQUEST | {"args_ref": "file:///x"}, "bad_format", "$.args_ref"),
        (REQUEST | {"extra": 1}, "unknown_field", "$"),
        (REQUEST | {"result": 1}, "unknown_field", "$"),
        (RESPONSE | {"error": {"code": "E", "kind": "tool"}}, "wrong_type", "$.error"),
        (FAILURE | {"error": None}, "wrong_type", "$.error"),
        (FAILURE | {"error": {"code": "E"}}, "missing_field", "$.error.kind"),
        (FAILURE | {"error": {"code": "E", "kind": "bad"}}, "unknown_value", "$.error.kind"),
        (FAILURE | {"error": {"code": "E" * 65, "kind": "tool"}}, "too_long", "$.error.code"),
        (RESPONSE | {"timing": TIMING | {"duration_ms": -1}}, "out_of_range", "$.timing.duration_ms"),
        (RESPONSE | {"timing": TIMING | {"started_at": "2026-02-30T00:00:00Z"}}, "bad_format", "$.timing.started_at"),
        (RESPONSE | {"resources": {"urls": ["no url"]}}, "bad_format", "$.resources.urls[0]"),
        (RESPONSE | {"ok": "yes"}, "wrong_type", "$.ok"),
    ],
)
def test_what_is_not_valid_has_a_reason_and_a_place(envelope: Any, reason: str, path: str) -> None:
    assert problem(envelope) == (reason, path)


@pytest.mark.parametrize("name", REQUEST)
def test_every_required_field_of_a_request_is_missed(name: str) -> None:
    assert problem({key: value for key, value in REQUEST.items() if key != name}) == ("missing_field", f"$.{name}")


def test_an_error_quotes_nothing() -> None:
    with pytest.raises(InputError) as caught:
        check_envelope(json.dumps(REQUEST | {"hunter2": "hunter2", "tool_id": "hunter2"}).encode())
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(("envelope", "name"), [(REQUEST, "args"), (RESPONSE, "result")])
def test_payloads_are_capped_at_32_kib(envelope: dict[str, Any], name: str) -> None:
    """32,768 bytes of canonical JSON are taken, however they are spelled; one more goes by reference."""
    fits = {"a": "x" * (32_768 - len('{"a":""}'))}
    assert problem(envelope | {name: fits}) is None
    spaced = json.dumps(envelope | {name: fits}, indent=8).encode()
    assert problem(spaced) is None
    assert problem(envelope | {name: {"a": fits["a"] + "x"}}) == ("payload_too_large", f"$.{name}")


def test_the_whole_envelope_is_capped_before_it_is_decoded() -> None:
    limit = DEFAULT_LIMITS.htc_envelope_bytes_max
    raw = json.dumps(REQUEST).encode()
    assert problem(raw + b" " * (limit - len(raw))) is None
    assert problem(raw + b" " * (limit - len(raw) + 1)) == ("too_large", "$")


def values_of(part: Any, keyword: str) -> Iterator[Any]:
    if isinstance(part, dict):
        for key, value in part.items():
            if key == keyword and not isinstance(value, dict):
                yield value
            yield from values_of(value, keyword)
    elif isinstance(part, list):
        for item in part:
            yield from values_of(item, keyword)


def test_every_pattern_spans_the_whole_text() -> None:
    """The check matches whole texts; the patterns say so to every other reader."""
    patterns = set(values_of(SCHEMA, "pattern"))
    assert patterns
    for pattern in patterns:
        assert pattern.startswith("^")
        assert pattern.endswith("$")


def test_its_words_are_those_of_the_events() -> None:
    parts = SCHEMA["$defs"]
    assert parts["actor"]["properties"]["kind"]["enum"] == list(ACTOR_KINDS)
    assert parts["request"]["properties"]["tool_id"]["pattern"] == f"^{TOOL_ID}$"
