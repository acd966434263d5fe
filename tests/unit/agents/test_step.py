"""The second step: what agents find and remember, and what a restart finds."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from math import inf, nan
from typing import Any
from uuid import UUID

import pytest

from assay_stream.agents import Agent, AgentState, Detection, Event, Evidence, Memory, Rekeying
from assay_stream.errors import ConfigurationError, IntegrityError
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.finding import Finding
from assay_stream.model.kinds import Kind
from assay_stream.model.record import Origin, Output, Record, Role
from tests.support.agents import a_set, evidence, findings_in
from tests.support.errors import raises_code

INTERNAL = "assay.agent.input"


def echo() -> Agent:
    agent = Agent("echo", title="A call")

    @agent.evidence(key=lambda event: event.value["data"]["tool"])
    def on_call(_event: Event[Evidence], memory: Memory) -> Iterator[Detection]:
        memory.state["count"] = memory.state.get("count", 0) + 1
        yield Detection(tool_name=str(memory.state["count"]))

    return agent


class Internal:
    def __init__(self, *agents: Agent, **limits: int) -> None:
        self.agents = a_set(*agents)
        self.limits = replace(DEFAULT_LIMITS, **limits)
        self.rekeying = Rekeying(self.agents, partitions=1)
        self.log: list[Record] = []
        self.states: dict[bytes, Record] = {}
        self.state = self.restart()

    def restart(self) -> AgentState:
        """A new process, that restores what the last one committed and goes on from there."""
        self.state = AgentState(self.agents, 0, input_topic=INTERNAL, limits=self.limits)
        for record in self.states.values():
            self.state.restore(record)
        for record in self.log[self.state.restored()[INTERNAL] or 0 :]:
            self.state.process(record)
        return self.state

    def read(self, *outputs: Output) -> list[Finding]:
        found: list[Output] = []
        for output in outputs:
            source = Record(output.role, Origin("evidence", 0, 0), output.key, output.value)
            for written in self.rekeying.process(source):
                place = Origin(INTERNAL, 0, len(self.log))
                self.log.append(Record(written.role, place, written.key, written.value, written.headers))
                found += self.state.process(self.log[-1])
        return findings_in(found)

    def commit(self) -> None:
        for output in self.state.flush({INTERNAL: len(self.log)}):
            assert output.key is not None
            if output.value is None:
                self.states.pop(output.key, None)
            else:
                self.states[output.key] = Record(output.role, Origin("state", 0, 0), output.key, output.value)


def test_records_are_handled_as_they_come_each_with_the_memory_of_its_key() -> None:
    """The order is that of the topic, whatever the event times are."""
    found = Internal(echo()).read(*(evidence(n, 9 - n, tool="xxy"[n]) for n in range(3)))
    assert [(finding.origin.offset, finding.tool_name) for finding in found] == [(0, "1"), (1, "2"), (2, "1")]


def test_a_restart_goes_on_with_what_was_committed() -> None:
    """What was handled and not committed is handled again, with the memory of before."""
    internal = Internal(echo())
    internal.read(evidence(0, 0))
    internal.commit()
    internal.read(evidence(1, 1))
    internal.restart()
    [finding] = internal.read(evidence(2, 2))
    assert finding.tool_name == "3"


def test_what_is_remembered_of_a_definition_outlives_a_restart() -> None:
    """And counts as what the agent may remember of definitions."""
    agent = Agent("labels", title="Labels")
    agent.definitions(lambda definition: definition["name"])

    @agent.evidence(key=lambda event: event.server_id)
    def on_call(_event: Event[Evidence], memory: Memory) -> Iterator[Detection]:
        yield Detection(tool_name=str([memory.definition(digest) for digest in ("a", "b")]))

    internal = Internal(agent, agent_keys_max=1)
    definitions = [
        Output(Role.DEFINITIONS, digest, b'{"definition":{"name":"%b"}}' % digest.upper()) for digest in (b"a", b"b")
    ]
    assert internal.read(*definitions) == []
    internal.commit()
    internal.restart()
    assert [(finding.tool_name, finding.reason) for finding in internal.read(evidence(0, 0))] == [
        ("['A', None]", None),
        (None, "definitions_dropped"),
    ]


def test_keys_beyond_the_bound_are_forgotten_and_a_finding_says_so() -> None:
    """The states that rested longest go first."""
    internal = Internal(echo(), agent_keys_max=2)
    *_, said = internal.read(*(evidence(n, n, tool=f"tool-{n}") for n in range(3)))
    assert (said.kind, said.reason) == (Kind.AGENT_LIMITED, "state_dropped")
    known, forgotten, _ = internal.read(evidence(3, 3, tool="tool-2"), evidence(4, 4, tool="tool-0"))
    assert (known.tool_name, forgotten.tool_name) == ("2", "1")


def test_a_state_that_lapsed_is_no_loss() -> None:
    agent = Agent("echo", title="A call", forget_after_s=1)

    @agent.evidence(key=lambda event: event.value["data"]["tool"])
    def on_call(_event: Event[Evidence], memory: Memory) -> None:
        memory.state["seen"] = True

    internal = Internal(agent, agent_keys_max=2)
    assert internal.read(*(evidence(n, n * 2, tool=f"tool-{n}") for n in range(3))) == []


def raises(_event: Any, _memory: Any) -> list[Detection]:
    raise ValueError("secret")


def cancels(_event: Any, _memory: Any) -> list[Detection]:
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("handle", "code"),
    [
        (raises, "agent_raised"),
        (cancels, "agent_raised"),
        (lambda _event, _memory: 7, "agent_bad_output"),
        (lambda event, _memory: Detection(references=[event.origin]), "agent_bad_output"),  # type: ignore[arg-type]
        (lambda _event, _memory: ["a text"], "agent_bad_output"),
        (lambda _event, _memory: Detection(server_id=""), "agent_bad_output"),
        (lambda _event, _memory: [Detection(about=["a list"])], "agent_bad_output"),  # type: ignore[arg-type]
        (lambda _event, _memory: [Detection(about=("x",) * 9)], "agent_bad_output"),
        (lambda _event, _memory: [Detection(severity="urgent")], "agent_bad_output"),  # type: ignore[arg-type]
        (lambda _event, _memory: [Detection(severity=["low"])], "agent_bad_output"),  # type: ignore[arg-type]
        (lambda _event, _memory: [Detection(about="")], "agent_bad_output"),  # type: ignore[arg-type]
        (lambda _event, _memory: [Detection(about=0)], "agent_bad_output"),  # type: ignore[arg-type]
        (lambda _event, _memory: [Detection(about=("\ud800",))], "agent_bad_output"),
        (lambda _event, _memory: [Detection(tool_name="\ud800")], "agent_bad_output"),
        (lambda _event, _memory: [Detection(references=(Origin("t", 0, 2**64),))], "agent_bad_output"),
        (lambda _event, _memory: [Detection(references=(Origin("t", 0, -1),))], "agent_bad_output"),
        (lambda _event, _memory: [Detection(references=(Origin("t", "0", 0),))], "agent_bad_output"),  # type: ignore[arg-type]
        (lambda _event, _memory: [Detection(references=(Origin("\ud800", 0, 0),))], "agent_bad_output"),
        (lambda _event, memory: memory.state.update(made={1, 2}), "agent_bad_state"),
        (lambda _event, memory: memory.state.update(mean=[nan]), "agent_bad_state"),
        (lambda _event, memory: memory.state.update(most=(1, inf)), "agent_bad_state"),
        (lambda _event, memory: memory.state.update(by={"id": UUID(int=1)}), "agent_bad_state"),
        (lambda _event, memory: setattr(memory, "state", []), "agent_bad_state"),
    ],
)
def test_a_faulty_agent_is_named_and_its_record_is_not_lost(handle: Any, code: str) -> None:
    """The batch fails, nothing of it is committed, and the error quotes no record."""
    agent = Agent("faulty", title="Faulty")
    agent.evidence(key=lambda event: event.server_id)(handle)
    internal = Internal(agent)
    with raises_code(code, kind=ConfigurationError, match="'faulty'") as failed:
        internal.read(evidence(0, 0))
    assert "secret" not in str(failed.value)
    with pytest.raises(ConfigurationError):
        internal.restart()


def test_more_findings_than_a_person_reads_are_cut_off_and_a_finding_says_so() -> None:
    agent = Agent("chatty", title="Chatty")
    agent.evidence(key=lambda event: event.server_id)(
        lambda _event, _memory: (Detection(tool_name=f"{n}") for n in range(10**9))
    )
    found = Internal(agent, agent_findings_max=2).read(evidence(0, 0))
    assert [(finding.kind, finding.reason) for finding in found] == [
        (Kind.DETECTION, None),
        (Kind.DETECTION, None),
        (Kind.AGENT_LIMITED, "findings_dropped"),
    ]


def test_a_state_that_is_too_large_is_dropped_and_a_finding_says_so() -> None:
    """What others send must not be able to stop a detection by making its state grow."""
    agent = Agent("hoarder", title="Hoarder")
    agent.evidence(key=lambda event: event.server_id)(lambda _event, memory: memory.state.update(text="x" * 100))
    [said] = Internal(agent, agent_state_bytes_max=100).read(evidence(0, 0))
    assert (said.kind, said.reason) == (Kind.AGENT_LIMITED, "state_dropped")


@pytest.mark.parametrize("headers", [(), (("assay-agent-input", b"progress"),), (("assay-agent-input", b"evidence"),)])
def test_a_foreign_record_stops_the_process(headers: tuple[tuple[str, bytes], ...]) -> None:
    """Only this version writes the topic; the message names the place."""
    record = Record(Role.AGENT_INPUTS, Origin(INTERNAL, 0, 7), b'["echo","x"]', b"{}", headers)
    with pytest.raises(IntegrityError, match=r"unknown_agent_input: assay\.agent\.input .* at offset 7 of partition 0"):
        Internal(echo()).state.process(record)
