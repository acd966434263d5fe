"""The topics: one table says their names, partitions, retention and compaction.

``apply`` creates what is missing and refuses to shrink or silently alter what is there; ``check`` tells a
worker whether it may start.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from assay_stream.config import Settings
from assay_stream.errors import ConfigurationError, OperatingError
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.record import TOPIC_NAMES, Role

_DAY_MS = 24 * 3_600 * 1_000
_MARGIN_BYTES = 1_024 * 1_024
_CREATION_LIMIT_S = 30.0
_CREATION_LOOK_S = 0.1
_SAME_PARTITIONS = (
    (Role.SNAPSHOTS, Role.CONTROL, Role.BINDINGS, Role.FINDINGS, Role.ALERT_STATES, Role.CHANGES, Role.VERDICTS),
    (Role.CALLS, Role.EVIDENCE, Role.CHECKPOINTS),
    (Role.AGENT_INPUTS, Role.AGENT_STATES),
)
_STATE = frozenset({Role.BINDINGS, Role.ALERT_STATES, Role.AGENT_STATES})
"""What stages restore themselves from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """One topic as it must be.

    Args:
        config: topic settings that matter to a promise.
    """

    role: Role
    name: str
    partitions: int
    config: Mapping[str, str]


def topic_table(settings: Settings, *, agents: str = "") -> list[TopicSpec]:
    """Return every topic of a deployment.

    The snapshot, control, binding and finding topics must agree in partitions: the registry's facts go to the
    partition of their input. So must the call and evidence topics.

    Args:
        settings: the operator's settings.
        agents: name of users' agents that run together, for their topics, too.
    """
    few, many = settings.input_partitions, settings.call_partitions
    input_bytes = DEFAULT_LIMITS.record_bytes_max
    # A fact or a rejected copy is larger than its input by names and headers.
    output_bytes = input_bytes + _MARGIN_BYTES
    kept_year = {"cleanup.policy": "delete", "retention.ms": str(365 * _DAY_MS)}
    kept_always = {"cleanup.policy": "delete", "retention.ms": "-1"}
    compacted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}
    # Its records carry event times: by these, copies of old records would expire before they are read.
    kept_week = {
        "cleanup.policy": "delete",
        "retention.ms": str(7 * _DAY_MS),
        "message.timestamp.type": "LogAppendTime",
    }
    table: list[tuple[Role, int, dict[str, str], int]] = [
        (Role.SNAPSHOTS, few, kept_year, input_bytes),
        (Role.CONTROL, few, kept_always, _MARGIN_BYTES),
        (Role.CALLS, many, kept_year, _MARGIN_BYTES),
        (Role.BINDINGS, few, compacted, output_bytes),
        (Role.DEFINITIONS, few, compacted, output_bytes),
        (Role.FINDINGS, few, kept_year, output_bytes),
        (Role.ALERTS, few, kept_year, _MARGIN_BYTES),
        (Role.ALERT_STATES, few, compacted, output_bytes),
        (Role.EVIDENCE, many, kept_always, _MARGIN_BYTES),
        (Role.CHANGES, few, kept_always, _MARGIN_BYTES),
        (Role.VERDICTS, few, compacted, output_bytes),
        (Role.REJECTED, few, kept_year, output_bytes),
        # An alert and what is said about it.
        (Role.DEAD_LETTERS, few, kept_year, 2 * _MARGIN_BYTES),
        (Role.CHECKPOINTS, many, kept_always, _MARGIN_BYTES),
    ]
    if agents:
        # A copy of a record, under a key.
        table.append((Role.AGENT_INPUTS, many, kept_week, output_bytes + _MARGIN_BYTES))
        table.append((Role.AGENT_STATES, many, compacted, _MARGIN_BYTES))
    names = topic_names(settings, agents=agents)
    return [
        TopicSpec(
            role=role, name=names[role], partitions=partitions, config=config | {"max.message.bytes": str(bytes_max)}
        )
        for role, partitions, config, bytes_max in table
    ]


def topic_names(settings: Settings, *, agents: str = "") -> dict[Role, str]:
    """Return the full topic name of every role; without the name of agents, what the names of theirs begin with."""
    of_agents = {role: f"{TOPIC_NAMES[role]}.{agents}" for role in (Role.AGENT_INPUTS, Role.AGENT_STATES)}
    return {role: settings.topic_prefix + name for role, name in (TOPIC_NAMES | of_agents).items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """One topic as it is in the cluster.

    Args:
        partitions: how many partitions it has, 0 where it does not exist.
        differing: settings that differ: name to (as it is, as it should be).
    """

    spec: TopicSpec
    partitions: int
    differing: Mapping[str, tuple[str, str]]


async def inspect_topics(admin: AIOKafkaAdminClient, settings: Settings, *, agents: str = "") -> list[TopicState]:
    """Return the state of every topic of ``topic_table`` in the cluster."""
    specs = topic_table(settings, agents=agents)
    present = set(await admin.list_topics())
    described = await admin.describe_topics([spec.name for spec in specs if spec.name in present])
    partitions = {topic["topic"]: len(topic["partitions"]) for topic in described}
    states = []
    for spec in specs:
        count = partitions.get(spec.name, 0)
        actual = await _describe_config(admin, spec.name) if count else {}
        differing = {
            name: (actual[name], wanted)
            for name, wanted in spec.config.items()
            if name in actual and actual[name] != wanted
        }
        states.append(TopicState(spec=spec, partitions=count, differing=differing))
    return states


async def apply_topics(admin: AIOKafkaAdminClient, settings: Settings, *, agents: str = "") -> list[str]:
    """Create the topics of ``topic_table`` that are missing; never alter those that exist.

    Returns:
        The names of the topics created.

    Raises:
        ConfigurationError: ``topic_differs`` where a topic exists otherwise than asked for. Nothing is
            created then.
        OperatingError: ``topics_not_created``.
    """
    states = await inspect_topics(admin, settings, agents=agents)
    complaints = [text for state in states if state.partitions for text in _complaints(state)]
    if complaints:
        raise ConfigurationError(
            "topic_differs",
            "existing topics are never altered: " + "; ".join(complaints) + ". Set the matching "
            "ASSAY_STREAM_* variables to what is there, or alter the topic with Kafka's own tools.",
        )
    missing = [state.spec for state in states if not state.partitions]
    if missing:
        await admin.create_topics(
            [
                NewTopic(
                    spec.name,
                    num_partitions=spec.partitions,
                    replication_factor=settings.replication_factor,
                    topic_configs=dict(spec.config),
                )
                for spec in missing
            ]
        )
    names = [spec.name for spec in missing]
    await _wait_for_topics(admin, names)
    return names


async def _wait_for_topics(admin: AIOKafkaAdminClient, names: list[str]) -> None:
    """Wait until a broker lists the topics: it answers before it has heard of them itself."""
    limit_s = time.monotonic() + _CREATION_LIMIT_S
    while missing := sorted(set(names) - set(await admin.list_topics())):
        if time.monotonic() > limit_s:
            raise OperatingError(
                "topics_not_created",
                f"the brokers accepted the order and do not list {', '.join(missing)}: see their logs, then repeat",
            )
        await asyncio.sleep(_CREATION_LOOK_S)


def check_topics(states: list[TopicState], needed: set[Role]) -> dict[Role, int]:
    """Check that a worker may run on the topics as they are, and return their partition counts.

    Partition counts may differ from the settings, but not among topics that belong together.

    Raises:
        ConfigurationError: ``topic_missing``, ``partition_count`` or ``topic_not_compacted``.
    """
    by_role = {state.spec.role: state for state in states}
    missing = [by_role[role].spec.name for role in sorted(needed) if not by_role[role].partitions]
    if missing:
        raise ConfigurationError(
            "topic_missing",
            f"no such topic: {', '.join(missing)}. Create it: assay-stream topics apply. Where the brokers "
            "ask who comes, one that this user may not describe looks the same: assay-stream topics acls",
        )
    for group in _SAME_PARTITIONS:
        counts = {by_role[role].spec.name: by_role[role].partitions for role in group if role in needed}
        if len(set(counts.values())) > 1:
            listed = ", ".join(f"{name} has {count}" for name, count in counts.items())
            raise ConfigurationError(
                "partition_count",
                f"these topics must have the same number of partitions: {listed}. Recreate the wrong one.",
            )
    for role in sorted(needed & _STATE):
        policy = by_role[role].differing.get("cleanup.policy")
        if policy is not None and policy[0] != "compact":
            raise ConfigurationError(
                "topic_not_compacted",
                f"{by_role[role].spec.name} has cleanup.policy={policy[0]}, which deletes what is in force: "
                "set it to compact",
            )
    return {role: by_role[role].partitions for role in needed}


def _complaints(state: TopicState) -> list[str]:
    texts = []
    if state.partitions != state.spec.partitions:
        texts.append(f"{state.spec.name} has {state.partitions} partitions, {state.spec.partitions} were asked for")
    texts.extend(
        f"{state.spec.name} has {name}={actual}, {wanted} was asked for"
        for name, (actual, wanted) in state.differing.items()
    )
    return texts


async def _describe_config(admin: AIOKafkaAdminClient, topic: str) -> dict[str, str]:
    responses: list[Any] = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    config: dict[str, str] = {}
    for response in responses:
        for resource in response.resources:
            config.update({entry[0]: entry[1] for entry in resource[4]})
    return config
