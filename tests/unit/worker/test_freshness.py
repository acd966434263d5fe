"""How late evidence is and who was heard of, where publishers choose clocks and names."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from assay_stream.limits import OBSERVER_ALIVE_S
from assay_stream.model.cloudevents import Call
from assay_stream.model.record import Origin, Record, Role
from assay_stream.worker import stages
from assay_stream.worker.stages import EvidenceLatency, RecentObservers

NOW_MS = 1_800_000_000_000


@dataclass
class Clock:
    now_ms: int = NOW_MS

    def __call__(self) -> int:
        return self.now_ms


@dataclass
class FakeCall:
    observer_id: str = "proxy-1"
    time_us: int = (NOW_MS - 2_000) * 1_000


@dataclass
class Measured:
    found: list[tuple[str, list[int]]] = field(default_factory=list)
    """What each time counts from, and how long it took, milliseconds."""
    observers: RecentObservers = field(default_factory=lambda: RecentObservers(Clock()))

    def __post_init__(self) -> None:
        self.latency = EvidenceLatency(
            lambda since, now_ms, times_ms: self.found.append((since, [now_ms - each for each in times_ms])),
            self.observers,
            Clock(),
        )

    def join(self, record: Record, **call: Any) -> None:
        self.latency.joined([(record, cast("Call", FakeCall(**call)))])


def test_a_call_is_measured_from_both_times_when_its_evidence_is_committed() -> None:
    measured = Measured()
    measured.join(Record(Role.CALLS, Origin("calls", 0, 0), None, b"", timestamp_ms=NOW_MS - 500))
    assert measured.found == []
    measured.latency.committed()
    measured.latency.committed()
    assert measured.found == [("observed", [2_000]), ("logged", [500])]
    assert measured.observers.count() == 1


def test_calls_are_let_go_of_before_their_commit() -> None:
    """Those of a whole batch would push the next ones out of the processor's cache: a tenth of the join's time."""
    call = FakeCall()
    kept = weakref.ref(call)
    record = Record(Role.CALLS, Origin("calls", 0, 0), None, b"", timestamp_ms=NOW_MS)
    Measured().latency.joined([(record, cast("Call", call))])
    del call
    assert kept() is None


def test_an_observer_counts_until_it_is_silent_for_long() -> None:
    """Once, however often it is heard of."""
    clock = Clock()
    observers = RecentObservers(clock)
    observers.heard("a", clock.now_ms)
    observers.heard("a", clock.now_ms)
    observers.heard("b", clock.now_ms - OBSERVER_ALIVE_S * 500)
    assert observers.count() == 2
    clock.now_ms += OBSERVER_ALIVE_S * 600
    assert observers.count() == 1
    clock.now_ms += OBSERVER_ALIVE_S * 1_000
    assert observers.count() == 0


def test_an_old_list_makes_nobody_alive() -> None:
    """As those that a worker reads again when it starts."""
    observers = RecentObservers(Clock())
    observers.heard("a", NOW_MS - OBSERVER_ALIVE_S * 1_000)
    assert observers.count() == 0


def test_a_clock_that_is_ahead_keeps_nobody_alive_for_ever() -> None:
    """A list of next year counts as of now."""
    clock = Clock()
    observers = RecentObservers(clock)
    observers.heard("a", clock.now_ms * 2)
    clock.now_ms += OBSERVER_ALIVE_S * 1_000
    assert observers.count() == 0


def test_made_up_names_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The count stands at its bound, and room is made once names are old."""
    monkeypatch.setattr(stages, "OBSERVERS_COUNTED_MAX", 3)
    clock = Clock()
    observers = RecentObservers(clock)
    for number in range(10):
        observers.heard(f"name-{number}", clock.now_ms)
    assert observers.count() == 3
    clock.now_ms += OBSERVER_ALIVE_S * 1_000
    observers.heard("proxy-1", clock.now_ms)
    assert observers.count() == 1
