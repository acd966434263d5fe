"""Packing: repeated lists of an observer become one fact, so that the binding topic holds a row for each of them.

Once the latest observations of an observer, as many as ``seen_run_rows_min``, stand as single facts and repeat each
other, a run takes their place: it is written, and tombstones for them, in the transaction of the list that makes them
enough. It joins the run before it where both repeat each other and fit into one. What is packed follows from the state
alone, so that a restart goes on as before.
"""

from __future__ import annotations

from itertools import islice

from assay_stream.limits.core import Limits
from assay_stream.model.facts import Seen
from assay_stream.model.record import Origin, Output, Record
from assay_stream.model.run_facts import RunCut, SeenRun
from assay_stream.registry.ledger import Ledger
from assay_stream.registry.run_ranges import RunRanges
from assay_stream.registry.runs import run_fact, shared_by
from assay_stream.registry.timeline import Timeline


def pack_repeats(ledger: Ledger, record: Record, timeline: Timeline, seen: Seen) -> list[Output]:
    """Pack the latest observations of an observer if they are enough.

    Args:
        seen: what was observed just now.
    """
    limits, place = ledger.limits, seen.origin[:2]
    ranges = next((known for known in timeline.runs if known.place == place), None)
    packed_until = -1 if ranges is None else ranges.last_offset
    first = timeline.nth_latest(limits.seen_run_rows_min)
    if first is None or not _repeats(first, seen) or first.origin.offset <= packed_until:
        return []
    tail = _tail(timeline, seen, packed_until, limits)
    if len(tail) < limits.seen_run_rows_min:
        return []
    joined = _joined(timeline, ranges, tail, limits)
    key = joined[1] if joined else tail[0].origin
    outputs = [ledger.publish(record, run_fact(key, [*joined[0], *tail] if joined else tail))]
    return outputs + ledger.retract(record, *[packed.key() for packed in tail])


def take_away(ledger: Ledger, record: Record, timeline: Timeline, folded: Seen) -> list[Output]:
    """Take an observation back, be it a fact of its own or a row of a run."""
    run, place = timeline.run_of(folded.origin), folded.origin[:2]
    if run is None:
        return ledger.retract(record, folded.key())
    origin, gone = Origin(*place, run.key), timeline.runs_at(place).gone(run.key)
    cut = RunCut(
        server_id=folded.server_id,
        observer_id=folded.observer_id,
        origin=origin,
        gone=tuple(sorted({*gone, folded.origin.offset - run.key})),
    )
    if run.rows == 1:
        return ledger.retract(record, (SeenRun.fact_kind, *cut.key()[1:]))
    outputs = [ledger.publish(record, cut)]
    if 2 * len(cut.gone) >= run.rows:
        # Written anew with what is left: each row as often as its run can be halved.
        outputs.append(ledger.publish(record, run_fact(origin, timeline.in_run(place, run))))
        outputs += ledger.retract(record, cut.key())
    return outputs


def _repeats(older: Seen, newer: Seen) -> bool:
    return older.catalogue == newer.catalogue and older.origin[:2] == newer.origin[:2]


def _tail(timeline: Timeline, seen: Seen, packed_until: int, limits: Limits) -> list[Seen]:
    """Return the latest observations that a run may stand for, oldest first, none where ``seen`` is not the latest.

    No other observation of the observer may have an offset among theirs, which one that was dated ahead may have.
    """
    shared, before = shared_by(seen), seen.origin.offset + 1
    tail: list[Seen] = []
    for entry in islice(timeline.newest_first(), limits.seen_run_rows_max):
        offset = entry.origin.offset
        if not packed_until < offset < before or shared_by(entry) != shared:
            break
        tail.append(entry)
        before = offset
    if not tail or tail[0] != seen:
        return []
    highest = _highest_before(timeline, len(tail), seen)
    return [entry for entry in reversed(tail) if entry.origin.offset > highest]


def _highest_before(timeline: Timeline, count: int, seen: Seen) -> int:
    """Return the highest offset, in the partition of an observation, of all but the latest so many."""
    topic, partition, _ = seen.origin
    places = (other.origin for other in islice(timeline.newest_first(), count, None))
    return max((place[2] for place in places if place[1] == partition and place[0] == topic), default=-1)


def _joined(
    timeline: Timeline, ranges: RunRanges | None, tail: list[Seen], limits: Limits
) -> tuple[list[Seen], Origin] | None:
    """Return the observations of the run before, and the origin in its key, if it can take a tail up."""
    last = None if ranges is None else ranges.last()
    if ranges is None or last is None or ranges.gone(last.key) or last.rows + len(tail) > limits.seen_run_rows_max:
        return None
    entries = list(islice(timeline.newest_first(), len(tail), len(tail) + last.rows))[::-1]
    # Whatever was inserted among them stands for itself.
    if any(not last.first <= entry.origin.offset <= last.last or not _same_place(entry, tail[0]) for entry in entries):
        return None
    if shared_by(entries[-1]) != shared_by(tail[0]):
        return None
    if _highest_before(timeline, len(tail) + last.rows, tail[0]) > last.first:
        return None
    return entries, Origin(*ranges.place, last.key)


def _same_place(one: Seen, other: Seen) -> bool:
    return one.origin[:2] == other.origin[:2]
