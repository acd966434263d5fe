"""Facts of lists, single and in runs, applied to a server: see ``registry.run_ranges`` for the rules."""

from __future__ import annotations

from assay_stream.model.facts import Seen
from assay_stream.model.record import Origin
from assay_stream.model.run_facts import RunCut, SeenRun
from assay_stream.registry.run_ranges import RunRange
from assay_stream.registry.runs import rows_of, shared_by
from assay_stream.registry.server import ServerBindings
from assay_stream.registry.timeline import Timeline


def apply_list(server: ServerBindings, fact: Seen | SeenRun | RunCut) -> None:
    match fact:
        case SeenRun():
            _apply_run(server, fact)
        case RunCut():
            _apply_cut(server, fact)
        case _ if server.timeline(fact.observer_id).run_of(fact.origin) is None:
            server.see(fact)


def forget_list(kind: str, server: ServerBindings, observer_id: str, origin: Origin) -> None:
    """Forget a fact of one of the three kinds; a single one that a run has taken over is forgotten already."""
    timeline = server.observers.get(observer_id)
    if timeline is None:
        return
    if kind == SeenRun.fact_kind:
        _forget_run(server, timeline, observer_id, origin)
    elif kind == RunCut.fact_kind:
        # Its run is written again, or taken back, with it.
        timeline.runs_at(origin[:2]).cut(origin.offset, ())
    elif timeline.run_of(origin) is None:
        server.unsee(observer_id, origin)


def _apply_run(server: ServerBindings, fact: SeenRun) -> None:
    timeline, place, key = server.timeline(fact.observer_id), fact.origin[:2], fact.origin.offset
    ranges = timeline.runs_at(place)
    was, gone, rows = ranges.get(key), ranges.gone(key), rows_of(fact)
    run = RunRange(key, rows[0][1], rows[-1][1], len(rows))
    ranges.put(run)
    is_longer = was is not None and run.rows >= was.rows and rows[was.rows - 1][1] == was.last
    if was is not None and is_longer and not gone and run.first == was.first:
        rows = rows[was.rows :]
    elif gone and was is not None and run.rows == was.rows - len(gone):
        return  # Written again with what is left: that is what is here.
    else:
        rows = [row for row in rows if row[1] - key not in gone]
        offsets = {row[1] for row in rows}
        stale = {key + further for further in gone}
        if was is not None:
            stale |= {seen.origin.offset for seen in timeline.in_run(place, was)} - offsets
        for offset in sorted(stale - offsets):
            server.unsee(fact.observer_id, Origin(*place, offset))
    server.see_rows(shared_by(fact), rows)


def _apply_cut(server: ServerBindings, fact: RunCut) -> None:
    ranges = server.timeline(fact.observer_id).runs_at(fact.origin[:2])
    key = fact.origin.offset
    before = ranges.gone(key)
    ranges.cut(key, fact.gone)
    for further in fact.gone:
        if further not in before:
            server.unsee(fact.observer_id, fact.origin._replace(offset=key + further))


def _forget_run(server: ServerBindings, timeline: Timeline, observer_id: str, origin: Origin) -> None:
    """Remove what is left of a run."""
    place = origin[:2]
    ranges = timeline.runs_at(place)
    run = ranges.get(origin.offset)
    if run is None:
        return
    ranges.drop(run.key)
    left = [run.first] if run.rows == 1 else [seen.origin.offset for seen in timeline.in_run(place, run)]
    for offset in left:
        server.unsee(observer_id, Origin(*place, offset))
