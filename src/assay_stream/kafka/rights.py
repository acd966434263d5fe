"""What a user may do with topics, asked of the broker before anything is read or written.

A refusal in mid-work names a topic and no right. Here each right that is missing is named at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import IncompatibleBrokerVersion, TopicAuthorizationFailedError, UnknownTopicOrPartitionError

from assay_stream.config import Settings
from assay_stream.errors import ConfigurationError
from assay_stream.kafka.aiokafka_private import TopicRights, ask_any_broker
from assay_stream.kafka.topics import ACCESS, AccessRole, Operation, topic_names
from assay_stream.model.record import Role

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
        answer = await ask_any_broker(admin, TopicRights(wanted))
    except IncompatibleBrokerVersion:
        return
    held = {name: held_in(code, operations) for code, name, _, _, operations in answer.topics}
    lacking = missing_rights(wanted, held)
    if lacking:
        listed = "; ".join(f"{', '.join(rights)} on {topic}" for topic, rights in lacking.items())
        raise ConfigurationError(
            "not_authorized",
            f"this user lacks these rights: {listed}. `assay-stream topics acls` prints the commands that grant them",
        )


def missing_rights(
    wanted: Mapping[str, Collection[Operation]], held: Mapping[str, Collection[Operation] | None]
) -> dict[str, list[str]]:
    """Return the rights that are wanted and not held, by topic.

    Args:
        held: ``None`` for a topic whose rights are not known.
    """
    lacking: dict[str, list[str]] = {}
    for topic, operations in sorted(wanted.items()):
        found = held.get(topic)
        if found is not None and (missing := sorted(set(operations) - set(found))):
            lacking[topic] = [*missing]
    return lacking


def held_in(code: int, operations: int) -> Collection[Operation] | None:
    """Read one topic of the answer: the rights held, ``None`` where it is missing or the broker does not tell."""
    if code == TopicAuthorizationFailedError.errno:  # not even to describe it
        return ()
    if code == UnknownTopicOrPartitionError.errno or operations == _NOT_SAID:
        return None
    return [operation for operation, bit in _BITS.items() if operations >> bit & 1]
