"""Laws of the alerts: findings counted once, and a record that is a function of what was counted."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import jsonschema
from hypothesis import given
from hypothesis import strategies as st
from ocsf_json_schema import OcsfJsonSchemaEmbedded, get_ocsf_schema

from assay_stream.core.alert import OCSF_VERSION, AlertState, apply_finding
from assay_stream.core.finding import Finding
from assay_stream.core.kinds import KINDS, Kind
from assay_stream.core.record import Origin, Output

VERSION = "1.2.3"
DIGESTS = st.sampled_from([None, "sha256:" + "a" * 64, "sha256:" + "b" * 64])


def detection_finding() -> jsonschema.Draft202012Validator:
    """A validator of the class of OCSF that alerts claim to be."""
    schema = OcsfJsonSchemaEmbedded(get_ocsf_schema(version=OCSF_VERSION))
    return jsonschema.Draft202012Validator(schema.get_class_schema(class_name="detection_finding"))


OCSF = detection_finding()


@st.composite
def findings(draw: st.DrawFn, kind: st.SearchStrategy[Kind] = st.sampled_from(Kind)) -> Finding:  # noqa: B008
    """Any finding."""
    return Finding(
        kind=draw(kind),
        server_id=draw(st.text(min_size=1, max_size=20)),
        tool_name=draw(st.none() | st.text(min_size=1, max_size=20)),
        observer_id=draw(st.none() | st.text(min_size=1, max_size=20)),
        time_us=draw(st.integers(0, 4_102_444_800_000_000)),
        origin=Origin(topic="mcp.tools.list", partition=draw(st.integers(0, 9)), offset=draw(st.integers(0, 9))),
        snapshot_id=draw(st.none() | st.text(min_size=1, max_size=20)),
        before=draw(DIGESTS),
        after=draw(DIGESTS),
        changed_fields=draw(st.lists(st.text(max_size=8), max_size=3).map(tuple)),
        known=draw(st.booleans()),
        reason=draw(st.none() | st.sampled_from(["not_json", "too_large"])),
    )


@st.composite
def of_one_alert(draw: st.DrawFn) -> list[Finding]:
    """Findings with one identity, in the order in which their stages write them: offsets rise per partition."""
    kind = draw(st.sampled_from(Kind))
    offsets: dict[int, int] = {}
    found = []
    for _ in range(draw(st.integers(1, 12))):
        partition = draw(st.integers(0, 2))
        offsets[partition] = offsets.get(partition, -1) + draw(st.integers(1, 3))
        found.append(
            Finding(
                kind=kind,
                server_id="server",
                tool_name="tool",
                observer_id=draw(st.sampled_from([None, "alice", "bob"])),
                time_us=draw(st.integers(0, 9)) * 1_000,
                origin=Origin(topic="mcp.tools.list", partition=partition, offset=offsets[partition]),
                after="sha256:" + "a" * 64,
                known=draw(st.booleans()),
            )
        )
    return found


def apply_all(state: AlertState | None, found: Iterable[Finding]) -> tuple[AlertState | None, list[Output]]:
    """The state after some findings, and the alerts on the way."""
    alerts = []
    for finding in found:
        state, alert = apply_finding(state, finding, version=VERSION)
        if alert is not None:
            alerts.append(alert)
    return state, alerts


def body(alert: Output) -> dict[str, Any]:
    """The OCSF record of an alert."""
    parsed: dict[str, Any] = json.loads(alert.value or b"")
    return parsed


@given(findings())
def test_every_alert_is_an_ocsf_detection_finding(finding: Finding) -> None:
    """The record of any alert validates against the schema of its class in OCSF 1.8.0."""
    _, alerts = apply_all(None, [finding])
    for alert in alerts:
        OCSF.validate(body(alert))


@given(of_one_alert(), st.data())
def test_a_finding_that_comes_again_changes_nothing(found: list[Finding], data: st.DataObject) -> None:
    """A finding that was counted gives back the very state and no alert, however long ago it was."""
    state, _ = apply_all(None, found)
    again = data.draw(st.sampled_from(found))
    assert apply_finding(state, again, version=VERSION) == (state, None)


@given(of_one_alert(), st.data())
def test_a_repeat_after_a_crash_gives_the_same_bytes(found: list[Finding], data: st.DataObject) -> None:
    """From a state that was stored before a crash, the findings delivered again give the same alerts."""
    stored_at = data.draw(st.integers(0, len(found)))
    stored, before = apply_all(None, found[:stored_at])
    after = apply_all(stored, found[stored_at:])
    from_disk = None if stored is None else AlertState(**json.loads(json.dumps(stored.as_json())))
    behind = data.draw(st.integers(0, stored_at))
    assert apply_all(from_disk, found[behind:]) == after
    assert apply_all(None, found)[1] == before + after[1]


@given(of_one_alert())
def test_the_count_and_the_times_are_those_of_the_findings(found: list[Finding]) -> None:
    """An alert counts its findings and observers, and spans the first to the last event time."""
    state, alerts = apply_all(None, found)
    times = [finding.time_us for finding in found]
    assert state is not None
    assert (state.count, state.first_us, state.last_us) == (len(found), min(times), max(times))
    assert sum(state.observers.values()) == len(found)
    if alerts and alerts[-1].key is not None:
        counts = [body(alert)["count"] for alert in alerts]
        assert counts == list(range(counts[0], len(found) + 1))
        info = body(alerts[-1])["finding_info"]
        assert (info["first_seen_time"], info["last_seen_time"]) == (min(times) // 1_000, max(times) // 1_000)


@given(of_one_alert())
def test_what_is_known_is_counted_and_raises_nothing(found: list[Finding]) -> None:
    """Alerts begin with the first finding that is news."""
    state, alerts = apply_all(None, found)
    quiet = 0
    for finding in found:
        if not finding.known:
            break
        quiet += 1
    assert state is not None
    assert len(alerts) == len(found) - quiet
    assert state.raised is bool(alerts)


@given(of_one_alert())
def test_an_alert_has_one_identity_and_is_created_once(found: list[Finding]) -> None:
    """All alerts of one identity share a uid; the first is Create, the others Update, each with its own id."""
    _, alerts = apply_all(None, found)
    bodies = [body(alert) for alert in alerts]
    assert {told["finding_info"]["uid"] for told in bodies} <= {found[0].uid()}
    assert [told["activity_name"] for told in bodies] == ["Create", "Update"][: len(bodies)] + ["Update"] * (
        len(bodies) - 2
    )
    ids = [dict(alert.headers)["ce_id"] for alert in alerts]
    assert len(set(ids)) == len(ids)


@given(findings())
def test_an_alert_says_how_grave_its_kind_is(finding: Finding) -> None:
    """Severity and title are those of the kind of finding."""
    _, alerts = apply_all(None, [finding])
    for alert in alerts:
        told = body(alert)
        assert told["severity_id"] == KINDS[finding.kind].severity_id
        assert told["finding_info"]["title"] == KINDS[finding.kind].title
