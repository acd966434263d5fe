"""Made-up servers: a registry and a join remember a bounded number of them, and the fleet's own first."""

from typing import Any

import pytest

from assay_stream.bindings.state import Bindings
from assay_stream.limits import Limits
from assay_stream.model.evidence import Producer
from assay_stream.model.record import Origin, Output, Record, Role
from tests.support import engine
from tests.support.engine import EngineState
from tests.support.events import TEN_O_CLOCK_MS, Outcome, a_call, a_snapshot, record_of
from tests.support.fleet import START, _event

SERVERS_MAX = OBSERVERS_MAX = 128
TOOL = {"name": "read_file", "description": "Reads a file.", "inputSchema": {"type": "object"}}


class Fleet:
    def __init__(self, **limits: int) -> None:
        self.state = EngineState(
            producer=Producer(version="1"), limits=Limits(**limits or {"servers_max": SERVERS_MAX})
        )
        self.lists = 0
        self.facts: dict[bytes, bytes] = {}
        self.labels: list[str] = []

    def apply(self, record: Record) -> list[Output]:
        outputs = engine.process(self.state, record)
        for output in outputs:
            self.labels.append(output.label)
            if output.role is Role.BINDINGS:
                if output.value is None:
                    self.facts.pop(output.key or b"", None)
                else:
                    self.facts[output.key or b""] = output.value
            if output.role in (Role.BINDINGS, Role.FINDINGS):
                place = Origin(output.role.value, 0, len(self.labels))
                self.apply(Record(output.role, place, output.key, output.value, timestamp_ms=output.timestamp_ms))
        return outputs

    def lists_tools(self, server_id: str, *tools: dict[str, Any], value: bytes | None = None, **fields: Any) -> None:
        snapshot_id = f"list-{self.lists}"
        value = value or a_snapshot(*tools, server_id=server_id, number=self.lists, snapshot_id=snapshot_id, **fields)
        key, offset = server_id.encode(), self.lists
        self.apply(record_of(Role.SNAPSHOTS, value, key=key, offset=offset, timestamp_ms=TEN_O_CLOCK_MS))
        self.lists += 1

    def floods(self, servers: int, **fields: Any) -> None:
        first = self.lists
        for number in range(first, first + servers):
            self.lists_tools(f"made-up-{number}", TOOL | {"name": f"tool_{number}"}, **fields)

    def calls(self, server_id: str, tool_name: str = "read_file") -> dict[str, Any]:
        value = a_call(server_id=server_id, tool_name=tool_name, second=10)
        call = record_of(Role.CALLS, value, offset=0, timestamp_ms=TEN_O_CLOCK_MS)
        return Outcome(engine.process(self.state, call)).evidence[0]


@pytest.mark.parametrize("fields", [{}, {"value": b"{"}], ids=["lists", "refused records"])
def test_made_up_servers_take_a_bounded_amount_of_memory(fields: dict[str, Any]) -> None:
    fleet = Fleet()
    fleet.floods(4 * SERVERS_MAX, **fields)
    assert len(fleet.state.registry.bindings) <= SERVERS_MAX
    assert len(fleet.state.join.bindings.servers) <= SERVERS_MAX
    assert len({key.split(b'"')[3] for key in fleet.facts}) <= SERVERS_MAX
    assert fleet.labels.count("fact:evicted") >= 3 * SERVERS_MAX


def test_claims_of_made_up_servers_are_forgotten() -> None:
    fleet = Fleet()
    fleet.floods(4 * SERVERS_MAX)
    assert sum(key.startswith("names/") for key in fleet.state.alerts.states) <= SERVERS_MAX


def test_the_fleet_is_served_first() -> None:
    fleet = Fleet()
    for _ in range(2):
        for name in ("ours-1", "ours-2"):
            fleet.lists_tools(name, TOOL)
    fleet.lists_tools("seen-once", TOOL)
    assert fleet.calls("seen-once")["binding"]["scope"] == "observer"
    fleet.floods(2 * SERVERS_MAX)
    assert [fleet.calls(name)["binding"]["scope"] for name in ("ours-1", "ours-2")] == ["observer"] * 2
    assert fleet.calls("seen-once")["unbound_reason"] == "definition_not_observed"
    fleet.lists_tools("seen-once", TOOL)
    assert fleet.calls("seen-once")["binding"]["scope"] == "observer"


def test_a_server_that_was_decided_about_stays() -> None:
    fleet = Fleet()
    fleet.lists_tools("pinned", TOOL)
    data = {"server_id": "pinned", "tool_name": "read_file", "scheme": "assay.v1", "author": "ann", "reason": "review"}
    value = _event("assay.control.pin.set", "pin-1", START, data | {"value": "sha256:" + "0" * 64})
    fleet.apply(record_of(Role.CONTROL, value, key=b"pinned", offset=0, timestamp_ms=TEN_O_CLOCK_MS))
    fleet.floods(2 * SERVERS_MAX)
    assert fleet.calls("pinned")["binding"]["scope"] == "observer"
    assert fleet.calls("pinned")["pin"]["status"] == "mismatch"


def test_made_up_observers_take_a_bounded_amount_of_memory() -> None:
    """Those that listed a server again stay; what only made-up ones were shown is forgotten, and claimed by nobody."""
    fleet = Fleet(observers_max=OBSERVERS_MAX)
    for _ in range(2):
        fleet.lists_tools("shared", TOOL, observer_id="ours")
    for number in range(4 * OBSERVERS_MAX):
        shown = TOOL | {"name": f"tool_{number}"}
        fleet.lists_tools("shared", shown, observer_id=f"made-up-{number}")
    for stage in (fleet.state.registry.bindings, fleet.state.join.bindings):
        server = stage.find("shared")
        assert server is not None
        assert len(server.observers) <= OBSERVERS_MAX
        assert len(server.catalogues) <= OBSERVERS_MAX
        assert "ours" in server.observers
    assert sum(key.startswith(b'["seen"') for key in fleet.facts) <= OBSERVERS_MAX
    assert sum(key.startswith("names/") for key in fleet.state.alerts.states) <= OBSERVERS_MAX
    assert fleet.labels.count("fact:evicted") >= 3 * OBSERVERS_MAX


def test_a_restart_knows_what_is_left_of_a_flood_of_observers() -> None:
    fleet = Fleet(observers_max=OBSERVERS_MAX)
    for number in range(3 * OBSERVERS_MAX):
        fleet.lists_tools("shared", TOOL | {"description": f"Reads {number % 5}."}, observer_id=f"observer-{number}")
    restored = Bindings(keep_definitions=True)
    for key, value in fleet.facts.items():
        restored.take(Record(Role.BINDINGS, Origin("bindings", 0, 0), key, value))
    before, after = fleet.state.registry.bindings.find("shared"), restored.find("shared")
    assert before is not None
    assert after is not None
    assert set(before.observers) == set(after.observers)
    assert set(before.tools) == set(after.tools)
    assert before.fleet.catalogues_in_force() == after.fleet.catalogues_in_force()


def test_a_new_observer_after_a_restart_has_no_other_server_read() -> None:
    """Reading all of them would hold the first new observer up for seconds."""
    fleet = Fleet()
    fleet.floods(10)
    restarted = Fleet()
    for key, value in fleet.facts.items():
        restarted.state.registry.bindings.take(Record(Role.BINDINGS, Origin("bindings", 0, 0), key, value))
    restarted.lists = fleet.lists
    restarted.lists_tools("made-up-0", TOOL, observer_id="new")
    assert len(restarted.state.registry.bindings._unread) == 9


def test_a_join_that_restarts_forgets_the_same_history_of_an_observer_that_is_gone() -> None:
    """An observer whose history was folded is evicted: a call before that is bound as by a join that never knew it."""
    fleet = Fleet(observers_max=OBSERVERS_MAX, timeline_entries_max=2)
    for number in range(4):
        fleet.lists_tools("shared", TOOL | {"description": f"Reads {number}."}, observer_id="folded")
    for number in range(2 * OBSERVERS_MAX):
        for _ in range(2):
            fleet.lists_tools("shared", TOOL, observer_id=f"observer-{number}")
    restored = Bindings()
    for key, value in fleet.facts.items():
        restored.take(Record(Role.BINDINGS, Origin("bindings", 0, 0), key, value))
    before, after = fleet.state.join.bindings.find("shared"), restored.find("shared")
    assert before is not None
    assert after is not None
    assert "folded" not in before.observers
    assert before.horizon_us == after.horizon_us


def test_a_server_of_made_up_observers_goes_with_the_last_of_them() -> None:
    fleet = Fleet(observers_max=OBSERVERS_MAX)
    fleet.floods(2 * OBSERVERS_MAX)
    assert len(fleet.state.registry.bindings) <= OBSERVERS_MAX
    assert len(fleet.state.join.bindings.servers) <= OBSERVERS_MAX
