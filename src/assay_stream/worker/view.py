"""Partitions of the binding topic in memory: those of the servers whose calls this process joins."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress

import structlog

from assay_stream.join import processor
from assay_stream.join.processor import Join
from assay_stream.kafka.connection import Clients, Consumer, FetchedRecord, TopicPartition
from assay_stream.kafka.log import record_of
from assay_stream.kafka.state_thread import StateThread
from assay_stream.model.facts import decode_key
from assay_stream.model.record import Role

_log = structlog.get_logger(__name__)

_POLL_MS = 500
KEPT_UNNEEDED_S = 30.0
"""For how long a partition is followed that nothing needs: it may come back with the next rebalance."""
_SEEN_KEYS = (b'["seen",', b'["seen_run",')


class BindingView:
    """Follows what is needed of the binding topic, committed records only, and knows how far the registry has come.

    Args:
        new_join: makes what looks up in one partition.
        inputs: the registry's input partitions.
        heard: told of the observer of each list, and when it saw it, milliseconds since the epoch.
    """

    def __init__(
        self,
        *,
        new_join: Callable[[], Join],
        clients: Clients,
        topic: str,
        partitions: int,
        inputs: list[TopicPartition],
        heard: Callable[[str, int], None] = lambda _name, _at_ms: None,
    ) -> None:
        self._new_join = new_join
        self._joins: dict[int, Join] = {}
        self._clients = clients
        self._partitions = [TopicPartition(topic, number) for number in range(partitions)]
        self._needed: Counter[int] = Counter()
        self._unneeded_since_s: dict[int, float] = {}
        self._followed: dict[TopicPartition, int] = {}
        """What is followed, and where it ended when that began."""
        self._need_changed = asyncio.Event()
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

    @property
    def servers(self) -> int:
        """How many servers are known."""
        return sum(len(join.view) for join in list(self._joins.values()))

    def need(self, number: int) -> Join:
        """Follow a partition until it is released as often; return the join that looks up in it."""
        self._needed[number] += 1
        self._unneeded_since_s.pop(number, None)
        if number not in self._joins:
            self._joins[number] = self._new_join()
            self.ready = False
            self._need_changed.set()
        return self._joins[number]

    def release(self, number: int) -> None:
        """Note that a partition is needed no more. It is kept for a while: a rebalance closes what it opens again."""
        self._needed[number] -= 1
        if not self._needed[number]:
            self._unneeded_since_s[number] = time.monotonic()

    async def run(self) -> None:
        """Follow what is needed until stopped.

        Raises:
            IntegrityError: where the topic holds what is not ours.
        """
        consumer = self._clients.consumer()
        # What stands behind an open transaction of somebody else counts: it is there, and will be read.
        ends_reader = self._ends_reader = self._clients.consumer(isolation_level="read_uncommitted")
        try:
            await consumer.start()
            await ends_reader.start()
            self._started.set()
            while not self._stopping.is_set():
                await self._set_followed(consumer)
                await self._follow(consumer)
                if not self.ready:
                    self.ready = await self._reached(consumer)
        finally:
            await consumer.stop()
            await ends_reader.stop()

    async def _set_followed(self, consumer: Consumer) -> None:
        """Have the consumer read what is needed, new partitions from their beginning; drop what is not any more."""
        self._need_changed.clear()
        since_s = time.monotonic() - KEPT_UNNEEDED_S
        for number in list(self._unneeded_since_s):
            # While another one was dropped it may have been needed again.
            if self._unneeded_since_s.get(number, since_s) >= since_s:
                continue
            del self._unneeded_since_s[number]
            del self._joins[number]
            self._followed.pop(self._partitions[number], None)
            _log.info("bindings_dropped", partition=number)
        wanted = [tp for tp in self._partitions if tp.partition in self._joins]
        if set(wanted) == self._followed.keys() == consumer.assignment():
            return
        positions = {tp: await consumer.position(tp) for tp in self._followed if tp in wanted}
        new = [tp for tp in wanted if tp not in positions]
        if wanted:
            consumer.assign(wanted)
        for tp, position in positions.items():
            consumer.seek(tp, position)
        if new:
            await consumer.seek_to_beginning(*new)
        ends = await consumer.end_offsets(new) if new else {}
        self._followed = {tp: ends[tp] if tp in ends else self._followed[tp] for tp in wanted}

    async def input_ends(self) -> Mapping[TopicPartition, int]:
        """Return where the logs of the registry's input partitions end now, open transactions included."""
        await self._started.wait()
        if self._ends_reader is None:
            raise AssertionError("a started view has a reader of ends")
        ends: Mapping[TopicPartition, int] = await self._ends_reader.end_offsets(self._inputs)
        return ends

    def missing(self, ends: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        """Return the partitions of which the registry has not applied everything before these positions."""
        return [tp for tp, end in ends.items() if self._progress(tp) < end]

    def _progress(self, tp: TopicPartition) -> int:
        """Return how far the registry has come in an input partition: it says so in the partition of that number."""
        join = self._joins.get(tp.partition)
        return 0 if join is None else join.view.progress.get((tp.topic, tp.partition), 0)

    async def wait_for_change(self, limit_s: float, *, since: int) -> None:
        """Wait until new facts have arrived, or for the limit."""
        if self.changes == since:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), limit_s)

    async def _follow(self, consumer: Consumer) -> None:
        self._moved_s = time.monotonic()
        if not self._followed:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._need_changed.wait(), _POLL_MS / 1_000)
            return
        fetched = await consumer.getmany(timeout_ms=_POLL_MS)
        if fetched:
            await self.thread.run(self._apply, fetched)
            self.changes += 1
            # Several partitions may wait, each for its own reason.
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()

    def _apply(self, fetched: Mapping[TopicPartition, list[FetchedRecord]]) -> None:
        for tp, messages in fetched.items():
            join = self._joins[tp.partition]
            for message in messages:
                self.thread.note_progress()
                record = record_of(Role.BINDINGS, message)
                processor.process(join, record)
                if record.value is not None and (record.key or b"").startswith(_SEEN_KEYS):
                    _, _, observer_id, *_ = decode_key(record.key)
                    self._heard(str(observer_id), record.timestamp_ms)

    async def _reached(self, consumer: Consumer) -> bool:
        for partition, end in self._followed.items():
            if await consumer.position(partition) < end:
                return False
        if len(self._followed) < len(self._joins):
            return False
        _log.info("view_caught_up", servers=self.servers, partitions=sorted(tp.partition for tp in self._followed))
        return True
