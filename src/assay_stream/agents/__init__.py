"""Detections as code: agents of users over evidence, findings and alerts.

A module declares agents at its top level::

    from assay_stream.agents import Agent, Detection, actor_of

    agent = Agent("denied_burst", title="One actor had many calls denied", severity="high")

    @agent.evidence(key=actor_of)
    def on_call(event, memory):
        if event.value["data"]["decision"] == "deny":
            window = memory.window("denied", seconds=60)
            window.add()
            if len(window) >= 5:
                yield Detection(references=window.origins)
                window.clear()

The same records in the same order give the same detections, live and replayed: agents get no clock, no randomness and
no I/O. ``assay_stream.agents.testing`` has what their tests need.
"""

from assay_stream.agents.declaration import (
    Agent as Agent,
    AgentSet as AgentSet,
    Detection as Detection,
    Event as Event,
    Fields as Fields,
    Memory as Memory,
    Window as Window,
    actor_of as actor_of,
    agent_set as agent_set,
    trace_of as trace_of,
)
from assay_stream.agents.processing import AgentState as AgentState, Rekeying as Rekeying, Runner as Runner
from assay_stream.model.alert import Alert as Alert
from assay_stream.model.evidence import Evidence as Evidence
from assay_stream.model.finding import Finding as Finding
from assay_stream.model.record import Origin as Origin
