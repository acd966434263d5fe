"""Laws of users' agents."""

from collections.abc import Iterator, Sequence

from hypothesis import given, strategies as st

from assay_stream.agents import Agent, AgentState, Detection, Event, Evidence, Finding, Memory, Rekeying
from assay_stream.model.record import Origin, Output, Record
from tests.support.agents import a_set, evidence, found, start_us
from tests.support.alerts import finding_of

INTERNAL = "assay.agent.input"
STEPS = st.tuples(st.integers(0, 99), st.sampled_from("xy"), st.booleans())
"""A call, or a finding about a tool: event time in seconds, tool, which."""


def outputs(log: Sequence[tuple[int, str, bool]]) -> list[Output]:
    written = []
    for offset, (second, tool, is_finding) in enumerate(log):
        origin = Origin("mcp.tools.call", 0, offset)
        finding = finding_of(tool, server_id="mail", time_us=start_us(second), origin=origin).output()
        written.append(finding if is_finding else evidence(offset, second, tool=tool))
    return written


def chain() -> Agent:
    agent = Agent("chain", title="Order", forget_after_s=100)

    @agent.evidence(key=lambda event: event.value["data"]["tool"])
    def on_call(event: Event[Evidence], memory: Memory) -> Iterator[Detection]:
        memory.state["before"] = [*memory.state.get("before", []), event.origin.offset][-3:]
        window = memory.window("recent", seconds=50)
        window.add(event.origin.partition)
        yield Detection(tool_name=f"{memory.state['before']} {window.values}", references=window.origins)

    @agent.findings(key=lambda event: event.value.tool_name)
    def on_finding(event: Event[Finding], memory: Memory) -> None:
        memory.state["before"] = [*memory.state.get("before", []), -event.origin.offset][-3:]

    return agent


@given(st.data(), st.lists(STEPS, max_size=20))
def test_wherever_processes_end_each_record_counts_once(data: st.DataObject, log: list[tuple[int, str, bool]]) -> None:
    expected = [finding.output() for finding in found(chain(), outputs(log))]
    rekeying = Rekeying(a_set(chain()), partitions=1)
    internal = [
        rekeyed
        for output in outputs(log)
        for rekeyed in rekeying.process(Record(output.role, Origin("s", 0, 0), output.key, output.value))
    ]
    committed: dict[bytes | None, Record] = {}
    results: list[Output] = []
    position = 0
    while position < len(internal):
        state = AgentState(a_set(chain()), 0, input_topic=INTERNAL)
        for record in committed.values():
            state.restore(record)
        assert (state.restored()[INTERNAL] or 0) == position
        while position < len(internal):
            end = data.draw(st.integers(position + 1, len(internal)))
            batch = [
                each
                for offset, output in enumerate(internal[position:end], position)
                for each in state.process(
                    Record(output.role, Origin(INTERNAL, 0, offset), output.key, output.value, output.headers)
                )
            ]
            if data.draw(st.booleans()):
                break  # A crash: nothing of it is committed.
            results += batch
            for output in state.flush({INTERNAL: end}):
                committed[output.key] = Record(output.role, Origin("state", 0, 0), output.key, output.value)
            position = end
    assert results == expected
