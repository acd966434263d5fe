"""Events as they stand in Kafka records."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from assay_stream.errors import ConfigurationError, InputError
from assay_stream.model.cloudevents import read_event, read_whole_call
from assay_stream.model.observation import CallEvent, CallFacts, SnapshotEvent
from assay_stream.model.record import Origin, Record, Role
from assay_stream.observe import Observation, Vantage, call_event, snapshot_event
from assay_stream.observe.observation import RawMessage
from tests.support.errors import raises_code
from tests.support.events import handshake_call_data
from tests.support.mcp_dialogue import THE_VANTAGE

AT = datetime(2026, 11, 21, 2, 6, 7, 386_123, tzinfo=UTC)
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def as_record(observation: Observation) -> Record:
    return Record(
        role=observation.role,
        origin=Origin(topic="t", partition=0, offset=0),
        key=observation.key,
        value=observation.value,
        headers=observation.headers,
        timestamp_ms=observation.timestamp_ms,
    )


def a_snapshot(tools: Any, **options: Any) -> Observation:
    return snapshot_event(
        THE_VANTAGE, event_id="e", snapshot_id="s", observed_at=AT, completeness="complete", tools=tools, **options
    )


def a_call(**options: Any) -> Observation:
    return call_event(
        THE_VANTAGE,
        event_id="e",
        observed_at=AT,
        tool_name=options.pop("tool_name", "echo"),
        tool_call_id="c",
        decision="allow",
        reason_code="forwarded",
        **options,
    )


def test_a_snapshot_is_a_cloudevent_that_the_worker_accepts() -> None:
    """The publisher and the worker agree on the format."""
    observation = a_snapshot([{"name": "echo", "inputSchema": {}}], protocol_version="2025-11-25")
    event = read_event(as_record(observation))
    assert isinstance(event, SnapshotEvent)
    assert json.loads(observation.value) == {
        "specversion": "1.0",
        "type": "mcp.tools.list.observed",
        "source": "urn:assay-stream:observer:the-observer",
        "id": "e",
        "time": "2026-11-21T02:06:07.386123Z",
        "datacontenttype": "application/json",
        "data": {
            "server_id": "the-server",
            "observer_id": "the-observer",
            "snapshot_id": "s",
            "server_scoped": True,
            "completeness": "complete",
            "protocol_version": "2025-11-25",
            "tools": [{"name": "echo", "inputSchema": {}}],
        },
    }
    assert (observation.role, observation.key) == (Role.SNAPSHOTS, b"the-server")
    assert observation.headers == (
        ("content-type", b"application/cloudevents+json"),
        ("assay-observer-id", b"the-observer"),
    )
    assert observation.timestamp_ms == 1_795_226_767_386


def test_a_call_is_a_cloudevent_that_the_worker_accepts() -> None:
    """Absent fields are absent, and the trace context stands in event and header."""
    observation = a_call(ok=False, error={"code": "tool_error"}, args_hash=None, traceparent=TRACE)
    event = read_event(as_record(observation))
    assert isinstance(event, CallEvent)
    assert event.data["ok"] is False
    assert "args_hash" not in json.loads(observation.value)["data"]
    assert json.loads(observation.value)["traceparent"] == TRACE
    assert observation.headers[2] == ("traceparent", TRACE.encode())
    assert observation.role is Role.CALLS


def test_an_integer_beyond_64_bits_survives() -> None:
    """Tools are embedded exactly as received."""
    observation = a_snapshot([{"name": "é", "inputSchema": {"maximum": 2**70}}])
    assert b'"maximum":1180591620717411303424' in observation.value
    assert "é".encode() in observation.value


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b'{"result":{"tools":[],"tools":[]}}', "duplicate_key"),
        (b'{"result":{"tools":[NaN]}}', "non_finite_number"),
        (b'{"result":{"tools":[1e400]}}', "number_overflow"),
        (b'{"result":{"tools":["\\ud800"]}}', "lone_surrogate"),
        (b'{"result":{"tools":["\xff"]}}', "not_utf8"),
        (b'{"a":' * 200 + b"1" + b"}" * 200 + b"\r\n", "too_deep"),
    ],
)
def test_an_unsound_message_makes_an_event_that_is_refused_for_the_same_reason(raw: bytes, code: str) -> None:
    """So the registry hears of the list and can mark the server."""
    observation = a_snapshot(RawMessage(raw))
    assert observation.key == b"the-server"
    with raises_code(code):
        read_event(as_record(observation))


def test_a_name_with_half_a_surrogate_pair_is_published_for_the_join_to_refuse() -> None:
    with pytest.raises(InputError, match="lone_surrogate"):
        read_event(as_record(a_call(tool_name="\ud800")))


def test_a_call_of_the_handshake_profile_can_be_published() -> None:
    """The publishing side has a place for everything that the profile asks for."""
    given = handshake_call_data()
    known = set(CallFacts.__annotations__)
    observation = call_event(
        THE_VANTAGE,
        event_id="e",
        observed_at=AT,
        tool_name="read_file",
        tool_call_id=given["tool_call_id"],
        decision="allow",
        reason_code="forwarded",
        **{name: value for name, value in given.items() if name in known},
    )
    event = read_whole_call(as_record(observation), call_profile="handshake")
    assert event.data["args_ref"] == given["args_ref"]


def test_the_source_is_a_urn_with_the_observer_percent_encoded() -> None:
    vantage = Vantage(server_id="s", observer_id="edge 1/Zürich")
    assert vantage.source == "urn:assay-stream:observer:edge%201%2FZ%C3%BCrich"


@pytest.mark.parametrize("name", ["", "  ", "x" * 1_025, "\ud800"])
def test_a_name_that_no_record_may_carry_is_refused_at_once(name: str) -> None:
    """Otherwise every record would be refused later."""
    with pytest.raises(ConfigurationError, match="bad_identifier"):
        Vantage(server_id=name, observer_id="o")


def test_an_observer_whose_uri_would_be_too_long_is_refused() -> None:
    """Percent encoding can triple a name."""
    with pytest.raises(ConfigurationError, match="shorten"):
        Vantage(server_id="s", observer_id="ü" * 1_000)
