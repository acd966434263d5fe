"""Alerts: when something is written of what was found, and what."""

from collections.abc import Sequence
from dataclasses import replace

from assay_stream.alerts.life_cycle import apply_finding, apply_resolution, due_us, tick
from assay_stream.alerts.rules import AlertRules
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.alert_state import AlertState
from assay_stream.model.finding import Finding, Resolution, SuppressionRule
from assay_stream.model.kinds import Kind
from assay_stream.model.record import Output
from tests.support.findings import RULES, a_finding, a_rule, an_end, at, body, place, told

CREATED = ("Create", "New", 1)
SIDE_BY_SIDE = {"known": True, "offered_elsewhere": True}
"""A definition that another observer is offered all the while."""


def live(
    *entries: Finding | Resolution | float, rules: AlertRules = RULES, suppressions: Sequence[SuppressionRule] = ()
) -> tuple[AlertState, list[Output]]:
    state: AlertState | None = None
    alerts: list[Output] = []
    rules = replace(rules, suppressions=suppressions)
    for entry in entries:
        if isinstance(entry, Finding):
            state, written = apply_finding(state, entry, rules)
        elif state is None:
            raise AssertionError("begin with a finding")
        elif isinstance(entry, Resolution):
            state, written = apply_resolution(state, entry, rules)
        else:
            state, written = tick(state, at(entry), rules)
        alerts += written
    assert state is not None
    return state, alerts


def test_round_counts_are_told_at_once_and_others_wait_for_the_interval() -> None:
    """Of seven findings within seconds 1, 2 and 5 are written; the rest with the interval's end."""
    _, alerts = live(*(a_finding(offset, offset / 10) for offset in range(7)), 59, 61)
    assert told(alerts) == [CREATED, *[("Update", "In Progress", count) for count in (2, 5, 7)]]
    assert body(alerts[-1])["time"] * 1_000 == at(0.4 + 60)


def test_a_finding_after_the_interval_is_told_at_once() -> None:
    _, alerts = live(a_finding(0), a_finding(1), a_finding(2, 60))
    assert told(alerts) == [CREATED, ("Update", "In Progress", 2)]
    _, alerts = live(a_finding(0), a_finding(1), a_finding(2, 61))
    assert told(alerts)[2:] == [("Update", "In Progress", 3)]


def test_what_gets_graver_is_told_at_once() -> None:
    rules = replace(RULES, severity=lambda finding: 5 if finding.reason == "grave" else 3)
    found = [a_finding(0), a_finding(1), a_finding(2), a_finding(3, reason="grave"), a_finding(4)]
    _, alerts = live(*found[:3], found[3], found[4], rules=rules)
    assert [body(alert)["severity_id"] for alert in alerts] == [3, 3, 5, 5]
    assert [body(alert)["count"] for alert in alerts] == [1, 2, 4, 5]


def test_a_repetition_while_it_lasts() -> None:
    _, alerts = live(a_finding(), 1_900)
    assert [body(alert)["time"] * 1_000 for alert in alerts] == [at(second) for second in (0, 600, 1_200, 1_800)]
    assert [body(alert)["unmapped"].get("mcp_repeats") for alert in alerts] == [None, 1, 2, 3]
    ids = [dict(alert.headers)["ce_id"] for alert in alerts]
    assert len(set(ids)) == len(ids)


def test_a_long_silence_is_not_made_up_for_whole() -> None:
    """Beyond the bound only the last repetition is written, with its number."""
    missed = DEFAULT_LIMITS.repeats_made_up_max + 1
    _, alerts = live(a_finding(), 600 * missed)
    assert len(alerts) == 2
    assert body(alerts[-1])["unmapped"]["mcp_repeats"] == missed
    assert body(alerts[-1])["time"] * 1_000 == at(600 * missed)


def test_it_closes_when_nobody_sees_it_and_that_has_settled() -> None:
    state, alerts = live(a_finding(), an_end(5), 14)
    assert told(alerts) == [CREATED]
    assert due_us(state, RULES) == at(15)
    _, alerts = live(a_finding(), an_end(5), 15)
    assert told(alerts)[1:] == [("Close", "Resolved", 1)]
    assert body(alerts[-1])["time"] * 1_000 == at(5)
    assert body(alerts[-1])["unmapped"]["mcp_resolved_by"] == "no_longer_offered"


def test_what_was_found_for_nobody_in_particular_ends_when_nobody_is_known_to_see_it() -> None:
    """A control record names no observer: the last observer's end is its end."""
    found = a_finding(0, observer_id=None)
    assert told(live(found, an_end(1), 100)[1]) == [CREATED]
    assert told(live(found, an_end(1, everywhere=True), 100)[1])[-1][0] == "Close"


def test_who_is_not_named_is_not_counted_among_observers() -> None:
    """An operator's decision raises what no proxy reported: the numbers are of those that have a name."""
    numbers = [
        (body(alert)["unmapped"]["mcp_observers"], body(alert)["unmapped"]["mcp_observers_active"])
        for alert in live(a_finding(0, observer_id=None), a_finding(1), an_end(2, everywhere=True), 100)[1]
    ]
    assert numbers == [(0, 0), (1, 1), (1, 0)]


def test_what_was_approved_does_not_come_back_with_what_is_known() -> None:
    """A canary that alternates after the approval is counted, and raises nothing; news reopens."""
    approved = an_end(1, observer_id=None, reason="decided")
    shown = {"known": True, "approved": True}
    state, alerts = live(a_finding(0), approved, 20, a_finding(30, **shown), a_finding(31, **shown))
    assert (told(alerts)[-1][0], state.count, state.closed) == ("Close", 3, True)
    _, alerts = live(a_finding(0), an_end(1), 20, replace(approved, origin=place(21)), a_finding(30, **shown))
    assert told(alerts)[-1][0] == "Close"
    _, alerts = live(a_finding(0), approved, 20, a_finding(30))
    assert told(alerts)[-1] == ("Update", "In Progress", 2)


def test_what_does_not_last_is_over_when_it_is_not_found_again() -> None:
    """A call is no state of affairs: it is not repeated, and closes."""
    call = a_finding(0, kind=Kind.CALL_TO_UNLISTED_TOOL)
    _, alerts = live(call, replace(call, origin=place(1), time_us=at(100)), 699)
    assert len(alerts) == 2
    _, alerts = live(call, replace(call, origin=place(1), time_us=at(100)), 700, 9_000)
    assert told(alerts)[2:] == [("Close", "Resolved", 2)]
    assert body(alerts[-1])["unmapped"]["mcp_resolved_by"] == "not_seen_again"


def test_a_known_finding_is_counted_and_raises_nothing() -> None:
    state, alerts = live(a_finding(0, **SIDE_BY_SIDE), a_finding(1, **SIDE_BY_SIDE), an_end(2), 100)
    assert (state.count, state.raised, alerts, due_us(state, RULES)) == (2, False, [], None)
    _, alerts = live(a_finding(0, **SIDE_BY_SIDE), a_finding(1), a_finding(2, **SIDE_BY_SIDE))
    assert told(alerts) == [("Create", "New", 2)]


def test_what_was_shown_and_never_reported_is_news_when_it_is_grave() -> None:
    assert told(live(a_finding(0, known=True))[1]) == [CREATED]
    assert live(a_finding(0, known=True, approved=True))[1] == []
    low = replace(RULES, severity=lambda _: 3)
    assert live(a_finding(0, known=True), rules=low)[1] == []


def test_text_that_is_grave_is_news_though_another_observer_is_offered_it() -> None:
    """Two versions side by side are no return; poison side by side with the harmless text is."""
    signs = (("override", 4, "$.description"),)
    assert told(live(a_finding(0, **SIDE_BY_SIDE, indicators=signs))[1]) == [CREATED]
    assert live(a_finding(0, **SIDE_BY_SIDE, indicators=(("url_introduced", 3, "$.description"),)))[1] == []


def test_an_approval_that_was_taken_back_keeps_nothing_closed() -> None:
    decided = an_end(1, observer_id=None, reason="decided")
    _, alerts = live(a_finding(0), decided, 20, a_finding(30, known=True))
    assert told(alerts)[-1] == ("Update", "In Progress", 2)


def test_a_suppressed_alert_is_written_with_its_status() -> None:
    _, alerts = live(a_finding(0), a_finding(1), 700, an_end(701), 800, suppressions=[a_rule()])
    assert {status for _, status, _ in told(alerts)} == {"Suppressed"}
    assert [activity for activity, _, _ in told(alerts)] == ["Create", "Update", "Update", "Close"]
    assert {body(alert)["status_id"] for alert in alerts} == {3}
    assert {body(alert)["unmapped"]["mcp_suppressed_by"] for alert in alerts} == {"rule-1"}
    assert {alert.label for alert in alerts} == {"alert:suppressed"}


def test_what_no_rule_covers_is_told_at_once_and_once() -> None:
    """Findings that are covered and not covered by turns do not write an alert each."""
    rule = a_rule(field="title")
    found = [a_finding(n, n / 100, changed_fields=("title",) if n % 2 else ("description",)) for n in range(1, 51)]
    _, alerts = live(*found, suppressions=[rule])
    assert told(alerts)[:2] == [("Create", "Suppressed", 1), ("Update", "In Progress", 2)]
    assert [count for _, _, count in told(alerts)] == [1, 2, 5, 10, 20, 50]
    _, alerts = live(found[0], *(replace(found[2], origin=place(n)) for n in (7, 8)), found[5], suppressions=[rule])
    assert told(alerts)[-1] == ("Update", "In Progress", 4)


def test_one_record_may_be_found_and_end() -> None:
    """A list shows what was approved before: the alert closes, though both name one record."""
    _, alerts = live(a_finding(0), an_end(0, observer_id=None, reason="decided"), 10)
    assert told(alerts) == [CREATED, ("Close", "Resolved", 1)]


def test_clocks_that_differ_do_not_make_it_close_and_open() -> None:
    """Nothing ends before it was last seen, by whatever clock."""
    entries: list[Finding | Resolution] = []
    for number in range(0, 400, 2):
        entries += [a_finding(number, 86_400), an_end(number + 1, 0)]
    _, alerts = live(*entries)
    assert {activity for activity, _, _ in told(alerts)} == {"Create", "Update"}
    assert len(alerts) < 10


def test_time_that_goes_back_changes_nothing() -> None:
    state, _ = live(a_finding(), 700)
    assert tick(state, at(650), RULES) == (state, [])
