"""The comparison of a replay with what was recorded, cause by cause."""

import random
from operator import attrgetter
from typing import Any

import orjson
import pytest

from assay_stream.canonical.digest import canonicalize
from assay_stream.cli.verify import comes_after
from assay_stream.model.evidence import Producer
from assay_stream.model.record import Origin, Record, Role
from assay_stream.schemes import assay_tool as assay
from assay_stream.verify.compare import ReplayComparison
from assay_stream.verify.evidence import Difference, Offsets, Pairing, Recorded, differing
from tests.support.alerts import TIME_US, alert_records, finding_of
from tests.support.controls import a_control
from tests.support.events import TOOL, Story
from tests.support.replaying import replay


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


@pytest.mark.parametrize(("other", "is_same"), [(2**53, True), (float(2**53), True), (2**53 + 1, False)], ids=str)
def test_integers_that_one_double_stands_for_are_told_apart(other: float, is_same: bool) -> None:
    found = differing({"n": [2**53]}, {"n": [other]}, split=(), is_ours=lambda *_: True)
    assert found == (set() if is_same else {"$.n"})


def test_a_digest_that_another_version_worked_out_is_its_own_cause() -> None:
    story = a_story()
    [value] = values_of(story)
    other = with_data(value, tool_definition_digest="sha256:" + "0" * 64)
    assert compared(story.records, [other], version="0.2.0")[0].causes == ("software_changed",)
    assert compared(story.records, [other])[0].causes == ("altered_record",)


def test_what_is_no_evidence_was_altered() -> None:
    story = a_story()
    found = compared(story.records, [b"{}"])
    assert [difference.causes for difference in found] == [("altered_record",), ("missing_record",)]


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


ORIGIN = attrgetter("origin")


def a_run() -> tuple[list[Recorded], Story]:
    story = Story().lists(TOOL)
    for _ in range(6):
        story.calls()
    outputs = story.tell().of(Role.EVIDENCE)
    return [Recorded(f"line {number}", output.value or b"") for number, output in enumerate(outputs)], story


@pytest.mark.parametrize("waiting_max", [1, 2, 100])
@pytest.mark.parametrize("seed", range(4))
def test_everything_finds_its_other_in_any_order(waiting_max: int, seed: int) -> None:
    evidence, story = a_run()
    calls = [record for record in story.records if record.role is Role.CALLS]
    choose = random.Random(seed)
    choose.shuffle(evidence)
    choose.shuffle(calls)
    pairing = Pairing(ORIGIN, waiting_max=waiting_max)
    found = list(pairing.pairs(evidence, calls))
    assert {(given and given.where, given and given.value, call) for given, call in found} == {
        (given.where, given.value, call) for given in evidence for call in calls if given.call == call.origin
    }


@pytest.mark.parametrize("waiting_max", [1, 100])
def test_what_finds_nothing_is_left(waiting_max: int) -> None:
    evidence, story = a_run()
    calls = [record for record in story.records if record.role is Role.CALLS]
    pairing = Pairing(ORIGIN, waiting_max=waiting_max)
    again = Recorded("again", evidence[1].value)
    found = pairing.pairs([*evidence[:5], again], calls[1:], keep=True)
    left = [(given, call) for given, call in found if given is None or call is None]
    assert {(given.where, pairing.is_paired(given.call)) for given, _ in left if given is not None} == {
        ("line 0", False),
        ("again", True),
    }
    assert [call.origin for _, call in left if call is not None] == [calls[5].origin]


def test_evidence_is_paired_with_other_evidence() -> None:
    evidence, _ = a_run()
    pairing = Pairing(attrgetter("call"), waiting_max=1)
    found = list(pairing.pairs(evidence, reversed(evidence), keep=True))
    assert all(given and other and given.value == other.value for given, other in found)
    assert len(found) == len(evidence)


def test_offsets_that_follow_each_other_are_one_run() -> None:
    numbers = [*range(20), *range(30, 35)]
    random.Random(1).shuffle(numbers)
    offsets = Offsets()
    for number in [*numbers, *numbers]:
        offsets.add(Origin("calls", 0, number))
    assert [number for number in range(40) if Origin("calls", 0, number) in offsets] == sorted(numbers)
    assert Origin("calls", 1, 3) not in offsets
    assert offsets._edges["calls", 0] == [0, 20, 30, 35]


def test_large_values_go_to_the_file_whatever_their_number() -> None:
    size = 4 * 1024 * 1024
    calls = [Record(Role.CALLS, Origin("t", 0, offset), None, bytes([offset]) * size) for offset in range(40)]
    pairing = Pairing(ORIGIN)
    found = list(pairing.pairs([], calls, keep=True))
    assert pairing._spool is not None
    assert found == [(None, call) for call in calls]
