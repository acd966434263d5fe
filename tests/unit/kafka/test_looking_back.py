"""As-of, timeline and trace out of topics in memory."""

from __future__ import annotations

import pytest

from assay_stream import engine
from assay_stream.config import load_settings
from assay_stream.engine import EngineState
from assay_stream.errors import InputError
from assay_stream.kafka import looking_back
from assay_stream.kafka.topics import topic_names
from assay_stream.model.envelope import Producer
from assay_stream.model.record import Origin, Record, Role
from assay_stream.report.trace import Sought
from tests.support.events import SERVER, TOOL, Story
from tests.support.log_ranges import LogsInMemory, stand_in, topics_of

SETTINGS = load_settings()
OTHER = {**TOOL, "description": "Another one"}


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
    stand_in(monkeypatch, looking_back, LogsInMemory(records))
    view, begins = await looking_back.read_log_history(SETTINGS)
    assert begins == []
    assert view.servers.keys() == {SERVER}
    snapshots = topic_names(SETTINGS)[Role.SNAPSHOTS]
    stand_in(monkeypatch, looking_back, LogsInMemory(records, {(snapshots, 0): 1}))
    assert (await looking_back.read_log_history(SETTINGS))[1] == [Origin(snapshots, 0, 1)]


async def test_a_timeline_tells_lists_findings_and_alerts_of_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one tool only what is about it; a server that nobody saw is an error."""
    stand_in(monkeypatch, looking_back, LogsInMemory(a_run()))
    told = await looking_back.timeline_from_kafka(SETTINGS, SERVER)
    assert {row["what"] for _, row in told} == {"snapshot", "finding", "alert"}
    of_ghost = await looking_back.timeline_from_kafka(SETTINGS, SERVER, tool_name="ghost")
    assert {row["what"] for _, row in of_ghost} == {"finding", "alert"}
    with pytest.raises(InputError) as caught:
        await looking_back.timeline_from_kafka(SETTINGS, "nobody")
    assert caught.value.code == "server_not_known"


async def test_a_trace_has_the_call_its_snapshot_its_evidence_and_its_alert(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each from its own topic; a call that was not joined yet is found all the same."""
    records = a_run()
    stand_in(monkeypatch, looking_back, LogsInMemory(records))
    [trace] = await looking_back.traces_from_kafka(SETTINGS, Sought(tool_call_id="call-3"))
    assert trace.call is not None
    assert trace.snapshot is not None
    assert b'"snapshot-2"' in (trace.snapshot.value or b"")
    assert trace.evidence is not None
    [ghost] = await looking_back.traces_from_kafka(SETTINGS, Sought(tool_call_id="call-4"))
    assert ghost.findings
    assert ghost.alerts
    stand_in(monkeypatch, looking_back, LogsInMemory(r for r in records if r.role is not Role.EVIDENCE))
    [waiting] = await looking_back.traces_from_kafka(SETTINGS, Sought(tool_call_id="call-3"))
    assert (waiting.evidence, waiting.call is not None) == (None, True)
    assert await looking_back.traces_from_kafka(SETTINGS, Sought(tool_call_id="nobody's")) == []
