"""The alert table of a partition: what its topic keeps, and what it is restored to."""

import json
from collections.abc import Callable, Iterable
from dataclasses import replace

import orjson
import pytest

from assay_stream.alerts.life_cycle import FURTHER_OBSERVERS, counted, was_applied
from assay_stream.alerts.processor import process
from assay_stream.alerts.remembered import Alerts, AlertTable, OpenCount
from assay_stream.errors import IntegrityError
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.alert_state import AlertState, Triage
from assay_stream.model.finding import Finding, Tick
from assay_stream.model.record import TOPIC_NAMES, Origin, Output, Record, Role
from assay_stream.model.wire import read_record, write_record
from tests.support.errors import raises_code
from tests.support.findings import PACING, RULES, a_finding, at, place

PARTITION = 3
FINDINGS = TOPIC_NAMES[Role.FINDINGS]


def found(offset: int, finding: Finding) -> Record:
    value = finding.output().value
    return Record(Role.FINDINGS, Origin("findings", PARTITION, offset), b"server", value)


def kept(outputs: Iterable[Output]) -> list[Record]:
    place = Origin("states", PARTITION, 0)
    return [Record(Role.ALERT_STATES, place, output.key, output.value) for output in outputs]


def a_table(records: Iterable[Record] = (), now_us: Callable[[], int | None] = lambda: None) -> AlertTable:
    table = AlertTable(PARTITION, RULES, now_us=now_us)
    for record in records:
        table.restore(record)
    return table


@pytest.fixture
def written() -> list[Output]:
    table = a_table()
    assert table.restored() == {FINDINGS: None}
    process(table.alerts, found(0, a_finding()))
    process(table.alerts, found(1, a_finding(1, tool_name="other")))
    return table.flush({FINDINGS: 2})


def test_what_changed_is_written_once_with_how_far_it_is(written: list[Output]) -> None:
    assert [output.key for output in written] == [
        *sorted(each.uid().encode() for each in (a_finding(), a_finding(tool_name="other"))),
        b"records/server",
        b"progress",
    ]
    assert {(output.role, output.partition) for output in written} == {(Role.ALERT_STATES, PARTITION)}
    assert orjson.loads(written[-1].value or b"") == {"position": 2, "states": 3}


def test_a_restored_table_knows_what_is_due(written: list[Output]) -> None:
    now_us = [at(2)]
    table = a_table(kept(written), lambda: now_us[0])
    table.restored()
    assert table.punctuate() == []
    due = now_us[0] = at(2) + PACING.repeat_interval_us
    (tick,) = table.punctuate()
    assert (tick.role, tick.partition, tick.value) == (Role.FINDINGS, PARTITION, Tick(time_us=due).encode())


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_table_of_which_something_is_gone_is_made_anew(written: list[Output], lost: int) -> None:
    left = [*written[:lost], *written[lost + 1 :]]
    table = a_table(kept(left))
    assert table.restored() == {FINDINGS: None}
    assert len(table) == 0
    again = table.flush({FINDINGS: 0})
    gone = {output.key for output in left} - {b"progress"}
    assert {output.key for output in again if output.value is None} == gone
    healed = a_table(kept([*left, *again]))
    assert healed.restored() == {FINDINGS: 0}
    assert len(healed) == 0


def test_states_that_come_back_are_not_taken_back(written: list[Output]) -> None:
    """A table made anew that counted an alert again writes its state, not a tombstone."""
    table = a_table(kept(written[:1]))
    table.restored()
    process(table.alerts, found(0, a_finding()))
    process(table.alerts, found(1, a_finding(1, tool_name="other")))
    assert table.flush({FINDINGS: 2}) == written


@pytest.mark.parametrize(
    ("key", "value"), [(b"uid", b"{"), (b"progress", b"{}"), (b"progress", b"3"), (b"\xff", b"{}")]
)
def test_what_is_no_state_stops_the_worker(key: bytes, value: bytes) -> None:
    """Somebody else's record, or one of a later version, is no reason to guess; the error says where it stands."""
    record = Record(Role.ALERT_STATES, Origin("states", PARTITION, 7), key, value)
    with raises_code("unknown_state", kind=IntegrityError, match="offset 7 of partition 3"):
        a_table([record])


def after(*found: Finding) -> AlertState:
    state: AlertState | None = None
    for finding in found:
        state = counted(state, finding, 3)
    assert state is not None
    return state


def test_partitions_are_counted_apart() -> None:
    state = after(a_finding(5), a_finding(origin=place(1, partition=1)), a_finding(origin=place(1, topic="calls")))
    assert state.count == 3
    assert state.applied == {"mcp.tools.list/0": (5,), "mcp.tools.list/1": (1,), "calls/0": (1,)}
    assert not was_applied(state, place(1))
    assert not was_applied(state, place(5), is_end=True)


def test_what_is_found_late_is_counted_and_what_is_remembered_is_bounded() -> None:
    most = DEFAULT_LIMITS.alert_origins_max
    state = after(*(a_finding(offset) for offset in range(10, 10 + 2 * most, 2)))
    assert not was_applied(state, place(11))
    state = counted(state, a_finding(11), 3)
    assert was_applied(state, place(11))
    assert was_applied(state, place(9))
    assert {len(offsets) for offsets in state.applied.values()} == {most}


def test_observers_are_bounded() -> None:
    most = DEFAULT_LIMITS.alert_observers_max
    state = after(*(a_finding(number, observer_id=f"observer-{number}") for number in range(most + 3)))
    assert len(state.observers) == most + 1
    assert state.observers[FURTHER_OBSERVERS] == 3
    assert counted(state, a_finding(most + 3, observer_id="observer-1"), 3).observers["observer-1"] == 2


def test_one_without_a_name_is_an_observer_too() -> None:
    state = after(a_finding(0), a_finding(1, observer_id=None), a_finding(2, observer_id="unknown"))
    assert len(state.observers) == len(state.active) == 3


def test_a_state_is_written_without_copying_what_it_holds() -> None:
    """A record may end a thousand alerts that a thousand observers saw each: copied, that took seconds."""
    state = after(*(a_finding(offset, observer_id=f"proxy-{offset}") for offset in range(3)))
    stored = write_record(state)
    assert stored["observers"] is state.observers
    assert read_record(AlertState, json.loads(json.dumps(stored))) == state


# --- open alerts, counted from their states -------------------------------------------------------------------


@pytest.fixture
def state() -> AlertState:
    alerts = Alerts(RULES)
    process(alerts, found(0, a_finding()))
    [state] = [each for each in alerts.states.values() if isinstance(each, AlertState)]
    return state


def open_count(*states: AlertState | None) -> OpenCount:
    alerts = Alerts(RULES)
    for each in states:
        alerts.follow({"uid": each})
    first = states[0]
    assert first is not None
    return alerts.open_counts()[first.severity_id]


@pytest.mark.parametrize("triage", [Triage(acknowledged_by="kim"), Triage(assigned_to="kim")])
def test_somebody_who_takes_it_has_reviewed_it(state: AlertState, triage: Triage) -> None:
    assert open_count(state, replace(state, triage=triage)) == OpenCount(1, None)


def test_a_comment_is_no_review(state: AlertState) -> None:
    """Whoever comments may be asking somebody to look."""
    assert open_count(state, replace(state, triage={"comment": "?"})).unreviewed_since_us == state.first_us


@pytest.mark.parametrize(
    "change",
    [{"closed": True}, {"reported": False}, {"raised": False}, {"fold": "a" * 64}, {"part_of": "a" * 64}],
    ids=lambda change: next(iter(change)),
)
def test_what_is_closed_suppressed_or_spoken_for_is_not_open(state: AlertState, change: dict[str, bool]) -> None:
    assert open_count(state, replace(state, **change)) == OpenCount(0, None)  # type: ignore[arg-type]


def test_what_is_forgotten_is_not_open(state: AlertState) -> None:
    assert open_count(state, None) == OpenCount(0, None)


def test_a_restored_stage_counts_as_the_one_before(state: AlertState) -> None:
    alerts = Alerts(RULES)
    for offset in range(3):
        process(alerts, found(offset, a_finding(server_id=f"server-{offset}")))
    assert Alerts(RULES, dict(alerts.states)).open_counts() == alerts.open_counts()
    assert sum(count.alerts for count in alerts.open_counts().values()) == 3
