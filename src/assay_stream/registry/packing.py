"""Packing: repeated lists of an observer become one fact, so that the binding topic holds a row for each of them.

Once the latest observations of an observer, as many as ``seen_run_rows_min``, stand as single facts and repeat each
other, a run takes their place: it is written, and tombstones for them, in the transaction of the list that makes them
enough. It joins the run before it where both repeat each other and fit into one. What is packed follows from the state
alone, so that a restart goes on as before.
"""

from __future__ import annotations

from assay_stream.limits.core import Limits
from assay_stream.model.facts import Seen
from assay_stream.model.record import Output, Record
from assay_stream.model.run_facts import RunCut, SeenRun
from assay_stream.registry.ledger import Ledger
from assay_stream.registry.runs import run_fact
from assay_stream.registry.timeline import Run, Timeline


def pack_repeats(ledger: Ledger, record: Record, timeline: Timeline, seen: Seen) -> list[Output]:
    """Pack the latest observations of an observer if they are enough.

    Args:
        seen: what was observed just now.
    """
    limits, place = ledger.limits, seen.origin[:2]
    last = next((run for run in reversed(timeline.runs) if run.key[:2] == place), None)
    count = _packable(timeline, seen, -1 if last is None else last.last, limits)
    if count < limits.seen_run_rows_min:
        return []
    tail = [timeline.table.seen(number) for number in timeline.numbers[-count:]]
    key, entries = tail[0].origin, tail
    if last is not None and _can_join(timeline, last, count, limits):
        key = last.key
        entries = [timeline.table.seen(number) for number in timeline.numbers[-count - last.rows :]]
    outputs = [ledger.publish(record, run_fact(key, entries))]
    return outputs + ledger.retract(record, *[packed.key() for packed in tail])


def take_away(ledger: Ledger, record: Record, timeline: Timeline, folded: Seen) -> list[Output]:
    """Take an observation back, be it a fact of its own or a row of a run."""
    run = timeline.run_of(folded.origin)
    if run is None:
        return ledger.retract(record, folded.key())
    cut = RunCut(
        server_id=folded.server_id,
        observer_id=folded.observer_id,
        origin=run.key,
        gone=tuple(sorted({*timeline.cuts.get(run.key, ()), folded.origin.offset - run.key.offset})),
    )
    if run.rows == 1:
        return ledger.retract(record, (SeenRun.fact_kind, *cut.key()[1:]))
    outputs = [ledger.publish(record, cut)]
    if 2 * len(cut.gone) >= run.rows:
        # Written anew with what is left: each row as often as its run can be halved.
        left = [timeline.table.seen(number) for number in timeline.in_run(run)]
        outputs.append(ledger.publish(record, run_fact(run.key, left)))
        outputs += ledger.retract(record, cut.key())
    return outputs


def _packable(timeline: Timeline, seen: Seen, packed_until: int, limits: Limits) -> int:
    """Return how many of the latest observations a run may stand for: none where ``seen`` is not the latest.

    No other observation of the observer may have an offset among theirs, which one that was dated ahead may have.
    """
    table, numbers = timeline.table, timeline.numbers
    if len(numbers) < limits.seen_run_rows_min or table.position(numbers[-1]) != seen.position:
        return 0
    kind, tail, before = table.kinds[numbers[-1]], list[int](), seen.origin.offset + 1
    for number in reversed(numbers[-limits.seen_run_rows_max :]):
        offset = table.offsets[number]
        if table.kinds[number] != kind or not packed_until < offset < before:
            break
        tail.append(offset)
        before = offset
    if len(tail) < limits.seen_run_rows_min:
        return 0
    highest = _highest_before(timeline, len(tail))
    return sum(offset > highest for offset in tail)


def _highest_before(timeline: Timeline, count: int) -> int:
    """Return the highest offset, in the partition of the latest observation, of all but the latest so many."""
    table, numbers = timeline.table, timeline.numbers
    place = table.origin(numbers[-1])[:2]
    return max((table.offsets[each] for each in numbers[:-count] if table.shared(each).origin[:2] == place), default=-1)


def _can_join(timeline: Timeline, last: Run, count: int, limits: Limits) -> bool:
    """Return True if the run before can take up the latest observations."""
    table, numbers, together = timeline.table, timeline.numbers, count + last.rows
    if last.key in timeline.cuts or together > limits.seen_run_rows_max or together > len(numbers):
        return False
    kind = table.kinds[numbers[-1]]
    # Whatever was inserted among them stands for itself.
    if any(
        table.kinds[each] != kind or not last.first <= table.offsets[each] <= last.last
        for each in numbers[-together:-count]
    ):
        return False
    return _highest_before(timeline, together) <= last.first
