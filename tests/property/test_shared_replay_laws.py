"""Laws of a replay shared by several processes: the same outputs, in the same order, for any number of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack

from hypothesis import given
from hypothesis import strategies as st

from assay_stream.files.log_spool import Log
from assay_stream.model.record import Record, Role
from assay_stream.replay.order import Placed
from assay_stream.replay.results import _checkpoint_json
from assay_stream.replay.run import Replay, ResumePoint, spooled
from assay_stream.replay.shares import AppliedSpool, CallShare, applied_blocks, applied_in, joined_blocks, joined_in
from tests.property.test_replay_laws import FLEETS, PRODUCER, any_records, logged


def shared(spools: ExitStack, records: list[Record], processes: int, checkpoint: ResumePoint | None = None) -> Replay:
    """A replay whose calls come in blocks from shares, as processes of their own would send them."""
    applied = spools.enter_context(AppliedSpool())
    parts: list[tuple[list[Log], list[bytes]]] = []
    for number in range(processes):
        share = CallShare(number, processes)
        taken = (record for record in records if record.role is not Role.CALLS or share.takes(*record.origin[:2]))
        spool = spools.enter_context(spooled(taken))
        made = Replay(spool, producer=PRODUCER, snapshot_partitions=2)
        if share.is_first:
            for record in (record for block in applied_blocks(spool) for record in applied_in(block)):
                applied.add(record)
        applied.note([(log, spool.count(log)) for log in made.logs])
        if checkpoint is not None:
            made.resume_from(checkpoint)
        parts.append((made.logs, list(joined_blocks(made.joined()))))
    applied.finish()

    def joined(numbers: Mapping[Log, int]) -> list[Iterator[Placed]]:
        return [joined_in(blocks, [numbers[log] for log in logs]) for logs, blocks in parts]

    return Replay(applied, producer=PRODUCER, snapshot_partitions=2, joined=joined)


def alone(spools: ExitStack, records: list[Record]) -> Replay:
    """The replay by one process."""
    return Replay(spools.enter_context(spooled(records)), producer=PRODUCER, snapshot_partitions=2)


@given(any_records(), st.integers(1, 4))
def test_any_number_of_processes_gives_the_outputs_of_one(records: list[Record], processes: int) -> None:
    """Step by step: evidence, refusals, findings and alerts, whatever was refused, repeated or out of order."""
    with ExitStack() as spools:
        assert list(shared(spools, records, processes).steps()) == list(alone(spools, records).steps())


@given(FLEETS, st.integers(1, 4), st.integers(1, 4))
def test_a_fleet_is_joined_alike_by_any_number(fleet: object, call_partitions: int, processes: int) -> None:
    """Lists that change while calls go on, some of which name a list."""
    with ExitStack() as spools:
        records = logged(fleet, snapshot_partitions=2, call_partitions=call_partitions)  # type: ignore[arg-type]
        assert list(shared(spools, records, processes).steps()) == list(alone(spools, records).steps())


@given(any_records(), st.integers(1, 4), st.integers(1, 4), st.integers(0, 30))
def test_another_number_of_processes_resumes_where_one_stood(
    records: list[Record], before: int, after: int, steps: int
) -> None:
    """A resume point is that of the single process, and the rest follows from it."""
    with ExitStack() as spools:
        interrupted, whole = shared(spools, records, before), alone(spools, records)
        for made in (interrupted, whole):
            for _ in zip(range(steps), made.steps(), strict=False):
                pass
        point = interrupted.resume_point()
        assert _checkpoint_json(point) == _checkpoint_json(whole.resume_point())
        resumed = shared(spools, records, after, point)
        resumed.resume_from(point)
        going_on = alone(spools, records)
        going_on.resume_from(point)
        assert list(resumed.steps()) == list(going_on.steps())


@given(any_records(), st.integers(1, 4))
def test_what_is_read_counts_alike(records: list[Record], processes: int) -> None:
    """Progress, and the check for input without a readable record, go by these numbers."""
    with ExitStack() as spools:
        assert shared(spools, records, processes).calls_done() == alone(spools, records).calls_done()
