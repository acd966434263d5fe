"""The alert stage as a function, over a mapping of states."""

from typing import Any

import pytest

from assay_stream.alerts.processor import apply_entry, partition_key, process
from assay_stream.alerts.remembered import Alerts, AlertTable
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.alert_state import AlertState
from assay_stream.model.finding import AlertAct, Entry, Suppression, Tick, name_group
from assay_stream.model.record import Origin, Output, Record, Role
from tests.support.findings import RULES, a_claim, a_finding, a_rule, an_end, at, body, told


class Stage:
    def __init__(self, states: dict[str, Any] | None = None, partition: int = 0) -> None:
        self.states: dict[str, Any] = {} if states is None else states
        self.partition = partition
        self.offset = 0
        self.alerts = Alerts(RULES, self.states)

    def reads(self, entry: Entry, *, offset: int | None = None) -> list[Output]:
        if offset is None:
            offset = self.offset
            self.offset += 1
        place = Origin(topic="findings", partition=self.partition, offset=offset)
        return apply_entry(self.alerts, entry, place=place)


def tick_at(second: float) -> Tick:
    return Tick(time_us=at(second))


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_a_tick_writes_what_is_due_and_only_that(stage: Stage) -> None:
    stage.reads(a_finding(0))
    stage.reads(a_finding(500, tool_name="other"))
    before = dict(stage.states)
    assert told(stage.reads(tick_at(600))) == [("Update", "In Progress", 1)]
    other = a_finding(500, tool_name="other").uid()
    assert stage.states[other] == before[other]
    assert stage.reads(tick_at(601)) == []


def test_a_tick_writes_no_more_than_its_share(stage: Stage) -> None:
    most = DEFAULT_LIMITS.alerts_per_tick_max
    for number in range(most + 1):
        stage.reads(a_finding(number, number / 1_000, tool_name=f"tool-{number}"))
    assert len(stage.reads(tick_at(1_000))) == most
    [last] = stage.reads(tick_at(1_000))
    assert body(last)["unmapped"]["mcp_tool_name"] == f"tool-{most}"


def test_a_tick_that_comes_again_changes_nothing(stage: Stage) -> None:
    """What stands behind it in the log is not of its time: delivered again, it does not close it early."""
    stage.reads(a_finding(0))
    stage.reads(tick_at(1_000), offset=1)
    stage.reads(an_end(300), offset=2)
    before = dict(stage.states)
    assert stage.reads(tick_at(1_000), offset=1) == []
    assert stage.states == before
    assert told(stage.reads(tick_at(1_000), offset=3))[-1][0] == "Close"


def test_an_end_that_stands_before_the_finding_does_not_end_it(stage: Stage) -> None:
    """The first time it was passed over; after a crash, read again, it must be too."""
    stage.reads(an_end(0, observer_id=None, reason="decided"), offset=0)
    stage.reads(a_finding(1), offset=1)
    before = dict(stage.states)
    assert stage.reads(an_end(0, observer_id=None, reason="decided"), offset=0) == []
    assert stage.states == before


def test_setting_a_rule_again_replaces_it(stage: Stage) -> None:
    stage.reads(Suppression(rule=a_rule(), is_set=True, time_us=at(0)))
    stage.reads(Suppression(rule=a_rule(tool="other"), is_set=True, time_us=at(0)))
    assert told(stage.reads(a_finding(0)))[0][1] == "New"


def test_a_rule_for_every_server_is_kept_for_each_partition() -> None:
    """Each partition has read up to a place of its own: what one has taken back another still has."""
    rule = a_rule(server_id="*")
    states: dict[str, Any] = {}
    one, two = Stage(states, 0), Stage(states, 1)
    for stage in (one, two):
        stage.reads(Suppression(rule=rule, is_set=True, time_us=at(0)))
    one.reads(Suppression(rule=rule, is_set=False, time_us=at(0)))
    assert told(one.reads(a_finding(0)))[0][1] == "New"
    assert told(two.reads(a_finding(0, server_id="elsewhere")))[0][1] == "Suppressed"


def test_a_rule_may_have_any_name(stage: Stage) -> None:
    """Also one that is a field of an alert's state; rules are never taken for alerts."""
    stage.reads(Suppression(rule=a_rule(id="last"), is_set=True, time_us=at(0)))
    assert not any(isinstance(state, AlertState) for state in stage.states.values())
    assert stage.reads(tick_at(10_000)) == []


def test_due_times_are_those_of_the_states(stage: Stage) -> None:
    stage.reads(a_finding(0))
    assert not stage.alerts.any_due_by(at(599))
    again = Stage(stage.states)
    again.offset = stage.offset
    assert again.alerts.any_due_by(at(600))
    assert again.alerts.due_by(at(600)) == [a_finding().uid()]
    again.reads(an_end(700))
    again.reads(tick_at(800))
    assert again.alerts.due_by(at(10**6)) == []


def a_full_stage() -> Stage:
    stage = Stage()
    for number in range(DEFAULT_LIMITS.name_claims_max):
        stage.reads(a_claim(f"s{number:03}", "read_file", 1))
    return stage


def test_a_claim_beyond_the_bound_raises_an_alert_that_ends_with_it() -> None:
    """It is not remembered; its alert is. A claim that goes without ever having been told of ends nothing."""
    stage = a_full_stage()
    [alert] = stage.reads(a_claim("x", "read-file", 2))
    assert (body(alert)["severity_id"], body(alert)["unmapped"]["mcp_pin_observed"]) == (4, "s000")
    assert stage.reads(a_claim("y", "read_file", 3)) == []
    assert stage.reads(a_claim("y", "read_file", 4, is_offered=False)) == []
    assert stage.reads(tick_at(500)) == []
    stage.reads(a_claim("x", "read-file", 800, is_offered=False))
    [closed] = stage.reads(tick_at(1_400))
    assert body(closed)["unmapped"]["mcp_resolved_by"] == "no_longer_offered"


def test_approval_ends_what_was_told_beyond_the_bound() -> None:
    stage = a_full_stage()
    stage.reads(a_claim("x", "read-file", 2))
    [closed] = stage.reads(a_claim("x", "read-file", 3, approved=True))
    assert body(closed)["unmapped"]["mcp_resolved_by"] == "decided"


def test_a_claim_that_finds_room_later_goes_on_where_it_was() -> None:
    stage = a_full_stage()
    stage.reads(a_claim("x", "read-file", 2))
    for number in range(DEFAULT_LIMITS.name_claims_max):
        stage.reads(a_claim(f"s{number:03}", "read_file", 3, is_offered=number == 0))
    stage.reads(a_claim("x", "read-file", 4, approved=False))
    assert stage.reads(tick_at(500)) == []
    stage.reads(a_claim("s000", "read_file", 800, is_offered=False))
    [closed] = stage.reads(tick_at(1_500))
    assert body(closed)["activity_name"] == "Close"


def test_what_is_left_out_is_counted() -> None:
    stage = a_full_stage()
    claims = [a_claim("x", "read-file", 2), a_claim("y", "read_file", 2)]
    steps = []
    for offset, claim in enumerate(claims, stage.offset):
        place = Origin(topic="findings", partition=0, offset=offset)
        for _ in range(2):
            record = Record(Role.FINDINGS, place, claim.output().key, claim.encode())
            process(stage.alerts, record)
            steps.append(stage.alerts.names_left_out)
    assert steps == [1, 0, 2, 0]


def test_a_shadow_stands_under_the_group_of_its_name() -> None:
    """With what it is folded into; other findings under their server."""
    finding = {"kind": "tool_shadowed", "server_id": "b", "tool_name": "Read-File"}
    assert partition_key(finding) == name_group("read_file")
    assert partition_key({"kind": "alerts_folded", "server_id": "b", "reason": "names-3@17"}) == "names-3"
    assert partition_key({"kind": "alerts_folded", "server_id": "b", "reason": "mcp.tools.list/0/3"}) == "b"
    assert partition_key(finding | {"kind": "tool_changed"}) == "b"


# --- forgetting ---------------------------------------------------------------------------------------------

FORGET_S = RULES.pacing.forget_us / 1_000_000
SETTLED_S = RULES.pacing.settle_us / 1_000_000


def a_closed_alert() -> Stage:
    stage = Stage()
    stage.reads(a_finding(0))
    stage.reads(an_end(1, 1))
    stage.reads(tick_at(2 + SETTLED_S))
    return stage


def test_a_closed_alert_is_forgotten_after_its_time() -> None:
    stage = a_closed_alert()
    stage.reads(tick_at(FORGET_S))
    assert a_finding().uid() in stage.states
    assert stage.reads(tick_at(FORGET_S + 1)) == []
    assert a_finding().uid() not in stage.states
    assert not stage.alerts.any_due_by(at(10 * FORGET_S))


@pytest.mark.parametrize("ticks", [(), (FORGET_S + 1,), (FORGET_S / 2, FORGET_S + 5)])
def test_what_is_found_again_after_that_is_a_new_alert(ticks: tuple[float, ...]) -> None:
    stage = a_closed_alert()
    for second in ticks:
        stage.reads(tick_at(second))
    [again] = stage.reads(a_finding(2, FORGET_S + 10))
    assert told([again]) == [("Create", "New", 1)]
    assert body(again)["finding_info"]["first_seen_time"] * 1_000 == at(FORGET_S + 10)


def test_an_act_on_a_forgotten_alert_does_nothing() -> None:
    stage = a_closed_alert()
    act = AlertAct(
        server_id="server",
        alert=a_finding().uid(),
        act="comment",
        author="ann",
        reason="late",
        time_us=at(FORGET_S + 10),
        origin=a_finding(9).origin,
    )
    assert stage.reads(act) == []


def test_a_forgotten_alert_leaves_the_state_topic() -> None:
    table = AlertTable(0, RULES, input_topic="findings")
    stage = Stage(table)  # type: ignore[arg-type]
    stage.alerts = table.alerts
    stage.reads(a_finding(0))
    stage.reads(an_end(1, 1))
    stage.reads(tick_at(2 + SETTLED_S))
    topic = table.flush({"findings": 3})
    stage.reads(tick_at(FORGET_S + 1))
    topic += table.flush({"findings": 4})
    restored = AlertTable(0, RULES, input_topic="findings")
    for offset, output in enumerate(topic):
        place = Origin(topic="states", partition=0, offset=offset)
        restored.restore(Record(role=Role.ALERT_STATES, origin=place, key=output.key, value=output.value))
    assert restored.restored() == {"findings": 4}
    assert a_finding().uid() not in restored
