"""Alerts: OCSF records with a life and a count."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import jsonschema
import pytest
import rfc8785
from ocsf_json_schema import OcsfJsonSchemaEmbedded, get_ocsf_schema

from assay_stream.core.alert import OCSF_VERSION, AlertState, apply_finding
from assay_stream.core.finding import Finding
from assay_stream.core.kinds import Kind
from assay_stream.core.record import Origin, Output, Role

A = "sha256:" + "a" * 64
B = "sha256:" + "b" * 64


@pytest.fixture(scope="module")
def ocsf() -> jsonschema.Draft202012Validator:
    """A validator of OCSF's detection finding."""
    schema = OcsfJsonSchemaEmbedded(get_ocsf_schema(version="1.8.0"))
    return jsonschema.Draft202012Validator(schema.get_class_schema(class_name="detection_finding"))


def a_finding(offset: int = 0, **changes: Any) -> Finding:
    """A changed tool."""
    return replace(
        Finding(
            kind=Kind.TOOL_CHANGED,
            server_id="server",
            tool_name="tool",
            observer_id="alice",
            time_us=1_772_323_200_123_456,
            origin=Origin(topic="mcp.tools.list", partition=0, offset=offset),
            snapshot_id="snapshot-1",
            before=A,
            after=B,
            changed_fields=("description",),
        ),
        **changes,
    )


def applied(*found: Finding) -> tuple[AlertState, list[Output]]:
    """The state after some findings, and the alerts."""
    state: AlertState | None = None
    alerts = []
    for finding in found:
        state, alert = apply_finding(state, finding, version="1")
        alerts += [] if alert is None else [alert]
    assert state is not None
    return state, alerts


def body(alert: Output) -> dict[str, Any]:
    """The record of an alert."""
    parsed: dict[str, Any] = json.loads(alert.value or b"")
    return parsed


@pytest.mark.parametrize("kind", list(Kind))
def test_every_kind_is_a_valid_ocsf_record(kind: Kind, ocsf: jsonschema.Draft202012Validator) -> None:
    """The alert of each kind of finding, created and updated, validates against OCSF 1.8.0."""
    _, alerts = applied(a_finding(0, kind=kind), a_finding(1, kind=kind))
    assert len(alerts) == 2
    for alert in alerts:
        ocsf.validate(body(alert))


@pytest.mark.parametrize("kind", list(Kind))
def test_a_record_with_as_little_as_possible_is_valid(kind: Kind, ocsf: jsonschema.Draft202012Validator) -> None:
    """A finding without tool, observer, snapshot or digests gives a valid record too."""
    bare = Finding(kind=kind, server_id="s", time_us=0, origin=Origin(topic="t", partition=0, offset=0))
    _, (alert,) = applied(bare)
    ocsf.validate(body(alert))


def test_the_version_is_the_one_that_is_claimed() -> None:
    """metadata.version is the version of OCSF that the record was validated against."""
    _, (alert,) = applied(a_finding())
    assert body(alert)["metadata"]["version"] == OCSF_VERSION == "1.8.0"


def test_the_record_is_canonical() -> None:
    """An alert's bytes are JCS, so that a repeat can be told by comparing bytes."""
    _, (alert,) = applied(a_finding(tool_name="naïve ✓"))
    assert rfc8785.dumps(body(alert)) == alert.value


def test_the_record_goes_to_its_server() -> None:
    """An alert is keyed by the server, written to the alert topic, and carries CloudEvents headers."""
    state, (alert,) = applied(a_finding())
    assert (alert.role, alert.key, alert.partition) == (Role.ALERTS, b"server", None)
    headers = dict(alert.headers)
    assert headers["ce_id"] == f"{a_finding().uid()}:1".encode()
    assert headers["ce_specversion"] == b"1.0"
    assert state.count == 1


def test_a_finding_of_an_older_record_is_no_news() -> None:
    """What was found at or before the last counted offset of a partition is not counted again."""
    state, _ = applied(a_finding(5))
    for offset in (0, 4, 5):
        assert apply_finding(state, a_finding(offset), version="1") == (state, None)


def test_partitions_are_counted_apart() -> None:
    """A lower offset of another partition or topic is another record."""
    other_partition = a_finding(1, origin=Origin(topic="mcp.tools.list", partition=1, offset=1))
    other_topic = a_finding(1, origin=Origin(topic="mcp.tools.call", partition=0, offset=1))
    state, alerts = applied(a_finding(5), other_partition, other_topic)
    assert state.count == len(alerts) == 3
    assert state.applied == {"mcp.tools.list/0": 5, "mcp.tools.list/1": 1, "mcp.tools.call/0": 1}


def test_the_span_is_of_event_times() -> None:
    """First and last seen are the earliest and latest event time, in whatever order they come."""
    _, alerts = applied(a_finding(0, time_us=5_000), a_finding(1, time_us=1_000), a_finding(2, time_us=3_000))
    info = body(alerts[-1])["finding_info"]
    assert (info["first_seen_time"], info["last_seen_time"]) == (1, 5)


def test_a_known_finding_is_counted_and_raises_nothing() -> None:
    """A definition the fleet had shown before is counted; the alert begins with the first news."""
    state, alerts = applied(a_finding(0, known=True), a_finding(1, known=True))
    assert (state.count, state.raised, alerts) == (2, False, [])
    _, alerts = applied(a_finding(0, known=True), a_finding(1), a_finding(2, known=True))
    assert [(body(alert)["count"], body(alert)["activity_name"]) for alert in alerts] == [
        (2, "Create"),
        (3, "Update"),
    ]


def test_observers_are_counted() -> None:
    """The record says how many observers have seen it; one without a name is an observer too."""
    _, alerts = applied(a_finding(0), a_finding(1, observer_id="bob"), a_finding(2, observer_id=None))
    assert [body(alert)["unmapped"]["mcp_observers"] for alert in alerts] == [1, 2, 3]


def test_the_message_names_the_tool_and_what_changed() -> None:
    """One line tells an analyst where, and which fields or which error."""
    _, (alert,) = applied(a_finding(changed_fields=("annotations", "description")))
    assert body(alert)["message"].endswith("server/tool (annotations, description)")
    _, (alert,) = applied(
        a_finding(kind=Kind.SNAPSHOT_REJECTED, tool_name=None, changed_fields=(), reason="not_json")
    )
    assert body(alert)["message"].endswith("server (not_json)")


def test_what_is_absent_is_left_out() -> None:
    """Unmapped fields are there or not; none of them is null."""
    _, (alert,) = applied(a_finding(snapshot_id=None, before=None, changed_fields=()))
    unmapped = body(alert)["unmapped"]
    assert None not in unmapped.values()
    assert unmapped.keys().isdisjoint({"mcp_snapshot_id", "mcp_digest_before", "mcp_changed_fields"})


def test_a_state_survives_storage() -> None:
    """What is stored as JSON is the whole state."""
    state, _ = applied(a_finding(0), a_finding(1, observer_id="bob"))
    assert AlertState(**json.loads(json.dumps(state.as_json()))) == state
