"""The publishing client for proxies: it never blocks and never breaks the call that it reports.

``publish`` puts an observation into a bounded queue and returns at once; one background task carries the
queue to Kafka and tries again, for as long as it takes, while the brokers are away. What does not fit is
dropped and counted by reason.

The queue is first in, first out. Its last quarter is kept for snapshots: without a snapshot every call after
it is bound wrongly or not at all, and calls are many, so calls alone cannot fill the queue.

Delivery is at least once: after a failure a record may be sent again. Its event has the same id then, so the
evidence of both is recognisable as one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from assay_stream.core.record import TOPIC_NAMES, Role
from assay_stream.publish.events import Observation
from assay_stream.publish.producer import (
    Producer,
    PublisherLimits,
    aiokafka_producer,
    is_too_large,
)
from assay_stream.publish.sinks import DropReason, SinkStats

_log = logging.getLogger(__name__)


class ObservationPublisher:
    """Carries observations to Kafka. Use it from the thread of its event loop.

    Args:
        connection: aiokafka's connection arguments: ``bootstrap_servers`` and what security needs.
        topics: topic name of every role.
        limits: bounds on the queue and on delivery.
        producer_factory: makes a producer; default: an idempotent one of aiokafka with ``acks=all``.
    """

    def __init__(
        self,
        connection: Mapping[str, Any],
        *,
        topics: Mapping[Role, str] = TOPIC_NAMES,
        limits: PublisherLimits | None = None,
        producer_factory: Callable[[], Producer] | None = None,
    ) -> None:
        self._limits = limits or PublisherLimits()
        self._topics = dict(topics)
        self._factory = producer_factory or (lambda: aiokafka_producer(connection, self._limits))
        self._queue: deque[Observation] = deque()
        self._queue_bytes = 0
        self._accepted = self._delivered = self._retries = 0
        self._dropped: Counter[DropReason] = Counter()
        self._attempts = 0  # at the record at the head of the queue
        self._producer: Producer | None = None
        self._task: asyncio.Task[None] | None = None
        self._work = asyncio.Event()
        self._closing = False
        self._away = False

    @property
    def stats(self) -> SinkStats:
        """Counts so far."""
        return SinkStats(
            accepted=self._accepted,
            delivered=self._delivered,
            queued=len(self._queue),
            queued_bytes=self._queue_bytes,
            dropped=dict(self._dropped),
            retries=self._retries,
            connected=self._producer is not None and not self._away,
        )

    def start(self) -> None:
        """Begin to deliver, in the background. Needs a running event loop; does not wait for a broker."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="assay-stream publisher")
            self._work.set()  # connect at once, not with the first call

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def publish(self, observation: Observation) -> bool:
        """Queue an observation and return whether there was room. Never blocks, never raises.

        Args:
            observation: what to publish.
        """
        reason = self._refusal(observation)
        if reason is not None:
            self._dropped[reason] += 1
            if self._dropped[reason] == 1:
                _log.warning("an observation was dropped (%s); further ones are only counted", reason)
            return False
        self._accepted += 1
        self._queue.append(observation)
        self._queue_bytes += observation.size_bytes
        self._work.set()
        return True

    async def aclose(self, timeout_s: float = 10.0) -> None:
        """Deliver what is queued, as far as time allows, and disconnect. The rest counts as dropped.

        Args:
            timeout_s: seconds to take for delivery.
        """
        self._closing = True
        self._work.set()
        task, self._task = self._task, None
        if task is not None:
            if self._queue:
                await asyncio.wait({task}, timeout=timeout_s)
            task.cancel()
            await asyncio.wait({task}, timeout=1.0)
        if self._queue:
            _log.warning("%d observations could not be delivered before closing", len(self._queue))
            self._dropped["delivery_failed"] += len(self._queue)
            self._queue.clear()
            self._queue_bytes = 0
        await self._disconnect()

    def _refusal(self, observation: Observation) -> DropReason | None:
        limits, size = self._limits, observation.size_bytes
        if self._closing:
            return "closed"
        if size > limits.record_bytes_max:
            return "too_large"
        share = 0.75 if observation.kind == "call" else 1.0
        if (
            self._queue_bytes + size > limits.queue_bytes_max * share
            or len(self._queue) + 1 > limits.queue_records_max * share
        ):
            return "queue_full"
        return None

    async def _run(self) -> None:
        pause_s = self._limits.backoff_min_s
        while True:
            await self._work.wait()
            if not self._queue and self._closing:
                return
            try:
                await self._connect()
                await self._deliver()
            except Exception as error:  # noqa: BLE001 - whatever fails here must not end the delivery
                self._note_failure(error)
                await self._disconnect()
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, self._limits.backoff_max_s)
                continue
            pause_s = self._limits.backoff_min_s
            if not self._queue and not self._closing:
                self._work.clear()

    async def _connect(self) -> None:
        if self._producer is not None:
            return
        self._producer = self._factory()
        async with asyncio.timeout(self._limits.start_timeout_s):
            await self._producer.start()
        if self._away:
            _log.warning("Kafka is reached again; %d observations are queued", len(self._queue))
        self._away = False

    async def _disconnect(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            with contextlib.suppress(Exception):  # it is given up in any case
                async with asyncio.timeout(5.0):
                    await producer.stop()

    async def _deliver(self) -> None:
        """Deliver the head of the queue. Records leave the queue only when their fate is known.

        Raises:
            Exception: the first failure that trying again may mend; what came before it is delivered.
        """
        batch = [self._queue[index] for index in range(min(len(self._queue), self._limits.batch_records_max))]
        if not batch:
            return
        async with asyncio.timeout(self._limits.send_timeout_s):
            outcomes = await self._send(batch)
        kept: list[Observation] = []
        failure: BaseException | None = None
        for observation, outcome in zip(batch, outcomes, strict=True):
            if outcome is None:
                self._delivered += 1
            elif is_too_large(outcome):
                self._dropped["too_large"] += 1
            elif failure is None and self._is_hopeless(outcome):
                self._dropped["delivery_failed"] += 1
                _log.error("Kafka refuses an observation for good: %s", type(outcome).__name__)
            else:
                failure = failure or outcome
                kept.append(observation)
        for observation in batch:
            self._queue.popleft()
            self._queue_bytes -= observation.size_bytes
        for observation in reversed(kept):
            self._queue.appendleft(observation)
            self._queue_bytes += observation.size_bytes
        if failure is not None:
            raise failure
        self._attempts = 0

    async def _send(self, batch: Sequence[Observation]) -> list[BaseException | None]:
        producer = self._producer
        if producer is None:
            raise RuntimeError("not connected")
        waits: list[Awaitable[Any]] = []
        outcomes: list[BaseException | None] = [None] * len(batch)
        sent: list[int] = []
        for index, observation in enumerate(batch):
            try:
                waits.append(
                    await producer.send(
                        self._topics[observation.role],
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

    def _is_hopeless(self, error: BaseException) -> bool:
        """Tell whether to give a record up: only after attempts that an operator could have mended."""
        if getattr(error, "retriable", False) or isinstance(error, OSError | TimeoutError):
            return False
        if "Authorization" in type(error).__name__ or "Authentication" in type(error).__name__:
            return False
        self._attempts += 1
        if self._attempts < self._limits.attempts_max:
            return False
        self._attempts = 0
        return True

    def _note_failure(self, error: BaseException) -> None:
        self._retries += 1
        if not self._away:
            _log.warning("cannot deliver observations to Kafka, still trying: %s", type(error).__name__)
        self._away = True
