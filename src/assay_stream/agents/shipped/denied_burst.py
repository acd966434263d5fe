"""A burst of denied calls by one actor, who may be probing for access."""

from __future__ import annotations

from collections.abc import Iterator

from assay_stream.agents import Agent, Detection, Event, Evidence, Memory, actor_of

DENIED_CALLS = 5
WITHIN_S = 60

agent = Agent("denied_burst", title="One actor had many calls denied at once", severity="high")


@agent.evidence(key=actor_of)
def on_call(event: Event[Evidence], memory: Memory) -> Iterator[Detection]:
    """Detect the call that completes a burst; the next burst needs new calls."""
    if event.value["data"]["decision"] != "deny":
        return
    denied = memory.window("denied", seconds=WITHIN_S)
    denied.add()
    if len(denied) >= DENIED_CALLS:
        yield Detection(references=denied.origins)
        denied.clear()
