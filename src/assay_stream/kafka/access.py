"""Who may do what in a deployment: one table, from which the commands for Kafka's own tool are made.

Each role is a user of its own. A worker that runs several stages needs the grants of each. Consumer groups and
transactional ids are named after ``group_prefix``, so two deployments on one cluster have nothing in common.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from assay_stream.config import Settings
from assay_stream.kafka.topics import topic_names
from assay_stream.model.record import Role


class Actor(StrEnum):
    """Who comes to the brokers."""

    PROXY = "proxy"
    REGISTRY = "registry"
    JOIN = "join"
    ALERTS = "alerts"
    AGENTS = "agents"
    SEALER = "sealer"
    FORWARDER = "forwarder"
    ANALYST = "analyst"
    OPERATOR = "operator"
    ADMIN = "admin"


STAGES = (Actor.REGISTRY, Actor.JOIN, Actor.ALERTS)
"""What a worker runs, in this order: later stages give way to earlier ones."""


class Resource(StrEnum):
    """What a grant is about, as the options of ``kafka-acls.sh`` call it."""

    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional-id"


class Operation(StrEnum):
    """What may be done, as Kafka calls it."""

    READ = "Read"
    WRITE = "Write"
    CREATE = "Create"
    DESCRIBE = "Describe"
    DESCRIBE_CONFIGS = "DescribeConfigs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """One thing that a role may do."""

    resource: Resource
    name: str
    is_prefix: bool = False
    operations: tuple[Operation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What one role does with the topics.

    Args:
        looks_at: topics of which it asks only how far they are.
        group: how its consumer group goes on after the prefix; with ``-`` at its end all that begin so.
        is_transactional: whether it writes in transactions, under ids that begin as its group.
        sees: groups of others whose committed offsets it reads, by how they go on after the prefix.
    """

    purpose: str
    reads: frozenset[Role] = frozenset()
    writes: frozenset[Role] = frozenset()
    looks_at: frozenset[Role] = frozenset()
    group: str = ""
    is_transactional: bool = False
    sees: tuple[str, ...] = ()


_ALL = frozenset(Role)
_COMMITTED = ("join", "seal")
"""What is missing from evidence, or from its seals, shows in what these groups have committed."""

ACCESS: Mapping[Actor, Access] = {
    Actor.PROXY: Access(
        purpose="a proxy, `tap` or `publish`",
        reads=frozenset({Role.VERDICTS}),
        writes=frozenset({Role.SNAPSHOTS, Role.CALLS}),
    ),
    Actor.REGISTRY: Access(
        purpose="`worker --role registry`",
        reads=frozenset({Role.SNAPSHOTS, Role.CONTROL, Role.BINDINGS}),
        writes=frozenset({Role.BINDINGS, Role.DEFINITIONS, Role.FINDINGS, Role.CHANGES, Role.VERDICTS, Role.REJECTED}),
        group="registry",
        is_transactional=True,
    ),
    Actor.JOIN: Access(
        purpose="`worker --role join`",
        reads=frozenset({Role.CALLS, Role.BINDINGS, Role.EVIDENCE}),
        writes=frozenset({Role.EVIDENCE, Role.FINDINGS, Role.REJECTED}),
        looks_at=frozenset({Role.SNAPSHOTS, Role.CONTROL}),
        group="join",
        is_transactional=True,
    ),
    Actor.ALERTS: Access(
        purpose="`worker --role alerts`",
        reads=frozenset({Role.FINDINGS, Role.ALERT_STATES}),
        writes=frozenset({Role.FINDINGS, Role.ALERTS, Role.ALERT_STATES, Role.REJECTED}),
        group="alerts",
        is_transactional=True,
    ),
    Actor.AGENTS: Access(
        purpose="`worker --agents`",
        reads=frozenset(
            {Role.EVIDENCE, Role.FINDINGS, Role.ALERTS, Role.DEFINITIONS, Role.AGENT_INPUTS, Role.AGENT_STATES}
        ),
        writes=frozenset({Role.FINDINGS, Role.REJECTED, Role.AGENT_INPUTS, Role.AGENT_STATES}),
        looks_at=frozenset({Role.SNAPSHOTS, Role.CONTROL, Role.CALLS}),
        group="agents-",
        is_transactional=True,
        sees=STAGES,
    ),
    Actor.SEALER: Access(
        purpose="`seal`",
        reads=frozenset({Role.EVIDENCE, Role.CHECKPOINTS}),
        writes=frozenset({Role.CHECKPOINTS}),
        group="seal",
        is_transactional=True,
    ),
    Actor.FORWARDER: Access(
        purpose="`alerts forward`",
        reads=frozenset({Role.ALERTS}),
        writes=frozenset({Role.DEAD_LETTERS}),
        group="forward-",
    ),
    Actor.ANALYST: Access(purpose="every command that only reads", reads=_ALL, sees=_COMMITTED),
    Actor.OPERATOR: Access(
        purpose="decisions: `pins`, `policy`, `keys`, `alerts suppress`",
        reads=_ALL,
        writes=frozenset({Role.CONTROL}),
        sees=_COMMITTED,
    ),
    Actor.ADMIN: Access(purpose="`topics apply`, `topics show`", looks_at=_ALL),
}
"""Every role. What stands here is all that it needs, and all that it may do."""


def grants_of(actor: Actor, settings: Settings) -> list[Grant]:
    access, names = ACCESS[actor], topic_names(settings)
    grants = [
        Grant(
            resource=Resource.TOPIC,
            name=names[role],
            is_prefix=names[role].endswith("."),
            operations=_operations(actor, access, role),
        )
        for role in Role
        if role in access.reads | access.writes | access.looks_at
    ]
    if access.group:
        name = f"{settings.group_prefix}-{access.group}"
        grants.append(
            Grant(
                resource=Resource.GROUP,
                name=name,
                is_prefix=name.endswith("-"),
                operations=(Operation.READ, Operation.DESCRIBE),
            )
        )
    grants += [
        Grant(resource=Resource.GROUP, name=f"{settings.group_prefix}-{group}", operations=(Operation.DESCRIBE,))
        for group in access.sees
    ]
    if access.is_transactional:
        name = f"{settings.group_prefix}-{access.group.removesuffix('-')}-"
        operations = (Operation.WRITE, Operation.DESCRIBE)
        grants.append(Grant(resource=Resource.TRANSACTIONAL_ID, name=name, is_prefix=True, operations=operations))
    return grants


def _operations(actor: Actor, access: Access, role: Role) -> tuple[Operation, ...]:
    granted = [
        *([Operation.READ] if role in access.reads else []),
        *([Operation.WRITE] if role in access.writes else []),
        *([Operation.CREATE] if actor is Actor.ADMIN else []),
    ]
    # A proxy needs no more than to find its topics; the others check how theirs are set before they start.
    seen = [Operation.DESCRIBE] if actor is Actor.PROXY else [Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS]
    return (*granted, *seen)


def acl_commands(principal: str, grants: Sequence[Grant]) -> list[str]:
    """Return the commands that grant all of it, for a shell: one for each set of operations.

    Args:
        principal: who gets them, ``User:<name>``.
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
