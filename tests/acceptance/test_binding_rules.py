"""The binding rules of the design where they meet other observers, folding and refused lists."""

from __future__ import annotations

import json
from typing import Any

import pytest

from assay_stream.limits import Limits
from assay_stream.model.evidence import Producer
from assay_stream.model.record import Role
from assay_stream.schemes import assay_tool as assay
from tests.support.engine import EngineState
from tests.support.events import TOOL, Outcome, Story, an_event, call_data, read_live

ONE = TOOL
TWO: dict[str, Any] = {**TOOL, "description": "Read a file, second edition"}
THREE: dict[str, Any] = {**TOOL, "description": "Read a file, third edition"}
WRITE: dict[str, Any] = {"name": "write_file", "inputSchema": {"type": "object"}}
DIGEST = {
    name: str(assay.definition_digest(tool, server_id=None))
    for name, tool in (("one", ONE), ("two", TWO), ("three", THREE), ("write", WRITE))
}


class Dialogue(Story):
    def calls_at(self, second: float, **fields: Any) -> Dialogue:
        number = len(self.records)
        self.raw(Role.CALLS, an_event(Role.CALLS, number, second, call_data(**fields)))
        return self

    def live(self, **limits: int) -> Outcome:
        state = EngineState(producer=Producer(version="0.1.0"), limits=Limits(**limits))
        return Outcome(read_live(state, self.records))


def answers(outcome: Outcome) -> list[tuple[str, str | None]]:
    return [
        (told["binding"]["scope"], told.get("tool_definition_digest") or told.get("unbound_reason"))
        for told in outcome.evidence
    ]


def test_rule_1_an_id_that_only_another_observer_published_counts() -> None:
    """Where a list-watch publishes the lists and a proxy the calls, the id leads to the list."""
    story = Story().lists(ONE, observer_id="proxy-2").lists(TWO).calls(snapshot_id="snapshot-0")
    assert answers(story.tell()) == [("exact", DIGEST["one"])]


@pytest.mark.parametrize("is_first", [True, False])
def test_rule_1_a_list_under_somebody_elses_snapshot_id_changes_nothing(is_first: bool) -> None:
    """Whoever publishes a list under an id that another observer uses unbinds none of its calls."""
    story = Story()
    if is_first:
        story.lists(TWO, snapshot_id="s", observer_id="mallory")
    story.lists(ONE, snapshot_id="s")
    if not is_first:
        story.lists(TWO, snapshot_id="s", observer_id="mallory")
    story.calls(snapshot_id="s")
    expected = [("exact", DIGEST["one"])]
    assert answers(story.tell()) == expected


def test_rule_1_an_id_for_which_others_published_different_lists_names_nothing() -> None:
    """Of lists by others none counts: the call is bound as if it had named none."""
    story = Story().lists(ONE)
    story.lists(TWO, snapshot_id="s", observer_id="proxy-2").lists(ONE, snapshot_id="s", observer_id="proxy-3")
    story.calls(snapshot_id="s").calls(snapshot_id="s", observer_id="proxy-3")
    assert answers(story.tell()) == [("observer", DIGEST["one"]), ("exact", DIGEST["one"])]


def test_rule_1_a_snapshot_of_another_server_is_no_snapshot_of_this_one() -> None:
    story = Story().lists(ONE)
    foreign = Story().lists(TWO, server_id="server-b", snapshot_id="theirs").records[0]
    story.raw(Role.SNAPSHOTS, foreign.value, key=b"server-b").calls(snapshot_id="theirs")
    assert answers(story.tell()) == [("observer", DIGEST["one"])]


def test_rule_1_one_id_for_two_different_lists_is_ambiguous() -> None:
    story = Story().lists(ONE, snapshot_id="s").lists(TWO, snapshot_id="s").calls(snapshot_id="s")
    assert answers(story.tell()) == [("exact", "definition_ambiguous")]


def test_rule_3_asks_who_agreed_at_the_time_of_the_call() -> None:
    story = Dialogue()
    story.lists(ONE).lists(ONE, observer_id="proxy-2").lists(TWO).lists(TWO, observer_id="proxy-2")
    for second in (1.5, 2.5, 3.5):
        story.calls_at(second, observer_id="proxy-3")
    assert answers(story.live()) == [
        ("server", DIGEST["one"]),
        ("server", "definition_ambiguous"),
        ("server", DIGEST["two"]),
    ]


def test_history_that_was_folded_away_is_told_as_such() -> None:
    story = Dialogue()
    story.lists(ONE).lists(TWO).lists(THREE).lists(ONE)
    story.calls_at(0.5).calls_at(1.5).calls_at(2.5).calls_at(3.5)
    assert answers(story.live(timeline_entries_max=2)) == [
        ("none", "history_folded"),
        ("none", "history_folded"),
        ("observer", DIGEST["three"]),
        ("observer", DIGEST["one"]),
    ]


def test_a_folded_list_is_not_replaced_by_another_observer_s() -> None:
    story = Dialogue()
    story.lists(ONE, observer_id="proxy-2").lists(TWO).lists(THREE).lists(TWO)
    story.calls_at(1.5)
    assert answers(story.live()) == [("observer", DIGEST["two"])]
    assert answers(story.live(timeline_entries_max=2)) == [("none", "history_folded")]


def test_agreement_is_not_claimed_of_those_whose_history_was_folded() -> None:
    story = Dialogue()
    story.lists(ONE).lists(TWO, observer_id="proxy-2").lists(THREE, observer_id="proxy-2")
    story.lists(TWO, observer_id="proxy-2")
    story.calls_at(1.5, observer_id="proxy-3")
    assert answers(story.live()) == [("server", "definition_ambiguous")]
    ((_, told),) = answers(story.live(timeline_entries_max=2))
    assert told == "history_folded"


def test_forgetting_a_rejection_puts_nothing_in_force_again() -> None:
    story = Dialogue()
    story.lists(ONE).raw(Role.SNAPSHOTS, b"{")
    story.lists(TWO).raw(Role.SNAPSHOTS, b"{")
    story.lists(THREE)
    story.calls_at(1.5)
    assert answers(story.live()) == [("none", "snapshot_rejected")]
    ((scope, told),) = answers(story.live(rejections_max=1))
    assert scope == "none"
    assert told in ("snapshot_rejected", "history_folded")


def test_rejections_kept_as_one_take_a_digest_and_give_none() -> None:
    """A good list between two rejections that are kept as one is no longer told apart from what they ended."""
    story = Dialogue()
    story.lists(ONE).raw(Role.SNAPSHOTS, b"{")
    story.lists(TWO).raw(Role.SNAPSHOTS, b"{")
    story.lists(THREE)
    story.calls_at(0.5).calls_at(2.5).calls_at(4)
    assert answers(story.live()) == [
        ("observer", DIGEST["one"]),
        ("observer", DIGEST["two"]),
        ("observer", DIGEST["three"]),
    ]
    assert answers(story.live(rejections_max=1)) == [
        ("observer", DIGEST["one"]),
        ("none", "snapshot_rejected"),
        ("observer", DIGEST["three"]),
    ]


def test_a_refused_list_leaves_a_named_snapshot_named() -> None:
    story = Story().lists(ONE).raw(Role.SNAPSHOTS, b"{").calls(snapshot_id="snapshot-0")
    assert answers(story.tell()) == [("exact", DIGEST["one"])]


def test_a_list_dated_ahead_is_ended_by_a_refused_one_behind_it() -> None:
    """The order of the log counts: no list survives a later refusal by claiming a later time."""
    story = Dialogue()
    ahead = an_event(Role.SNAPSHOTS, 0, 50, dict(_data_of(Story().lists(ONE))))
    story.raw(Role.SNAPSHOTS, ahead).raw(Role.SNAPSHOTS, b"{")
    story.calls_at(55)
    assert answers(story.live()) == [("none", "snapshot_rejected")]


def _data_of(story: Story) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(story.records[-1].value or b"")["data"]
    return data
