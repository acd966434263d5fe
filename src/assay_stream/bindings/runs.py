"""Facts of lists, single and in runs, applied to a server.

The registry packs repeated lists (``registry.folding``): a run, then tombstones of the single facts that it stands for.

1. Every observation of its observer with an offset between the first and the last of a run is a row of it, or is gone.
   So a single fact or its tombstone with such an offset changes nothing, whether it comes before or after its run.
2. A run is only ever written again with more rows at its end, or with those that are left of it.
3. A cut names rows of a run that were folded away since the run was written.

The records of one transaction may come in any order, and compaction may leave any of them out that a later one with the
same key replaces.
"""

from __future__ import annotations

from collections.abc import Sequence

from assay_stream.bindings.server import ServerBindings
from assay_stream.bindings.sightings import SHARED_FIELDS, Row, shared_part
from assay_stream.bindings.timeline import Run, Timeline
from assay_stream.model.facts import Seen
from assay_stream.model.record import Origin
from assay_stream.model.run_facts import RunCut, SeenRun


def rows_of(run: SeenRun) -> list[Row]:
    time_us, offset = run.time_us, run.origin.offset
    return [(time_us + later_us, offset + further, snapshot_id) for later_us, further, snapshot_id in run.rows]


def run_fact(key: Origin, entries: Sequence[Seen]) -> SeenRun:
    """Return the fact that stands for observations.

    Args:
        key: origin of the first observation that the run ever had.
        entries: ordered by both time and offset, equal in everything else.
    """
    first = entries[0]
    return SeenRun(
        origin=key,
        time_us=first.time_us,
        rows=tuple((e.time_us - first.time_us, e.origin.offset - key.offset, e.snapshot_id) for e in entries),
        **{name: getattr(first, name) for name in SHARED_FIELDS},
    )


def apply_list(server: ServerBindings, fact: Seen | SeenRun | RunCut) -> None:
    timeline = server.timeline(fact.observer_id)
    match fact:
        case SeenRun():
            _apply_run(server, timeline, fact)
        case RunCut():
            before = timeline.cuts.get(fact.origin, ())
            timeline.put_cut(fact.origin, fact.gone)
            _unsee(server, fact.observer_id, fact.origin, {*fact.gone} - {*before})
        case _ if timeline.run_of(fact.origin) is None:
            server.see(fact)


def forget_list(kind: str, server: ServerBindings, observer_id: str, origin: Origin) -> None:
    """Forget a fact of one of the three kinds; a single one absorbed by a run is already forgotten."""
    timeline = server.observers.get(observer_id)
    if timeline is None:
        return
    if kind == SeenRun.fact_kind:
        run = timeline.run_at(origin)
        if run is not None:
            timeline.drop_run(origin)
            left = [timeline.table.offsets[number] - origin.offset for number in timeline.in_run(run)]
            _unsee(server, observer_id, origin, {*left})
    elif kind == RunCut.fact_kind:
        # Its run is written again, or taken back, with it.
        timeline.put_cut(origin, ())
    elif timeline.run_of(origin) is None:
        server.unsee(observer_id, origin)


def _apply_run(server: ServerBindings, timeline: Timeline, fact: SeenRun) -> None:
    key, rows = fact.origin, rows_of(fact)
    was, gone = timeline.run_at(key), timeline.cuts.get(key, ())
    run = Run(key, rows[0][1], rows[-1][1], len(rows))
    timeline.put_run(run)
    is_longer = was is not None and run.rows >= was.rows and rows[was.rows - 1][1] == was.last
    if was is not None and is_longer and not gone and run.first == was.first:
        rows = rows[was.rows :]
    elif gone and was is not None and run.rows == was.rows - len(gone):
        return  # Written again with what is left: that is what is here.
    else:
        rows = [row for row in rows if row[1] - key.offset not in gone]
        stale = {*gone}
        if was is not None:
            stale |= {timeline.table.offsets[number] - key.offset for number in timeline.in_run(was)}
        _unsee(server, fact.observer_id, key, stale - {row[1] - key.offset for row in rows})
    server.see_rows(shared_part(fact), rows)


def _unsee(server: ServerBindings, observer_id: str, key: Origin, further: set[int]) -> None:
    """Remove observations by offset, relative to that of a run's key."""
    for each in sorted(further):
        server.unsee(observer_id, key._replace(offset=key.offset + each))
