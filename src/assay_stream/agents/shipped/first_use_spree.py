"""A spree of first uses: an agent calls many tools that are new to it, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256

from assay_stream.agents import Agent, Detection, Event, Evidence, Memory, actor_of

NEW_TOOLS = 5
WITHIN_S = 600
LEARNING_S = 24 * 3_600
"""How long after its first call an agent may try tools without being reported."""
REMEMBERED = 1_000
"""Tools remembered per agent, the latest first uses."""

agent = Agent(
    "first_use_spree",
    title="An agent used many tools for the first time",
    severity="medium",
    forget_after_s=30 * 24 * 3_600,
)


@agent.evidence(key=actor_of)
def on_call(event: Event[Evidence], memory: Memory) -> Iterator[Detection]:
    """Detect the first use that completes a spree; the next spree needs other tools."""
    data = event.value["data"]
    if data["decision"] == "deny":
        return
    # Names may be long, and a state is bounded.
    tool = sha256(f"{data['server_id']}\n{data['tool']}".encode()).hexdigest()[:16]
    known: list[str] = memory.state.setdefault("tools", [])
    since_us = memory.state["since_us"] = min(memory.state.get("since_us", event.time_us), event.time_us)
    if tool in known:
        return
    memory.state["tools"] = [*known, tool][-REMEMBERED:]
    if event.time_us < since_us + LEARNING_S * 1_000_000:
        return
    first_uses = memory.window("first_uses", seconds=WITHIN_S)
    first_uses.add()
    if len(first_uses) >= NEW_TOOLS:
        yield Detection(references=first_uses.origins)
        first_uses.clear()
