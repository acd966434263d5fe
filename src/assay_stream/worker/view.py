"""The binding topic in memory, followed by every process that joins."""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

import structlog
from aiokafka import ConsumerRecord, TopicPartition

from assay_stream.join import processor
from assay_stream.join.processor import Join
from assay_stream.kafka.connection import Clients, Consumer
from assay_stream.kafka.state_thread import StateThread
from assay_stream.kafka.transport import record_of
from assay_stream.model.facts import decode_key
from assay_stream.model.record import Role

_log = structlog.get_logger(__name__)

_POLL_MS = 500
_SEEN_KEY = b'["seen",'


class BindingView:
    """Follows the binding topic, committed records only, and knows how far the registry has come.

    Args:
        inputs: the registry's input partitions.
        heard: told of the observer of each list, and when it saw it, milliseconds since the epoch.
    """

    def __init__(
        self,
        join: Join,
        *,
        clients: Clients,
        topic: str,
        partitions: int,
        inputs: list[TopicPartition],
        heard: Callable[[str, int], None] = lambda _name, _at_ms: None,
    ) -> None:
        self._join = join
        self._clients = clients
        self._partitions = [TopicPartition(topic, number) for number in range(partitions)]
        self._inputs = inputs
        self._heard = heard
        self._changed = asyncio.Event()
        self.changes = 0
        """How often facts have arrived."""
        self.thread = StateThread("join")
        """The thread that the state belongs to; look into the state only there."""
        self._stopping = asyncio.Event()
        self._started = asyncio.Event()
        # A broker answers one connection's requests in order: asked on the reading consumer's, the ends would
        # wait for its long poll.
        self._ends_reader: Consumer | None = None
        self.ready = False
        self._moved_s = time.monotonic()

    @property
    def still_s(self) -> float:
        return time.monotonic() - self._moved_s

    def stop(self) -> None:
        self._stopping.set()

    async def run(self) -> None:
        """Follow the binding topic until stopped.

        Raises:
            IntegrityError: where the topic holds what is not ours.
        """
        consumer = self._clients.consumer()
        consumer.assign(self._partitions)
        ends_reader = self._ends_reader = self._clients.consumer()
        try:
            await consumer.start()
            await ends_reader.start()
            await consumer.seek_to_beginning(*self._partitions)
            first_ends = await consumer.end_offsets(self._partitions)
            self._started.set()
            while not self._stopping.is_set():
                await self._follow(consumer)
                if not self.ready:
                    self.ready = await self._reached(consumer, first_ends)
        finally:
            await consumer.stop()
            await ends_reader.stop()

    async def input_ends(self) -> Mapping[TopicPartition, int]:
        """Return where the logs of the registry's input partitions end now (stable records only)."""
        await self._started.wait()
        if self._ends_reader is None:
            raise AssertionError("a started view has a reader of ends")
        ends: Mapping[TopicPartition, int] = await self._ends_reader.end_offsets(self._inputs)
        return ends

    def missing(self, ends: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        """Return the partitions of which the registry has not applied everything before these positions."""
        progress = self._join.view.progress
        return [tp for tp, end in ends.items() if progress.get((tp.topic, tp.partition), 0) < end]

    async def wait_for_change(self, limit_s: float, *, since: int) -> None:
        """Wait until new facts have arrived, or for the limit."""
        if self.changes == since:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), limit_s)

    async def _follow(self, consumer: Consumer) -> None:
        self._moved_s = time.monotonic()
        fetched = await consumer.getmany(timeout_ms=_POLL_MS)
        if fetched:
            await self.thread.run(self._apply, fetched)
            self.changes += 1
            # Several partitions may wait, each for its own reason.
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()

    def _apply(self, fetched: Mapping[TopicPartition, list[ConsumerRecord]]) -> None:
        for messages in fetched.values():
            for message in messages:
                self.thread.note_progress()
                record = record_of(Role.BINDINGS, message)
                processor.process(self._join, record)
                if record.value is not None and (record.key or b"").startswith(_SEEN_KEY):
                    _, _, observer_id, *_ = decode_key(record.key)
                    self._heard(str(observer_id), record.timestamp_ms)

    async def _reached(self, consumer: Consumer, ends: Mapping[TopicPartition, int]) -> bool:
        for partition, end in ends.items():
            if await consumer.position(partition) < end:
                return False
        _log.info("view_caught_up", servers=len(self._join.view.servers))
        return True
