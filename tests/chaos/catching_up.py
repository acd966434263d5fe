"""How far the stages have come in their inputs, as their consumer groups say."""

import asyncio
import time
from collections.abc import Mapping

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from assay_stream.kafka.connection import connection_options, reading_consumer
from assay_stream.model.finding import Tick
from assay_stream.model.record import Role
from tests.chaos.crew import Crew
from tests.support.deployment import Deployment

RECOVERY_LIMIT_S = 240.0
"""Within this every stage must have worked off what stood in its inputs when a fault was over."""

_LOOK_S = 1.0
_TELL_S = 20.0
_ANSWER_LIMIT_S = 30.0
_LONG_AGO_US = 1
_PASSING = (KafkaError, OSError, TimeoutError)

Positions = Mapping[str, Mapping[TopicPartition, int]]
"""By consumer group: how far it has to come."""


async def inputs_now(deployment: Deployment) -> Positions:
    """Where the inputs of all stages end; for the findings, where a tick of long ago, of no effect, marks it."""
    settings, topics = deployment.settings, deployment.topics
    prefix = settings.group_prefix
    inputs = {
        f"{prefix}-join": [(Role.CALLS, settings.call_partitions)],
        f"{prefix}-registry": [(Role.SNAPSHOTS, settings.input_partitions)],
    }
    async with reading_consumer(settings) as consumer:
        ends = {
            group: await consumer.end_offsets(
                [TopicPartition(topics[role], number) for role, count in read for number in range(count)]
            )
            for group, read in inputs.items()
        }
    async with AIOKafkaProducer(bootstrap_servers=settings.bootstrap_servers, acks="all") as producer:
        marks = [
            await producer.send_and_wait(
                topics[Role.FINDINGS], key=b"", value=Tick(time_us=_LONG_AGO_US).encode(), partition=number
            )
            for number in range(settings.input_partitions)
        ]
    alerts = {TopicPartition(mark.topic, mark.partition): mark.offset + 1 for mark in marks}
    return ends | {f"{prefix}-alerts": alerts}


async def copies_now(deployment: Deployment) -> Positions:
    """Where the copies of re-routed calls end. Markers of transactions end the topic, and are nothing to read."""
    ends: dict[TopicPartition, int] = {}
    for record in await deployment.read(Role.REROUTED, settled=True):
        topic, partition, offset = record.origin
        ends[TopicPartition(topic, partition)] = offset + 1
    return {f"{deployment.settings.group_prefix}-join": ends}


async def caught_up(crew: Crew, *, limit_s: float = RECOVERY_LIMIT_S) -> float:
    """Wait until every worker is ready and all that stands in the inputs now is worked off, copies of it included.

    Returns:
        How long it took, seconds.
    """
    started_s = time.monotonic()
    wanted: Positions | None = None
    are_copies_due = False
    behind, told_s = "the brokers did not answer", started_s
    while time.monotonic() - started_s < limit_s:
        try:
            async with asyncio.timeout(_ANSWER_LIMIT_S):
                if wanted is None:
                    wanted = await (copies_now if are_copies_due else inputs_now)(crew.deployment)
                missing = await _missing(crew.deployment, wanted)
        except _PASSING as error:
            behind = f"the brokers did not answer: {type(error).__name__}"
        else:
            if not missing and await crew.all_ready():
                if are_copies_due:
                    return time.monotonic() - started_s
                # Every call is joined or copied by now.
                are_copies_due, wanted = True, None
                continue
            behind = f"records behind: {missing}" if missing else "not every worker is ready"
        if time.monotonic() - told_s > _TELL_S:
            told_s = time.monotonic()
            print(f"chaos:     after {told_s - started_s:.0f} s {behind}", flush=True)
        await asyncio.sleep(_LOOK_S)
    raise AssertionError(f"not recovered after {limit_s:.0f} s: {behind}\n{crew.tails()}")


async def _missing(deployment: Deployment, wanted: Positions) -> dict[str, int]:
    admin = AIOKafkaAdminClient(**connection_options(deployment.settings))
    await admin.start()
    try:
        missing = {}
        for group, ends in wanted.items():
            committed = await admin.list_consumer_group_offsets(group)
            for partition, end in ends.items():
                known = committed.get(partition)
                there = 0 if known is None else max(known.offset, 0)
                if there < end:
                    missing[f"{group} {partition.topic}-{partition.partition}"] = end - there
        return missing
    finally:
        await admin.close()
