"""Results of a replay, written to topics beside the live ones."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from itertools import islice

from aiokafka.errors import KafkaError

from assay_stream.config import Settings
from assay_stream.errors import ConfigurationError, OperatingError
from assay_stream.kafka.connection import open_admin, writing_producer
from assay_stream.kafka.publishing import send_all
from assay_stream.kafka.stage import fitting
from assay_stream.kafka.topics import create_topics, topic_names, topic_table
from assay_stream.model.record import TOPIC_NAMES, Output, Role, murmur2_partition

_IN_FLIGHT_MAX = 5_000


def shadow_topics(settings: Settings, roles: Collection[Role], prefix: str) -> dict[Role, str]:
    """Return the prefixed result topics by role.

    Raises:
        ConfigurationError: ``live_topics`` if one of them is a topic of the deployment.
    """
    names = {role: prefix + TOPIC_NAMES[role] for role in roles}
    live = {*topic_names(settings).values(), *TOPIC_NAMES.values()}
    if live & set(names.values()):
        raise ConfigurationError(
            "live_topics", "with this prefix a replay would write to the live topics: choose another --topic-prefix"
        )
    return names


async def write_shadow(
    settings: Settings, topics: dict[Role, str], outputs: Iterable[Output], *, call_partitions: int
) -> None:
    """Write results to their topics, creating missing ones.

    Args:
        topics: from ``shadow_topics``.
        call_partitions: partition count of the replayed calls.

    Raises:
        OperatingError: ``broker_unreachable``, ``shadow_failed``.
    """
    counts = await _make_topics(settings, topics, call_partitions)
    placed = (_placed(output, counts) for output in outputs)
    producer = writing_producer(settings, linger_ms=20, max_batch_size=512 * 1_024)
    try:
        await producer.start()
        while some := list(islice(placed, _IN_FLIGHT_MAX)):
            for failure in await send_all(producer, topics, some):
                if failure is not None:
                    raise failure
    except KafkaError as error:
        raise OperatingError(
            "shadow_failed", f"the brokers refused a result ({type(error).__name__}): replay again, with a new prefix"
        ) from None
    finally:
        await producer.stop()


def _placed(output: Output, counts: Mapping[Role, int]) -> Output:
    fitted, count = fitting(output) if output.role is Role.REJECTED else output, counts[output.role]
    partition = murmur2_partition(fitted.key or b"", count) if fitted.partition is None else fitted.partition % count
    return fitted._replace(partition=partition)


async def _make_topics(settings: Settings, topics: dict[Role, str], call_partitions: int) -> dict[Role, int]:
    async with open_admin(settings) as admin:
        specs = {spec.role: spec for spec in topic_table(settings)}
        wanted = {role: specs[role].partitions for role in topics}
        wanted[Role.EVIDENCE] = max(wanted[Role.EVIDENCE], call_partitions)
        present = set(await admin.list_topics())
        missing = [
            replace(specs[role], name=name, partitions=wanted[role])
            for role, name in topics.items()
            if name not in present
        ]
        await create_topics(admin, settings, missing)
        described = await admin.describe_topics(list(topics.values()))
        counts = {topic["topic"]: len(topic["partitions"]) for topic in described}
        return {role: counts[name] or wanted[role] for role, name in topics.items()}
