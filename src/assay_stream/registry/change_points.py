"""Change points: where the pin evaluation of what a server offers can change, by an observation or a control record.

An observation is judged by everything that was set at its time or before, and so is in force for all of that
microsecond; a control record is judged by what stands up to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from assay_stream.model.facts import Seen
from assay_stream.model.record import Origin, Position
from assay_stream.registry.server import ServerBindings

_FIRST_ORIGIN = Origin(topic="", partition=-1, offset=-1)


def start_of(time_us: int) -> Position:
    """Return a position before that of every record of a time."""
    return (time_us, _FIRST_ORIGIN)


def change_points(
    server: ServerBindings, since: Position, *, observer_id: str | None = None
) -> Iterator[tuple[Seen, Position, bool]]:
    """Yield what was in force at each change point, where the point is, and whether a control record made it.

    The points of one observer come in order.
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
