"""How fast users' agents are: one that only counts, beside the join that writes its evidence, in interleaved rounds.

Each round has topics of its own. Calls are joined, then the same number of records of evidence goes through both steps
of the agents: under the key of the tool into their input topic, and from there to the handler. Both are one process
with real transactions on the same broker, so the ratio is what a user gives up for a stage of his own.

    python -m bench.bench_agents [--calls N] [--rounds N]
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from contextlib import AsyncExitStack
from typing import Any

from assay_stream.agents import Agent, AgentSet, Detection, Event, Fields, Memory, agent_set
from assay_stream.config import Settings, load_settings
from assay_stream.kafka.connection import start_admin
from assay_stream.kafka.runner import Runner
from assay_stream.kafka.stage import Topology
from assay_stream.kafka.topics import apply_topics, check_topics, inspect_topics
from assay_stream.model.record import Role
from assay_stream.worker.detections import process, stages_of
from bench.bench_join import hosted, run_join, run_registry
from bench.on_broker import Count, Measure, Part, on_broker, run_until
from bench.publishing import publish
from tests.support.fleet import Fleet

NAME = "counting"


def counting(count: Count) -> AgentSet:
    """Return an agent that counts the calls of each tool, and finds nothing."""
    agent = Agent(NAME, title="Counts calls")

    @agent.evidence(key=Fields("server_id", "tool"))
    def on_call(_: Event[Any], memory: Memory) -> Iterable[Detection]:
        memory.state["calls"] = memory.state.get("calls", 0) + 1
        count.calls += 1
        return ()

    return agent_set([agent], digest="sha256:" + "0" * 64)


async def run_agents(settings: Settings, counts: dict[Role, int], calls: int) -> Measure:
    """Run both steps of the agent over the evidence of all calls."""
    count = Count()
    topology = Topology(settings, counts, agents=NAME)
    parts: list[Part] = []
    async with AsyncExitStack() as stack:
        for stage in stages_of(counting(count), NAME, None, topology):
            agent = await stack.enter_async_context(hosted(stage.name, counts[stage.input_roles[0]], process))
            parts.append(Runner(stage, agent))
        return await run_until(parts, count, calls)


async def bench(bootstrap: str, calls: int, rounds: int) -> None:
    """Measure, and print the result."""
    print(f"{calls} calls, {os.cpu_count()} cores shared with the broker, Python {platform.python_version()}")
    for number in range(rounds):
        settings = load_settings(
            bootstrap_servers=bootstrap,
            call_partitions=4,
            poll_timeout_ms=200,
            topic_prefix=f"round-{number}.",
            group_prefix=f"round-{number}",
        )
        admin = await start_admin(settings)
        await apply_topics(admin, settings, agents=NAME)
        counts = check_topics(await inspect_topics(admin, settings, agents=NAME), set(Role), settings)
        await admin.close()
        await publish(settings, Fleet(servers=200, calls=calls, changes=100, seed=11))
        await run_registry(settings, counts)
        join = await run_join(settings, counts, calls)
        agents = await run_agents(settings, counts, calls)
        print(
            f"round {number + 1}: agent {agents.calls_per_s:,.0f} calls/s at {agents.cpu_us:.1f} us CPU; "
            f"join {join.calls_per_s:,.0f} calls/s at {join.cpu_us:.1f} us CPU; "
            f"ratio {agents.calls_per_s / join.calls_per_s:.2f}"
        )


if __name__ == "__main__":
    on_broker(bench, __doc__, rounds=3)
