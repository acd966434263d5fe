"""Laws of the indexes of one server: they answer what a scan of the whole state would."""

from collections.abc import Iterator
from dataclasses import replace
from unittest.mock import patch

from hypothesis import given

from assay_stream.bindings.fleet import Fleet, Observations
from assay_stream.bindings.server import ServerBindings
from assay_stream.bindings.sightings import OrderedRows, Sightings, shared_part
from assay_stream.bindings.timeline import AFTER_ALL_US
from assay_stream.limits import Limits
from assay_stream.model.facts import Rejection, Seen
from assay_stream.model.fields import Subject
from assay_stream.model.record import Origin, Record
from tests.property.test_registry_laws import LIMITS, SERVERS, a_state, histories
from tests.support import engine


def observations_of(server: ServerBindings) -> list[Seen]:
    every = (seen for timeline in server.observers.values() for seen in timeline)
    return sorted(every, key=lambda seen: seen.position)


def offered_pairs(server: ServerBindings) -> set[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    for timeline in server.observers.values():
        known: dict[str, str | None] = {}
        for seen in reversed(list(timeline)):
            for name, full in server.catalogue_of(seen).tools.items():
                known.setdefault(name, full)
            if seen.completeness == "complete":
                break
        found |= {(name, full) for name, full in known.items() if full is not None}
    return found


def without_eviction(limits: Limits) -> Limits:
    return replace(limits, servers_max=len(SERVERS))


def states(history: list[Record], limits: Limits) -> Iterator[ServerBindings]:
    state = a_state(without_eviction(limits))
    servers = [state.registry.bindings.server(name) for name in SERVERS]
    for server in servers:
        assert server.observations.latest_us == 0
        assert not server.fleet.catalogues_in_force()
    for record in history:
        engine.process(state, record)
        assert state.registry.bindings.observers_at_most == sum(len(server.observers) for server in servers)
        yield from servers


@given(histories(), LIMITS)
def test_an_index_that_was_kept_up_to_date_equals_one_that_is_built_anew(history: list[Record], limits: Limits) -> None:
    for server in states(history, limits):
        anew = Fleet(server.observers, server.catalogues, server.item_lists, server.fleet.is_in_force)
        assert anew.catalogues_in_force() == server.fleet.catalogues_in_force()
        server.fleet.forget_changes()
        assert vars(anew) == vars(server.fleet)
        index = Observations(server.table, server._rows())
        assert content(index) == content(server.observations)


def content(index: Observations) -> dict[str, object]:
    return {name: _plain(value) for name, value in vars(index).items()}


def _plain(value: object) -> object:
    match value:
        case dict():
            return {key: _plain(each) for key, each in value.items()}
        case OrderedRows():
            return [value.table.seen(number) for number in value.numbers]
        case Sightings():
            return None
        case _:
            return value


def _last(observations: list[Seen]) -> Seen | None:
    return shared_part(observations[-1]) if observations else None


def _first(found: Iterator[Seen]) -> Seen | None:
    return next((replace(seen, origin=seen.origin._replace(offset=-1)) for seen in found), None)


@given(histories(), LIMITS)
def test_the_sorted_observations_answer_what_a_scan_would(history: list[Record], limits: Limits) -> None:
    for server in states(history, limits):
        every = observations_of(server)
        for seen in every:
            before = [old for old in every if old.position < seen.position]
            assert _first(server.observations.back_from(seen.position)) == _last(before)
            alike = [old for old in before if old.auth_context == seen.auth_context]
            assert _first(server.observations.back_from(seen.position, "rights", seen.auth_context)) == _last(alike)
            stating = [old for old in before if old.prompts is not None]
            assert _first(server.observations.back_from(seen.position, "stating", Subject.PROMPT)) == _last(stating)
            assert server.observations.was_shown_complete(seen.catalogue, seen.position) == any(
                old.completeness == "complete" and old.catalogue == seen.catalogue for old in before
            )
        for place in (Origin("snapshots", 0, 3), Origin("other", 0, 3)):
            bad = Rejection(server_id="alpha", origin=place, time_us=1_772_323_204_000_000, code="not_json")
            assert server.observations.all_before(bad) == all(bad.is_after(seen) for seen in every)


@given(histories(), LIMITS)
def test_what_is_offered_is_what_a_scan_of_timelines_finds(history: list[Record], limits: Limits) -> None:
    for server in states(history, limits):
        pairs = offered_pairs(server)
        for name in {name for name, _ in pairs} | {"t", "u", "nobody"}:
            assert {(name, full) for full in server.fleet.offers(name)} == {pair for pair in pairs if pair[0] == name}
        latest = [timeline.latest for timeline in server.observers.values() if timeline.latest is not None]
        in_force = {seen.catalogue for seen in latest if server.in_force(seen, AFTER_ALL_US)}
        assert server.fleet.catalogues_in_force() == in_force
        for observer_id in server.observers:
            others = [server.catalogue_of(seen) for seen in latest if seen.observer_id != observer_id]
            shown_any = {
                (name, full) for other in others for name in other.tools for full in other.definitions_of(name)
            }
            for name, full in pairs | shown_any:
                shown = any(full in other.definitions_of(name) for other in others)
                assert server.fleet.shows_others(name, full, observer_id) == shown


@given(histories(), LIMITS)
def test_changes_are_the_difference_between_two_scans(history: list[Record], limits: Limits) -> None:
    """And the names before them are those of the first scan."""
    state = a_state(without_eviction(limits))
    server = state.registry.bindings.server("alpha")
    for record in history:
        before = offered_pairs(server)
        server.fleet.forget_changes()
        # It drops a small index once its changes were read.
        with patch.object(ServerBindings, "drop_small_indexes"):
            engine.process(state, record)
        after = offered_pairs(server)
        changes = dict(server.fleet.changes())
        assert {pair for pair, is_offered in changes.items() if is_offered} == after - before
        assert {pair for pair, is_offered in changes.items() if not is_offered} == before - after
        assert server.fleet.names_offered_before() == {name for name, _ in before}


@given(histories(), LIMITS)
def test_the_bytes_of_definitions_are_counted(history: list[Record], limits: Limits) -> None:
    for server in states(history, limits):
        kept = [*server.packed.values(), *(packed for packed in server.items.values() if packed is not None)]
        assert server.definitions_bytes == sum(map(len, kept))
