"""Laws of users' agents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hypothesis import given
from hypothesis import strategies as st

from assay_stream.agents import Agent, AgentState, Detection, Event, Evidence, Finding, Memory, Rekeying
from assay_stream.model.agent_topic import OPEN_END
from assay_stream.model.record import Origin, Output, Record, Role
from tests.support.agents import a_set, evidence, found, start_us
from tests.support.alerts import finding_of

INTERNAL, EVIDENCE, FINDINGS = "assay.agent.input", "assay.tool.decision", "assay.tool.finding"
STEPS = st.tuples(st.integers(0, 40), st.integers(0, 60), st.sampled_from("xy"), st.booleans())
"""A call: seconds since the latest time so far, seconds before that, a tool, and whether there is a finding about it.

It is as late as disorder in a partition may be.
"""
LOGS = st.lists(st.lists(STEPS, max_size=8), min_size=1, max_size=3)
Place = tuple[int, int]
"""Partition and offset of a call."""


def calls(log: Sequence[tuple[int, int, str, bool]]) -> list[tuple[int, str, bool]]:
    """The calls of a partition: event time in seconds, tool, and whether there is a finding about it."""
    return [
        (60 + sum(gap for gap, *_ in log[: number + 1]) - early, tool, has_finding)
        for number, (_, early, tool, has_finding) in enumerate(log)
    ]


def chain() -> Agent:
    """Each finding depends on all records of its key before it, and on their order."""
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


class Reader:
    """Who reads the internal topic, may end at any time, and goes on from what was committed."""

    def __init__(self) -> None:
        self.log: list[Record] = []
        self.results: list[Output] = []
        self._committed: dict[bytes | None, Record] = {}
        self.restart()

    def restart(self) -> None:
        """Begin with what was committed."""
        self._state = AgentState(a_set(chain()), 0, input_topic=INTERNAL, ordered={EVIDENCE})
        for record in self._committed.values():
            self._state.restore(record)
        self._at = self._state.restored()[INTERNAL] or 0
        self._pending: list[Output] = []

    def read(self, count: int | None = None, *, ends: dict[tuple[str, int], int] | None = None) -> None:
        """Read so many records, or all, and learn where the inputs end."""
        for record in self.log[self._at : None if count is None else self._at + count]:
            self._pending += self._state.process(record)
            self._at += 1
        if ends is not None:
            self._pending += self._state.note_ends(ends)

    def commit(self) -> None:
        """Keep what was found and what is remembered."""
        for output in [*self._pending, *self._state.flush({INTERNAL: self._at})]:
            if output.role is Role.FINDINGS:
                self.results.append(output)
            else:
                self._committed[output.key] = Record(output.role, Origin("state", 0, 0), output.key, output.value)
        self._pending = []


@given(st.data(), LOGS)
def test_any_interleaving_of_the_inputs_gives_the_findings_of_a_replay(
    data: st.DataObject, logs: list[list[tuple[int, int, str, bool]]]
) -> None:
    """In whatever order and pieces partitions are read, however findings are mixed, and wherever a process ends.

    What follows from a call is read before its evidence, as a worker does it.
    """
    written: list[list[Output]] = []
    caused: list[tuple[Place, Output]] = []
    for number, log in enumerate(logs):
        written.append([])
        for offset, (second, tool, has_finding) in enumerate(calls(log)):
            written[-1].append(evidence(offset, second, partition=number, tool=tool))
            if has_finding:
                origin = Origin("mcp.tools.call", number, offset)
                finding = finding_of(tool, server_id="mail", time_us=start_us(second), origin=origin)
                caused.append(((number, offset), finding.output()))
    caused = data.draw(st.permutations(caused))
    sources = {(EVIDENCE, number): log for number, log in enumerate(written)}
    sources[FINDINGS, 0] = [output for _, output in caused]
    expected = [each.output() for each in found(chain(), [each for log in sources.values() for each in log])]

    ends = {source: len(log) for source, log in sources.items()}
    open_ends = {source: OPEN_END if source[0] == EVIDENCE else end for source, end in ends.items()}
    rekeying, at, reader = Rekeying(a_set(chain()), partitions=1), dict.fromkeys(sources, 0), Reader()

    def rekey(source: tuple[str, int], to: int) -> None:
        outputs = [
            rekeyed
            for output in sources[source][at[source] : to]
            for rekeyed in rekeying.process(Record(output.role, Origin(*source, 0), output.key, output.value))
        ]
        at[source] = max(at[source], to)
        for output in [*outputs, *rekeying.progress(*source, at[source])]:
            place = Origin(INTERNAL, 0, len(reader.log))
            reader.log.append(Record(output.role, place, output.key, output.value, output.headers))

    while unread := [source for source, end in ends.items() if at[source] < end]:
        source = data.draw(st.sampled_from(unread))
        to = min(at[source] + data.draw(st.integers(1, 3)), ends[source])
        if source[0] == EVIDENCE:
            before = [n for n, ((number, offset), _) in enumerate(caused) if number == source[1] and offset < to]
            rekey((FINDINGS, 0), max(before, default=-1) + 1)
        rekey(source, to)
        reader.read(data.draw(st.integers(0, 5)), ends=data.draw(st.sampled_from([ends, open_ends, None])))
        if data.draw(st.booleans()):
            reader.commit()
        elif data.draw(st.booleans()):
            reader.restart()
    reader.read(ends=ends)
    reader.commit()
    assert reader.results == expected
