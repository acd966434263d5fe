"""The last definition shown under a name."""

import pytest

from assay_stream.bindings.server import ServerBindings
from assay_stream.bindings.state import Bindings
from assay_stream.model.facts import ToolFact
from assay_stream.model.fields import LeftOut
from assay_stream.registry.analysis import Analysis, last_shown
from assay_stream.work import UNLIMITED, Work
from tests.support.facts import PACKED, SERVER, a_catalogue, a_fingerprint, seen


@pytest.fixture
def server() -> ServerBindings:
    """Two observers: one was shown ``t`` as 1 and then nothing of it, the other one later as 2."""
    bindings = Bindings(keep_definitions=True)
    for name in ("1", "2", "3"):
        bindings.apply(
            ToolFact.of(server_id=SERVER, server_scoped=True, fingerprint=a_fingerprint(name), packed=PACKED)
        )
    for digest, tools in {"one": {"t": "1"}, "two": {"t": "2"}, "none": {"u": "3"}}.items():
        bindings.apply(a_catalogue(digest, tools))
    bindings.apply(seen("alice", 1, "one", offset=1))
    bindings.apply(seen("alice", 2, "none", offset=2))
    bindings.apply(seen("bob", 3, "two", offset=3))
    return bindings.server(SERVER)


def shown(server: ServerBindings, observer_id: str, time_us: int, *, units: int = UNLIMITED) -> dict[str, str]:
    asked = seen(observer_id, time_us, "none", offset=100)
    found = last_shown(server, asked, ("t", "u", "never"), analysis := Analysis(Work(units)))
    assert analysis.left_out == ({LeftOut.HISTORY} if units < UNLIMITED else set())
    return {name: print_.full for name, print_ in found.items()}


def test_what_the_same_observer_was_shown_goes_first(server: ServerBindings) -> None:
    assert shown(server, "alice", 9) == {"t": "full:1", "u": "full:3"}


def test_then_what_anybody_was_shown_last(server: ServerBindings) -> None:
    assert shown(server, "carol", 9) == {"t": "full:2", "u": "full:3"}


def test_only_what_came_before_counts(server: ServerBindings) -> None:
    assert shown(server, "carol", 2) == {"t": "full:1", "u": "full:3"}
    assert shown(server, "carol", 0) == {}


def test_it_draws_on_the_budget_of_the_record(server: ServerBindings) -> None:
    assert shown(server, "alice", 9, units=3) == {"u": "full:3"}
