"""The promises, each tested by its name."""

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, strategies as st

from assay_stream.model.evidence import Producer
from assay_stream.model.record import Output, Record, Role
from assay_stream.schemes import assay_tool as assay
from tests.acceptance.test_p56b import CLUSTER, POLICY, claims
from tests.support import engine
from tests.support.engine import EngineState
from tests.support.events import SERVER, TOOL, Story, an_event
from tests.support.replaying import replay

VERSIONS = [TOOL, {**TOOL, "description": "second"}, {**TOOL, "inputSchema": {"type": "object"}}]
GARBAGE = st.sampled_from([b"{", b"", b"\xff", b'{"a":1,"a":2}', b"[]", None])


@st.composite
def stories(draw: st.DrawFn) -> Story:
    story = Story()
    for _ in range(draw(st.integers(min_value=0, max_value=15))):
        match draw(st.integers(min_value=0, max_value=5)):
            case 0 | 1:
                tools = draw(st.lists(st.sampled_from(VERSIONS), max_size=2))
                story.lists(
                    *tools,
                    observer_id=draw(st.sampled_from(["proxy-1", "proxy-2"])),
                    completeness=draw(st.sampled_from(["complete", "partial"])),
                    server_scoped=draw(st.booleans()),
                )
            case 2 | 3:
                named = draw(st.none() | st.integers(min_value=0, max_value=15))
                fields: dict[str, Any] = {} if named is None else {"snapshot_id": f"snapshot-{named}"}
                story.calls(**fields, **draw(st.sampled_from([{}, POLICY])))
            case 4:
                story.raw(Role.SNAPSHOTS, draw(GARBAGE))
            case _:
                story.raw(Role.CALLS, draw(GARBAGE))
    return story


@given(stories())
def test_no_invention(story: Story) -> None:
    by_offset = {r.origin.offset: r for r in story.records if r.role is Role.SNAPSHOTS}
    for payload in story.tell().evidence:
        if "tool_definition_digest" in payload:
            data = json.loads(by_offset[payload["binding"]["origin"]["offset"]].value or b"")["data"]
            scope = SERVER if data["server_scoped"] else None
            observed = {str(assay.definition_digest(tool, server_id=scope)) for tool in data["tools"]}
            assert payload["tool_definition_digest"] in observed
        else:
            assert payload["unbound_reason"]


@given(stories())
def test_atomic(story: Story) -> None:
    for payload in story.tell().evidence:
        assert CLUSTER & payload.keys() in (set(), CLUSTER)
        assert POLICY.keys() & payload.keys() in (set(), POLICY.keys())


@given(stories(), st.integers(min_value=1, max_value=3))
def test_same_in_same_out(story: Story, workers: int) -> None:
    """The number of partitions that calls are spread over changes the origin in a record, and nothing else."""
    spread, offsets = [], Counter[int]()
    for number, record in enumerate(story.records):
        if record.role is Role.CALLS:
            partition = number % workers
            record = record._replace(origin=record.origin._replace(partition=partition, offset=offsets[partition]))
            offsets[partition] += 1
        spread.append(record)
    producer = Producer(version="0.1.0")
    one, many = (
        [payload for output in replay(records, producer=producer) if (payload := _without_origin(output))]
        for records in (story.records, spread)
    )
    assert sorted(one) == sorted(many)


def _without_origin(output: Output) -> str | None:
    if output.role is not Role.EVIDENCE:
        return None
    data = json.loads(output.value or b"")["data"]
    del data["origin"]
    return json.dumps(data, sort_keys=True)


@given(stories())
def test_duplicates_change_nothing(story: Story) -> None:
    lists = [record for record in story.records if record.role is Role.SNAPSHOTS]
    # A good list after a refused one puts its catalogue in force again, as it should: no duplicate in that sense.
    lists = [] if any(map(_is_refused, lists)) else lists
    doubled = Story()
    doubled.records = story.records + [
        record._replace(origin=record.origin._replace(offset=len(lists) + number))
        for number, record in enumerate(lists)
    ]
    for role in (Role.EVIDENCE, Role.FINDINGS, Role.ALERTS):
        assert _written(doubled, role) == _written(story, role)


def _written(story: Story, role: Role) -> list[bytes]:
    return sorted(output.value or b"" for output in story.tell().of(role))


def _is_refused(record: Record) -> bool:
    story = Story()
    story.records = [record]
    return bool(story.tell().refusals)


@given(stories())
def test_a_call_published_twice_is_recognisable_as_one(story: Story) -> None:
    calls = [record for record in story.records if record.role is Role.CALLS]
    doubled = Story()
    doubled.records = story.records + [
        record._replace(origin=record.origin._replace(offset=len(calls) + number))
        for number, record in enumerate(calls)
    ]
    events = [json.loads(output.value or b"") for output in doubled.tell().of(Role.EVIDENCE)]
    by_call: dict[str, list[dict[str, Any]]] = {}
    for event in events:
        by_call.setdefault(event["data"]["tool_call_id"], []).append(event)
    for pair in by_call.values():
        assert len(pair) == 2
        assert pair[0]["id"] == pair[1]["id"]
        assert pair[0]["data"].pop("origin") != pair[1]["data"].pop("origin")
        for event in pair:
            del event["assaycontenthash"]
        assert pair[0] == pair[1]
    assert len({event["id"] for event in events}) == len(by_call)


SECRET = "Zx9-Secret-7Qp"
PLACES = [
    {"args": {"body": SECRET}},
    {"args": SECRET},
    {"args": {SECRET: 1}},
    {"result": {"content": [{"type": "text", "text": SECRET}]}},
    {"error": {"code": "E", "kind": SECRET, "message": SECRET}},
    {"prompt": SECRET},
    {"timing": {"note": SECRET}},
    {"actor": {"kind": "agent", "email": SECRET}},
    {"headers": {"authorization": SECRET}},
]
HIDING_TOOLS = [
    {**TOOL, "description": SECRET},
    {**TOOL, "title": SECRET},
    {**TOOL, "_meta": {"k": SECRET}},
    {**TOOL, "annotations": {"title": SECRET}},
    {**TOOL, "inputSchema": {"type": "object", "description": SECRET}},
    {**TOOL, "inputSchema": SECRET},
    {**TOOL, "outputSchema": {"const": SECRET}},
    {**TOOL, "x-assay-sig": {"signature": SECRET}},
    {"description": SECRET},
]


@pytest.mark.parametrize("fields", PLACES, ids=lambda fields: next(iter(fields)))
def test_no_body_of_a_call_is_written(fields: dict[str, Any]) -> None:
    outcome = Story().lists(TOOL).calls(**fields).calls("missing", **fields).tell()
    assert len(outcome.evidence) == 2
    assert SECRET.encode() not in outcome.all_bytes(*(role for role in Role if role is not Role.REJECTED))


@pytest.mark.parametrize("tool", HIDING_TOOLS, ids=lambda tool: list(tool)[-1])
def test_no_body_of_a_definition_is_written_but_to_reviewers(tool: dict[str, Any]) -> None:
    story = Story().lists(tool).calls().lists(TOOL).lists(tool, prompts=[{"name": SECRET}]).calls()
    story.lists(tool, TOOL, resource_templates=[{"name": SECRET}], signatures={"s": SECRET}).calls()
    outcome = story.tell()
    assert SECRET.encode() in outcome.all_bytes(Role.DEFINITIONS)
    assert SECRET.encode() not in outcome.all_bytes(
        *(role for role in Role if role not in (Role.REJECTED, Role.DEFINITIONS))
    )


def test_no_secret_leaves_by_the_binding_topic() -> None:
    """Facts hold digests and names: no description, no schema and no signature."""
    state = EngineState(producer=Producer(version="0.1.0"))
    written = b""
    for tool in HIDING_TOOLS:
        for record in Story().lists(tool, signatures={"s": SECRET}, auth_context=SECRET).records:
            facts = [o for o in engine.process(state, record) if o.role is Role.BINDINGS]
            written += b"".join((fact.key or b"") + (fact.value or b"") for fact in facts)
    assert b"read_file" in written
    assert SECRET.encode() not in written


def test_no_bodies_no_secrets() -> None:
    secret = "ghp_" + "a1B2" * 9
    told = (
        Story()
        .lists({**TOOL, "description": f"use {secret}"})
        .calls(
            args={"token": secret, "text": f"key {secret}"},
            result={"out": secret},
            error={"code": "x", "message": secret},
        )
    )
    outcome = told.tell()
    written = outcome.all_bytes(Role.EVIDENCE, Role.FINDINGS, Role.ALERTS)
    assert secret.encode() not in written
    other = Story().lists(TOOL).calls(args={"token": secret[::-1], "text": "key ghp_" + "z9Y8" * 9}).tell()
    assert outcome.evidence[0]["args_hash"] == other.evidence[0]["args_hash"]


@given(stories())
def test_no_verdict_of_safety(story: Story) -> None:
    written = story.tell().all_bytes(Role.EVIDENCE, Role.FINDINGS, Role.ALERTS)
    assert claims(written.decode()) == []


# --- the promises over logs with control records, repeats, forged claims and other spellings of the same events ---

PIN_VALUES = st.sampled_from(["sha256:" + "0" * 64, "f" * 64, "no digest", ""])


@st.composite
def mixed_stories(draw: st.DrawFn) -> Story:
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
