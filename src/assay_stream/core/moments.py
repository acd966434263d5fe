"""The moments at which the standing of what a server offers can change: an observation, or a control record."""

from __future__ import annotations

from collections.abc import Iterator

from assay_stream.core.bindings import ServerBindings
from assay_stream.core.facts import Seen
from assay_stream.core.record import Position


def moments(
    server: ServerBindings, since: Position, *, observer_id: str | None = None
) -> Iterator[tuple[Seen, Position, bool]]:
    """Yield each moment from a position on: what was in force then, where the moment stands, and what made it.

    The last is true where a control record made the moment, false where the observation itself did. Moments of one
    observer come in order.

    Args:
        server: everything known of the server.
        since: the first position that counts.
        observer_id: only what this observer saw, ``None`` for everybody.
    """
    for name, timeline in server.observers.items():
        if observer_id is not None and name != observer_id:
            continue
        for seen, end in timeline.in_force_since(since):
            if not server.in_force(seen, max(seen.time_us, since[0])):
                continue
            if seen.position >= since:
                yield seen, seen.position, False
            for position in server.controls.positions_between(max(seen.position, since), end):
                if position[0] > seen.time_us and server.in_force(seen, position[0]):
                    yield seen, position, True
