"""The comparison of a replay with what was recorded, cause by cause."""

from __future__ import annotations

from typing import Any

import orjson

from assay_stream.canonical.digest import canonicalize
from assay_stream.cli.verify import comes_after
from assay_stream.model.envelope import Producer
from assay_stream.model.record import Record, Role
from assay_stream.replay.run import replay
from assay_stream.schemes.assay import tool as assay
from assay_stream.verify.compare import Difference, ReplayComparison
from assay_stream.verify.evidence import Recorded
from tests.support.alerts import TIME_US, alert_records, finding_of
from tests.support.controls import a_control
from tests.support.events import TOOL, Story


def a_story(*, enforcement: str | None = None) -> Story:
    story = Story().lists(TOOL)
    if enforcement is not None:
        policy = a_control("policy.set", second=0.5, enforcement=enforcement, unknown="warn")
        story.raw(Role.CONTROL, policy)
        story.records[-1] = story.records[-1]._replace(timestamp_ms=story.records[0].timestamp_ms)
    call = Story().lists().calls().records[1]
    story.records.append(call)
    return story


def values_of(story: Story) -> list[bytes]:
    return [output.value or b"" for output in story.tell().of(Role.EVIDENCE)]


def compared(records: list[Record], values: list[bytes], *, version: str = "0.1.0") -> list[Difference]:
    comparison = ReplayComparison(lambda: records)
    recorded = [Recorded(f"line {number}", value) for number, value in enumerate(values)]
    return list(comparison.differences(replay(records, producer=Producer(version=version)), recorded))


def with_data(value: bytes, **changes: Any) -> bytes:
    content = orjson.loads(value)
    content["data"] |= changes
    content["assaycontenthash"] = str(assay.content_hash(content))
    return canonicalize(content)


def test_a_policy_that_came_late_is_named() -> None:
    [value] = values_of(a_story())
    [difference] = compared(a_story(enforcement="block").records, [value])
    assert difference.causes == ("policy_changed",)
    assert difference.paths == ("$.data.pin",)
    assert [origin.topic for origin in difference.left_out] == ["control"]


def test_a_digest_that_another_version_worked_out_is_its_own_cause() -> None:
    story = a_story()
    [value] = values_of(story)
    other = with_data(value, tool_definition_digest="sha256:" + "0" * 64)
    assert compared(story.records, [other], version="0.2.0")[0].causes == ("software_changed",)
    assert compared(story.records, [other])[0].causes == ("altered_record",)


def test_another_version_does_not_explain_what_was_copied_from_the_call() -> None:
    """A decision is the proxy's: no version of ours works it out."""
    story = a_story()
    [value] = values_of(story)
    denied = with_data(value, decision="deny")
    assert compared(story.records, [denied], version="0.2.0")[0].causes == ("altered_record",)


def test_what_is_no_evidence_was_altered() -> None:
    story = a_story()
    found = compared(story.records, [b"{}"])
    assert [difference.causes for difference in found] == [("altered_record",), ("missing_record",)]


def test_evidence_of_a_call_that_is_not_there_is_unexpected() -> None:
    story = a_story()
    values = values_of(story)
    records = [record for record in story.records if record.role is not Role.CALLS]
    assert [difference.causes for difference in compared(records, values)] == [("unexpected_record",)]


def test_an_alert_that_is_a_moment_ahead_of_the_replay_is_not_compared() -> None:
    """It counts a finding about a call that came after the replay had begun."""
    early, late = (
        output.value
        for output in alert_records(*(finding_of(offset=offset, time_us=TIME_US + offset) for offset in (6, 7)))
    )
    ends = {finding_of().origin.topic: {finding_of().origin.partition: 7}}
    assert [comes_after(value, ends) for value in (early, late)] == [False, True]
    assert not comes_after(late, {"another": {0: 0}})
    assert not comes_after(b"no alert", ends)
