"""The process of users' agents: their stages (``worker.agent_stages``), in consumer groups of their own.

An agent that raises, blocks or returns junk ends this process, with its name. What it has in hand is not committed.
"""

import asyncio
import gc
from collections.abc import Mapping
from functools import partial
from typing import Any

from assay_stream.agents import AgentSet
from assay_stream.config import Settings
from assay_stream.kafka.access import ACCESS, AccessRole
from assay_stream.kafka.connection import Clients, KafkaClients
from assay_stream.kafka.runner import Runner
from assay_stream.kafka.stage import Stage
from assay_stream.kafka.topics import topic_names
from assay_stream.kafka.upstream import UpstreamStage, UpstreamStages, steps_to
from assay_stream.model.record import Role
from assay_stream.worker.agent_stages import DetectionStage, EvidenceRekeyStage, RekeyStage, process
from assay_stream.worker.channel import Batches, TransactionalChannel
from assay_stream.worker.host import Host, PartitionCounts, run_host
from assay_stream.worker.metrics import PrometheusStage
from assay_stream.worker.worker import GC_THRESHOLDS, add_task

_UPSTREAM_LIMIT_S = 1.0
"""How long the ends of a batch may be waited for. Then records go on by the event times of evidence, where agents read
it: with the join hours behind, each batch would wait for hours."""


def run_agents(settings: Settings, agents: AgentSet, name: str) -> None:
    """Run agents until told to stop.

    Args:
        name: names their topics and consumer groups.

    Raises:
        AssayStreamError: if they cannot start, or had to stop.
    """
    gc.set_threshold(*GC_THRESHOLDS)
    access = ACCESS[AccessRole.AGENTS]
    needed = (access.reads | access.writes | access.looks_at) - _unread(agents)
    run_host(
        settings,
        needed,
        lambda host, counts: add_agents(settings, host, counts, agents, name),
        web_port=settings.web_port,
        agents=name,
    )


def _unread(agents: AgentSet) -> set[Role]:
    return {Role.EVIDENCE, Role.ALERTS, Role.DEFINITIONS} - set(agents.roles)


def add_agents(settings: Settings, host: Host, counts: PartitionCounts, agents: AgentSet, name: str) -> None:
    """Add the stages of agents to a host. Arguments are those of ``run_agents``."""
    clients, topics = KafkaClients(settings), topic_names(settings, agents=name)
    upstream = upstream_of(
        agents, name, clients=clients, topics=topics, counts=counts, group_prefix=settings.group_prefix
    )
    for follower_name, follower in upstream.items():
        host.add(follower_name, follower)
    quarantine = asyncio.Lock()
    for stage in stages_of(agents, name, upstream, clients=clients, topics=topics, counts=counts):
        channel = TransactionalChannel(host.app, name=stage.name, partitions=counts[stage.input_roles[0]])
        host.app.agent(channel)(_processing)
        task = Runner(
            settings,
            stage,
            channel.process,
            topics=topics,
            partition_counts=counts,
            metrics=PrometheusStage(host.metrics, stage.name),
            clients=clients,
            quarantine=quarantine,
        )
        add_task(host, stage.name, task)
        if isinstance(stage, DetectionStage):
            host.metrics.on_scrape(partial(stage.note_late, host.metrics))


def upstream_of(
    agents: AgentSet,
    name: str,
    *,
    clients: Clients,
    topics: Mapping[Role, str],
    counts: Mapping[Role, int],
    group_prefix: str,
) -> dict[str, UpstreamStages]:
    """Return what follows the stages before the agents, by name.

    ``upstream`` tells where the inputs end, ``preceding`` when what goes before evidence is in the agents' input topic.
    """
    follow = partial(UpstreamStages, clients=clients, topics=topics, partition_counts=counts, group_prefix=group_prefix)
    if Role.EVIDENCE not in agents.roles:
        return {"upstream": follow(agents.roles)}
    upstream = {"upstream": follow(agents.roles, limit_s=_UPSTREAM_LIMIT_S)}
    others = [role for role in agents.roles if role is not Role.EVIDENCE]
    if others:
        # The join has written what follows from a call when its evidence can be read.
        steps = [step for step in steps_to(others) if Role.EVIDENCE not in step.writes]
        steps += [UpstreamStage(_stage_name(name, role, agents), (role,), (Role.AGENT_INPUTS,)) for role in others]
        upstream["preceding"] = follow((), steps=steps)
    return upstream


def stages_of(
    agents: AgentSet,
    name: str,
    upstream: Mapping[str, UpstreamStages],
    *,
    clients: Clients,
    topics: Mapping[Role, str],
    counts: Mapping[Role, int],
) -> list[Stage[Any]]:
    """Return the stages of agents: one for each input, and the one behind them.

    Args:
        upstream: that of ``upstream_of``.
    """
    rekeying = dict.fromkeys(agents.roles, RekeyStage) | {
        Role.EVIDENCE: partial(EvidenceRekeyStage, preceding=upstream.get("preceding"))
    }
    stages: list[Stage[Any]] = [
        rekeying[role](
            _stage_name(name, role, agents),
            role,
            agents,
            clients=clients,
            topics=topics,
            partitions=counts[Role.AGENT_INPUTS],
        )
        for role in agents.roles
    ]
    return [*stages, DetectionStage(f"agents-{name}", agents, upstream["upstream"], clients=clients, topics=topics)]


def _stage_name(name: str, role: Role, agents: AgentSet) -> str:
    """Return what a stage and its group are called: other code reads all definitions again, to remember its own."""
    return f"agents-{name}-{role}" + (f"-{agents.digest[-12:]}" if role is Role.DEFINITIONS else "")


async def _processing(batches: Batches) -> None:
    async for batch in batches:
        await batch.process(process)
