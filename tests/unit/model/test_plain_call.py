"""Plain calls: which calls take the short way, and which are left to the model."""

from __future__ import annotations

import json
from typing import Any

import pytest

from assay_stream.limits.core import DEFAULT_LIMITS, Limits
from assay_stream.model import envelope, plain_call
from assay_stream.model.envelope import DecisionFields
from assay_stream.model.evidence import DecisionPayload
from assay_stream.model.observation import CallData, CallModel
from assay_stream.model.plain_call import read_plain

DATA: dict[str, Any] = {
    "server_id": "server",
    "observer_id": "alice",
    "tool_name": "tool",
    "tool_call_id": "call-1",
    "decision": "allow",
    "reason_code": "P_POLICY_ALLOW",
    "snapshot_id": "snapshot-1",
    "timing": {"started_at": "2026-03-01T00:00:10.500Z", "duration_ms": 12.5},
}
EVENT = {
    "specversion": "1.0",
    "type": "mcp.tools.call.observed",
    "source": "urn:proxy",
    "id": "1",
    "time": "2026-03-01T00:00:10.000001Z",
}


def text(event: dict[str, Any] | None = None, **data: Any) -> bytes:
    """A call as compact JSON."""
    content = EVENT | (event or {}) | {"data": DATA | data}
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"error": {"code": "E", "message": "is dropped"}},
        {"actor": {"kind": "agent", "agent_id": "агент"}},
        {"ok": True, "delegation_depth": 2**53},
        {"x-unknown": {"is": ["passed", "over"]}},
    ],
    ids=str,
)
def test_an_ordinary_call_is_plain(data: dict[str, Any]) -> None:
    """With all that proxies send along."""
    call = read_plain(text(**data), DEFAULT_LIMITS)
    assert call is not None
    assert (call.server_id, call.tool_name, call.snapshot_id) == ("server", "tool", "snapshot-1")
    assert call.time_us == 1_772_323_210_000_001


def test_white_space_between_members_changes_nothing() -> None:
    """What is written with blanks is read the short way too."""
    assert read_plain(json.dumps(EVENT | {"data": DATA}).encode(), DEFAULT_LIMITS) is not None


@pytest.mark.parametrize(
    "data",
    [
        {"args": {}},
        {"result": None},
        {"ok": None},
        {"profile": "handshake"},
        {"tool_definition_digest": "sha256:x"},
        {"tool_name": " "},
        {"tool_name": "\u3000"},
        {"reason_code": 'quoted "text"'},
        {"policy_snapshot_digest": "sha256:x"},
        {"transport": "a b"},
        {"timing": {"duration_ms": 0.00001}},
        {"timing": {"started_at": "yesterday, twenty chars"}},
        {"decision": "perhaps"},
        {"server_id": "x" * (DEFAULT_LIMITS.identifier_chars_max + 1)},
    ],
    ids=lambda data: json.dumps(data)[:40],
)
def test_what_is_not_plain_is_left_to_the_model(data: dict[str, Any]) -> None:
    """Whether it is sound or not."""
    assert read_plain(text(**data), DEFAULT_LIMITS) is None


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b'{"a":1}',
        text()[:-1],
        text() + b"x",
        b'{"data":' + b"[" * 100_000,
        b'{"id":' + b'{"a":' * 10_000 + b"1" + b"}" * 10_000 + b"}",
        text().replace(b'"ok"', b'"\xff"') + b"\xff",
        text().replace(b'{"specversion"', b'{"id":"1","specversion"'),
        text(event={"time": "2026-02-30T00:00:00Z"}),
    ],
)
def test_what_is_no_sound_event_is_left_to_the_model(raw: bytes) -> None:
    """It says what is wrong."""
    assert read_plain(raw, DEFAULT_LIMITS) is None


@pytest.mark.parametrize(
    "limits", [Limits(record_bytes_max=10), Limits(depth_max=2), Limits(integer_digits_max=5)], ids=str
)
def test_narrower_limits_are_left_to_the_model(limits: Limits) -> None:
    """A bound that a plain call may exceed is checked where it is always checked."""
    assert read_plain(text(), limits) is None


def test_the_fields_that_are_written_stand_in_the_order_of_jcs() -> None:
    """msgspec writes them as they stand, also those of the objects within."""
    for written in (DecisionFields, *envelope._NESTED.values()):
        fields = written.__struct_fields__
        assert list(fields) == sorted(fields, key=lambda name: name.encode("utf-16-be"))


def test_what_calls_and_evidence_declare_is_known_here() -> None:
    """A field that only the model knew would be lost on the short way."""
    assert (
        set(DecisionFields.__struct_fields__)
        == CallData.__annotations__.keys() | DecisionPayload.__annotations__.keys()
    )
    assert set(plain_call.PlainEvent.__struct_fields__) == set(CallModel.model_fields)


@pytest.mark.parametrize("field", ["args", "result", "tool_definition_digest", "binding", "pin", "redaction"])
def test_no_value_makes_these_plain(field: str) -> None:
    """What is hashed, what others say of the definition, and what only evidence says."""
    values: list[Any] = ["x", 1, None, {}]
    for value in values:
        assert read_plain(text(None, **{field: value}), DEFAULT_LIMITS) is None
