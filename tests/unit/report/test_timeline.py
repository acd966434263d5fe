"""What changed, in order, with its evidence."""

from typing import Any

import pytest

from assay_stream.model.record import Role
from assay_stream.readmodel.queries import load
from assay_stream.report import timeline
from assay_stream.report.timeline import Sought, changes, pending_rows, timeline_rows, trace_rows, traced
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


def rows_of(story: Story, sought: Sought) -> list[dict[str, object]]:
    store = load(written(story.records))
    return trace_rows(store, traced(store, sought))


def test_a_call_is_followed_to_the_end() -> None:
    story = Story().lists(TOOL).calls("ghost", tool_call_id="the one").calls(tool_call_id="another")
    rows = rows_of(story, Sought(tool_call_id="the one"))
    assert [row["step"] for row in rows] == ["call", "snapshot", "evidence", "finding", "alert"]
    assert [row.get("state") for row in rows[:3]] == ["observed", "observed", "written"]
    assert rows[2]["value"] == "tool_not_listed"
    assert rows[3]["kind"] == "call_to_unlisted_tool"
    assert rows[0]["origin"] == {"topic": "calls", "partition": 0, "offset": 0}


def test_what_is_out_of_the_ordinary_in_a_call_is_shown() -> None:
    digest = "sha256:" + "0" * 64
    story = Story().calls(
        tool_call_id="c",
        rounds=2,
        inputs={"elicitation_url": 1, "declined": 1, "requests_hash": digest, "more": True},
        task={"id_hash": digest, "status": "completed"},
    )
    story.calls(tool_call_id="r", unmatched_retry=True)
    [chain] = [row["detail"] for row in rows_of(story, Sought(tool_call_id="c")) if row["step"] == "call"]
    [retry] = [row["detail"] for row in rows_of(story, Sought(tool_call_id="r")) if row["step"] == "call"]
    assert str(chain).endswith(", 2 rounds, 1 declined, 1 elicitation_url, task completed")
    assert str(retry).endswith(", retry of no known call")


def test_all_calls_of_a_trace_are_followed() -> None:
    story = Story().lists(TOOL).calls(trace_id="t").calls(trace_id="u").calls(trace_id="t")
    rows = rows_of(story, Sought(trace_id="t"))
    assert [(row["call"], row["tool_call_id"]) for row in rows if row["step"] == "call"] == [
        (1, "call-1"),
        (2, "call-3"),
    ]


def test_both_ids_must_fit_where_both_are_given() -> None:
    story = Story().lists(TOOL).calls(trace_id="t", tool_call_id="c")
    assert rows_of(story, Sought(trace_id="u", tool_call_id="c")) == []
    assert rows_of(story, Sought(trace_id="t", tool_call_id="c")) != []


def test_calls_that_have_the_id_as_another_one_hide_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who calls may choose the id of a trace, and make more calls than are shown."""
    monkeypatch.setattr(timeline, "TRACED_MAX", 2)
    story = Story().lists(TOOL).calls(tool_call_id="the one", trace_id="t")
    for number in range(5):
        story.calls(tool_call_id=f"c-{number}", trace_id="the one" if number % 2 else "t")
    for sought in (Sought(tool_call_id="the one"), Sought(tool_call_id="the one", trace_id="t")):
        assert [row["tool_call_id"] for row in rows_of(story, sought) if row["step"] == "call"] == ["the one"]
    latest = rows_of(story, Sought(trace_id="t"))
    assert [row["tool_call_id"] for row in latest if row["step"] == "call"] == ["c-2", "c-4"]


@pytest.mark.parametrize("call_id", ["a/b", 'with "quotes"', "schön", "\x1b[2J", "plain-1"])
def test_ids_are_found_however_they_are_written(call_id: str) -> None:
    """JSON has several forms of one text; all of them are found."""
    story = Story().lists(TOOL).calls(tool_call_id=call_id)
    assert rows_of(story, Sought(tool_call_id=call_id))[0]["tool_call_id"] == call_id


def test_a_list_that_is_forgotten_is_said_to_be_gone() -> None:
    """The evidence still says where it stood."""
    records = [record for record in written(Story().lists(TOOL).calls().records) if record.role is Role.EVIDENCE]
    store = load(records)
    rows = trace_rows(store, traced(store, Sought(tool_call_id="call-1")))
    assert [(row["step"], row["state"]) for row in rows] == [
        ("call", "observed"),
        ("snapshot", "gone"),
        ("evidence", "written"),
    ]
    assert rows[1]["origin"] == {"topic": "snapshots", "partition": 0, "offset": 0}


def test_altered_evidence_is_seen() -> None:
    [record] = [each for each in written(Story().lists(TOOL).calls().records) if each.role is Role.EVIDENCE]
    store = load([record._replace(value=(record.value or b"").replace(b'"allow"', b'"deny"'))])
    rows = trace_rows(store, traced(store, Sought(tool_call_id="call-1")))
    assert [row["state"] for row in rows if row["step"] == "evidence"] == ["content_hash_mismatch"]


def test_a_call_that_is_not_joined_yet_has_no_evidence_yet() -> None:
    [record] = Story().calls(tool_call_id="c").records
    event = Sought(tool_call_id="c").call_in(record)
    assert event is not None
    rows = pending_rows([(record.origin, event)])
    assert [(row["step"], row["state"]) for row in rows] == [("call", "observed"), ("evidence", "none_yet")]
    assert Sought(tool_call_id="d").call_in(record) is None
