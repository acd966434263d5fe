"""Records on a broker, for the benches that need them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from aiokafka import AIOKafkaProducer

from assay_stream.config import Settings
from assay_stream.kafka.topics import topic_names
from assay_stream.model.record import Role
from tests.support.fleet import Fleet, Published

_PENDING_MAX = 20_000


async def send(bootstrap: str, records: Iterable[Mapping[str, Any]]) -> int:
    """Write records, and return how many.

    Args:
        bootstrap: the broker, host:port.
        records: the arguments of ``AIOKafkaProducer.send`` for each.
    """
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, linger_ms=20, max_batch_size=512 * 1_024, enable_idempotence=True
    )
    await producer.start()
    count = 0
    try:
        pending = []
        for record in records:
            pending.append(await producer.send(**record))
            count += 1
            if len(pending) > _PENDING_MAX:
                await asyncio.gather(*pending)
                pending.clear()
        await asyncio.gather(*pending)
    finally:
        await producer.stop()
    return count


async def publish_to(bootstrap: str, topics: Mapping[Role, str], published: Iterable[Published]) -> int:
    """Write what proxies publish; returns the number of records."""
    return await send(
        bootstrap, ({"topic": topics[role], "key": key, "value": value} for role, key, value in published)
    )


async def publish(settings: Settings, fleet: Fleet) -> int:
    """Publish a fleet's history; returns the bytes of one call on average.

    Args:
        settings: names the broker and the topics.
        fleet: whose history.
    """
    sizes = [0]

    def counted() -> Iterable[Published]:
        for role, key, value in fleet.history():
            sizes[0] += len(value) if role is Role.CALLS else 0
            yield role, key, value

    await publish_to(settings.bootstrap_servers, topic_names(settings), counted())
    return sizes[0] // max(1, fleet.calls)
