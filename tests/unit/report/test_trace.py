"""One call from observation to evidence to alerts."""

from __future__ import annotations

import pytest

from assay_stream.model.record import Role
from assay_stream.readmodel.queries import load
from assay_stream.report.timeline import Sought, pending_rows, trace_rows, traced
from tests.support.events import TOOL, Story
from tests.support.readmodel import written


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
