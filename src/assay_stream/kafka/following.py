"""Topics followed in no consumer group: from a time on, by a process that keeps what it reads, or from now on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress

import structlog
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from assay_stream.config import Settings
from assay_stream.kafka.connection import Consumer, reading_consumer
from assay_stream.kafka.topics import topic_names
from assay_stream.kafka.transport import record_of
from assay_stream.model.record import Record, Role

_log = structlog.get_logger(__name__)

_POLL_MS = 200
_PAUSE_S = 1.0


class Follower:
    """Reads a topic, and goes on reading it.

    Args:
        partitions: how many the topic has.
        take: gets the records in batches. What is read again after a failure comes again.
        since_ms: the log time to begin at, milliseconds since the epoch.
        records_max: how many of the latest records are read at the start.
    """

    def __init__(
        self,
        settings: Settings,
        role: Role,
        partitions: int,
        take: Callable[[Sequence[Record]], None],
        *,
        since_ms: Callable[[], int],
        records_max: int,
    ) -> None:
        self._settings = settings
        self._role = role
        self._places = [TopicPartition(topic_names(settings)[role], number) for number in range(partitions)]
        self._take = take
        self._since_ms = since_ms
        self._share = max(1, records_max // partitions)
        self._stopping = False
        self._told = False
        self.ready = False
        """Whether all that was there at the start has been read."""

    def stop(self) -> None:
        self._stopping = True

    async def run(self) -> None:
        """Read until stopped; a failure of the brokers is tried again.

        Raises:
            AssayStreamError: as ``take``.
        """
        while not self._stopping:
            consumer = reading_consumer(self._settings, fetch_max_wait_ms=_POLL_MS)
            consumer.assign(self._places)
            try:
                await consumer.start()
                await self._follow(consumer)
            except KafkaError as error:
                if not self._told:
                    _log.warning("cannot_follow", role=self._role.value, kind=type(error).__name__)
                self._told = True
                await asyncio.sleep(_PAUSE_S)
            finally:
                with suppress(KafkaError):
                    await consumer.stop()

    async def _follow(self, consumer: Consumer) -> None:
        ends = await consumer.end_offsets(self._places)
        begins = await consumer.beginning_offsets(self._places)
        since = await consumer.offsets_for_times(dict.fromkeys(self._places, self._since_ms()))
        for place in self._places:
            found = since[place]
            first = ends[place] if found is None else found.offset
            consumer.seek(place, max(begins[place], first, ends[place] - self._share))
        while not self._stopping:
            fetched = await consumer.getmany(timeout_ms=_POLL_MS)
            for messages in fetched.values():
                self._take([record_of(self._role, message) for message in messages])
            if not self.ready:
                self.ready = all([await consumer.position(place) >= end for place, end in ends.items()])


async def new_records(
    settings: Settings, role: Role, starts: Mapping[int, int], *, waiting: Callable[[str], None]
) -> AsyncIterator[list[Record]]:
    """Yield the committed records of a topic from some offsets on, each once, without end.

    A failure of the brokers is tried again from where it was.

    Args:
        starts: the first offset to read, by partition.
        waiting: gets a sentence for a person whenever the brokers fail.
    """
    topic = topic_names(settings)[role]
    following = {TopicPartition(topic, number): offset for number, offset in starts.items()}
    while True:
        consumer = reading_consumer(settings, fetch_max_wait_ms=_POLL_MS)
        consumer.assign(list(following))
        try:
            await consumer.start()
            for place, offset in following.items():
                consumer.seek(place, offset)
            while True:
                fetched = await consumer.getmany(timeout_ms=_POLL_MS)
                for place, messages in fetched.items():
                    if messages:
                        following[place] = messages[-1].offset + 1
                        yield [record_of(role, message) for message in messages]
        except OffsetOutOfRangeError:
            waiting("records were deleted before they could be read: going on with the earliest there are")
            for place, begin in (await consumer.beginning_offsets(list(following))).items():
                following[place] = max(begin, following[place])
        except KafkaError as error:
            waiting(f"the brokers fail ({type(error).__name__}), trying again")
            await asyncio.sleep(_PAUSE_S)
        finally:
            with suppress(KafkaError):
                await consumer.stop()
