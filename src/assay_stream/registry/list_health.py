"""Lists that cannot be relied on: never complete, late, cached for long, or announced and never sent.

Never complete, so that nothing can be called removed (by counts of kept observations alone):

1. An observer's lists count as never complete after ``incomplete_lists_max`` of them in a row, or after as many as are
   kept if older ones were folded away.
2. A server's do after as many lists by any observers if none was ever complete: proxies may change their ids with
   every session.
3. A complete list resolves it: for its observer, or for the fleet if it is the first one.

Late, compared with what the registry had applied before, not with a clock: see ``late_finding``.

Announced:

1. Between two lists of an observer the earliest announcement is a fact. Further ones change no answer.
2. A further one is not kept: a list dated between the two that is published after both keeps its force.
3. Announcements that go on for too long, or come too often, without a list that lasts are found once, until a list
   lasts (``Announcement.overdue``).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace
from operator import attrgetter

from assay_stream.bindings.as_of import is_overdue
from assay_stream.bindings.server import ServerBindings
from assay_stream.limits import Limits
from assay_stream.model.cloudevents import check_observer, event_time_us
from assay_stream.model.facts import Announcement, Seen
from assay_stream.model.finding import Finding, Resolution, uid_of
from assay_stream.model.kinds import Kind
from assay_stream.model.observation import ListChangedEvent
from assay_stream.model.record import Position
from assay_stream.registry.baselines import finding_in
from assay_stream.registry.ledger import Step
from assay_stream.registry.resolution import resolutions
from assay_stream.registry.retention import fold_unlisted


def never_complete(server: ServerBindings, seen: Seen, limits: Limits) -> Iterator[Finding]:
    """Yield a finding if an observation is the latest of too many incomplete ones."""
    if seen.completeness == "complete":
        return
    others = limits.incomplete_lists_max - 1
    if _is_run(server, seen, others) or _is_fleets(server, others):
        yield finding_in(seen, Kind.LISTS_NEVER_COMPLETE)


def resolved_by_complete_list(server: ServerBindings, seen: Seen, limits: Limits) -> list[Resolution]:
    """Return the resolution of findings that lists were never complete."""
    if seen.completeness != "complete":
        return []
    for_all = _is_fleets(server, limits.incomplete_lists_max)
    if not for_all and not _is_run(server, seen, limits.incomplete_lists_max):
        return []
    ended = uid_of(Kind.LISTS_NEVER_COMPLETE, seen.server_id, None, None, None)
    return resolutions([ended], "list_completed", seen, None if for_all else seen.observer_id)


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


def cached_long(seen: Seen, ttl_ms: int | None, limits: Limits) -> Iterator[Finding]:
    """Yield a finding if a list may be cached for longer than the bound (``ttlMs``, MCP 2026-07-28, SEP-2549)."""
    if ttl_ms is not None and ttl_ms > limits.list_ttl_ms_max:
        yield finding_in(seen, Kind.LIST_CACHED_LONG)


def late_finding(server: ServerBindings, seen: Seen, limits: Limits) -> Finding | None:
    """Return the finding that a list was late, ``None`` where it was not or changed nothing.

    A list is late where its event time is further than the bound before the latest applied for its server by any
    observer. It changes nothing where its observer's timeline gave the same tools for its time. The finding is dated by
    that latest time, at which the lateness showed: a backlog is found at one time.
    """
    own = server.observers.get(seen.observer_id)
    in_force = None if own is None else own.as_of(seen.time_us)
    if in_force is not None and in_force.catalogue == seen.catalogue:
        return None
    latest_us = server.observations.latest_us
    late_ms = (latest_us - seen.time_us) // 1_000
    if late_ms <= limits.late_limit_ms:
        return None
    return finding_in(seen, Kind.SNAPSHOT_LATE, time_us=latest_us, late_ms=late_ms)


def apply_announcement(step: Step, event: ListChangedEvent) -> None:
    """Apply the announcement of a changed list.

    Raises:
        InputError: if the observer is not the one that the header names.
    """
    data, origin, limits = event.data, step.record.origin, step.limits
    check_observer(step.record, data.observer_id, limits=limits)
    server = step.bindings.server(data.server_id)
    announcement = Announcement(
        server_id=data.server_id, observer_id=data.observer_id, origin=origin, time_us=event_time_us(event)
    )
    earlier, later = _neighbours(server, announcement)
    if earlier is not None and not _lists_between(server, earlier, announcement.position):
        if not earlier.overdue and is_overdue(server, earlier, announcement.time_us, limits):
            step.publish(replace(earlier, overdue=True))
            step.outputs.append(finding_in(announcement, Kind.LIST_CHANGE_UNANSWERED).output())
        return
    overdue = is_overdue(server, announcement, announcement.time_us, limits)
    step.publish(replace(announcement, overdue=overdue))
    if later is not None and not _lists_between(server, announcement, later.position):
        step.retract(later.key())
    fold_unlisted(step, server)
    if overdue and not (earlier is not None and earlier.overdue):
        step.outputs.append(finding_in(announcement, Kind.LIST_CHANGE_UNANSWERED).output())


def _neighbours(server: ServerBindings, announcement: Announcement) -> tuple[Announcement | None, Announcement | None]:
    announced = server.endings.announcements_of(announcement.observer_id)
    index = bisect_right(announced, announcement.position, key=attrgetter("position"))
    return announced[index - 1] if index else None, announced[index] if index < len(announced) else None


def _lists_between(server: ServerBindings, earlier: Announcement, until: Position) -> bool:
    timeline = server.observers.get(earlier.observer_id)
    answer = None if timeline is None else timeline.first_after(earlier.position)
    return answer is not None and answer.position < until
