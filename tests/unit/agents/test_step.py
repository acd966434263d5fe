"""The second step: what waits, in which order it is handled, and what a restart finds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from assay_stream.agents import Agent, AgentState, Detection, Event, Evidence, Memory, Rekeying
from assay_stream.errors import ConfigurationError, IntegrityError
from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.model.agent_topic import OPEN_END
from assay_stream.model.finding import Finding
from assay_stream.model.kinds import Kind
from assay_stream.model.record import Origin, Output, Record, Role
from tests.support.agents import a_set, evidence, findings_in, start_us
from tests.support.alerts import finding_of

INTERNAL = "assay.agent.input"
EVIDENCE, FINDINGS = "assay.tool.decision", "assay.tool.finding"


def echo() -> Agent:
    """Finds every call, and remembers how many calls the key had."""
    agent = Agent("echo", title="A call")

    @agent.evidence(key=lambda event: event.value["data"]["tool"])
    def on_call(_event: Event[Evidence], memory: Memory) -> Iterator[Detection]:
        memory.state["count"] = memory.state.get("count", 0) + 1
        yield Detection(tool_name=str(memory.state["count"]))

    return agent


class Internal:
    """One partition of the internal topic, and who reads it."""

    def __init__(self, *agents: Agent, **limits: int) -> None:
        self.agents = a_set(*agents)
        self.limits = replace(DEFAULT_LIMITS, **limits)
        self.rekeying = Rekeying(self.agents, partitions=1)
        self.log: list[Record] = []
        self.states: dict[bytes, Record] = {}
        self.state = self.restart()

    def restart(self, records: int | None = None) -> AgentState:
        """A new process, that restores what the last one committed and reads so many records again."""
        self.state = AgentState(self.agents, 0, input_topic=INTERNAL, ordered={EVIDENCE}, limits=self.limits)
        for record in self.states.values():
            self.state.restore(record)
        start = self.state.restored()[INTERNAL] or 0
        again = self.log[start:] if records is None else self.log[start : start + records]
        for record in again:
            assert self.state.process(record) == []
        return self.state

    def read(self, *outputs: Output, to: int | None = None) -> list[Finding]:
        """The first step reads evidence, and how far; the second step takes it in."""
        written = [rekeyed for output in outputs for rekeyed in self.rekeying.process(source(output))]
        if to is not None:
            number = (outputs[0].partition or 0) if outputs else 0
            written += self.rekeying.progress(EVIDENCE, number, to)
        return self.append(*written)

    def append(self, *written: Output) -> list[Finding]:
        """The second step takes in what the first one wrote."""
        found: list[Output] = []
        for output in written:
            place = Origin(INTERNAL, 0, len(self.log))
            record = Record(output.role, place, output.key, output.value, output.headers, output.timestamp_ms)
            self.log.append(record)
            found += self.state.process(record)
        return findings_in(found)

    def ends(self, *ends: int) -> list[Finding]:
        """The ends of the evidence partitions, as they are looked up."""
        return findings_in(self.state.note_ends({(EVIDENCE, number): end for number, end in enumerate(ends)}))

    def commit(self, position: int | None = None) -> None:
        """Keep what changed, with the next offset to read: the end unless said otherwise."""
        for output in self.state.flush({INTERNAL: len(self.log) if position is None else position}):
            assert output.key is not None
            place = Origin("assay.agent.state", 0, 0)
            if output.value is None:
                self.states.pop(output.key, None)
            else:
                self.states[output.key] = Record(output.role, place, output.key, output.value)


def source(output: Output) -> Record:
    """An output as it is read again."""
    return Record(Role.EVIDENCE, Origin(EVIDENCE, output.partition or 0, 0), output.key, output.value)


def seconds(findings: list[Finding]) -> list[int]:
    """When what was found happened, in seconds after the start."""
    return [finding.time_us // 1_000_000 % 3_600 for finding in findings]


def test_a_record_waits_until_every_input_was_read_to_its_end() -> None:
    """Two partitions: the second one holds an earlier call, which goes first."""
    internal = Internal(echo())
    assert internal.read(evidence(0, 5), to=1) == []
    assert internal.ends(1, 1) == []
    assert seconds(internal.read(evidence(0, 3, partition=1), to=1)) == [3, 5]


def test_a_record_with_nothing_before_it_does_not_wait() -> None:
    """An input at its end holds nothing up, however long it has been quiet."""
    internal = Internal(echo())
    internal.read(evidence(0, 5), to=1)
    assert seconds(internal.ends(1, 0)) == [5]


def test_a_record_read_after_the_ends_were_looked_up_waits_for_its_own() -> None:
    """Something before it may have been published since."""
    internal = Internal(echo())
    internal.read(evidence(0, 5), to=1)
    internal.ends(1, 1)
    internal.read(evidence(1, 9), to=2)
    assert seconds(internal.read(evidence(0, 3, partition=1), to=1)) == [3, 5]
    assert seconds(internal.ends(2, 1)) == [9]


def test_an_input_far_beyond_a_record_holds_it_up_no_longer() -> None:
    """A first run over a long history: neither partition is near its end, and little waits."""
    internal = Internal(echo())
    internal.read(evidence(0, 5), to=1)
    assert internal.ends(1_000, 1_000) == []
    assert internal.read(evidence(0, 65, partition=1), to=1) == []
    # A record that is as late as one may be could still come before it.
    assert internal.read(evidence(1, 70), to=2) == []
    assert seconds(internal.read(evidence(1, 65.1, partition=1), to=2)) == [5]


def test_an_input_in_no_order_says_nothing_by_its_event_times() -> None:
    """A later finding may come first, since the registry and the join write to one partition, each at its pace."""
    agent = Agent("both", title="Both")
    agent.evidence(key=lambda event: event.server_id)(lambda _event, _memory: [Detection()])
    agent.findings(key=lambda event: event.server_id)(lambda _event, _memory: [Detection()])
    internal = Internal(agent)
    later, earlier = (
        Record(
            Role.FINDINGS,
            Origin(FINDINGS, 0, offset),
            b"mail",
            finding_of(server_id="mail", time_us=start_us(second), origin=Origin("calls", 1, offset)).output().value,
        )
        for offset, second in enumerate((500, 3))
    )
    internal.read(evidence(0, 5), to=1)
    internal.append(*internal.rekeying.process(later), *internal.rekeying.progress(FINDINGS, 0, 1))
    assert internal.state.note_ends({(EVIDENCE, 0): 1, (FINDINGS, 0): 2}) == []
    found = internal.append(*internal.rekeying.process(earlier), *internal.rekeying.progress(FINDINGS, 0, 2))
    assert seconds(found) == [3, 5, 500]


def test_with_an_end_still_open_records_go_on_by_time_and_the_rest_waits_for_the_end() -> None:
    """The join is hours behind: the evidence that it has written is handled, the last minute of it later."""
    internal = Internal(echo())
    internal.read(evidence(0, 5), evidence(1, 50), evidence(2, 70), to=3)
    assert seconds(internal.ends(OPEN_END, 0)) == [5]
    assert internal.state.needs_ends
    assert seconds(internal.ends(3, 0)) == [50, 70]
    assert not internal.state.needs_ends


def test_a_late_record_is_handled_at_once_and_counted() -> None:
    """It was published after a later one had been handled: nothing is dropped."""
    internal = Internal(echo())
    internal.read(evidence(0, 50), to=1)
    internal.ends(1)
    assert seconds(internal.read(evidence(1, 20), to=2)) == [20]
    assert internal.state.late == 1


def test_beyond_the_bound_the_earliest_go_on_and_a_finding_says_so() -> None:
    """A flood while an input stands still: nothing is lost but the order."""
    internal = Internal(echo(), agent_buffered_max=2)
    found = internal.read(*(evidence(n, 9 - n) for n in range(3)))
    assert [(finding.kind, finding.reason) for finding in found] == [
        (Kind.DETECTION, None),
        (Kind.AGENT_LIMITED, "order_dropped"),
    ]
    assert seconds(found) == [7, 7]
    assert internal.state.buffered == 2


def test_a_restart_goes_on_with_what_waited_and_repeats_nothing() -> None:
    """The first record in the log waits while later ones have been handled."""
    internal = Internal(echo())
    internal.read(evidence(0, 50), to=1)
    internal.read(evidence(1, 20), evidence(2, 10), to=3)
    internal.ends(3, 1)
    internal.commit()
    internal.restart()
    internal.ends(3, 1)
    assert seconds(internal.read(evidence(0, 15, partition=1), to=1)) == [10, 15, 20, 50]
    internal.read(evidence(3, 60), to=4)
    internal.commit()
    internal.restart()
    [last] = internal.ends(4, 1)
    assert (seconds([last]), last.tool_name) == ([60], "5")


def test_a_restart_over_handled_and_waiting_records_handles_only_these() -> None:
    """Reading goes on at the earliest that waits, behind it stand records that were handled."""
    internal = Internal(echo())
    internal.read(evidence(0, 50))
    internal.read(evidence(1, 10), to=2)
    internal.state.note_ends({(EVIDENCE, 0): 9})
    # Far enough beyond the earlier one only.
    assert seconds(internal.read(evidence(2, 75), to=3)) == [10]
    internal.commit()
    internal.restart()
    internal.state.note_ends({(EVIDENCE, 0): 9})
    assert [finding.tool_name for finding in internal.read(to=9)] == ["2", "3"]


def test_a_commit_before_all_that_waited_is_read_again_forgets_none_of_it() -> None:
    """A process ends, and so does the next one, which has committed that it had begun."""
    internal = Internal(echo())
    internal.read(evidence(0, 50), evidence(1, 20), to=2)
    internal.commit()
    internal.restart(records=0)
    internal.commit(0)
    internal.restart()
    assert seconds(internal.ends(2)) == [20, 50]


@pytest.mark.parametrize("is_marked", [False, True])
def test_a_restart_releases_nothing_before_all_that_waited_is_read_again(is_marked: bool) -> None:
    """The inputs were read to their ends, and so is said, but only the first batch is here again."""
    internal = Internal(echo())
    internal.read(evidence(0, 50), evidence(1, 20), to=2)
    if is_marked:
        # What a transaction's marker fills is read, too, and no record.
        internal.state.flush({INTERNAL: len(internal.log) + 1})
    internal.commit()
    internal.restart(records=1)
    assert internal.ends(2) == []
    assert internal.state.process(internal.log[1]) == []
    found = internal.state.process(internal.log[2])
    if is_marked:
        found = [each for each in internal.state.flush({INTERNAL: len(internal.log) + 1}) if each.role is Role.FINDINGS]
    assert seconds(findings_in(found)) == [20, 50]


def test_keys_beyond_the_bound_are_forgotten_and_a_finding_says_so() -> None:
    """The states that rested longest go first."""
    internal = Internal(echo(), agent_keys_max=2)
    internal.read(*(evidence(n, n, tool=f"tool-{n}") for n in range(3)), to=3)
    *_, said = internal.ends(3)
    assert (said.kind, said.reason) == (Kind.AGENT_LIMITED, "state_dropped")
    internal.read(evidence(3, 3, tool="tool-2"), evidence(4, 4, tool="tool-0"), to=5)
    known, forgotten, _ = internal.ends(5)
    assert (known.tool_name, forgotten.tool_name) == ("2", "1")


def test_a_state_that_lapsed_is_no_loss() -> None:
    """It would have been empty anyway."""
    agent = Agent("echo", title="A call", forget_after_s=1)

    @agent.evidence(key=lambda event: event.value["data"]["tool"])
    def on_call(_event: Event[Evidence], memory: Memory) -> None:
        memory.state["seen"] = True

    internal = Internal(agent, agent_keys_max=2)
    internal.read(*(evidence(n, n * 2, tool=f"tool-{n}") for n in range(3)), to=3)
    assert internal.ends(3) == []


def raises(_event: Any, _memory: Any) -> list[Detection]:
    """A mistake, with a secret in its text."""
    raise ValueError("secret")


@pytest.mark.parametrize(
    ("handle", "code"),
    [
        (raises, "agent_raised"),
        (lambda _event, _memory: 7, "agent_bad_output"),
        (lambda _event, _memory: ["a text"], "agent_bad_output"),
        (lambda _event, _memory: Detection(server_id=""), "agent_bad_output"),
        (lambda _event, _memory: [Detection(about=["a list"])], "agent_bad_output"),  # type: ignore[arg-type]
        (lambda _event, _memory: [Detection(about=("x",) * 9)], "agent_bad_output"),
        (lambda _event, _memory: [Detection(severity="urgent")], "agent_bad_output"),  # type: ignore[arg-type]
        (lambda _event, memory: memory.state.update(made={1, 2}), "agent_bad_state"),
        (lambda _event, memory: setattr(memory, "state", []), "agent_bad_state"),
    ],
)
def test_a_faulty_agent_is_named_and_its_record_is_not_lost(handle: Any, code: str) -> None:
    """The batch fails, nothing of it is committed, and the error quotes no record."""
    agent = Agent("faulty", title="Faulty")
    agent.evidence(key=lambda event: event.server_id)(handle)
    internal = Internal(agent)
    internal.read(evidence(0, 0), to=1)
    with pytest.raises(ConfigurationError, match="'faulty'") as failed:
        internal.ends(1)
    assert failed.value.code == code
    assert "secret" not in str(failed.value)
    internal.restart()
    assert internal.state.buffered == 1


def test_more_findings_than_a_person_reads_are_cut_off_and_a_finding_says_so() -> None:
    """Of one record and one agent."""
    agent = Agent("chatty", title="Chatty")
    agent.evidence(key=lambda event: event.server_id)(
        lambda _event, _memory: (Detection(tool_name=f"{n}") for n in range(10**9))
    )
    internal = Internal(agent, agent_findings_max=2)
    internal.read(evidence(0, 0), to=1)
    assert [(finding.kind, finding.reason) for finding in internal.ends(1)] == [
        (Kind.DETECTION, None),
        (Kind.DETECTION, None),
        (Kind.AGENT_LIMITED, "findings_dropped"),
    ]


def test_a_state_that_is_too_large_is_dropped_and_a_finding_says_so() -> None:
    """What others send must not be able to stop a detection by making its state grow."""
    agent = Agent("hoarder", title="Hoarder")
    agent.evidence(key=lambda event: event.server_id)(lambda _event, memory: memory.state.update(text="x" * 100))
    internal = Internal(agent, agent_state_bytes_max=100)
    internal.read(evidence(0, 0), to=1)
    [said] = internal.ends(1)
    assert (said.kind, said.reason) == (Kind.AGENT_LIMITED, "state_dropped")


def test_evidence_that_nobody_looks_at_is_not_decoded() -> None:
    """A handler that needs only the key costs no decoding; one that looks gets an error that names the place."""
    seen: list[str] = []
    blind = Agent("blind", title="A call")
    blind.evidence(key=lambda event: event.server_id)(lambda event, _memory: seen.append(str(event.time_us)))
    looking = Agent("looking", title="A call")
    looking.evidence(key=lambda event: event.server_id)(lambda event, _memory: seen.append(event.server_id))
    for agent, readable in ((blind, True), (looking, False)):
        internal = Internal(agent)
        [rekeyed] = internal.rekeying.process(source(evidence(0, 5)))
        record = Record(rekeyed.role, Origin(INTERNAL, 0, 0), rekeyed.key, b"{}", rekeyed.headers)
        internal.state.process(record)
        if readable:
            internal.state.note_ends({})
        else:
            with pytest.raises(IntegrityError, match="unknown_agent_input"):
                internal.state.note_ends({})
    assert seen == ["1772359205000000"]
