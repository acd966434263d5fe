"""What is remembered of an alert."""

from __future__ import annotations

import json

from assay_stream.alerts.life_cycle import FURTHER_OBSERVERS, counted, was_applied
from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.model.alert_state import AlertState
from assay_stream.model.finding import Finding
from assay_stream.model.wire import read_record, write_record
from tests.support.findings import a_finding, at, place


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


def test_the_span_is_of_event_times() -> None:
    state = after(a_finding(0, 5), a_finding(1, 1), a_finding(2, 3))
    assert (state.first_us, state.last_us) == (at(1), at(5))


def test_observers_are_bounded() -> None:
    most = DEFAULT_LIMITS.alert_observers_max
    state = after(*(a_finding(number, observer_id=f"observer-{number}") for number in range(most + 3)))
    assert len(state.observers) == most + 1
    assert state.observers[FURTHER_OBSERVERS] == 3
    assert counted(state, a_finding(most + 3, observer_id="observer-1"), 3).observers["observer-1"] == 2


def test_one_without_a_name_is_an_observer_too() -> None:
    state = after(a_finding(0), a_finding(1, observer_id=None), a_finding(2, observer_id="unknown"))
    assert len(state.observers) == len(state.active) == 3


def test_a_state_survives_storage() -> None:
    state = after(a_finding(0), a_finding(1, observer_id="bob"))
    assert read_record(AlertState, json.loads(json.dumps(write_record(state)))) == state


def test_a_state_is_written_without_copying_what_it_holds() -> None:
    """A record may end a thousand alerts that a thousand observers saw each: copied, that took seconds."""
    state = after(*(a_finding(offset, observer_id=f"proxy-{offset}") for offset in range(3)))
    stored = write_record(state)
    assert stored["observers"] is state.observers
    assert read_record(AlertState, json.loads(json.dumps(stored))) == state
