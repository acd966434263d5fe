"""What changed, in order, with its evidence."""

from __future__ import annotations

from typing import Any

from assay_stream.model.record import Role
from assay_stream.readmodel.queries import load
from assay_stream.report.timeline import changes, timeline_rows
from tests.support.controls import a_control
from tests.support.events import SERVER, TOOL, Story
from tests.support.readmodel import written

OTHER = {**TOOL, "description": "Another one"}


def a_story() -> Story:
    pin = a_control("pin.set", second=1, tool_name="read_file", scheme="assay.v1", value="0" * 64)
    story = Story().lists(TOOL).raw(Role.CONTROL, pin).lists(TOOL).lists(OTHER)
    return story.calls("ghost")


def told(story: Story, **options: Any) -> list[dict[str, Any]]:
    tool = options.pop("tool_name", None)
    return timeline_rows(SERVER, changes(load(written(story.records)), SERVER, tool_name=tool), **options)


def test_only_lists_that_differ_are_told() -> None:
    rows = [row for row in told(a_story()) if row["what"] == "snapshot"]
    assert [(row["kind"], row["snapshot_id"], row["tools"]) for row in rows] == [
        ("first_look", "snapshot-0", ["read_file"]),
        ("list_changed", "snapshot-3", ["read_file"]),
    ]


def test_decisions_name_author_and_reason() -> None:
    [row] = [row for row in told(a_story()) if row["what"] == "decision"]
    assert (row["kind"], row["author"], row["reason"]) == ("pin.set", "ann", "review")
    assert row["origin"] == {"topic": "control", "partition": 0, "offset": 0}


def test_findings_and_alerts_stand_behind_what_they_follow_from() -> None:
    rows = told(a_story())
    assert rows == sorted(rows, key=lambda row: row["time"])
    last = [row["what"] for row in rows if row["time"] == "2026-03-01T10:00:03Z"]
    assert last[0] == "snapshot"
    assert last.index("alert") > last.index("finding") > 0
    assert {row["kind"] for row in rows if row["what"] == "finding"} >= {"tool_changed", "pin_mismatch"}


def test_a_call_to_a_tool_that_is_not_listed_is_on_the_timeline_of_that_tool() -> None:
    rows = told(a_story(), tool_name="ghost")
    assert {row["kind"] for row in rows} == {"call_to_unlisted_tool"}


def test_bounds_are_inclusive() -> None:
    at = 1_772_359_203_000_000
    rows = told(a_story(), since_us=at, until_us=at)
    assert {row["time"] for row in rows} == {"2026-03-01T10:00:03Z"}


def test_an_alert_comes_after_the_finding_that_caused_it() -> None:
    """Alerts are dated in milliseconds, so that one seems older than a finding of that millisecond."""
    finding = {"what": "finding", "uid": "u"}
    alert = {"what": "alert", "uid": "u"}
    other = {"what": "alert", "uid": "v"}
    dated = [(1_000_000, alert), (1_000_000, other), (1_000_700, finding), (1_000_800, {"what": "snapshot"})]
    rows = timeline_rows("s", dated)
    assert [(row["what"], row.get("uid")) for row in rows] == [
        ("alert", "v"),
        ("finding", "u"),
        ("alert", "u"),
        ("snapshot", None),
    ]
