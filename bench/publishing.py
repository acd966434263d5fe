"""A fleet's history on a broker, for the benches that need one."""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaProducer

from assay_stream.config import Settings
from assay_stream.kafka.topics import topic_names
from assay_stream.model.record import Role
from tests.support.fleet import Fleet

_PENDING_MAX = 20_000


async def publish(settings: Settings, fleet: Fleet) -> int:
    """Publish a fleet's history; returns the bytes of one call on average.

    Args:
        settings: names the broker and the topics.
        fleet: whose history.
    """
    topics = topic_names(settings)
    producer = AIOKafkaProducer(bootstrap_servers=settings.bootstrap_servers, linger_ms=20, max_batch_size=512 * 1_024)
    await producer.start()
    size = 0
    try:
        pending = []
        for role, key, value in fleet.history():
            size += len(value) if role is Role.CALLS else 0
            pending.append(await producer.send(topics[role], key=key, value=value))
            if len(pending) > _PENDING_MAX:
                await asyncio.gather(*pending)
                pending.clear()
        await asyncio.gather(*pending)
    finally:
        await producer.stop()
    return size // max(1, fleet.calls)
