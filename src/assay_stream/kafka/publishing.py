"""Publish records outside transactions: once, in order, and acknowledged by all in-sync replicas.

Proxies use it too: it needs no settings, and loads the Kafka client only when connecting.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Protocol
from zlib import crc32

from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.record import Headers, Role, murmur2_partition

_REQUEST_MARGIN_BYTES = 1_024 * 1_024
_STOP_LIMIT_S = 1.0


class KafkaProducer(Protocol):
    """The part of ``aiokafka.AIOKafkaProducer`` in use."""

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass

    async def send(
        self,
        topic: str,
        *,
        value: bytes,
        key: bytes,
        headers: list[tuple[str, bytes]],
        timestamp_ms: int,
        partition: int | None = None,
    ) -> Awaitable[Any]:
        """Add a record to a batch; the result completes on delivery."""

    async def partitions_for(self, topic: str, /) -> set[int]:
        pass


class Publishable(Protocol):
    """An observation, or an output of the core."""

    @property
    def role(self) -> Role: ...
    @property
    def key(self) -> Any: ...
    @property
    def value(self) -> Any: ...
    @property
    def headers(self) -> Headers: ...
    @property
    def timestamp_ms(self) -> int: ...


def kafka_producer(
    connection: Mapping[str, Any], *, record_bytes_max: int = DEFAULT_LIMITS.record_bytes_max, **options: Any
) -> Any:
    """Return an unstarted aiokafka producer: idempotent, acknowledged by all replicas."""
    from aiokafka import AIOKafkaProducer

    return AIOKafkaProducer(
        **connection,
        enable_idempotence=True,
        acks="all",
        max_request_size=record_bytes_max + _REQUEST_MARGIN_BYTES,
        **{"linger_ms": 5} | options,
    )


def is_too_large(error: BaseException) -> bool:
    """Return True if Kafka rejected a record for its size. Checks the error's name, so that aiokafka is not needed."""
    return type(error).__name__ in ("MessageSizeTooLargeError", "RecordListTooLargeError", "RecordTooLargeError")


async def send_all(
    producer: KafkaProducer, topics: Mapping[Role, str], batch: Sequence[Publishable], *, call_spread: int = 1
) -> list[BaseException | None]:
    """Send records in order with a started producer; return each one's error, ``None`` if it was delivered.

    Args:
        call_spread: number of partitions for the calls of one server.
    """
    waits: list[Awaitable[Any]] = []
    outcomes: list[BaseException | None] = [None] * len(batch)
    sent: list[int] = []
    for index, record in enumerate(batch):
        try:
            waits.append(
                await producer.send(
                    topics[record.role],
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    timestamp_ms=record.timestamp_ms,
                    **await _place(producer, topics, record, call_spread),
                )
            )
            sent.append(index)
        except Exception as error:  # noqa: BLE001 - classified by the caller
            outcomes[index] = error
            if not is_too_large(error):
                # Nothing overtakes a record that waits: snapshots and calls keep their order.
                outcomes[index + 1 :] = [error] * (len(batch) - index - 1)
                break
    for index, result in zip(sent, await asyncio.gather(*waits, return_exceptions=True), strict=True):
        outcomes[index] = result if isinstance(result, BaseException) else None
    return outcomes


async def _place(
    producer: KafkaProducer, topics: Mapping[Role, str], record: Publishable, spread: int
) -> dict[str, int]:
    """Return the partition of an output that names one, or of a spread call; otherwise the key decides.

    A spread call's partition is congruent to its key's modulo the number of snapshot partitions, chosen by a hash of
    the event: a repeat goes to the same one.
    """
    named = getattr(record, "partition", None)
    if named is not None:
        return {"partition": named}
    if spread == 1 or record.role is not Role.CALLS or record.key is None:
        return {}
    calls = len(await producer.partitions_for(topics[Role.CALLS]))
    bindings = len(await producer.partitions_for(topics[Role.SNAPSHOTS]))
    rows = calls // bindings
    if calls % bindings or rows < 2:
        return {}
    home = murmur2_partition(record.key, calls)
    row = (home // bindings + crc32(record.value or b"") % min(spread, rows)) % rows
    return {"partition": home % bindings + row * bindings}


async def disconnect(producer: KafkaProducer) -> None:
    """Disconnect within bounded time, whatever the state of the producer."""
    try:
        async with asyncio.timeout(_STOP_LIMIT_S):
            await producer.stop()
    except Exception:  # noqa: BLE001 - it is abandoned in any case
        # It waits for deliveries that will never come. Close its connections; its tasks end with the loop.
        client = getattr(producer, "client", None)
        if client is not None:
            with contextlib.suppress(Exception):
                await client.close()
