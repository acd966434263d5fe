"""Where the pin evaluation of a server can change."""

from __future__ import annotations

from assay_stream.model.record import Position
from assay_stream.registry.change_points import change_points, start_of
from assay_stream.registry.server import ServerBindings
from tests.support.facts import SERVER, a_catalogue, a_pin, bindings_with, rejection, seen

NOW = a_catalogue("one", {"t": "a"})


def told(server: ServerBindings, since: Position, **options: str) -> list[tuple[str, int, bool]]:
    """Snapshot id, time and maker of each change point."""
    return [(found.snapshot_id, place[0], by) for found, place, by in change_points(server, since, **options)]


def a_server(*facts: object) -> ServerBindings:
    """A server with one catalogue and these facts."""
    bindings = bindings_with(NOW)
    for fact in facts:
        bindings.apply(fact)  # type: ignore[arg-type]
    return bindings.server(SERVER)


def test_every_observation_is_a_change_point() -> None:
    """From the start of a time on, that time included."""
    server = a_server(seen("alice", 1, "one", offset=0), seen("alice", 2, "one", offset=1))
    assert told(server, start_of(0)) == [("snapshot-0", 1, False), ("snapshot-1", 2, False)]
    assert told(server, start_of(2)) == [("snapshot-1", 2, False)]


def test_a_control_record_is_a_change_point_of_what_is_in_force() -> None:
    """It concerns the observation before it and not the one that was replaced, nor the one that came later."""
    server = a_server(
        seen("alice", 1, "one", offset=0),
        seen("alice", 3, "one", offset=1),
        seen("alice", 7, "one", offset=2),
        a_pin("a", time_us=5, offset=0),
    )
    assert ("snapshot-1", 5, True) in told(server, start_of(0))
    assert [point for point in told(server, start_of(0)) if point[2]] == [("snapshot-1", 5, True)]


def test_a_control_record_is_a_change_point_for_each_observer_or_for_the_one_asked_for() -> None:
    """Each observer has something in force."""
    server = a_server(
        seen("alice", 1, "one", offset=0), seen("bob", 2, "one", offset=1), a_pin("a", time_us=5, offset=0)
    )
    assert told(server, start_of(5)) == [("snapshot-0", 5, True), ("snapshot-1", 5, True)]
    assert told(server, start_of(5), observer_id="bob") == [("snapshot-1", 5, True)]


def test_at_one_time_only_the_observation_is_a_change_point() -> None:
    """An observation is judged by all that was set at its time, and what it replaced is in force no more."""
    server = a_server(
        seen("alice", 1, "one", offset=0), seen("alice", 5, "one", offset=1), a_pin("a", time_us=5, offset=0)
    )
    assert told(server, start_of(2)) == [("snapshot-1", 5, False)]


def test_what_was_ended_by_a_rejection_has_no_change_points_any_more() -> None:
    """A control record after it finds nothing in force; one before it does."""
    server = a_server(
        seen("alice", 1, "one", offset=0),
        rejection(4, offset=1),
        a_pin("a", time_us=3, offset=0),
        a_pin("b", time_us=5, offset=1),
    )
    assert told(server, start_of(0)) == [("snapshot-0", 1, False), ("snapshot-0", 3, True)]
    assert told(server, start_of(4)) == []


def test_the_start_of_a_time_is_before_all_that_stands_at_it() -> None:
    """Whatever its topic, partition and offset."""
    assert start_of(5) < seen("alice", 5, "one", offset=0).position
    assert start_of(5) > seen("alice", 4, "one", offset=99).position
