"""Access control of a deployment: one table, from which the ``kafka-acls.sh`` commands are generated.

Each role is a user of its own. A worker that runs several stages needs the grants of each. Consumer groups and
transactional ids are named after ``group_prefix``, so two deployments on one cluster have nothing in common.
"""

import shlex
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files
from typing import Any

from assay_stream.config import Settings
from assay_stream.kafka.topics import topic_names
from assay_stream.model.record import Role


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
    DESCRIBE = "Describe"
    DESCRIBE_CONFIGS = "DescribeConfigs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    resource: Resource
    name: str
    is_prefix: bool = False
    operations: tuple[Operation, ...]


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


def _operations(actor: AccessRole, access: Access, role: Role) -> tuple[Operation, ...]:
    granted = [
        *([Operation.READ] if role in access.reads else []),
        *([Operation.WRITE] if role in access.writes else []),
        *([Operation.CREATE] if actor is AccessRole.ADMIN else []),
    ]
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
