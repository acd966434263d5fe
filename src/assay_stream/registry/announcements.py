"""Announced changes in the registry: which are facts, and when it is a finding that no list follows.

1. Between two lists of an observer the earliest announcement is a fact. Further ones change no answer.
2. A further one is not remembered: a list dated between the two that is published after both keeps its force.
3. Announcements that go on for too long, or come too often, without a list that lasts are found once, until a list
   lasts (``Announcement.overdue``).
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace

from assay_stream.limits import Limits
from assay_stream.model.facts import Announcement
from assay_stream.model.finding import Finding
from assay_stream.model.kinds import Kind
from assay_stream.model.record import Output, Position, Record
from assay_stream.registry.as_of import is_overdue
from assay_stream.registry.ledger import Ledger
from assay_stream.registry.state import ServerBindings


def announce(ledger: Ledger, record: Record, announcement: Announcement, limits: Limits) -> list[Output]:
    """Apply an announced change, and return the facts and findings to publish."""
    server = ledger.bindings.server(announcement.server_id)
    earlier, later = _neighbours(server, announcement)
    if earlier is not None and not _lists_between(server, earlier, announcement.position):
        if earlier.overdue or not is_overdue(server, earlier, announcement.time_us, limits):
            return []
        return [ledger.publish(record, replace(earlier, overdue=True)), _finding(announcement).output()]
    outputs: list[Output] = []
    overdue = is_overdue(server, announcement, announcement.time_us, limits)
    told_before = overdue and earlier is not None and earlier.overdue
    outputs.append(ledger.publish(record, replace(announcement, overdue=overdue)))
    if later is not None and not _lists_between(server, announcement, later.position):
        outputs.append(ledger.retract(record, later.key()))
    outputs.extend(ledger.fold_unlisted(record, server))
    if overdue and not told_before:
        outputs.append(_finding(announcement).output())
    return outputs


def _neighbours(server: ServerBindings, announcement: Announcement) -> tuple[Announcement | None, Announcement | None]:
    told = server.endings.announcements_of(announcement.observer_id)
    index = bisect_right(told, announcement.position, key=_position)
    return told[index - 1] if index else None, told[index] if index < len(told) else None


def _lists_between(server: ServerBindings, earlier: Announcement, until: Position) -> bool:
    timeline = server.observers.get(earlier.observer_id)
    answer = None if timeline is None else timeline.first_after(earlier.position)
    return answer is not None and answer.position < until


def _finding(announcement: Announcement) -> Finding:
    return Finding(
        kind=Kind.LIST_CHANGE_UNANSWERED,
        server_id=announcement.server_id,
        observer_id=announcement.observer_id,
        time_us=announcement.time_us,
        origin=announcement.origin,
    )


def _position(announcement: Announcement) -> Position:
    return announcement.position
