"""The parts of a process: each runs until told to stop, is watched, and has the same patience with brokers.

1. Brokers that are away or busy are waited for, however long, but not by a run that does what is there and ends.
2. Other failures of theirs are retried with growing pauses, ``FAILURES_MAX`` times in a row.
3. What retrying cannot mend is raised at once, with its fix. To a client, brokers that refuse it look as if they were
   away, so after as many failures it asks why.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import structlog
from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError, KafkaTimeoutError, UnknownTopicOrPartitionError

from assay_stream.errors import ConfigurationError, OperatingError
from assay_stream.kafka.connection import (
    MAY_PASS,
    Clients,
    Consumer,
    KafkaClients,
    connection_options,
    follow,
    record_of,
)
from assay_stream.kafka.refusals import explained, why_refused
from assay_stream.model.record import Record, Role

if TYPE_CHECKING:
    from assay_stream.config import Settings

FAILURES_MAX = 10
"""About a minute."""
_PAUSE_S, _PAUSE_S_MAX = 1.0, 30.0
_FOLLOW_WAIT_MS = 200
_UNREACHED = frozenset({"broker_unreachable", "token_unavailable"})

_log = logging.getLogger(__name__)
_events = structlog.get_logger(__name__)
_Answer = TypeVar("_Answer")

Counted = Literal["read", "outputs", "lost", "reopened", "claims_left_out"]
Measured = (
    Literal["buffered", "state_entries", "opened", "opening_seconds", "batch_seconds", "transaction_seconds"]
    | Literal["store_rows", "store_refused", "store_bytes", "store_behind", "store_committed"]
)


class StageMetrics:
    """What a stage counts and measures; this base records nothing. Names are those of ``worker.telemetry.Metrics``."""

    def count(self, name: Counted, more: int = 1, *labels: str) -> None:
        pass

    def measure(self, name: Measured, value: float, *labels: str) -> None:
        """Set a gauge, or observe a time in seconds."""

    def lags(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Set the number of unprocessed offsets of each topic and partition; those of others are removed."""

    def batch(self, records: int, labels: Mapping[str, int], *, seconds: float) -> None:
        self.measure("batch_seconds", seconds)
        self.done(records, labels)

    def done(self, records: int, labels: Mapping[str, int]) -> None:
        self.count("read", records)
        for label, written in labels.items():
            self.count("outputs", written, label)

    def expired(self, place: TopicPartition, first: int, lost: int) -> None:
        """Count and report offsets that retention deleted before they were read."""
        self.count("lost", lost)
        _events.error(
            "input_expired",
            topic=place.topic,
            partition=place.partition,
            first_lost_offset=first,
            lost=lost,
            fix="records expired before they were read: increase retention.ms",
        )


UNCOUNTED = StageMetrics()


def lags_of(consumer: Consumer, following: Mapping[TopicPartition, int]) -> dict[tuple[str, int], int]:
    """Return how many offsets are behind the next ones of some partitions, as far as the consumer reads them."""
    ends = {place: consumer.last_stable_offset(place) for place in following if place in consumer.assignment()}
    return {place: end - following[place] for place, end in ends.items() if end is not None and end >= 0}


def is_away(error: BaseException) -> bool:
    """Return True if brokers, or what issues tokens for them, are away or busy: waiting mends it, however long."""
    if isinstance(error, OperatingError):
        return error.code in _UNREACHED
    if isinstance(error, KafkaError):
        is_busy = error.retriable or isinstance(error, KafkaTimeoutError)
        return is_busy and not isinstance(error, UnknownTopicOrPartitionError)
    return isinstance(error, TimeoutError)


class Part:
    """What a host runs.

    Attributes:
        stopping: set once it is to finish what it has in hand.
        moved_s: when it last moved, by the monotonic clock; ``None`` for one that may rest.
        waiting_for: what an operator has to do first.
    """

    moved_s: float | None = None
    waiting_for: str | None = None
    is_ready = False

    def __init__(self) -> None:
        self.stopping = asyncio.Event()

    @property
    def ready(self) -> bool:
        """Whether it does its work now."""
        return self.is_ready

    @property
    def still_s(self) -> float:
        """Seconds for which it has not moved, though it should."""
        return 0.0 if self.moved_s is None else max(time.monotonic() - self.moved_s, 0.0)

    def stop(self) -> None:
        self.stopping.set()

    async def run(self) -> None:
        raise NotImplementedError

    def note_gauges(self) -> None:
        """Set its gauges; called before metrics are read."""

    async def pause(self, limit_s: float) -> None:
        """Wait, until told to stop at the longest."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.stopping.wait(), limit_s)

    async def until_stopped(self, work: Coroutine[Any, Any, _Answer], *, grace_s: float = 0.0) -> _Answer | None:
        """Return the result of some work, or ``None`` if it is not done some time after it was told to stop."""
        working, stopping = asyncio.create_task(work), asyncio.create_task(self.stopping.wait())
        try:
            await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                await asyncio.wait((working,), timeout=grace_s)
            return working.result() if working.done() else None
        finally:
            working.cancel()
            stopping.cancel()
            await asyncio.gather(working, stopping, return_exceptions=True)


class PatientPart(Part):
    """A part that uses brokers.

    Args:
        what: the activity, for messages: ``sealing``.
        hint: what else may be wrong where brokers go on failing.
        waits: False for a run that does what is there and ends.

    Attributes:
        failures: in a row; to be reset on progress.
    """

    def __init__(
        self, what: str, settings: Settings, *, metrics: StageMetrics = UNCOUNTED, hint: str = "", waits: bool = True
    ) -> None:
        super().__init__()
        self.settings = settings
        self.metrics = metrics
        self.failures = 0
        self._what, self._hint, self._waits = what, hint, waits

    def tell(self, text: str) -> None:
        _log.warning("%s", text)

    async def endure(self, error: Exception) -> bool:
        """Pause after a failure, and return whether to try again.

        Raises:
            ConfigurationError: the brokers refuse us.
            OperatingError: ``brokers_failing``.
            Exception: any error that is not a failure of brokers.
        """
        if not isinstance(error, MAY_PASS) and not is_away(error):
            raise error
        refusal = explained(error)
        if isinstance(refusal, ConfigurationError):
            raise refusal from error
        self.failures += 1
        # Which of several waits it was that ended says what to look for.
        why = f" ({error.args[0]})" if isinstance(error, KafkaTimeoutError) and error.args else ""
        text = f"{self._what} failed {self.failures} times in a row, last with {type(error).__name__}{why}"
        if self.failures > FAILURES_MAX:
            if not (self._waits and is_away(error)):
                raise OperatingError("brokers_failing", f"{text}: see the brokers' logs{self._hint}") from error
            refusal = await why_refused(connection_options(self.settings))
            if isinstance(refusal, ConfigurationError):
                raise refusal from error
        await self.pause_after(self.failures, text)
        return not self.stopping.is_set()

    async def pause_after(self, failures: int, text: str) -> None:
        """Pause for longer after each failure in a row, having said what failed."""
        self.tell(f"{text}: trying again")
        self.metrics.count("reopened")
        if self.moved_s is not None:
            self.moved_s = time.monotonic()
        await self.pause(min(_PAUSE_S * failures, _PAUSE_S_MAX))


class Following(PatientPart):
    """A part that follows topics, with a new consumer after each failure. Other arguments are for ``PatientPart``.

    Attributes:
        ends: where the partitions that it reads ended when they were opened.
    """

    def __init__(
        self,
        what: str,
        settings: Settings,
        *,
        metrics: StageMetrics = UNCOUNTED,
        clients: Clients | None = None,
        waits: bool = True,
    ) -> None:
        super().__init__(what, settings, metrics=metrics, waits=waits)
        self.clients: Clients = KafkaClients(settings) if clients is None else clients
        self.ends: dict[TopicPartition, int] = {}
        self.moved_s = time.monotonic()

    async def run(self) -> None:
        """Follow until stopped, or done.

        Raises:
            AssayStreamError: as ``endure``, ``open`` and ``turn``.
        """
        await follow(self.consumer, self._moving(self.open), self._moving(self.turn), self.endure)

    def _moving(self, step: Callable[[Consumer], Awaitable[_Answer]]) -> Callable[[Consumer], Awaitable[_Answer]]:
        def moved(consumer: Consumer) -> Awaitable[_Answer]:
            self.moved_s = time.monotonic()
            return step(consumer)

        return moved

    def consumer(self) -> Consumer:
        return self.clients.consumer()

    async def open(self, consumer: Consumer) -> None:
        """Assign partitions, and seek to where each continues."""
        raise NotImplementedError

    async def turn(self, consumer: Consumer) -> bool:
        """Read and handle a few records; return True when finished."""
        raise NotImplementedError

    async def has_caught_up(self, consumer: Consumer) -> bool:
        return all([await consumer.position(place) >= end for place, end in self.ends.items()])


class Follower(Following):
    """Deliver the committed records of a topic as they arrive, each once, across failures of brokers.

    It is ready once everything present at the start has been read.

    Args:
        starts: returns the first offset to read of each partition; called once.
        take: called with batches of records.
        tell: called with a readable message for each failure, instead of the log.
    """

    def __init__(
        self,
        settings: Settings,
        role: Role,
        starts: Callable[[Consumer], Awaitable[Mapping[TopicPartition, int]]],
        take: Callable[[Sequence[Record]], None],
        *,
        tell: Callable[[str], object] | None = None,
        clients: Clients | None = None,
    ) -> None:
        super().__init__(f"following the topic of {role}", settings, clients=clients)
        self._role = role
        self._starts = starts
        self._take = take
        self._tell = super().tell if tell is None else tell
        self._next: dict[TopicPartition, int] = {}

    def tell(self, text: str) -> None:
        self._tell(text)

    def consumer(self) -> Consumer:
        return self.clients.consumer(fetch_max_wait_ms=_FOLLOW_WAIT_MS)

    async def open(self, consumer: Consumer) -> None:
        self._next = self._next or dict(await self._starts(consumer))
        places = list(self._next)
        begins, self.ends = await consumer.beginning_offsets(places), await consumer.end_offsets(places)
        consumer.assign(places)
        if any(begins[place] > self._next[place] for place in places):
            self.tell("records were deleted before they could be read: going on with the earliest there are")
        for place in places:
            # A log that was recreated or truncated may end earlier.
            consumer.seek(place, max(begins[place], min(self._next[place], self.ends[place])))

    async def turn(self, consumer: Consumer) -> bool:
        for place, messages in (await consumer.getmany(timeout_ms=_FOLLOW_WAIT_MS)).items():
            if messages:
                self._next[place] = messages[-1].offset + 1
                self._take([record_of(self._role, message) for message in messages])
        if (self.failures or not self.is_ready) and await self.has_caught_up(consumer):
            self.is_ready, self.failures = True, 0
        return self.stopping.is_set()


SILENCE_LIMIT_S = 10.0
"""Silence after which the brokers count as unreachable: several unanswered probes in a row."""
_INTERVAL_S = 2.0
_ANSWER_LIMIT_S = 5.0


class BrokerWatch(Part):
    """Request metadata repeatedly until stopped.

    A consumer cannot tell: unreachable brokers and a topic without new records look the same to it.
    """

    def __init__(self, settings: Settings, *, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._settings = settings
        self._monotonic_s = monotonic_s
        self._answered_s: float | None = None
        self._started_s = monotonic_s()

    @property
    def silent_s(self) -> float:
        """Seconds since a broker last answered, or since creation."""
        since_s = self._started_s if self._answered_s is None else self._answered_s
        return self._monotonic_s() - since_s

    @property
    def ready(self) -> bool:
        return self._answered_s is not None and self.silent_s <= SILENCE_LIMIT_S

    async def run(self) -> None:
        while not self.stopping.is_set():
            client = AIOKafkaClient(**connection_options(self._settings))
            try:
                async with asyncio.timeout(_ANSWER_LIMIT_S):
                    await client.bootstrap()
                self._answered_s = self._monotonic_s()
                await self._ask(client)
            except (*MAY_PASS, ValueError):
                await self.pause(_INTERVAL_S)
            finally:
                await client.close()

    async def _ask(self, client: AIOKafkaClient) -> None:
        while not self.stopping.is_set():
            await self.pause(_INTERVAL_S)
            async with asyncio.timeout(_ANSWER_LIMIT_S):
                await client.fetch_all_metadata()
            self._answered_s = self._monotonic_s()
