"""What the client needs of Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from aiokafka.errors import KafkaTimeoutError, MessageSizeTooLargeError

from assay_stream.model.partition import murmur2_partition
from assay_stream.observe.producer import PublisherLimits, aiokafka_producer, is_too_large, let_go


def test_aiokafkas_errors_of_size_are_known_by_name() -> None:
    """So that nothing of it is imported before it is needed."""
    assert is_too_large(MessageSizeTooLargeError())
    assert not is_too_large(KafkaTimeoutError())


async def test_the_producer_partitions_as_the_worker_expects() -> None:
    """Kafka's murmur2 of the key."""
    producer = aiokafka_producer({"bootstrap_servers": "127.0.0.1:9"}, PublisherLimits())
    try:
        partitioner = producer._partitioner  # type: ignore[attr-defined]
        for key in (b"the-server", b"a", b"", "Zürich".encode()):
            assert partitioner(key, list(range(7)), list(range(7))) == murmur2_partition(key, 7)
    finally:
        await producer.stop()


class StuckProducer:
    """Waits for deliveries that will not come, as aiokafka does."""

    def __init__(self) -> None:
        self.client = self
        self.closed = False

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        await asyncio.Event().wait()

    async def close(self) -> None:
        self.closed = True

    async def send(self, topic: str, **_: Any) -> Awaitable[Any]:
        raise NotImplementedError(topic)


async def test_a_producer_that_cannot_stop_is_let_go_in_time_with_its_connections() -> None:
    """Its tasks end with its loop."""
    stuck = StuckProducer()
    async with asyncio.timeout(5):
        await let_go(stuck)
    assert stuck.closed
