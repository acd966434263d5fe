"""The models of observations: what they take, at their very bounds, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest

from assay_stream.errors import InputError
from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.model.cloudevents import read_event
from assay_stream.model.observation import CallEvent, SnapshotEvent
from assay_stream.model.record import Origin, Record, Role
from tests.support.events import TOOL, an_event, call_data, snapshot_data

LONGEST = "n" * DEFAULT_LIMITS.identifier_chars_max
IDENTIFIERS = {
    Role.SNAPSHOTS: ("server_id", "observer_id", "snapshot_id"),
    Role.CALLS: ("server_id", "observer_id", "tool_name", "tool_call_id", "snapshot_id"),
}
EVERY_IDENTIFIER = [(role, name) for role, names in IDENTIFIERS.items() for name in names]


def read(role: Role, data: dict[str, Any], **attributes: Any) -> SnapshotEvent | CallEvent:
    place = Origin(topic=role.value, partition=0, offset=0)
    event = read_event(Record(role=role, origin=place, key=None, value=an_event(role, 1, 1, data, **attributes)))
    assert isinstance(event, SnapshotEvent | CallEvent)
    return event


def refusal(role: Role, data: dict[str, Any], **attributes: Any) -> tuple[str, str]:
    with pytest.raises(InputError) as caught:
        read(role, data, **attributes)
    return caught.value.code, caught.value.path


def data_of(role: Role, **changes: Any) -> dict[str, Any]:
    return snapshot_data(TOOL, **changes) if role is Role.SNAPSHOTS else call_data(**changes)


@pytest.mark.parametrize(("role", "name"), EVERY_IDENTIFIER)
def test_an_identifier_has_up_to_the_limit_of_characters(role: Role, name: str) -> None:
    assert read(role, data_of(role, **{name: LONGEST}))
    assert read(role, data_of(role, **{name: "\U0001f512" * len(LONGEST)}))
    assert refusal(role, data_of(role, **{name: LONGEST + "n"})) == ("too_long", f"$.data.{name}")


def test_a_tool_keeps_every_field_as_received() -> None:
    tool = {**TOOL, "x-vendor": [1, 2.5, None, {"a": "\u00e9"}], "big": 2**60}
    event = read(Role.SNAPSHOTS, snapshot_data(tool))
    assert isinstance(event, SnapshotEvent)
    assert event.data.tools == [tool]


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
        ({"args_hash": "h" * 129}, "too_long", "$.data.args_hash"),
        ({"reason_code": ""}, "empty_value", "$.data.reason_code"),
        ({"server_id": "  "}, "bad_format", "$.data.server_id"),
        ({"ok": 1}, "wrong_type", "$.data.ok"),
    ],
)
def test_what_a_call_names_must_be_right(changes: dict[str, Any], code: str, path: str) -> None:
    assert refusal(Role.CALLS, call_data(**changes)) == (code, path)


@pytest.mark.parametrize("changes", [{"delegation_depth": 0}, {"delegation_depth": 2**53}, {"args_hash": "h" * 128}])
def test_bounds_are_inclusive(changes: dict[str, Any]) -> None:
    assert read(Role.CALLS, call_data(**changes))


def test_null_is_absence_for_what_is_optional() -> None:
    optional = ("trace_id", "snapshot_id", "ok", "error", "timing", "actor", "side_effect", "args_hash")
    assert read(Role.CALLS, call_data(**dict.fromkeys(optional)))


ARABIC_THREE = "\u0663"


@pytest.mark.parametrize(
    ("changes", "attributes"),
    [
        ({"timing": {"started_at": f"202{ARABIC_THREE}-03-01T10:00:00Z"}}, {}),
        ({}, {"time": f"2026-03-01T10:00:01.000000{ARABIC_THREE}Z"}),
    ],
    ids=["timing", "event time"],
)
def test_digits_of_a_time_are_ascii(changes: dict[str, Any], attributes: dict[str, str]) -> None:
    code, _ = refusal(Role.CALLS, call_data(**changes), **attributes)
    assert code == "bad_format"
