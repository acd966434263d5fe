"""Bad input, field by field: what is required, what is told of it, and what it leaves untouched."""

from __future__ import annotations

import json
from typing import Any

import pytest

from assay_stream.model.record import TOPIC_NAMES, Role
from tests.acceptance.test_bad_input import BOTH, CALLS_ONLY, GOOD, with_attributes, with_data
from tests.support.events import TOOL, Story, an_event, call_data, record_of

REQUIRED = {
    Role.SNAPSHOTS: ("server_id", "observer_id", "snapshot_id", "server_scoped", "completeness", "tools"),
    Role.CALLS: ("server_id", "observer_id", "tool_name", "tool_call_id", "decision", "reason_code"),
}


@pytest.mark.parametrize(("role", "name"), [(role, name) for role in BOTH for name in REQUIRED[role]])
def test_each_required_field_is_required_and_named(role: Role, name: str) -> None:
    """Without it the record is refused as missing_field, and the message says which field to add."""
    (copy,) = Story().raw(role, with_data(role, **{name: ...})).tell().of(Role.REJECTED)
    headers = dict(copy.headers)
    assert headers["error.code"] == b"missing_field"
    assert f"$.data.{name}".encode() in headers["error.message"]


@pytest.mark.parametrize("role", BOTH)
@pytest.mark.parametrize("name", ["specversion", "type", "source", "id", "time"])
def test_each_attribute_of_the_envelope_is_required(role: Role, name: str) -> None:
    """An event without one of them is refused: without its type nobody knows what it is, else it lacks a field."""
    event = json.loads(GOOD[role])
    del event[name]
    outcome = Story().raw(role, json.dumps(event).encode()).tell()
    assert outcome.refusals == ["unknown_type" if name == "type" else "missing_field"]


CONTROL = [
    pytest.param(b"{nope", "not_json", id="not JSON"),
    pytest.param(b'"\xff"', "not_utf8", id="not UTF-8"),
    pytest.param(None, "tombstone", id="a tombstone"),
    pytest.param(GOOD[Role.SNAPSHOTS], "unknown_type", id="a snapshot"),
    pytest.param(
        with_attributes(Role.SNAPSHOTS, type="assay.control.pin.set", data={"server_id": "server-a"}),
        "missing_field",
        id="half a pin",
    ),
]


@pytest.mark.parametrize(("value", "code"), CONTROL)
def test_a_bad_control_record_is_rejected_and_ends_nothing(value: bytes | None, code: str) -> None:
    """It is kept whole with its code; only a bad *list* puts a server's catalogue out of force."""
    outcome = Story().lists(TOOL).raw(Role.CONTROL, value).calls().tell()
    assert outcome.refusals == [code]
    (copy,) = outcome.of(Role.REJECTED)
    assert (copy.key, copy.value) == (b"server-a", value)
    assert "tool_definition_digest" in outcome.evidence[0]
    assert outcome.findings == []


@pytest.mark.parametrize("role", [*BOTH, Role.CONTROL])
def test_the_error_names_the_records_own_place(role: Role) -> None:
    record = record_of(role, b"{", partition=7, offset=2**40)
    story = Story()
    story.records.append(record)
    (copy,) = story.tell().of(Role.REJECTED)
    headers = dict(copy.headers)
    assert headers["error.topic"].decode() == TOPIC_NAMES[role]
    assert (headers["error.partition"], headers["error.offset"]) == (b"7", b"1099511627776")


@pytest.mark.parametrize(("role", "value", "code"), CALLS_ONLY)
def test_a_refused_call_leaves_the_next_one_its_definition(role: Role, value: bytes, code: str) -> None:
    outcome = Story().lists(TOOL).raw(role, value).calls().tell()
    assert outcome.refusals == [code]
    assert outcome.findings == []
    (payload,) = outcome.evidence
    assert payload["binding"]["scope"] == "observer"


@pytest.mark.parametrize("decision", ["", "ALLOW", "allowed", None, True, ["allow"]])
def test_a_decision_is_one_of_four_words(decision: Any) -> None:
    outcome = Story().raw(Role.CALLS, with_data(Role.CALLS, decision=decision)).tell()
    assert outcome.refusals == ["unknown_value"]
    assert outcome.evidence == []


@pytest.mark.parametrize("role", BOTH)
def test_unknown_fields_change_nothing(role: Role) -> None:
    event = json.loads(GOOD[role])
    event["x-extension"] = {"a": [1]}
    event["data"]["x-field"] = {"server_id": "server-b", "decision": "deny"}
    told = []
    for value in (GOOD[role], json.dumps(event).encode()):
        story = Story().raw(role, value)
        if role is Role.SNAPSHOTS:
            story.raw(Role.CALLS, an_event(Role.CALLS, 1, 2, call_data()))
        told.append(story.tell().of(Role.EVIDENCE))
    assert told[0] == told[1] != []
