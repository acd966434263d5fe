"""Agents that fail, each in its own way: ``worker --agents tests.support.breaking_agents:raising``."""

import time

from assay_stream.agents import Agent, Event, Evidence, Memory

raising = Agent("raising", title="It raises")
blocking = Agent("blocking", title="It blocks")


@raising.evidence(key=lambda event: event.server_id)
def raise_on(event: Event[Evidence], memory: Memory) -> None:
    raise ValueError(event.value)


@blocking.evidence(key=lambda event: event.server_id)
def block_on(_: Event[Evidence], __: Memory) -> None:
    time.sleep(3_600)
