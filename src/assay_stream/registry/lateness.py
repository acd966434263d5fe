"""Lists that came too late for the calls between: by what the registry had applied before, and by no clock."""

from __future__ import annotations

from assay_stream.limits import Limits
from assay_stream.model.facts import Seen
from assay_stream.model.finding import Finding
from assay_stream.model.kinds import Kind
from assay_stream.registry.state import ServerBindings


def late_finding(server: ServerBindings, seen: Seen, limits: Limits) -> Finding | None:
    """Return the finding that a list was late, ``None`` where it was not or changed nothing.

    A list is late where its event time is further than the bound before the latest that was applied for its
    server, whoever observed that. It changes nothing where its observer's timeline gave the same tools for its
    time. The finding is dated by that latest time, at which the lateness showed: a backlog is found at one time.
    """
    own = server.observers.get(seen.observer_id)
    in_force = None if own is None else own.as_of(seen.time_us)
    if in_force is not None and in_force.catalogue == seen.catalogue:
        return None
    latest_us = server.observations.latest_us
    late_ms = (latest_us - seen.time_us) // 1_000
    if late_ms <= limits.late_limit_ms:
        return None
    return Finding(
        kind=Kind.SNAPSHOT_LATE,
        server_id=seen.server_id,
        observer_id=seen.observer_id,
        time_us=latest_us,
        origin=seen.origin,
        snapshot_id=seen.snapshot_id,
        late_ms=late_ms,
    )
