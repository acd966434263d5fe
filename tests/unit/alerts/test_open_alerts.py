"""Open alerts, counted from their states: the same after a restart, whatever happened before."""

from dataclasses import replace

import pytest

from assay_stream.alerts.processor import apply_entry
from assay_stream.alerts.remembered import Alerts, OpenCount
from assay_stream.alerts.rules import AlertRules
from assay_stream.model.alert_state import AlertState, Triage
from assay_stream.model.record import Origin
from tests.support.findings import a_finding

RULES = AlertRules(version="0")


@pytest.fixture
def state() -> AlertState:
    alerts = Alerts(RULES)
    apply_entry(alerts, a_finding(), place=Origin(topic="f", partition=0, offset=0))
    [found] = [each for each in alerts.states.values() if isinstance(each, AlertState)]
    return found


def counted(*states: AlertState | None) -> OpenCount:
    alerts = Alerts(RULES)
    for each in states:
        alerts.follow({"uid": each})
    first = states[0]
    assert first is not None
    return alerts.open_counts()[first.severity_id]


@pytest.mark.parametrize("triage", [Triage(acknowledged_by="kim"), Triage(assigned_to="kim")])
def test_somebody_who_takes_it_has_reviewed_it(state: AlertState, triage: Triage) -> None:
    assert counted(state, replace(state, triage=triage)) == OpenCount(1, None)


def test_a_comment_is_no_review(state: AlertState) -> None:
    """Whoever comments may be asking somebody to look."""
    assert counted(state, replace(state, triage={"comment": "?"})).unreviewed_since_us == state.first_us


@pytest.mark.parametrize(
    "change",
    [{"closed": True}, {"reported": False}, {"raised": False}, {"fold": "a" * 64}, {"part_of": "a" * 64}],
    ids=lambda change: next(iter(change)),
)
def test_what_is_closed_suppressed_or_spoken_for_is_not_open(state: AlertState, change: dict[str, bool]) -> None:
    assert counted(state, replace(state, **change)) == OpenCount(0, None)  # type: ignore[arg-type]


def test_what_is_forgotten_is_not_open(state: AlertState) -> None:
    assert counted(state, None) == OpenCount(0, None)


def test_an_alert_that_gets_worse_is_counted_once(state: AlertState) -> None:
    alerts = Alerts(RULES)
    alerts.follow({"uid": state})
    alerts.follow({"uid": replace(state, severity_id=5)})
    assert sum(count.alerts for count in alerts.open_counts().values()) == 1
    assert alerts.open_counts()[5].alerts == 1


def test_a_restored_stage_counts_as_the_one_before(state: AlertState) -> None:
    alerts = Alerts(RULES)
    for offset in range(3):
        finding = a_finding(server_id=f"server-{offset}")
        apply_entry(alerts, finding, place=Origin(topic="f", partition=0, offset=offset))
    assert Alerts(RULES, dict(alerts.states)).open_counts() == alerts.open_counts()
    assert sum(count.alerts for count in alerts.open_counts().values()) == 3
