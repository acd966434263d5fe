"""The agents that ship, and one that numbers the calls of an actor: what is lost, doubled or of a lost state shows."""

from collections.abc import Iterator

from assay_stream.agents import Agent, Detection, Event, Evidence, Memory, actor_of
from assay_stream.agents.shipped import *  # noqa: F403 -- they are to run together

numbering = Agent("numbering", title="A call has a number", forget_after_s=10**8)


@numbering.evidence(key=actor_of)
def on_call(_: Event[Evidence], memory: Memory) -> Iterator[Detection]:
    memory.state["count"] = memory.state.get("count", 0) + 1
    yield Detection(tool_name=f"call {memory.state['count']}")
