"""Looking things up in the topics, over given records."""

from __future__ import annotations

import pytest

from assay_stream import engine
from assay_stream.config import load_settings
from assay_stream.engine import EngineState
from assay_stream.errors import InputError, IntegrityError
from assay_stream.join.routing import Routing, reroute
from assay_stream.kafka import lookup, ranges
from assay_stream.kafka.topics import topic_names
from assay_stream.model.envelope import Producer
from assay_stream.model.facts import encode_key, encode_value
from assay_stream.model.finding import Finding
from assay_stream.model.kinds import Kind
from assay_stream.model.record import TOPIC_NAMES, Origin, Record, Role
from assay_stream.report.trace import Sought
from tests.support import facts
from tests.support.events import SERVER, TOOL, Story
from tests.support.log_ranges import LogsInMemory, stand_in, topics_of

SETTINGS = load_settings()
OTHER = {**TOOL, "description": "Another one"}
FINDING = Finding(
    kind=Kind.TOOL_CHANGED,
    server_id="s",
    tool_name="t",
    time_us=1,
    origin=Origin(topic="mcp.tools.list", partition=0, offset=0),
    after="full:1",
)


def use(monkeypatch: pytest.MonkeyPatch, role: Role, *partitions: list[Record]) -> None:
    """Topics of which one holds records."""
    placed = [
        record._replace(origin=Origin(TOPIC_NAMES[role], number, offset))
        for number, records in enumerate(partitions)
        for offset, record in enumerate(records)
    ]
    stand_in(monkeypatch, lookup, LogsInMemory(placed))


def a_record(role: Role, value: bytes | None, key: bytes | None = None) -> Record:
    """A record of a topic."""
    return Record(role=role, origin=Origin(TOPIC_NAMES[role], 0, 0), key=key, value=value)


async def test_bindings_are_read_from_every_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the registry wrote them."""
    written = [facts.a_pin("v1:x", time_us=1, offset=0), facts.a_policy(time_us=2, offset=1)]
    records = [a_record(Role.BINDINGS, encode_value(fact), encode_key(fact.key())) for fact in written]
    use(monkeypatch, Role.BINDINGS, records[:1], records[1:])
    bindings = await lookup.read_bindings(load_settings())
    assert bindings.servers[facts.SERVER].controls.has_rules()
    assert len(bindings.servers[facts.SERVER].controls.policies) == 1


async def test_a_foreign_record_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rather than a state that lacks something."""
    use(monkeypatch, Role.BINDINGS, [a_record(Role.BINDINGS, b"{}", b"what")])
    with pytest.raises(IntegrityError):
        await lookup.read_bindings(load_settings())


async def test_records_are_read_from_a_time_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first one of that time or later; what stands behind it is read whatever its time."""
    records = [a_record(Role.EVIDENCE, b"{}")._replace(timestamp_ms=time_ms) for time_ms in (1, 5, 3)]
    use(monkeypatch, Role.EVIDENCE, records, [])
    read = [record.timestamp_ms async for record in lookup.read_records(load_settings(), Role.EVIDENCE, since_ms=4)]
    assert read == [5, 3]


def a_run() -> list[Record]:
    """A change of a tool, calls before and after it, a tool that is not listed; with the facts of the registry."""
    story = Story().lists(TOOL).calls().lists(OTHER).calls().calls("ghost")
    records = topics_of(story, SETTINGS)
    state = EngineState(producer=Producer(version="0.1.0"))
    facts = [
        output
        for record in story.records
        if record.role is not Role.CALLS
        for output in engine.process(state, record)
        if output.role is Role.BINDINGS
    ]
    name = topic_names(SETTINGS)[Role.BINDINGS]
    places = [Origin(name, 0, offset) for offset in range(len(facts))]
    return records + [
        Record(Role.BINDINGS, place, fact.key, fact.value) for place, fact in zip(places, facts, strict=True)
    ]


async def test_the_log_says_what_was_known_and_where_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole log starts nowhere in particular; one that lost its beginning says from where on it is."""
    records = a_run()
    stand_in(monkeypatch, lookup, LogsInMemory(records))
    view, begins = await lookup.read_log_history(SETTINGS)
    assert begins == []
    assert view.servers.keys() == {SERVER}
    snapshots = topic_names(SETTINGS)[Role.SNAPSHOTS]
    stand_in(monkeypatch, lookup, LogsInMemory(records, {(snapshots, 0): 1}))
    assert (await lookup.read_log_history(SETTINGS))[1] == [Origin(snapshots, 0, 1)]


async def test_a_timeline_tells_lists_findings_and_alerts_of_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one tool only what is about it; a server that nobody saw is an error."""
    stand_in(monkeypatch, lookup, LogsInMemory(a_run()))
    told = await lookup.timeline_from_kafka(SETTINGS, SERVER)
    assert {row["what"] for _, row in told} == {"snapshot", "finding", "alert"}
    of_ghost = await lookup.timeline_from_kafka(SETTINGS, SERVER, tool_name="ghost")
    assert {row["what"] for _, row in of_ghost} == {"finding", "alert"}
    with pytest.raises(InputError) as caught:
        await lookup.timeline_from_kafka(SETTINGS, "nobody")
    assert caught.value.code == "server_not_known"


async def test_a_trace_has_the_call_its_snapshot_its_evidence_and_its_alert(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each from its own topic; a call that was not joined yet is found all the same."""
    records = a_run()
    stand_in(monkeypatch, lookup, LogsInMemory(records))
    [trace] = await lookup.traces_from_kafka(SETTINGS, Sought(tool_call_id="call-3"))
    assert trace.call is not None
    assert trace.snapshot is not None
    assert b'"snapshot-2"' in (trace.snapshot.value or b"")
    assert trace.evidence is not None
    [ghost] = await lookup.traces_from_kafka(SETTINGS, Sought(tool_call_id="call-4"))
    assert ghost.findings
    assert ghost.alerts
    stand_in(monkeypatch, lookup, LogsInMemory(r for r in records if r.role is not Role.EVIDENCE))
    [waiting] = await lookup.traces_from_kafka(SETTINGS, Sought(tool_call_id="call-3"))
    assert (waiting.evidence, waiting.call is not None) == (None, True)
    assert await lookup.traces_from_kafka(SETTINGS, Sought(tool_call_id="nobody's")) == []


async def test_the_join_has_come_as_far_as_the_first_copy_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that was re-routed and has no evidence yet is not missing any; one that was joined counts as done."""
    names = topic_names(SETTINGS)
    routing = Routing(calls=2, bindings=2)
    calls = [Record(Role.CALLS, Origin(names[Role.CALLS], 1, offset), b"", b"") for offset in (3, 5, 7)]
    copies = [reroute(call, SERVER, routing) for call in calls]
    [number] = {copy.partition or 0 for copy in copies}
    placed = [
        Record(Role.REROUTED, Origin(names[Role.REROUTED], number, offset), copy.key, copy.value, copy.headers)
        for offset, copy in enumerate(copies)
    ]

    async def committed(*_: object) -> dict[tuple[str, int], int]:
        return {(names[Role.CALLS], 0): 4, (names[Role.CALLS], 1): 9, (names[Role.REROUTED], number): 1}

    monkeypatch.setattr(lookup, "committed_offsets", committed)
    logs = stand_in(monkeypatch, lookup, LogsInMemory(placed))
    stand_in(monkeypatch, ranges, logs)
    assert await lookup.joined_offsets(SETTINGS) == {(names[Role.CALLS], 0): 4, (names[Role.CALLS], 1): 5}
    assert logs.opened
