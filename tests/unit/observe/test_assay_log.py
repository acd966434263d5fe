"""Assay's decision log as call observations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay_stream.canonical.redaction import redacted_digest
from assay_stream.errors import InputError
from assay_stream.model.cloudevents import read_event
from assay_stream.observe import from_assay_log
from tests.unit.observe.test_events import as_record

VECTORS = Path(__file__).parents[2] / "data" / "vectors"
VECTOR = json.loads((VECTORS / "assay_tool_decision_payload.json").read_bytes())
TIME = "2026-11-21T02:06:07Z"
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
BARE = {"tool": "read_file", "decision": "deny", "reason_code": "P_DENY", "tool_call_id": "tc_1", "ts": TIME}


def read(*lines: object, errors: list[InputError] | None = None) -> list[dict[str, Any]]:
    """The events of some log lines."""
    raw = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    on_error = None if errors is None else errors.append
    found = list(from_assay_log(raw, server_id="s", observer_id="o", on_error=on_error))
    for observation in found:
        read_event(as_record(observation))
    return [json.loads(observation.value) for observation in found]


def enveloped(**changes: Any) -> dict[str, Any]:
    """The published payload in an envelope."""
    return {
        "specversion": "1.0",
        "type": "assay.tool.decision",
        "source": "urn:assay:test",
        "id": "run_1:0",
        "time": TIME,
        "data": VECTOR["payload"],
    } | changes


def test_the_published_payload_becomes_a_call() -> None:
    """All stable fields but the definition cluster: a digest comes from an observed list or not at all."""
    [event] = read(enveloped())
    data = event["data"]
    assert data["tool_name"] == "read_file"
    assert (data["decision"], data["reason_code"]) == ("allow", "P_POLICY_ALLOW")
    assert data["policy_snapshot_canonicalization"] == "jcs:mcp_policy"
    assert (data["delegated_from"], data["delegation_depth"]) == ("agent:planner", 1)
    assert not [name for name in data if name.startswith("tool_definition")]
    assert data["tool_call_id"] == event["id"], "a bare payload names no call"


def test_a_bare_payload_with_its_own_time_and_call_id() -> None:
    """As runtime logs have it; what could hold secrets is hashed and dropped."""
    [event] = read(
        BARE
        | {
            "args": {"path": "/etc"},
            "ok": False,
            "error": {"code": "E1", "message": "secret"},
            "traceparent": TRACE,
            "unknown": 1,
        }
    )
    data = event["data"]
    assert event["time"] == "2026-11-21T02:06:07.000000Z"
    assert data["tool_call_id"] == "tc_1"
    assert data["args_hash"] == str(redacted_digest({"path": "/etc"}))
    assert data["error"] == {"code": "E1"}
    assert data["trace_id"] == TRACE[3:35]
    assert "args" not in data
    assert "unknown" not in data


@pytest.mark.parametrize("decision", ["allow", "deny", "requires_approval", "error"])
def test_all_decisions_of_contract_and_runtime_are_accepted(decision: str) -> None:
    """They differ in one."""
    assert read(BARE | {"decision": decision})[0]["data"]["decision"] == decision


def test_an_envelope_read_twice_is_one_observation() -> None:
    """Its id is a function of the envelope's source and id; bare lines differ by their place."""
    first, other, again = (
        enveloped(data=BARE, id="a"),
        enveloped(data=BARE, id="b"),
        enveloped(data=BARE, id="a", subject="x"),
    )
    ids = [event["id"] for event in read(first, other, again, BARE, BARE)]
    assert ids[0] == ids[2]
    assert len(set(ids)) == 4
    assert ids == [event["id"] for event in read(first, other, again, BARE, BARE)]


def test_other_events_of_a_bundle_have_nothing_to_say() -> None:
    """They are no decisions."""
    assert read(enveloped(type="assay.profile.started")) == []


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"nonsense", "not_json"),
        (b'{"tool":"a","tool":"b"}', "duplicate_key"),
        (b"[]", "not_an_event"),
        (enveloped(data=3), "wrong_type at $.data"),
        ({name: BARE[name] for name in BARE if name != "tool"}, "missing_field at $.tool"),
        ({name: BARE[name] for name in BARE if name != "ts"}, "missing_field at $.time"),
        (BARE | {"ts": "now"}, "bad_time at $.ts"),
        (BARE | {"decision": "maybe"}, "unknown_value at $.data.decision"),
        (BARE | {"tool_call_id": 3}, "wrong_type at $.data.tool_call_id"),
        (BARE | {"policy_snapshot_digest": "sha256:x"}, ""),
        (BARE | {"tool_definition_digest": "sha256:" + "0" * 64}, ""),
    ],
)
def test_a_bad_line_is_named_and_the_rest_is_read(line: object, error: str) -> None:
    """Half clusters are bad lines too."""
    errors: list[InputError] = []
    assert len(read(BARE, line, BARE, errors=errors)) == 2
    assert len(errors) == 1
    assert str(errors[0]).startswith(error)
    assert "line 2" in str(errors[0])
