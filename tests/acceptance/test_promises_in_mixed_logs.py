"""The promises over logs with control records, repeats, forged claims and other spellings of the same events."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from assay_stream import engine
from assay_stream.engine import EngineState
from assay_stream.model.envelope import Producer
from assay_stream.model.record import Record, Role
from assay_stream.schemes.assay import tool as assay
from tests.acceptance.test_promises import stories
from tests.support.events import SERVER, Story, an_event

PIN_VALUES = st.sampled_from(["sha256:" + "0" * 64, "f" * 64, "no digest", ""])


@st.composite
def mixed_stories(draw: st.DrawFn) -> Story:
    """As ``stories``, with good and bad pins set, and with records of the registry that were published again."""
    story = draw(stories())
    for _ in range(draw(st.integers(min_value=0, max_value=5))):
        number = len(story.records)
        data = {
            "server_id": draw(st.sampled_from([SERVER, "server-b"])),
            "tool_name": "read_file",
            "scheme": draw(st.sampled_from(["assay.v1", "no scheme"])),
            "value": draw(PIN_VALUES),
            "author": "operator",
            "reason": "reviewed",
        }
        event = json.loads(an_event(Role.SNAPSHOTS, number, number, data))
        event["type"] = draw(st.sampled_from(["assay.control.pin.set", "assay.control.other"]))
        story.raw(Role.CONTROL, json.dumps(event).encode())
    for record in draw(st.lists(st.sampled_from(story.records), max_size=4)) if story.records else []:
        if record.role is not Role.CALLS:
            story.raw(record.role, record.value, key=record.key, timestamp_ms=record.timestamp_ms)
    return story


@given(mixed_stories())
def test_nothing_lost_nothing_doubled_in_a_mixed_batch(story: Story) -> None:
    registry, joining = (EngineState(producer=Producer(version="0.1.0")) for _ in range(2))
    applied: set[bytes | None] = set()
    for record in story.records:
        is_call = record.role is Role.CALLS
        outputs = engine.process(joining if is_call else registry, record)
        ends = Counter(output.role for output in outputs)
        copies = [output for output in outputs if output.role is Role.REJECTED]
        facts = [output for output in outputs if output.role is Role.BINDINGS and output.value is not None]
        if copies:
            assert [(copy.key, copy.value) for copy in copies] == [(record.key, record.value)]
            assert ends[Role.EVIDENCE] == ends[Role.DEFINITIONS] == 0
            # All that a refused record may leave in the state is that it was refused.
            assert all(output.label == "fact:rejection" for output in facts)
        elif is_call:
            assert (ends[Role.EVIDENCE], len(facts)) == (1, 0)
        else:
            own = [output for output in facts if output.label in ("fact:seen", "fact:pin")]
            assert len(own) == 1 or (outputs == [] and record.value in applied)
            applied.add(record.value)
        for fact in facts:
            again = Record(role=fact.role, origin=record.origin, key=fact.key, value=fact.value)
            assert engine.process(joining, again) == []


@given(mixed_stories())
def test_same_in_same_out_to_the_byte(story: Story) -> None:
    assert story.tell().outputs == story.tell().outputs


@given(mixed_stories(), st.randoms(use_true_random=False))
def test_same_in_same_out_in_any_spelling(story: Story, choose: Any) -> None:
    respelled = Story()
    respelled.records = [
        record._replace(value=_respelled(record.value, choose)) if _is_event(record.value) else record
        for record in story.records
    ]
    for role in (Role.EVIDENCE, Role.FINDINGS, Role.ALERTS, Role.DEFINITIONS, Role.BINDINGS):
        assert respelled.tell().of(role) == story.tell().of(role)
    assert respelled.tell().refusals == story.tell().refusals


def _is_event(value: bytes | None) -> bool:
    return value is not None and b"specversion" in value


def _respelled(value: bytes | None, choose: Any) -> bytes:
    def turned(item: Any) -> Any:
        if isinstance(item, dict):
            members = list(item.items())
            choose.shuffle(members)
            return {name: turned(child) for name, child in members}
        return [turned(child) for child in item] if isinstance(item, list) else item

    return json.dumps(turned(json.loads(value or b"")), indent=choose.choice([None, 1])).encode()


@given(stories())
def test_no_invention_from_what_a_call_claims(story: Story) -> None:
    forged = "sha256:" + "ab" * 32
    claiming = Story()
    claiming.records = [
        record._replace(value=_with_claim(record.value, forged))
        if record.role is Role.CALLS and _is_event(record.value)
        else record
        for record in story.records
    ]
    assert claiming.tell().of(Role.EVIDENCE) == story.tell().of(Role.EVIDENCE)


def _with_claim(value: bytes | None, digest: str) -> bytes:
    event = json.loads(value or b"")
    event["data"] |= {"tool_definition_digest": digest, **assay.CLUSTER_CONSTANTS}
    return json.dumps(event).encode()
