"""Turn fetched messages into records, and read topics outside the stages: ``read`` up to an offset, or ``follow``.

Partitions are assigned manually. No offsets are committed, so the stages' own are unaffected.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from aiokafka.errors import KafkaError, KafkaTimeoutError, OffsetOutOfRangeError, UnknownTopicOrPartitionError

from assay_stream.errors import ConfigurationError, OperatingError
from assay_stream.kafka.connection import connection_options
from assay_stream.kafka.refusals import explained, why_refused
from assay_stream.model.record import Origin, Record, Role, made_of

if TYPE_CHECKING:
    from aiokafka import TopicPartition

    from assay_stream.config import Settings
    from assay_stream.kafka.aiokafka_private import Consumer, FetchedRecord

MAY_PASS = (KafkaError, OSError, TimeoutError)
"""Errors of unreachable or busy brokers: retried, within a limit unless waiting mends them (``is_away``)."""
_UNREACHED = frozenset({"broker_unreachable", "token_unavailable"})

_log = logging.getLogger(__name__)
FOLLOW_WAIT_MS = 200
"""How long a read waits for records before it returns without any."""
_READ_WAIT_MS = 20
_BATCH_RECORDS_MAX = 2_000
_LAST_OFFSETS = 8
_PAUSE_S = 1.0
FAILURES_MAX = 10
"""Consecutive failures, other than that brokers are away, each with a longer pause: about a minute."""
_PAUSE_S_MAX = 30.0
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
    consumer.assign([place])
    try:
        await consumer.start()
        first = (await consumer.beginning_offsets([place]))[place]
        end = (await consumer.end_offsets([place]))[place]
        async for batch in read(consumer, place, first, end):
            for message in batch:
                yield record_of(role, message)
    finally:
        await consumer.stop()


async def read_last(consumer: Consumer, role: Role, place: TopicPartition) -> Record | None:
    """Return the last committed record of one partition; ``None`` if there is none.

    Args:
        consumer: unstarted; stopped at the end.
    """
    consumer.assign([place])
    try:
        await consumer.start()
        beginning = (await consumer.beginning_offsets([place]))[place]
        end = (await consumer.end_offsets([place]))[place]
        first, last = end, None
        while last is None and first > beginning:
            # Transaction markers and aborted records take offsets too.
            first = max(beginning, end - _LAST_OFFSETS * (end - first + 1))
            async for batch in read(consumer, place, first, end):
                last = batch[-1]
        return None if last is None else record_of(role, last)
    finally:
        await consumer.stop()


def is_away(error: BaseException) -> bool:
    """Return True if brokers, or what issues tokens for them, are away or busy: waiting mends it, however long."""
    if isinstance(error, OperatingError):
        return error.code in _UNREACHED
    if isinstance(error, KafkaError):
        is_busy = error.retriable or isinstance(error, KafkaTimeoutError)
        return is_busy and not isinstance(error, UnknownTopicOrPartitionError)
    return isinstance(error, TimeoutError)


async def raise_if_refused(settings: Settings) -> None:
    """Find out why brokers cannot be used: to clients, one that refuses them looks like one that is away.

    Raises:
        ConfigurationError: as ``kafka.refusals.why_refused``.
    """
    refusal = await why_refused(connection_options(settings))
    if isinstance(refusal, ConfigurationError):
        raise refusal


class Patience:
    """Retry policy for broker failures: pauses grow with consecutive failures.

    Brokers that are away are waited for without a limit, other failures for a limited number of attempts.

    Args:
        what: the activity, for error messages: ``sealing``.
        stopping: ends a pause.
        settings: of the connection, to find out whether brokers that seem away refuse us.
        waits: False for a run that does what is there and ends: it gives up brokers that are away, too.
    """

    def __init__(self, what: str, stopping: asyncio.Event, settings: Settings, *, waits: bool = True) -> None:
        self._settings = settings
        self._what = what
        self._stopping = stopping
        self._waits = waits
        self.failures = 0
        """Consecutive failures; callers reset it on progress."""

    async def endure(self, error: Exception) -> bool:
        """Pause after a failure, and return whether to try again.

        Raises:
            ConfigurationError: the brokers refuse us; retrying cannot help.
            OperatingError: ``brokers_failing``.
            Exception: any error that is not a broker failure.
        """
        if not isinstance(error, MAY_PASS) and not is_away(error):
            raise error
        refusal = explained(error)
        if isinstance(refusal, ConfigurationError):
            raise refusal from error
        self.failures += 1
        kind = type(error).__name__
        _log.warning("%s failed %d times in a row, last with %s", self._what, self.failures, kind)
        if self.failures > FAILURES_MAX and not (self._waits and is_away(error)):
            text = f"{self._what} failed {self.failures} times in a row, last with {kind}: see the brokers' logs"
            raise OperatingError("brokers_failing", text) from error
        if self.failures > FAILURES_MAX:
            await raise_if_refused(self._settings)
        with suppress(TimeoutError):
            async with asyncio.timeout(min(_PAUSE_S * self.failures, _PAUSE_S_MAX)):
                await self._stopping.wait()
        return not self._stopping.is_set()


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


class Follower:
    """Deliver the committed records of a topic as they arrive, each once, across broker failures.

    Args:
        make: returns an unstarted consumer.
        starts: returns the first offset to read of each partition; called once.
        take: called with batches of records.
        failed: called with a readable message for each failure.
    """

    def __init__(
        self,
        make: Callable[[], Consumer],
        role: Role,
        starts: Callable[[Consumer], Awaitable[Mapping[TopicPartition, int]]],
        take: Callable[[Sequence[Record]], None],
        *,
        failed: Callable[[str], object],
    ) -> None:
        self._make = make
        self._role = role
        self._starts = starts
        self._take = take
        self._failed = failed
        self._stopping = asyncio.Event()
        self._next: dict[TopicPartition, int] = {}
        self._ends: Mapping[TopicPartition, int] = {}
        self.ready = False
        """Whether everything present at the start has been read."""

    def stop(self) -> None:
        self._stopping.set()

    async def run(self) -> None:
        """Read until stopped.

        Raises:
            AssayStreamError: as ``take``.
        """
        await follow(self._make, self._begin, self._step, self._endure)

    async def _begin(self, consumer: Consumer) -> None:
        if not self._next:
            self._next = dict(await self._starts(consumer))
            self._ends = await consumer.end_offsets(list(self._next))
        consumer.assign(list(self._next))
        begins, ends = await consumer.beginning_offsets(list(self._next)), await consumer.end_offsets(list(self._next))
        if any(begin > self._next[place] for place, begin in begins.items()):
            self._failed("records were deleted before they could be read: going on with the earliest there are")
        for place, begin in begins.items():
            # A log that was recreated or truncated may end earlier.
            consumer.seek(place, max(begin, min(self._next[place], ends[place])))

    async def _step(self, consumer: Consumer) -> bool:
        for place, messages in (await consumer.getmany(timeout_ms=FOLLOW_WAIT_MS)).items():
            if messages:
                self._next[place] = messages[-1].offset + 1
                self._take([record_of(self._role, message) for message in messages])
        if not self.ready:
            self.ready = all([await consumer.position(place) >= end for place, end in self._ends.items()])
        return self._stopping.is_set()

    async def _endure(self, error: Exception) -> bool:
        if not isinstance(error, MAY_PASS):
            raise error
        self._failed(f"the brokers fail ({type(error).__name__}), trying again")
        with suppress(TimeoutError):
            async with asyncio.timeout(_PAUSE_S):
                await self._stopping.wait()
        return not self._stopping.is_set()
