"""What was in force at a time."""

import pytest

from assay_stream.errors import InputError
from assay_stream.limits import Limits
from assay_stream.replay.log_cut import History
from assay_stream.report.timeline import asof_rows, observed, timeline_rows
from tests.support import facts
from tests.support.events import SERVER, TOOL, Story, an_announcement
from tests.support.operators import APPROVED, UNSEEN, US, a_state, v1


def rows(time_us: int, **options: str) -> list[dict[str, object]]:
    return asof_rows(a_state().servers[facts.SERVER], facts.SERVER, time_us, **options)


def of(what: str, found: list[dict[str, object]]) -> list[dict[str, object]]:
    return [row for row in found if row["what"] == what]


def test_each_observer_has_its_catalogue_with_its_origin() -> None:
    assert [row["observer_id"] for row in of("catalogue", rows(1 * US))] == ["proxy-1"]
    found = of("catalogue", rows(2 * US))
    assert [(row["observer_id"], row["value"], row["state"]) for row in found] == [
        ("proxy-1", "c1", "in_force"),
        ("proxy-2", "c2", "in_force"),
    ]
    assert all(row["origin"] for row in found)


def test_pins_stand_as_they_stood_then() -> None:
    [first] = of("pin", rows(4 * US, tool_name="t"))
    assert (first["value"], first["state"], first["author"]) == (UNSEEN, "approved", "ann")
    found = of("pin", rows(6 * US, tool_name="t"))
    assert {(row["value"], row["state"]) for row in found} == {(APPROVED, "approved"), (v1("bad"), "rejected")}
    assert of("pin", rows(3 * US)) == []


def test_the_policy_of_the_tool_and_of_the_server_are_both_told() -> None:
    assert [row["enforcement"] for row in of("policy", rows(1 * US))] == ["block"]
    assert [(row["tool_name"], row["enforcement"]) for row in of("policy", rows(3 * US))] == [
        ("*", "warn"),
        ("t", "audit"),
    ]


def test_keys_are_told_with_where_they_were_observed() -> None:
    assert of("key", rows(7 * US)) == []
    assert [row["state"] for row in of("key", rows(11 * US))] == ["observed", "accepted", "revoked"]


def test_how_a_tool_stood_to_its_pin_is_told() -> None:
    found = {row["observer_id"]: row["pin"] for row in of("tool", rows(5 * US, tool_name="t"))}
    assert found == {"proxy-1": "match", "proxy-2": "mismatch"}
    assert {row["pin"] for row in of("tool", rows(2 * US, tool_name="t"))} == {"unpinned"}


def test_a_refused_list_ends_what_was_in_force() -> None:
    story = Story().lists(TOOL)
    story.raw(story.records[0].role, b"{}")
    history = History()
    for record in story.records:
        history.take(record)
    found = asof_rows(history.view.servers[SERVER], SERVER, 2**62)
    assert [row["what"] for row in found] == ["catalogue", "rejection"]
    assert found[0]["state"] == "ended_by_rejection"


def test_an_announced_change_ends_what_was_in_force() -> None:
    story = Story().lists(TOOL)
    story.raw(story.records[0].role, an_announcement(number=1, second=1)).lists(TOOL)
    history = History()
    for record in story.records:
        history.take(record)
    server = history.view.servers[SERVER]
    ten_us = 1_772_359_200_000_000
    ended, told = asof_rows(server, SERVER, ten_us + US)
    assert (ended["what"], ended["state"]) == ("catalogue", "ended_by_announcement")
    assert told == {
        "server_id": SERVER,
        "what": "announcement",
        "observer_id": "proxy-1",
        "snapshot_id": "snapshot-0",
        "since": "2026-03-01T10:00:01Z",
        "origin": story.records[1].origin.as_json(),
    }
    assert [row["what"] for row in asof_rows(server, SERVER, ten_us + 2 * US)] == ["catalogue", "tool"]
    whole = timeline_rows(SERVER, observed(server))
    assert [(row["what"], row["time"][-3:]) for row in whole] == [("snapshot", "00Z"), ("announcement", "01Z")]


def test_history_that_was_folded_away_is_said_to_be() -> None:
    story = Story().lists(TOOL).lists().lists(TOOL)
    history = History(limits=Limits(timeline_entries_max=1))
    for record in story.records:
        history.take(record)
    server = history.view.servers[SERVER]
    time_us = 1_772_359_200_000_000
    [row] = asof_rows(server, SERVER, time_us)
    assert (row["what"], row["observer_id"], row["until"]) == ("forgotten", "proxy-1", "2026-03-01T10:00:02Z")


def test_unknown_tools_and_times_without_data_are_refused() -> None:
    with pytest.raises(InputError, match="tool_not_known"):
        rows(5 * US, tool_name="never")
    with pytest.raises(InputError, match="nothing_known_then"):
        rows(0)
