"""Lists that are never complete: where nothing can be called removed, whatever is taken away.

Rules, from counts of kept observations alone:

1. An observer's lists count as never complete after ``incomplete_lists_max`` of them in a row, or after as many as
   are kept where older ones were folded away.
2. A server's do after as many lists by any observers, where nobody ever saw a complete one: proxies may change
   their ids with every session.
3. A complete list puts an end to it: for its observer, or for the fleet where nobody had seen one.
"""

from __future__ import annotations

from collections.abc import Iterator

from assay_stream.limits import Limits
from assay_stream.model.facts import Seen
from assay_stream.model.finding import Finding, uid_of
from assay_stream.model.finding_topic import Resolution
from assay_stream.model.kinds import Kind
from assay_stream.registry.state import ServerBindings


def never_complete(server: ServerBindings, seen: Seen, limits: Limits) -> Iterator[Finding]:
    """Yield that lists are never complete, where an observation is the latest of too many that are not.

    Args:
        limits: how many are too many.
    """
    if seen.completeness == "complete":
        return
    others = limits.incomplete_lists_max - 1
    if _is_run(server, seen, others) or _is_fleets(server, others):
        yield Finding(
            kind=Kind.LISTS_NEVER_COMPLETE,
            server_id=seen.server_id,
            observer_id=seen.observer_id,
            time_us=seen.time_us,
            origin=seen.origin,
            snapshot_id=seen.snapshot_id,
        )


def resolved_by_complete_list(server: ServerBindings, seen: Seen, limits: Limits) -> list[Resolution]:
    """Return the end of lists that were never complete.

    Args:
        limits: how many incomplete ones are too many.
    """
    if seen.completeness != "complete":
        return []
    for_all = _is_fleets(server, limits.incomplete_lists_max)
    if not for_all and not _is_run(server, seen, limits.incomplete_lists_max):
        return []
    return [
        Resolution(
            server_id=seen.server_id,
            uids=(uid_of(Kind.LISTS_NEVER_COMPLETE, seen.server_id, None, None, None),),
            reason="list_completed",
            observer_id=None if for_all else seen.observer_id,
            time_us=seen.time_us,
            origin=seen.origin,
        )
    ]


def _is_run(server: ServerBindings, seen: Seen, length: int) -> bool:
    timeline = server.observers.get(seen.observer_id)
    if timeline is None:
        return False
    run = 0
    for old in timeline.back_from(seen.position):
        if old.completeness == "complete":
            return False
        run += 1
        if run >= length:
            return True
    return run > 0 and timeline.horizon_us is not None


def _is_fleets(server: ServerBindings, length: int) -> bool:
    return not server.observations.any_complete and len(server.observations) >= length
