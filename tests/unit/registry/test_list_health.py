"""Lists that are never complete: counted, found and ended."""

from typing import Any

import pytest

from assay_stream.bindings.server import ServerBindings
from assay_stream.bindings.state import Bindings
from assay_stream.limits import DEFAULT_LIMITS, Limits
from assay_stream.model.fields import Completeness
from assay_stream.model.finding import Finding
from assay_stream.model.kinds import Kind
from assay_stream.registry.snapshot_step import cached_long, never_complete, resolved_by_complete_list
from tests.support.facts import SERVER, a_catalogue, seen
from tests.support.lists import TOOL, Shown

LIMITS = Limits(incomplete_lists_max=3)


def a_server(*shown: tuple[str, Completeness]) -> ServerBindings:
    bindings = Bindings(keep_definitions=True)
    bindings.apply(a_catalogue("one", {}))
    for offset, (observer_id, completeness) in enumerate(shown):
        bindings.apply(seen(observer_id, offset, "one", offset=offset, completeness=completeness))
    return bindings.server(SERVER)


def is_found(server: ServerBindings, observer_id: str = "alice", completeness: Completeness = "partial") -> bool:
    shown = seen(observer_id, 100, "one", offset=100, completeness=completeness)
    return bool(list(never_complete(server, shown, LIMITS)))


def ended_for(server: ServerBindings, observer_id: str = "alice") -> list[str | None]:
    shown = seen(observer_id, 100, "one", offset=100)
    return [resolution.observer_id for resolution in resolved_by_complete_list(server, shown, LIMITS)]


def test_a_run_is_counted_from_the_last_complete_list() -> None:
    partial: tuple[str, Completeness] = ("alice", "partial")
    whole: tuple[str, Completeness] = ("alice", "complete")
    assert is_found(a_server(whole, partial, partial))
    assert not is_found(a_server(partial, whole, partial))
    assert not is_found(a_server(whole, partial, partial), completeness="complete")
    assert not is_found(a_server(whole, partial, partial), observer_id="bob")


def test_without_any_complete_list_the_fleet_counts() -> None:
    server = a_server(("bob", "unknown"), ("carol", "partial"))
    assert is_found(server)
    assert not is_found(a_server(("bob", "complete"), ("carol", "partial"), ("dave", "partial")))


def test_history_that_was_folded_away_does_not_shorten_a_run() -> None:
    """A server whose lists are so large that few are kept is found too."""
    server = a_server(("bob", "complete"), ("alice", "partial"))
    assert not is_found(server)
    server.truncate_history("alice", 1)
    assert is_found(server)


def test_a_complete_list_ends_it_for_its_observer_or_for_all() -> None:
    """For all where nobody had seen one; for nobody where nothing was found."""
    partial: tuple[str, Completeness] = ("alice", "partial")
    assert ended_for(a_server(("bob", "complete"), partial, partial, partial)) == ["alice"]
    assert ended_for(a_server(partial, partial, partial), "bob") == [None]
    assert ended_for(a_server(partial)) == []


def test_a_list_that_is_cached_for_more_than_a_day_is_found() -> None:
    shown = seen("alice", 100, "one", offset=100)
    day_ms = 24 * 60 * 60 * 1_000
    found = {ttl_ms: len(list(cached_long(shown, ttl_ms, Limits()))) for ttl_ms in (None, 0, day_ms, day_ms + 1)}
    assert found == {None: 0, 0: 0, day_ms: 0, day_ms + 1: 1}


NEW = TOOL | {"description": "two"}
LIMIT_S = DEFAULT_LIMITS.late_limit_ms // 1_000


@pytest.fixture
def server() -> Shown:
    shown = Shown()
    shown.show(silent=True, second=0)
    shown.show(silent=True, second=600)
    return shown


def late(server: Shown, second: int, *tools: dict[str, Any], **fields: Any) -> list[Finding]:
    findings = server.show(silent=True, second=second, tools=tools or (NEW,), **fields)
    return [finding for finding in findings if finding.kind is Kind.SNAPSHOT_LATE]


def test_a_list_that_changes_the_past_was_late(server: Shown) -> None:
    (finding,) = late(server, 300)
    assert (finding.late_ms, finding.observer_id, finding.snapshot_id) == (300_000, "alice", "snapshot-2")
    assert finding.time_us == 1_772_323_200_000_000 + 600_000_000
    assert (finding.tool_name, finding.before, finding.after, finding.known) == (None, None, None, False)


def test_the_bound_is_what_counts_as_in_time(server: Shown) -> None:
    assert late(server, 600 - LIMIT_S) == []
    assert len(late(server, 600 - LIMIT_S - 1)) == 1


def test_a_list_that_changes_nothing_of_the_past_is_not_late(server: Shown) -> None:
    """It says what was in force anyway; nor is one that is published twice late twice."""
    assert late(server, 300, TOOL) == []
    assert len(late(server, 200, snapshot_id="same")) == 1
    assert late(server, 200, snapshot_id="same") == []


def test_any_observer_s_later_list_makes_it_late(server: Shown) -> None:
    """And an observer without a list before was without one in force: calls in between were bound otherwise."""
    assert len(late(server, 300, TOOL, observer="bob")) == 1
    assert late(server, 601, observer="bob") == []
