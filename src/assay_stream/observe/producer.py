"""What the publishing client needs of Kafka, and the bounds it keeps."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.record import Role
from assay_stream.observe.events import Observation

_REQUEST_MARGIN_BYTES = 1_024 * 1_024
_STOP_LIMIT_S = 1.0


class Producer(Protocol):
    """What is used of ``aiokafka.AIOKafkaProducer``."""

    async def start(self) -> None:
        """Connect."""

    async def stop(self) -> None:
        """Disconnect."""

    async def send(
        self, topic: str, *, value: bytes, key: bytes, headers: list[tuple[str, bytes]], timestamp_ms: int
    ) -> Awaitable[Any]:
        """Put a record into a batch; what is returned is done when it is delivered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherLimits:
    """Bounds of one publisher."""

    queue_bytes_max: int = 64 * 1_024 * 1_024
    """What a proxy may lose memory to while the brokers are away: an hour of 1 KB calls at 13 a second."""

    queue_records_max: int = 100_000
    """The same in records, as small ones cost more than their bytes."""

    record_bytes_max: int = DEFAULT_LIMITS.record_bytes_max
    """Larger ones no worker would take."""

    batch_records_max: int = 500
    """Records sent before their acknowledgements are awaited."""

    start_timeout_s: float = 30.0
    """One attempt to connect."""

    send_timeout_s: float = 120.0
    """One batch. Beyond aiokafka's own 40 s, so that it can try again by itself first."""

    backoff_min_s: float = 0.2
    """Pause after a first failure; it doubles with each further one."""

    backoff_max_s: float = 10.0
    """Longest pause, so that a broker that returns is noticed soon."""

    attempts_max: int = 5
    """Attempts at a record that Kafka refuses in a way that trying again does not mend."""


def is_too_large(error: BaseException) -> bool:
    """Tell whether Kafka refuses a record for its size.

    Args:
        error: what a producer raised. Its class is known by name, so that nothing of aiokafka is needed here.
    """
    return type(error).__name__ in (
        "MessageSizeTooLargeError",
        "RecordListTooLargeError",
        "RecordTooLargeError",
    )


async def send_all(
    producer: Producer, topics: Mapping[Role, str], batch: Sequence[Observation]
) -> list[BaseException | None]:
    """Send some observations, await their delivery, and return what came of each: ``None`` where it went well.

    Args:
        producer: started.
        topics: topic name of every role.
        batch: what to send, in order.
    """
    waits: list[Awaitable[Any]] = []
    outcomes: list[BaseException | None] = [None] * len(batch)
    sent: list[int] = []
    for index, observation in enumerate(batch):
        try:
            waits.append(
                await producer.send(
                    topics[observation.role],
                    value=observation.value,
                    key=observation.key,
                    headers=list(observation.headers),
                    timestamp_ms=observation.timestamp_ms,
                )
            )
            sent.append(index)
        except Exception as error:  # noqa: BLE001 - classified by the caller
            outcomes[index] = error
            if not is_too_large(error):
                # Nothing goes out past a record that waits: snapshots and calls keep their order.
                outcomes[index + 1 :] = [error] * (len(batch) - index - 1)
                break
    for index, result in zip(sent, await asyncio.gather(*waits, return_exceptions=True), strict=True):
        outcomes[index] = result if isinstance(result, BaseException) else None
    return outcomes


async def let_go(producer: Producer) -> None:
    """Disconnect, within bounded time, whatever the state of the producer.

    Args:
        producer: started or not.
    """
    try:
        async with asyncio.timeout(_STOP_LIMIT_S):
            await producer.stop()
    except Exception:  # noqa: BLE001 - it is given up in any case
        # It waits for deliveries that will not come. Its connections are closed here, its tasks end with the loop.
        client = getattr(producer, "client", None)
        if client is not None:
            with contextlib.suppress(Exception):
                await client.close()


def aiokafka_producer(connection: Mapping[str, Any], limits: PublisherLimits) -> Producer:
    """Return a producer of aiokafka, not started: idempotent, and acknowledged by all replicas.

    Args:
        connection: aiokafka's connection arguments.
        limits: bounds of the publisher.
    """
    # Imported here: a tap that writes to a file starts faster without it.
    from aiokafka import AIOKafkaProducer

    producer: Producer = AIOKafkaProducer(
        **connection,
        enable_idempotence=True,
        acks="all",
        linger_ms=5,
        max_request_size=limits.record_bytes_max + _REQUEST_MARGIN_BYTES,
    )
    return producer
