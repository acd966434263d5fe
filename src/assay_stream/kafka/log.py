"""Turn fetched messages into records, and read topics outside the stages: ``read`` up to an offset, or ``follow``.

Partitions are assigned manually. No offsets are committed, so the stages' own are unaffected.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from assay_stream.model.record import Origin, Record, Role, made_of

if TYPE_CHECKING:
    from aiokafka import TopicPartition

    from assay_stream.kafka.aiokafka_private import Consumer, FetchedRecord

MAY_PASS = (KafkaError, OSError, TimeoutError)
"""Errors of unreachable or busy brokers: retried, as ``kafka.part`` says."""

_READ_WAIT_MS = 20
_BATCH_RECORDS_MAX = 2_000
_LAST_OFFSETS = 8
_CLOSE_LIMIT_S = 5.0


def record_of(role: Role, message: FetchedRecord) -> Record:
    topic, partition, offset, timestamp_ms, key, value, headers = message
    origin = made_of(Origin, (topic, partition, offset))
    if timestamp_ms < 0:
        timestamp_ms = 0
    return made_of(Record, (role, origin, key, value, headers, timestamp_ms, False, False))


async def read(
    consumer: Consumer, place: TopicPartition, first: int, end: int
) -> AsyncGenerator[list[FetchedRecord], None]:
    """Yield one partition's records from ``first`` to before ``end``, in batches, with a started consumer."""
    if consumer.assignment() != {place}:
        consumer.assign([place])
    consumer.seek(place, first)
    while await consumer.position(place) < end:
        # Behind the last record there may be no more than a transaction's marker, which wakes nobody.
        fetched = await consumer.getmany(place, timeout_ms=_READ_WAIT_MS, max_records=_BATCH_RECORDS_MAX)
        batch = [message for message in fetched.get(place, ()) if message.offset < end]
        if batch:
            yield batch
        # Records fetched already are returned without a pause: let heartbeats run.
        await asyncio.sleep(0)


async def read_partition(consumer: Consumer, role: Role, place: TopicPartition) -> AsyncIterator[Record]:
    """Yield every committed record now in one partition.

    Args:
        consumer: unstarted; stopped at the end.
    """
    async with _started(consumer, place) as (first, end):
        async for batch in read(consumer, place, first, end):
            for message in batch:
                yield record_of(role, message)


async def read_last(consumer: Consumer, role: Role, place: TopicPartition) -> Record | None:
    """Return the last committed record of one partition; ``None`` if there is none.

    Args:
        consumer: unstarted; stopped at the end.
    """
    async with _started(consumer, place) as (beginning, end):
        first, last = end, None
        while last is None and first > beginning:
            # Transaction markers and aborted records take offsets too.
            first = max(beginning, end - _LAST_OFFSETS * (end - first + 1))
            async for batch in read(consumer, place, first, end):
                last = batch[-1]
        return None if last is None else record_of(role, last)


@asynccontextmanager
async def _started(consumer: Consumer, place: TopicPartition) -> AsyncGenerator[tuple[int, int], None]:
    """Start a consumer of one partition, give the offsets at which this begins and ends, and stop it."""
    consumer.assign([place])
    try:
        await consumer.start()
        yield (await consumer.beginning_offsets([place]))[place], (await consumer.end_offsets([place]))[place]
    finally:
        await consumer.stop()


async def follow(
    make: Callable[[], Consumer],
    begin: Callable[[Consumer], Awaitable[None]],
    step: Callable[[Consumer], Awaitable[bool]],
    endure: Callable[[Exception], Awaitable[bool]],
) -> None:
    """Read topics continuously, with a new consumer after each failure.

    Args:
        make: returns an unstarted consumer.
        begin: assigns partitions to a started consumer, and seeks to where each continues.
        step: reads and handles a few records; returns True when finished.
        endure: pauses after a failure; returns True to begin again.
    """
    while True:
        consumer = make()
        try:
            await consumer.start()
            await begin(consumer)
            while not await step(consumer):
                pass
            return
        except OffsetOutOfRangeError:
            # Retention deleted records that were not read: noticed when the partitions are opened again.
            continue
        except Exception as error:  # noqa: BLE001 - what is not endured is raised there
            failure = error
        finally:
            # Stopping fails while the brokers are unreachable.
            with suppress(*MAY_PASS):
                await asyncio.wait_for(consumer.stop(), _CLOSE_LIMIT_S)
        if not await endure(failure):
            return
