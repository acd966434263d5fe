"""Agents in memory: records in, findings out."""

from collections.abc import Iterator

from assay_stream.agents import Agent, Detection, Event, Evidence, Memory, actor_of
from assay_stream.model.kinds import Kind
from assay_stream.model.record import Origin
from tests.support.agents import DIGEST, evidence, found, start_us


def burst(count: int = 3, seconds: float = 10) -> Agent:
    agent = Agent("burst", title="A burst", severity="high")

    @agent.evidence(key=actor_of)
    def on_call(event: Event[Evidence], memory: Memory) -> Iterator[Detection]:
        if event.value["data"]["decision"] != "deny":
            return
        window = memory.window("denied", seconds=seconds)
        window.add(event.value["data"]["tool"])
        if len(window) >= count:
            yield Detection(references=window.origins)
            window.clear()

    return agent


def test_a_detection_becomes_a_finding_that_says_what_it_rests_on() -> None:
    """Of the record that came last, with agent, title, severity, key, digest of the code, and the records by time."""
    denied = [evidence(offset, second, decision="deny") for offset, second in ((7, 2.0), (5, 0.0), (6, 1.0))]
    [finding] = found(burst(), denied)
    assert (finding.kind, finding.server_id, finding.time_us) == (Kind.DETECTION, "mail", start_us(1))
    assert finding.origin == Origin("mcp.tools.call", 0, 6)
    assert finding.detection is not None
    assert (finding.detection.agent, finding.detection.title, finding.detection.severity_id) == ("burst", "A burst", 4)
    assert (finding.detection.key, finding.detection.digest) == (("agent", "a1"), DIGEST)
    assert [origin.offset for origin in finding.detection.references] == [5, 6, 7]


def test_each_key_has_a_memory_of_its_own() -> None:
    """Two actors with two denied calls each are no burst of one."""
    actors = [{"kind": "agent", "agent_id": name} for name in ("a1", "a2", "a1", "a2")]
    assert found(burst(), [evidence(n, n, decision="deny", actor=actor) for n, actor in enumerate(actors)]) == []
