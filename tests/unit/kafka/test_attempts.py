"""Records that kill their worker: what is tried, counted and set aside, across restarts."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, strategies as st

from assay_stream.kafka.partition import Suspicion, SuspicionLevel, suspicion_after
from assay_stream.model.record import Origin

ATTEMPTS_MAX = 2


def at(offset: int) -> Origin:
    return Origin(topic="snapshots", partition=0, offset=offset)


@dataclass
class Log:
    size: int
    killers: set[int]
    committed: int = 0
    metadata: str = ""
    deaths: int = 0
    done: list[int] = field(default_factory=list)
    set_aside: list[int] = field(default_factory=list)
    attempts: dict[int, int] = field(default_factory=dict)

    def live(self, *, batch: int, first_slice: int = 1_000) -> bool:
        """Work on batches until one kills. A worker that has just begun does little in the time for one commit."""
        slice_records = first_slice
        suspicion = suspicion_after(self.metadata)
        while self.committed < self.size:
            available = min(batch, self.size - self.committed)
            plan = suspicion.plan(at(self.committed), available, attempts_max=ATTEMPTS_MAX)
            if plan.mark is not None:
                self.metadata = plan.mark.encode()
            done = min(plan.count, slice_records)
            taken = range(self.committed, self.committed + done)
            if plan.set_aside:
                self.set_aside.extend(taken)
            else:
                for offset in taken:
                    self.attempts[offset] = self.attempts.get(offset, 0) + 1
                if self.killers.intersection(taken):
                    self.deaths += 1
                    return False
                self.done.extend(taken)
            self.committed += done
            self.metadata = ""
            suspicion = suspicion.after(done, of=plan.count)
            slice_records = self.size
        return True


def test_a_killer_is_found_in_its_batch_and_set_aside() -> None:
    """Every other record is processed once, in order."""
    log = Log(size=1_000, killers={700})
    while not log.live(batch=400):
        assert log.deaths < 10
    assert log.set_aside == [700]
    assert log.done == [offset for offset in range(1_000) if offset != 700]
    assert log.deaths == 5  # unmarked, in a batch, in a few, and twice by itself


@given(
    size=st.integers(1, 300),
    killers=st.sets(st.integers(0, 299), max_size=4),
    batch=st.integers(1, 100),
    first_slice=st.integers(1, 100),
)
def test_nothing_but_killers_is_set_aside(size: int, killers: set[int], batch: int, first_slice: int) -> None:
    """However many there are, however they lie, and however little a worker does at first: each record ends in one
    place, after bounded attempts."""
    log = Log(size=size, killers=killers)
    while not log.live(batch=batch, first_slice=first_slice):
        assert log.deaths <= 5 * len(killers)
    assert log.set_aside == sorted(offset for offset in killers if offset < size)
    assert log.done == [offset for offset in range(size) if offset not in killers]


def test_an_owner_that_is_not_killed_marks_its_first_batch_only() -> None:
    suspicion = suspicion_after("")
    first = suspicion.plan(at(0), 10, attempts_max=ATTEMPTS_MAX)
    assert first.mark == Suspicion(level=SuspicionLevel.BATCH, left=10)
    second = suspicion.after(10, of=10).plan(at(10), 10, attempts_max=ATTEMPTS_MAX)
    assert (second.count, second.mark, second.set_aside) == (10, None, False)


def test_a_mark_survives_as_metadata() -> None:
    """What is read back is what was written; the next owner looks closer."""
    mark = Suspicion(level=SuspicionLevel.ONE, left=7, record=at(3), attempt=2)
    assert mark.encode() == '{"level":"one","left":7,"record":["snapshots",0,3],"attempt":2}'
    assert suspicion_after(mark.encode()) == mark
    assert suspicion_after(Suspicion(left=7).encode()) == Suspicion(level=SuspicionLevel.FEW, left=7)


def test_metadata_of_somebody_else_counts_as_none() -> None:
    """Kafka's own tools leave notes there too."""
    for metadata in (
        "",
        "moved by hand",
        "[]",
        '{"level": "none"}',
        '{"level":"one","left":1,"record":[1],"attempt":1}',
        '{"level":"batch","left":0,"record":null,"attempt":0}',
        '{"level":"few","left":-3,"record":null,"attempt":0}',
        '{"level":"one","left":1,"record":["snapshots",0,3],"attempt":-9}',
    ):
        assert suspicion_after(metadata) == Suspicion()
        assert suspicion_after(metadata).plan(at(0), 5, attempts_max=ATTEMPTS_MAX).count == 5


def test_attempts_are_counted_for_the_record_that_they_name() -> None:
    """One that stands in its place begins anew."""
    suspicion = Suspicion(level=SuspicionLevel.ONE, left=5, record=at(3), attempt=ATTEMPTS_MAX)
    assert suspicion.plan(at(3), 5, attempts_max=ATTEMPTS_MAX).set_aside
    other = suspicion.plan(at(4), 5, attempts_max=ATTEMPTS_MAX)
    assert other.mark == Suspicion(level=SuspicionLevel.ONE, left=5, record=at(4), attempt=1)
