"""Laws of users' agents."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from assay_stream.agents import Agent, AgentState, Detection, Event, Evidence, Memory, Rekeying
from assay_stream.model.record import Origin, Output, Record, Role
from tests.support.agents import a_set, evidence, found

INTERNAL, EVIDENCE = "assay.agent.input", "assay.tool.decision"
STEPS = st.tuples(st.integers(0, 40), st.integers(0, 60), st.sampled_from("xy"))
"""Seconds since the latest time so far, seconds before that, and a tool: as late as disorder in a partition may be."""
LOGS = st.lists(st.lists(STEPS, max_size=8), min_size=1, max_size=3)


def times(log: list[tuple[int, int, str]]) -> list[tuple[int, str]]:
    """The event times of a partition, in seconds, with the tools."""
    return [(60 + sum(gap for gap, _, _ in log[: n + 1]) - early, tool) for n, (_, early, tool) in enumerate(log)]


def chain() -> Agent:
    """Each finding depends on all records of its key before it, and on their order."""
    agent = Agent("chain", title="Order", forget_after_s=100)

    @agent.evidence(key=lambda event: event.value["data"]["tool"])
    def on_call(event: Event[Evidence], memory: Memory) -> Iterator[Detection]:
        memory.state["before"] = [*memory.state.get("before", []), event.origin.offset][-3:]
        window = memory.window("recent", seconds=50)
        window.add(event.origin.partition)
        yield Detection(tool_name=f"{memory.state['before']} {window.values}", references=window.origins)

    return agent


@given(st.data(), LOGS, st.booleans())
def test_any_interleaving_of_the_inputs_gives_the_same_findings(
    data: st.DataObject, logs: list[list[tuple[int, int, str]]], restarts: bool
) -> None:
    """Whichever partition is read first, in whatever pieces, and wherever a process ends: as in order of time."""
    agents = a_set(chain())
    written = [
        [evidence(offset, second, partition=number, tool=tool) for offset, (second, tool) in enumerate(times(log))]
        for number, log in enumerate(logs)
    ]
    expected = [finding.output() for finding in found(agents, [each for log in written for each in log])]
    ends = {(EVIDENCE, number): len(log) for number, log in enumerate(logs)}
    rekeying, log, states = Rekeying(agents, partitions=1), list[Record](), dict[bytes | None, Record]()
    state, results, pending = AgentState(agents, 0, input_topic=INTERNAL), list[Output](), list[Output]()
    at = [0] * len(logs)
    while open_ := [number for number in range(len(logs)) if at[number] < len(logs[number])]:
        number = data.draw(st.sampled_from(open_))
        piece = data.draw(st.integers(1, 3))
        rekeyed = [
            each
            for output in written[number][at[number] : at[number] + piece]
            for each in rekeying.process(Record(Role.EVIDENCE, Origin(EVIDENCE, number, 0), b"", output.value))
        ]
        at[number] = min(at[number] + piece, len(logs[number]))
        for output in [*rekeyed, *rekeying.progress(EVIDENCE, number, at[number])]:
            log.append(Record(output.role, Origin(INTERNAL, 0, len(log)), output.key, output.value, output.headers))
            pending += state.process(log[-1])
        pending += state.note_ends(ends)
        if not restarts or data.draw(st.booleans()):
            results += pending
            for output in state.flush({INTERNAL: len(log)}):
                states[output.key] = Record(output.role, Origin("state", 0, 0), output.key, output.value)
            pending = []
        else:
            state = AgentState(agents, 0, input_topic=INTERNAL)
            for record in states.values():
                state.restore(record)
            pending = [each for record in log[state.restored()[INTERNAL] or 0 :] for each in state.process(record)]
            pending += state.note_ends(ends)
    assert [*results, *pending] == expected
