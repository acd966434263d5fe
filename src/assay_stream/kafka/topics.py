"""Topics: one table of names, partitions, retention and compaction, and of who may read and write them.

``apply`` creates what is missing and refuses to shrink or silently alter what is there; ``check`` tells a
worker whether it may start.

Each role is a user of its own. A worker that runs several stages needs the grants of each. Consumer groups and
transactional ids are named after ``group_prefix``, so two deployments on one cluster have nothing in common.

A refusal in mid-work names a topic and no right. Here each right that is missing is named at once.
"""

from __future__ import annotations

import asyncio
import shlex
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files
from typing import Any

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    IncompatibleBrokerVersion,
    KafkaTimeoutError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)

from assay_stream.config import Settings
from assay_stream.errors import ConfigurationError, OperatingError
from assay_stream.kafka.aiokafka_private import ask_any_broker, topic_rights
from assay_stream.kafka.connection import Consumer, reading_consumer
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.record import TOPICS, Role

_DAY_MS = 24 * 3_600 * 1_000
_MARGIN_BYTES = 1_024 * 1_024
_CREATION_LIMIT_S = 30.0
_CREATION_LOOK_S = 0.1
COUNTS_DIFFER = frozenset({"partition_count", "partitions_do_not_fit"})
"""Error codes that adding partitions fixes."""
_KEPT = {
    "year": {"cleanup.policy": "delete", "retention.ms": str(365 * _DAY_MS)},
    "always": {"cleanup.policy": "delete", "retention.ms": "-1"},
    "compacted": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"},
    # Copies carry the event times of what they copy: by these, old ones would expire before they are read.
    "year_of_writing": {
        "cleanup.policy": "delete",
        "retention.ms": str(365 * _DAY_MS),
        "message.timestamp.type": "LogAppendTime",
    },
    "week": {"cleanup.policy": "delete", "retention.ms": str(7 * _DAY_MS), "message.timestamp.type": "LogAppendTime"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """Required properties of one topic.

    Args:
        config: topic settings that our guarantees depend on.
    """

    role: Role
    name: str
    partitions: int
    config: Mapping[str, str]


def topic_table(settings: Settings, *, agents: str = "") -> list[TopicSpec]:
    """Return every topic of a deployment, as declared in ``model/topics.toml``.

    Args:
        agents: name of a set of user agents, to include their topics.
    """
    names = topic_names(settings, agents=agents)
    specs = []
    for role, topic in TOPICS.items():
        if topic.of_agents and not agents:
            continue
        bytes_max = topic.margins * _MARGIN_BYTES + topic.holds_input * DEFAULT_LIMITS.record_bytes_max
        partitions = settings.input_partitions if topic.partitions == "few" else settings.call_partitions
        config = _KEPT[topic.kept] | {"max.message.bytes": str(bytes_max)}
        specs.append(TopicSpec(role=role, name=names[role], partitions=partitions, config=config))
    return specs


def topic_names(settings: Settings, *, agents: str = "") -> dict[Role, str]:
    """Return the full topic name of every role; without ``agents``, only the prefix for agents' topics."""
    return {
        role: settings.topic_prefix + (f"{topic.name}.{agents}" if topic.of_agents else topic.name)
        for role, topic in TOPICS.items()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """Actual state of one topic.

    Args:
        partitions: partition count, 0 if it does not exist.
        differing: differing settings: name to (actual, expected).
        is_checked: whether this user may read the settings.
    """

    spec: TopicSpec
    partitions: int
    differing: Mapping[str, tuple[str, str]]
    is_checked: bool = True


async def inspect_topics(admin: AIOKafkaAdminClient, settings: Settings, *, agents: str = "") -> list[TopicState]:
    specs = topic_table(settings, agents=agents)
    present = set(await admin.list_topics())
    described = await admin.describe_topics([spec.name for spec in specs if spec.name in present])
    partitions = {topic["topic"]: len(topic["partitions"]) for topic in described}
    states = []
    for spec in specs:
        count = partitions.get(spec.name, 0)
        actual = await describe_config(admin, spec.name) if count else {}
        differing = {
            name: (actual[name], wanted)
            for name, wanted in spec.config.items()
            if actual and name in actual and actual[name] != wanted
        }
        states.append(TopicState(spec=spec, partitions=count, differing=differing, is_checked=actual is not None))
    return states


async def apply_topics(admin: AIOKafkaAdminClient, settings: Settings, *, agents: str = "") -> list[str]:
    """Create the missing topics of ``topic_table``; never alter existing ones.

    Returns:
        The names of the topics created.

    Raises:
        ConfigurationError: ``topic_differs`` if an existing topic has other properties, or
            ``partitions_do_not_fit``. Nothing is created then.
        OperatingError: ``topics_not_created``.
    """
    calls, bindings = settings.call_partitions, settings.input_partitions
    if calls % bindings:
        fix = f"Set ASSAY_STREAM_CALL_PARTITIONS to {_next_multiple(calls, bindings)}, for example"
        raise _counts_do_not_fit(calls, bindings, fix)
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
        await create_topics(admin, settings, missing)
        await wait_for_topics(settings, missing)
    return [spec.name for spec in missing]


async def create_topics(admin: AIOKafkaAdminClient, settings: Settings, specs: Iterable[TopicSpec]) -> None:
    await admin.create_topics(
        [
            NewTopic(
                spec.name,
                num_partitions=spec.partitions,
                replication_factor=settings.replication_factor,
                topic_configs=dict(spec.config),
            )
            for spec in specs
        ]
    )


async def wait_for_topics(settings: Settings, specs: Iterable[TopicSpec]) -> None:
    """Wait until topics are usable: brokers report creation before they list them and elect leaders.

    Raises:
        OperatingError: ``topics_not_created``.
    """
    places = [TopicPartition(spec.name, number) for spec in specs for number in range(spec.partitions)]
    consumer = reading_consumer(settings)
    await consumer.start()
    try:
        async with asyncio.timeout(_CREATION_LIMIT_S):
            while not await _are_served(consumer, places):
                await asyncio.sleep(_CREATION_LOOK_S)
    except TimeoutError:
        names = ", ".join(sorted({place.topic for place in places}))
        text = f"the brokers accepted the request but do not serve all partitions of {names}: see their logs"
        raise OperatingError("topics_not_created", f"{text}, then repeat") from None
    finally:
        await consumer.stop()


async def _are_served(consumer: Consumer, places: Sequence[TopicPartition]) -> bool:
    try:
        return len(await consumer.end_offsets(places)) == len(places)
    except (KafkaTimeoutError, UnknownTopicOrPartitionError):
        return False


def check_topics(states: list[TopicState], needed: set[Role], settings: Settings) -> dict[Role, int]:
    """Check that a worker can run on the existing topics, and return their partition counts.

    Partition counts may differ from the settings, but not among topics that belong together.

    Raises:
        ConfigurationError: ``topic_missing``, ``partition_count``, ``partitions_do_not_fit`` or
            ``topic_not_compacted``.
    """
    by_role = {state.spec.role: state for state in states}
    missing = [by_role[role].spec.name for role in sorted(needed) if not by_role[role].partitions]
    if missing:
        raise ConfigurationError(
            "topic_missing",
            f"no such topic: {', '.join(missing)}. Create it with assay-stream topics apply. If the brokers use "
            "authentication, a topic that this user may not describe looks missing too: assay-stream topics acls",
        )
    for group in sorted({topic.together for topic in TOPICS.values() if topic.together}):
        members = [role for role in TOPICS if role in needed and TOPICS[role].together == group]
        counts = {by_role[role].spec.name: by_role[role].partitions for role in members}
        if len(set(counts.values())) > 1:
            listed = ", ".join(f"{name} has {count}" for name, count in counts.items())
            fix = "Recreate the wrong one: partitions cannot be added, since keys would move"
            if group == "calls":
                fix = _growing(settings, counts, by_role[Role.BINDINGS].partitions)
            raise ConfigurationError(
                "partition_count", f"these topics must have the same number of partitions: {listed}. {fix}"
            )
    for role in sorted(role for role in needed if TOPICS[role].is_state):
        policy = by_role[role].differing.get("cleanup.policy")
        if policy is not None and policy[0] != "compact":
            raise ConfigurationError(
                "topic_not_compacted",
                f"{by_role[role].spec.name} has cleanup.policy={policy[0]}, which deletes what is in force: "
                "set it to compact",
            )
    found = {role: by_role[role].partitions for role in needed}
    if {Role.CALLS, Role.BINDINGS} <= needed and found[Role.CALLS] % found[Role.BINDINGS]:
        calls, bindings = found[Role.CALLS], found[Role.BINDINGS]
        there = [state for state in states if state.partitions and TOPICS[state.spec.role].together == "calls"]
        counts = {state.spec.name: state.partitions for state in there}
        raise _counts_do_not_fit(calls, bindings, _growing(settings, counts, bindings))
    return found


def _growing(settings: Settings, counts: Mapping[str, int], bindings: int) -> str:
    """Return the fix: equal partition counts for call topics, each a multiple of those of bindings."""
    most = _next_multiple(max(counts.values()), max(bindings, 1))
    commands = [
        f"kafka-topics.sh --bootstrap-server {settings.bootstrap_servers} --alter --topic {name} --partitions {most}"
        for name, count in counts.items()
        if count < most
    ]
    return "Run: " + "; ".join(commands)


def _next_multiple(count: int, of: int) -> int:
    return -(-count // of) * of


def _counts_do_not_fit(calls: int, bindings: int, fix: str) -> ConfigurationError:
    """Each partition of calls must map to one partition of bindings."""
    return ConfigurationError(
        "partitions_do_not_fit",
        f"{calls} partitions of calls are no multiple of {bindings} partitions of bindings. {fix}",
    )


def _complaints(state: TopicState) -> list[str]:
    texts = []
    if state.partitions != state.spec.partitions:
        texts.append(f"{state.spec.name} has {state.partitions} partitions, {state.spec.partitions} were asked for")
    texts.extend(
        f"{state.spec.name} has {name}={actual}, {wanted} was asked for"
        for name, (actual, wanted) in state.differing.items()
        if (name, actual) != ("retention.ms", "-1")  # as under a legal hold: what is kept longer breaks nothing
    )
    return texts


async def describe_config(admin: AIOKafkaAdminClient, topic: str) -> dict[str, str] | None:
    """Return a topic's settings, ``None`` where this user lacks the right ``DescribeConfigs``."""
    responses: list[Any] = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    config: dict[str, str] = {}
    for response in responses:
        for code, _, _, _, entries in response.resources:
            if code == TopicAuthorizationFailedError.errno:
                return None
            config.update({entry[0]: entry[1] for entry in entries})
    return config


async def retention_of(
    admin: AIOKafkaAdminClient, settings: Settings, roles: Iterable[Role]
) -> dict[str, dict[str, str]]:
    """Return by topic how long and how many bytes brokers keep of it, of those that exist.

    Raises:
        ConfigurationError: ``not_authorized`` if this user may not read the settings of one.
    """
    present, found = set(await admin.list_topics()), {}
    for name in (topic_names(settings)[role] for role in roles):
        if name in present:
            config = await describe_config(admin, name)
            if config is None:
                raise ConfigurationError("not_authorized", f"this user lacks DescribeConfigs on {name}")
            found[name] = {setting: config.get(setting, "") for setting in ("retention.ms", "retention.bytes")}
    return found


class AccessRole(StrEnum):
    PROXY = "proxy"
    INGEST = "ingest"
    LISTER = "lister"
    REGISTRY = "registry"
    JOIN = "join"
    ALERTS = "alerts"
    AGENTS = "agents"
    SEALER = "sealer"
    FORWARDER = "forwarder"
    ANALYST = "analyst"
    OPERATOR = "operator"
    CONSOLE = "console"
    ADMIN = "admin"


STAGES = (AccessRole.REGISTRY, AccessRole.JOIN, AccessRole.ALERTS)
"""The stages of a worker, in order: later stages yield to earlier ones."""


class Resource(StrEnum):
    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional-id"


class Operation(StrEnum):
    READ = "Read"
    WRITE = "Write"
    CREATE = "Create"
    DELETE = "Delete"
    DESCRIBE = "Describe"
    DESCRIBE_CONFIGS = "DescribeConfigs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    resource: Resource
    name: str
    operations: tuple[Operation, ...]

    @property
    def is_prefix(self) -> bool:
        return self.name.endswith((".", "-"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Topic access of one role; ``access.toml`` documents the fields."""

    purpose: str
    reads: frozenset[Role]
    writes: frozenset[Role]
    looks_at: frozenset[Role]
    group: str = ""
    is_transactional: bool = False
    sees: tuple[str, ...] = ()

    @property
    def roles(self) -> frozenset[Role]:
        """Whose topics it has to do with."""
        return self.reads | self.writes | self.looks_at

    def operations(self, role: Role) -> list[Operation]:
        return [Operation.READ] * (role in self.reads) + [Operation.WRITE] * (role in self.writes)


def _access(row: dict[str, Any]) -> Access:
    topics = {
        name: frozenset(Role) if row.get(name) == ["*"] else frozenset(map(Role, row.get(name, ())))
        for name in ("reads", "writes", "looks_at")
    }
    return Access(**row | topics | {"sees": tuple(row.get("sees", ()))})


_TABLE = tomllib.loads((files(__package__) / "access.toml").read_text(encoding="utf-8"))
ACCESS: Mapping[AccessRole, Access] = {AccessRole(name): _access(row) for name, row in _TABLE.items()}


def grants_of(actor: AccessRole, settings: Settings) -> list[Grant]:
    access, names = ACCESS[actor], topic_names(settings)
    grants = [
        Grant(resource=Resource.TOPIC, name=names[role], operations=_operations(actor, access, role))
        for role in Role
        if role in access.roles
    ]
    groups = {access.group: (Operation.READ, Operation.DESCRIBE)} if access.group else {}
    grants += [
        Grant(resource=Resource.GROUP, name=f"{settings.group_prefix}-{group}", operations=operations)
        for group, operations in (*groups.items(), *((group, (Operation.DESCRIBE,)) for group in access.sees))
    ]
    if access.is_transactional:
        name = f"{settings.group_prefix}-{access.group.removesuffix('-')}-"
        operations = (Operation.WRITE, Operation.DESCRIBE)
        grants.append(Grant(resource=Resource.TRANSACTIONAL_ID, name=name, operations=operations))
    return grants


def _operations(actor: AccessRole, access: Access, role: Role) -> tuple[Operation, ...]:
    granted = [*access.operations(role), *([Operation.CREATE] if actor is AccessRole.ADMIN else [])]
    # A proxy needs no more than to find its topics; the others check how theirs are set before they start.
    seen = [Operation.DESCRIBE] if actor is AccessRole.PROXY else [Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS]
    return (*granted, *seen)


def acl_commands(principal: str, grants: Sequence[Grant]) -> list[str]:
    """Return the shell commands for these grants, one per set of operations.

    Args:
        principal: ``User:<name>``.
    """
    together: dict[tuple[Resource, bool, tuple[Operation, ...]], list[str]] = {}
    for grant in grants:
        together.setdefault((grant.resource, grant.is_prefix, grant.operations), []).append(grant.name)
    commands = []
    for (resource, is_prefix, operations), names in together.items():
        words = ["--add", "--allow-principal", principal]
        words += [word for operation in operations for word in ("--operation", operation.value)]
        words += [word for name in names for word in (f"--{resource.value}", name)]
        words += ["--resource-pattern-type", "prefixed"] if is_prefix else []
        commands.append("kafka-acls.sh " + shlex.join(words))
    return commands


_NOT_SAID = -(2**31)
"""The broker does not tell (KIP-430)."""
_BITS = {
    Operation.READ: 3,
    Operation.WRITE: 4,
    Operation.DELETE: 6,
    Operation.DESCRIBE: 8,
    Operation.DESCRIBE_CONFIGS: 10,
}
"""Codes of Kafka's ``AclOperation``. Without ``DescribeConfigs`` a process works, and warns of what it cannot check."""


async def require_rights(
    admin: AIOKafkaAdminClient, settings: Settings, actors: Iterable[AccessRole], needed: Collection[Role], agents: str
) -> None:
    """Check that this user has the rights of its roles on the topics that a process needs.

    Args:
        agents: name of the set of user agents whose topics are meant, if any.

    Raises:
        ConfigurationError: ``not_authorized``, with each right that is missing.
    """
    names, access = topic_names(settings, agents=agents), [ACCESS[actor] for actor in actors]
    done = {role: {operation for each in access for operation in each.operations(role)} for role in needed}
    await require_operations(admin, {names[role]: {Operation.DESCRIBE} | done[role] for role in needed})


async def require_operations(admin: AIOKafkaAdminClient, wanted: Mapping[str, Collection[Operation]]) -> None:
    """Check that this user may do these operations on topics.

    Brokers that do not tell are not asked again: what they refuse later is an error of its own.

    Raises:
        ConfigurationError: ``not_authorized``, with each right that is missing.
    """
    try:
        answer = await ask_any_broker(admin, topic_rights(wanted))
    except IncompatibleBrokerVersion:
        return
    lacking = []
    for code, topic, _, _, operations in sorted(answer.topics, key=lambda each: each[1]):
        if code == TopicAuthorizationFailedError.errno:  # not even to describe it
            operations = 0
        if code == UnknownTopicOrPartitionError.errno or operations == _NOT_SAID:
            continue
        if missing := sorted(each for each in wanted[topic] if not operations >> _BITS[each] & 1):
            lacking.append(f"{', '.join(missing)} on {topic}")
    if lacking:
        raise ConfigurationError(
            "not_authorized",
            f"this user lacks these rights: {'; '.join(lacking)}. `assay-stream topics acls` prints the commands that "
            "grant them",
        )
