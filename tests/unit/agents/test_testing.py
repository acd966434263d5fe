"""What users' tests of agents are written with."""

from collections.abc import Iterator
from typing import Any

import pytest

from assay_stream.agents import Agent, Detection, Event, Memory, Origin
from assay_stream.agents.testing import alert, definition, evidence, run, time_us_at
from assay_stream.errors import ConfigurationError
from assay_stream.model.finding import Finding
from assay_stream.model.kinds import Kind


def seeing() -> Agent:
    agent = Agent("seeing", title="Seen")
    agent.definitions(lambda content: content["name"])

    @agent.evidence(key=lambda event: event.server_id)
    def on_call(event: Event[Any], memory: Memory) -> Iterator[Detection]:
        data = event.value["data"]
        yield Detection(tool_name=f"{data['tool']} {memory.definition(data['binding'].get('full_digest'))}")

    @agent.findings(key=lambda event: event.server_id)
    def on_finding(event: Event[Finding], _: Memory) -> Iterator[Detection]:
        yield Detection(tool_name=event.value.kind.value)

    @agent.alerts(key=lambda event: event.server_id)
    def on_alert(event: Event[Any], _: Memory) -> Iterator[Detection]:
        value = event.value
        yield Detection(tool_name=f"{value['activity_name']} {value['severity']} {value['status']}")

    return agent


def test_records_of_every_input_are_made_with_the_fields_that_matter() -> None:
    """In the order given, at the seconds given."""
    found = run(
        seeing(),
        [
            definition("sha256:1", {"name": "Send"}),
            evidence(at=1, tool="send", binding={"full_digest": "sha256:1"}),
            Finding(kind=Kind.TOOL_CHANGED, server_id="server", time_us=time_us_at(2), origin=Origin("t", 0, 0)),
            alert(at=3, severity="critical"),
            alert(at=4, activity="update", status="suppressed"),
            alert(at=5, activity="close"),
        ],
    )
    assert [(each.tool_name, each.time_us - time_us_at(0)) for each in found] == [
        ("send Send", 1_000_000),
        ("tool_changed", 2_000_000),
        ("Create Critical New", 3_000_000),
        ("Update High Suppressed", 4_000_000),
        ("Close High Resolved", 5_000_000),
    ]


def test_an_agent_that_raises_fails_its_test_with_the_place() -> None:
    agent = Agent("faulty", title="Faulty")
    agent.evidence(key=lambda event: event.server_id)(lambda _event, _memory: [Detection(tool_name=str(1 // 0))])
    with pytest.raises(ConfigurationError, match="agent 'faulty': it raised ZeroDivisionError in <lambda>, line"):
        run(agent, [evidence()])
