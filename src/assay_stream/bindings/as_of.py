"""As-of lookup: which definition was in force for a call. The first of these rules that applies:

1. ``exact``: the call's snapshot id names a list that the same observer published under it; or, where that observer
   published none under it, the one list that others did. Where theirs differ, the id is ignored.
2. ``observer``: the latest catalogue that the same observer saw at or before the call's event time.
3. ``server``: nothing in force from that observer, and every catalogue in force on that server at that time
   gives the tool the same digest.
4. Otherwise the call is unbound, and its evidence gives the reason.

What ends the force of a catalogue under rules 2 and 3, and for which observers: ``bindings.timeline``. Rule 3 does not
apply to a call by an observer whose own list was refused, or that got an announcement and has seen no list since.

Of very many rejections the oldest are merged into one, effective from the first one's time: a call between them is
unbound with ``snapshot_rejected`` although there may have been a good list. It loses a digest and gains none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from assay_stream.bindings.server import ServerBindings
from assay_stream.bindings.timeline import AFTER_ALL_US, BEFORE_ALL_US, latest_of_equal
from assay_stream.limits import Limits
from assay_stream.model.evidence import Scope, Unbound
from assay_stream.model.facts import Announcement, Seen
from assay_stream.model.record import Origin, Position
from assay_stream.schemes.fingerprint import Fingerprint

_ANYWHERE = "anywhere"
"""Key of the answer for any observer, among the answers cached for a server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """The result for one call.

    Args:
        scope: the rule that found the catalogue, ``None`` where none did.
        seen: the observation the answer rests on; without a scope, the last one of the observer.
        fingerprint: the tool's fingerprint in that catalogue.
        unbound: why there is no tool definition digest; ``None`` where there is one.
        span_us: event times from which, and before which, calls that differ only in time get the same result, until the
            next fact about the server; ``None`` without a scope.
    """

    scope: Scope | None = None
    seen: Seen | None = None
    fingerprint: Fingerprint | None = None
    unbound: Unbound | None = None
    span_us: tuple[int, int] | None = field(default=None, compare=False)


def bind(
    server: ServerBindings | None, *, tool_name: str, observer_id: str, snapshot_id: str | None, time_us: int
) -> Binding:
    """Find the definition that was in force for a call."""
    if server is None:
        return Binding(unbound=Unbound.NOT_OBSERVED)
    if snapshot_id is not None:  # rule 1
        named = server.named(snapshot_id, observer_id)
        if named:
            return _bind_to_all(server, named, tool_name, Scope.EXACT, (BEFORE_ALL_US, AFTER_ALL_US))
    timeline, own = server.observers.get(observer_id), None
    if timeline is None or not timeline.is_folded_at(time_us):
        own = None if timeline is None else timeline.as_of(time_us)
        if server.endings.refused_own(observer_id, own, time_us):
            return Binding(unbound=Unbound.SNAPSHOT_REJECTED)
        if server.endings.announced(observer_id, own, time_us) is not None:
            return Binding(seen=own, unbound=Unbound.LIST_CHANGE_ANNOUNCED)
        if own is not None and server.in_force(own, time_us):  # rule 2
            span_us = _span_over(server, [server.observers[observer_id].span_at(time_us)], time_us, observer_id)
            return _bind_to_one(server, own, tool_name, Scope.OBSERVER, span_us)
    if server.is_folded_at(time_us):
        # Some observer's list of then is folded away: neither that list nor the agreement of all can be claimed.
        return Binding(unbound=Unbound.HISTORY_FOLDED)
    anywhere = _in_force_anywhere(server, time_us, attributed=own is not None and own.attributed)
    if anywhere.lists:  # rule 3
        return _bind_to_all(server, anywhere.lists, tool_name, Scope.SERVER, anywhere.span_us)
    if anywhere.refused or any(bad.time_us <= time_us for bad in server.endings.rejections_of(None)):
        return Binding(unbound=Unbound.SNAPSHOT_REJECTED)
    return Binding(unbound=Unbound.NOT_OBSERVED)


def is_overdue(server: ServerBindings, announcement: Announcement, time_us: int, limits: Limits) -> bool:
    """Return True if a server has announced changes for too long, or too often, without a list that lasts."""
    limit_us = limits.announced_limit_ms * 1_000
    since_us, count = server.endings.unanswered(
        server.observers.get(announcement.observer_id),
        announcement,
        limit_us=limit_us,
        announcements_max=limits.announcements_max,
    )
    return time_us - since_us > limit_us or count >= limits.announcements_max


def _span_over(
    server: ServerBindings, spans: Sequence[tuple[int, int]], time_us: int, observer_id: str | None = None
) -> tuple[int, int]:
    ends_us = list(server.endings.times_us(observer_id))
    since_us = [since for since, _ in spans] + [end_us for end_us in ends_us if end_us <= time_us]
    until_us = [until for _, until in spans] + [end_us for end_us in ends_us if end_us > time_us]
    return max(since_us, default=BEFORE_ALL_US), min(until_us, default=AFTER_ALL_US)


class _Anywhere(NamedTuple):
    """What is in force at a time for any observer.

    Args:
        span_us: the period without changes, its end exclusive, microseconds since the epoch.
        lists: of equal lists the latest one, oldest first.
        refused: whether a refused record ended the force of any other.
    """

    span_us: tuple[int, int]
    lists: list[Seen]
    refused: bool


def _in_force_anywhere(server: ServerBindings, time_us: int, *, attributed: bool) -> _Anywhere:
    """Return what is in force at a time for any observer, as far as a caller may be bound to it.

    The answer for callers without lists of their own comes from all observers. It is computed once for all such calls,
    until something changes.
    """
    question = (_ANYWHERE, attributed)
    known: _Anywhere | None = server.answers.get(question)
    if known is not None and known.span_us[0] <= time_us < known.span_us[1]:
        return known
    # Both of one observer before the next one's, so that what is parsed for the one serves the other.
    stands = [(other.as_of(time_us), other.span_at(time_us)) for other in server.observers.values()]
    latest = [seen for seen, _ in stands if seen is not None]
    readable = [seen for seen in latest if server.in_force(seen, time_us)]
    if not attributed:
        readable = [seen for seen in readable if not server.endings.in_doubt(seen, time_us)]
    in_force = [seen for seen in readable if not server.endings.announced(seen.observer_id, seen, time_us)]
    span_us = _span_over(server, [span for _, span in stands], time_us)
    answer = _Anywhere(span_us, latest_of_equal(in_force), len(readable) < len(latest))
    server.answers.keep(question, answer)
    return answer


def _bind_to_one(server: ServerBindings, seen: Seen, tool_name: str, scope: Scope, span_us: tuple[int, int]) -> Binding:
    catalogue = server.catalogue_of(seen)
    if tool_name not in catalogue.tools:
        complete = seen.completeness == "complete"
        unbound = Unbound.NOT_LISTED if complete else Unbound.NOT_OBSERVED
        return Binding(scope=scope, seen=seen, unbound=unbound, span_us=span_us)
    full = catalogue.tools[tool_name]
    if full is None:
        return Binding(scope=scope, seen=seen, unbound=Unbound.AMBIGUOUS, span_us=span_us)
    found = server.fingerprint_of(catalogue, full)
    reason = Unbound.NOT_DIGESTIBLE if found.definition_digest() is None else None
    return Binding(scope=scope, seen=seen, fingerprint=found, unbound=reason, span_us=span_us)


def _bind_to_all(
    server: ServerBindings, candidates: list[Seen], tool_name: str, scope: Scope, span_us: tuple[int, int]
) -> Binding:
    """Return the common answer of several observations (oldest first), or that they disagree."""
    if len(candidates) == 1:
        return _bind_to_one(server, candidates[0], tool_name, scope, span_us)
    answers = [_bind_to_one(server, seen, tool_name, scope, span_us) for seen in candidates]
    # An incomplete list that lacks the tool says nothing about it.
    deciding = [answer for answer in answers if answer.unbound is not Unbound.NOT_OBSERVED]
    if not deciding:
        return answers[-1]
    verdicts = {(answer.unbound, answer.fingerprint and answer.fingerprint.definition_digest()) for answer in deciding}
    if len(verdicts) > 1:
        return Binding(scope=scope, unbound=Unbound.AMBIGUOUS, span_us=span_us)
    return deciding[-1]


_FIRST_ORIGIN = Origin(topic="", partition=-1, offset=-1)


def start_of(time_us: int) -> Position:
    return (time_us, _FIRST_ORIGIN)


def change_points(
    server: ServerBindings, since: Position, *, observer_id: str | None = None
) -> Iterator[tuple[Seen, Position, bool]]:
    """Yield what was in force at each change point, where the point is, and whether a control record made it.

    The pin evaluation of what a server offers can change by an observation or a control record. An observation is
    judged by everything set at its time or before, and so is in force for all of that microsecond; a control
    record is judged by what precedes it, inclusive. The points of one observer come in order.
    """
    if observer_id is not None:
        names: Iterable[str] = server.observers.keys() & {observer_id}
    elif server.controls.positions_between(since, None):
        names = server.observers
    else:
        # Without a control record at or after it only what was observed since is a change point.
        names = server.observations.observers_since(since)
    for name in names:
        for seen, end in server.observers[name].in_force_since(since):
            if not server.in_force(seen, max(seen.time_us, since[0])):
                continue
            if seen.position >= since:
                yield seen, seen.position, False
            first = max(start_of(seen.time_us + 1), since)
            for position in server.controls.positions_between(first, None if end is None else start_of(end[0])):
                if server.in_force(seen, position[0]):
                    yield seen, position, True
