"""What puts an end to alerts, as a dialogue of lists and decisions, minutes apart."""

from datetime import timedelta
from typing import Any

import pytest

from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.evidence import Producer
from assay_stream.model.finding import Finding, Resolution, decode_entry
from assay_stream.model.record import Origin, Output, Record, Role
from assay_stream.registry.processor import Registry, process
from assay_stream.schemes.fingerprint import fingerprint
from tests.acceptance.test_binding_dialogue import FIRST, OTHER, SECOND
from tests.acceptance.test_signatures_dialogue import SignedTalk
from tests.support.events import Outcome, event_at, snapshot_data
from tests.support.fleet import START
from tests.support.inventory import without_inventory

OLD = {"name": "t", "description": "one", "inputSchema": {"type": "object"}}
NEW = OLD | {"description": "two"}
NEWER = OLD | {"description": "three"}
U = {"name": "u", "inputSchema": {"type": "object"}}


class Fleet:
    def __init__(self) -> None:
        self.registry = Registry(producer=Producer(version="1"))
        self.count = 0
        self.ends: list[Resolution] = []
        self.active: dict[tuple[str, str | None], set[str]] = {}
        self._names: dict[str, tuple[str, str | None]] = {}

    def shows(self, *tools: Any, observer: str = "alice", complete: bool = True, minute: int | None = None) -> None:
        listed = {"server_id": "server", "observer_id": observer, "snapshot_id": f"snapshot-{self.count}"}
        data = snapshot_data(*tools, **listed, completeness="complete" if complete else "partial")
        self._publish(Role.SNAPSHOTS, "mcp.tools.list.observed", data, minute)

    def decides(self, act: str, minute: int | None = None, **data: Any) -> None:
        fields = {"server_id": "server", "author": "ann", "reason": "review", **data}
        self._publish(Role.CONTROL, f"assay.control.{act}", fields, minute)

    def pins(self, act: str, tool: dict[str, Any], scheme: str = "assay.v1", minute: int | None = None) -> None:
        value = fingerprint(tool, server_id=None).schemes[scheme]
        self.decides(f"pin.{act}", minute, tool_name="t", scheme=scheme, value=value)

    def garbles(self, value: bytes) -> None:
        self._apply(Role.SNAPSHOTS, value)

    def _publish(self, role: Role, kind: str, data: dict[str, Any], minute: int | None) -> None:
        at = START + timedelta(minutes=self.count if minute is None else minute)
        outputs = self._apply(role, event_at(at, kind, str(self.count), data))
        assert not [output for output in outputs if output.role is Role.REJECTED], outputs

    def _apply(self, role: Role, value: bytes) -> list[Output]:
        place = Origin(topic=role.value, partition=0, offset=self.count)
        moment_ms = 1_772_323_200_000 + self.count * 60_000
        self.count += 1
        record = Record(role=role, origin=place, key=b"server", value=value, timestamp_ms=moment_ms)
        outputs = without_inventory(process(self.registry, record))
        self.ends = []
        for output in outputs:
            if output.role is Role.FINDINGS:
                self._note(decode_entry(output.value))
        return outputs

    def _note(self, entry: Any) -> None:
        if isinstance(entry, Finding):
            self._names[entry.uid()] = (entry.kind.value, entry.after or entry.reason)
            if not entry.known:
                self.active.setdefault(self._names[entry.uid()], set()).add(entry.observer_id or "")
        elif isinstance(entry, Resolution):
            self.ends.append(entry)
            for uid in entry.uids:
                who = self.active.get(self._names.get(uid, ("", None)), set())
                if entry.observer_id is None:
                    who.clear()
                who.discard(entry.observer_id or "")
                if entry.everywhere:
                    who.discard("")

    @property
    def open(self) -> list[str]:
        return sorted(kind for (kind, _), who in self.active.items() if who)


@pytest.fixture
def fleet() -> Fleet:
    fleet = Fleet()
    fleet.shows(OLD, U)
    return fleet


def test_a_definition_that_returns_ends_the_change(fleet: Fleet) -> None:
    fleet.shows(NEW, U)
    assert fleet.open == ["tool_changed"]
    fleet.shows(NEWER, U)
    assert fleet.open == ["tool_changed"]
    fleet.shows(OLD, U)
    assert fleet.open == []


def test_each_observer_ends_it_for_itself(fleet: Fleet) -> None:
    fleet.shows(OLD, U, observer="bob")
    fleet.shows(NEW, U)
    fleet.active[next(iter(fleet.active))].add("bob")
    fleet.shows(NEW, U, observer="bob")
    fleet.shows(OLD, U, observer="bob")
    assert fleet.open == ["tool_changed"]
    assert [end.everywhere for end in fleet.ends if end.observer_id == "bob"] == [False]
    fleet.shows(OLD, U)
    assert fleet.open == []
    assert {end.everywhere for end in fleet.ends if end.reason == "no_longer_offered"} == {True}


def test_a_tool_that_comes_back_ends_its_removal(fleet: Fleet) -> None:
    fleet.shows(U)
    assert fleet.open == ["tool_removed"]
    fleet.shows(OLD, U, observer="carol")
    assert fleet.open == ["tool_removed"]
    fleet.shows(OLD, U)
    assert fleet.open == []


def test_an_incomplete_list_ends_only_what_it_contradicts(fleet: Fleet) -> None:
    """What it does not name may still be there."""
    fleet.shows(NEW, U)
    fleet.shows(U, complete=False)
    assert fleet.open == ["tool_changed"]
    fleet.shows(OLD, complete=False)
    assert fleet.open == []


def test_a_list_that_names_a_tool_once_again_ends_the_ambiguity(fleet: Fleet) -> None:
    fleet.shows(OLD, NEW, U)
    assert fleet.open == ["definition_ambiguous", "tool_changed"]
    fleet.shows(OLD, U)
    assert fleet.open == []


def test_a_pin_that_another_scheme_contradicts_ends_nothing(fleet: Fleet) -> None:
    fleet.pins("set", OLD, "assay.meta_hash")
    fleet.shows(NEW, U)
    assert fleet.open == ["pin_mismatch", "tool_changed"]
    fleet.pins("set", NEW, "assay.v1")
    assert fleet.open == ["pin_mismatch", "tool_changed"]
    fleet.pins("set", NEW, "assay.meta_hash")
    assert fleet.open == []


def test_a_pin_that_a_later_one_replaced_ends_nothing(fleet: Fleet) -> None:
    fleet.shows(NEW, U, minute=5)
    fleet.pins("set", OLD, minute=20)
    fleet.pins("set", NEW, minute=10)
    assert "tool_changed" in fleet.open


def test_a_list_that_all_changes_gives_records_of_bounded_size() -> None:
    fleet = Fleet()
    tools = [OLD | {"name": f"t{number}"} for number in range(400)]
    fleet.shows(*tools)
    fleet.shows(*(tool | {"description": "two"} for tool in tools))
    fleet.shows(*tools)
    assert fleet.open == []
    assert len(fleet.ends) > 1
    assert max(len(end.uids) for end in fleet.ends) <= DEFAULT_LIMITS.resolution_uids_max


def ends(outcome: Outcome) -> int:
    return [output.label for output in outcome.outputs].count("resolution:signature_returned")


def after(*between: dict[str, Any], **fields: Any) -> int:
    talk = SignedTalk().discovered(0).signs(1).lists(2, FIRST).lists(3, *between, **fields)
    return ends(talk.signs(4).signs(5).ends())


def test_what_counts_is_how_the_tool_was_listed_last() -> None:
    assert after(OTHER, completeness="partial") == 1
    assert after(OTHER) == 1


def test_a_definition_that_was_another_one_in_between_has_ended_already() -> None:
    assert after(SECOND) == 0


def test_a_first_signature_ends_nothing() -> None:
    assert ends(SignedTalk().discovered(0).lists(1, FIRST).signs(2).ends()) == 0
