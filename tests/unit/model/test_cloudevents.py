"""CloudEvents in both content modes, and what is refused."""

from contextlib import suppress
from typing import Any

import orjson
import pytest

from assay_stream.errors import InputError
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.cloudevents import event_time_us, read_event, read_whole_call
from assay_stream.model.observation import SnapshotEvent
from assay_stream.model.record import Headers, Origin, Record, Role
from tests.support.events import handshake_call_data

CALL = {
    "server_id": "server",
    "observer_id": "alice",
    "tool_name": "tool",
    "tool_call_id": "call-1",
    "decision": "allow",
    "reason_code": "ok",
}
SNAPSHOT = {
    "server_id": "server",
    "observer_id": "alice",
    "snapshot_id": "s",
    "server_scoped": True,
    "completeness": "complete",
    "tools": [],
}
PIN = {
    "server_id": "server",
    "tool_name": "tool",
    "scheme": "assay.v1",
    "value": "sha256:" + "0" * 64,
    "author": "ann",
    "reason": "review",
}
TYPES = {
    Role.CALLS: "mcp.tools.call.observed",
    Role.SNAPSHOTS: "mcp.tools.list.observed",
    Role.CONTROL: "assay.control.pin.set",
}
DATA: dict[Role, dict[str, Any]] = {Role.CALLS: CALL, Role.SNAPSHOTS: SNAPSHOT, Role.CONTROL: PIN}


def attributes(role: Role = Role.CALLS, **changes: Any) -> dict[str, Any]:
    given = {
        "specversion": "1.0",
        "type": TYPES[role],
        "source": "urn:proxy",
        "id": "1",
        "time": "2026-03-01T00:00:00Z",
    } | changes
    return {name: value for name, value in given.items() if value is not None}


def a_record(value: bytes | None, role: Role = Role.CALLS, headers: Headers = (), timestamp_ms: int = 0) -> Record:
    place = Origin(topic=role.value, partition=0, offset=0)
    return Record(role=role, origin=place, key=b"server", value=value, headers=headers, timestamp_ms=timestamp_ms)


def structured(role: Role = Role.CALLS, data: dict[str, Any] | None = None, **changes: Any) -> Record:
    return a_record(orjson.dumps(attributes(role, **changes) | {"data": data or DATA[role]}), role)


def binary(role: Role = Role.CALLS, **changes: Any) -> Record:
    headers = tuple((f"ce_{name}", value.encode()) for name, value in attributes(role, **changes).items())
    return a_record(orjson.dumps(DATA[role]), role, (*headers, ("content-type", b"application/json")))


def refusal(record: Record) -> tuple[str, str]:
    with pytest.raises(InputError) as caught:
        read_event(record)
    return caught.value.code, caught.value.path


def code_of(record: Record) -> str:
    return refusal(record)[0]


@pytest.mark.parametrize("name", ["content-type", "traceparent", "ce_specversion", "ce_type", "assay-observer"])
@pytest.mark.parametrize("role", DATA)
def test_a_header_without_a_value_never_raises_anything_else(role: Role, name: str) -> None:
    """Kafka allows null: a record with one must not stop the stage that reads it."""
    for record in (structured(role), binary(role)):
        others = tuple(header for header in record.headers if header[0] != name)
        null: Any = (name, None)
        with suppress(InputError):
            read_event(record._replace(headers=(null, *others)))


def test_a_null_content_type_is_as_good_as_none() -> None:
    null: Any = ("content-type", None)
    assert read_event(structured()._replace(headers=(null,))).id == "1"


@pytest.mark.parametrize(
    ("role", "kind"),
    [
        (Role.CALLS, "mcp.tools.list.observed"),
        (Role.SNAPSHOTS, "mcp.tools.call.observed"),
        (Role.CONTROL, "mcp.tools.call.observed"),
        (Role.CALLS, "assay.tool.decision"),
        (Role.CALLS, "hunter2"),
    ],
)
def test_an_event_belongs_in_its_topic(role: Role, kind: str) -> None:
    with pytest.raises(InputError, match=TYPES[role]):
        read_event(structured(role, type=kind))
    assert refusal(structured(role, type=kind)) == ("unknown_type", "$.type")


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01t00:00:01z", 1_000_000),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T00:00:00.000001999Z", 1),
        ("2100-01-01T00:00:00Z", 4_102_444_800_000_000),
    ],
)
def test_times_are_microseconds_since_the_epoch(text: str, microseconds: int) -> None:
    assert event_time_us(read_event(structured(time=text))) == microseconds


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("2026-02-30T00:00:00Z", "bad_time"),
        ("2026-01-01T25:00:00Z", "bad_time"),
        ("2026-01-01T23:59:60Z", "bad_time"),
        ("٢٠٢٦-01-01T00:00:00Z", "bad_format"),
        ("2026-01-01T00:00:00", "bad_format"),
        ("2026-01-01 00:00:00Z", "bad_format"),
        ("2026-01-01T00:00:00Z\n", "bad_format"),
        ("1969-12-31T23:59:59Z", "time_out_of_range"),
        ("2100-01-01T00:00:01Z", "time_out_of_range"),
        ("0001-01-01T00:00:00+23:59", "time_out_of_range"),
    ],
)
def test_times_that_are_none_are_refused(text: str, code: str) -> None:
    assert code_of(structured(time=text)) == code


def test_an_event_from_the_future_is_refused() -> None:
    """An event time a day after the log's own is a broken clock; a log without times cannot tell."""
    now_ms = 1_772_323_200_000
    record = structured(time="2026-03-02T00:00:00Z")
    assert read_event(record._replace(timestamp_ms=now_ms))
    assert code_of(record._replace(timestamp_ms=now_ms - 1)) == "time_in_future"
    assert read_event(record._replace(timestamp_ms=0))


def with_headers(role: Role = Role.CALLS, *more: tuple[str, bytes]) -> Headers:
    return (*((f"ce_{name}", str(value).encode()) for name, value in attributes(role).items()), *more)


@pytest.mark.parametrize("role", [Role.CALLS, Role.SNAPSHOTS, Role.CONTROL])
@pytest.mark.parametrize(
    "content_type", [b"application/cloudevents+json", b"Application/CloudEvents+JSON; charset=UTF-8"]
)
def test_the_content_type_says_structured_mode(role: Role, content_type: bytes) -> None:
    """A structured event may repeat its attributes in headers (Kafka binding 3.3.3): content-type decides (3)."""
    plain = structured(role)
    headers = with_headers(role, ("content-type", content_type))
    assert read_event(plain._replace(headers=headers)) == read_event(plain)


@pytest.mark.parametrize("name", ["id", "source", "time", "type"])
def test_an_attribute_given_twice_is_refused(name: str) -> None:
    """Two headers of one name are as ambiguous as two equal keys: whoever reads the first sees another event."""
    headers = with_headers(Role.CALLS, (f"ce_{name}", str(attributes()[name]).encode()))
    record = structured()._replace(value=orjson.dumps(CALL), headers=headers)
    assert code_of(record) == "duplicate_key"


@pytest.mark.parametrize(
    ("change", "code", "path"),
    [
        ({"trace_id": None}, "missing_field", "$.data.trace_id"),
        ({"timing": None}, "missing_field", "$.data.timing"),
        ({"timing": {"duration_ms": 1}}, "missing_field", "$.data.timing.started_at"),
        ({"tool_call_id": "call-1"}, "bad_format", "$.data.tool_call_id"),
        ({"tool_id": "read_file"}, "bad_format", "$.data.tool_id"),
        ({"tool_version": "1"}, "bad_format", "$.data.tool_version"),
        ({"transport": "kafka"}, "unknown_value", "$.data.transport"),
        ({"args_hash": "sha256:" + "0" * 64}, "bad_format", "$.data.args_hash"),
        ({"args": {"path": "a"}}, "inline_payload", "$.data.args"),
        ({"result": None}, "inline_payload", "$.data.result"),
        ({"error": {"code": "E"}}, "missing_field", "$.data.error.kind"),
    ],
)
def test_a_call_that_claims_the_handshake_profile_is_held_to_it(change: dict[str, Any], code: str, path: str) -> None:
    """What FR-EVT-007 does not allow is refused with its own codes; the same call without the claim is taken."""
    data = handshake_call_data(**change)
    assert refusal(structured(data=data)) == (code, path)
    assert read_event(structured(data=data | {"profile": "assay"}))


def test_the_operator_may_hold_every_call_to_the_handshake_profile() -> None:
    for claim in ({}, {"profile": "assay"}, {"profile": None}):
        with pytest.raises(InputError, match="missing_field"):
            read_whole_call(structured(data=CALL | claim), call_profile="handshake")
        assert read_event(structured(data=CALL | claim))


@pytest.mark.parametrize(
    ("changes", "code", "path"),
    [
        ({"delegation_depth": -1}, "out_of_range", "$.data.delegation_depth"),
        ({"delegation_depth": 2**53 + 1}, "out_of_range", "$.data.delegation_depth"),
        ({"delegation_depth": 1.0}, "wrong_type", "$.data.delegation_depth"),
        ({"timing": {"duration_ms": -0.1}}, "out_of_range", "$.data.timing.duration_ms"),
        ({"timing": {"duration_ms": "1"}}, "wrong_type", "$.data.timing.duration_ms"),
        ({"timing": {"started_at": "yesterday"}}, "bad_format", "$.data.timing.started_at"),
        ({"actor": {"agent_id": "a"}}, "missing_field", "$.data.actor.kind"),
        ({"actor": {"kind": "robot"}}, "unknown_value", "$.data.actor.kind"),
        ({"side_effect": "read"}, "unknown_value", "$.data.side_effect"),
        ({"idempotency": "MAYBE"}, "unknown_value", "$.data.idempotency"),
        ({"error": {"message": "m"}}, "missing_field", "$.data.error.code"),
        ({"error": "failed"}, "wrong_type", "$.data.error"),
        ({"ok": "yes"}, "wrong_type", "$.data.ok"),
        ({"ok": 1}, "wrong_type", "$.data.ok"),
        ({"args_hash": "h" * 129}, "too_long", "$.data.args_hash"),
        ({"reason_code": ""}, "empty_value", "$.data.reason_code"),
        ({"server_id": "  "}, "bad_format", "$.data.server_id"),
        ({"profile": "strict"}, "unknown_value", "$.data.profile"),
        ({"transport": "my transport"}, "bad_format", "$.data.transport"),
        ({"idempotency_key": ""}, "empty_value", "$.data.idempotency_key"),
        ({"idempotency_key": "k" * 1_025}, "too_long", "$.data.idempotency_key"),
        ({"args_ref": "https://user:secret@host/x"}, "bad_format", "$.data.args_ref"),
        ({"result_ref": "https://host/x?token=secret"}, "bad_format", "$.data.result_ref"),
        ({"args_ref": "r" * 2_049}, "too_long", "$.data.args_ref"),
    ],
)
def test_what_a_call_names_must_be_right(changes: dict[str, Any], code: str, path: str) -> None:
    """References and keys are names: they have no room for users, passwords and queries."""
    assert refusal(structured(data=CALL | changes)) == (code, path)


@pytest.mark.parametrize("changes", [{"delegation_depth": 0}, {"delegation_depth": 2**53}, {"args_hash": "h" * 128}])
def test_bounds_are_inclusive(changes: dict[str, Any]) -> None:
    assert read_event(structured(data=CALL | changes))


def test_null_is_absence_for_what_is_optional() -> None:
    optional = ("trace_id", "snapshot_id", "ok", "error", "timing", "actor", "side_effect", "args_hash")
    assert read_event(structured(data=CALL | dict.fromkeys(optional)))


IDENTIFIERS = {
    Role.SNAPSHOTS: ("server_id", "observer_id", "snapshot_id"),
    Role.CALLS: ("server_id", "observer_id", "tool_name", "tool_call_id", "snapshot_id"),
}


@pytest.mark.parametrize(("role", "name"), [(role, name) for role, names in IDENTIFIERS.items() for name in names])
def test_an_identifier_has_up_to_the_limit_of_characters(role: Role, name: str) -> None:
    longest = DEFAULT_LIMITS.identifier_chars_max
    assert read_event(structured(role, DATA[role] | {name: "\U0001f512" * longest}))
    assert refusal(structured(role, DATA[role] | {name: "n" * longest + "n"})) == ("too_long", f"$.data.{name}")


def test_a_tool_keeps_every_field_as_received() -> None:
    tool = {"name": "t", "x-vendor": [1, 2.5, None, {"a": "\u00e9"}], "big": 2**60}
    event = read_event(structured(Role.SNAPSHOTS, SNAPSHOT | {"tools": [tool]}))
    assert isinstance(event, SnapshotEvent)
    assert event.data.tools == [tool]
