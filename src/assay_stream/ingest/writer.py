"""Events into Kafka, each once in the window, and what is remembered of them.

1. An event goes to its topic, with acknowledgement by all in-sync replicas, and idempotently.
2. What Kafka acknowledged is noted in the topic of accepted events, and acknowledged there, too.
3. Only then is it accepted. An event that comes again while it waits is waited for with the first one.

A client that fails beyond repair is replaced: what it still held counts as not delivered.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import structlog

from assay_stream.config import Settings
from assay_stream.kafka.connection import MAY_PASS, connection_options
from assay_stream.kafka.part import PatientPart
from assay_stream.kafka.publishing import KafkaProducer, disconnect, is_too_large, kafka_producer, send_all
from assay_stream.kafka.topics import topic_names
from assay_stream.limits import INGEST_LIMITS, IngestLimits
from assay_stream.model.record import Role
from assay_stream.model.rejected import Mark, write_accepted
from assay_stream.observe.observation import Observation

_log = structlog.get_logger(__name__)

_GENERATIONS = 8
_OF_RECORDS = frozenset(("InvalidTimestampError", "InvalidRecordError", "CorruptRecordException", "KafkaTimeoutError"))
"""Errors about records, not about the client. The last: there was no room behind others, which may be in Kafka."""


class NotDelivered(Exception):  # noqa: N818 - an outcome
    """An event is not known to be stored.

    Args:
        is_too_large: whether Kafka refuses it for its size, so that it never will be.
    """

    def __init__(self, *, is_too_large: bool = False) -> None:
        super().__init__()
        self.is_too_large = is_too_large


class AcceptedWindow:
    """The latest accepted events. What is forgotten goes by generations, each an eighth of the window."""

    def __init__(self, limits: IngestLimits = INGEST_LIMITS) -> None:
        self._ids_max = max(1, limits.window_ids_max // _GENERATIONS)
        self._age_ms = limits.window_age_s * 1_000
        self._generations: deque[tuple[int, set[Mark]]] = deque()

    def __contains__(self, mark: Mark) -> bool:
        return any(mark in marks for _, marks in self._generations)

    def __len__(self) -> int:
        return sum(len(marks) for _, marks in self._generations)

    def add(self, marks: Iterable[Mark], at_ms: int) -> None:
        generations = self._generations
        for mark in marks:
            if mark in self:
                continue
            if (
                not generations
                or len(generations[-1][1]) >= self._ids_max
                or at_ms - generations[-1][0] >= self._age_ms // _GENERATIONS
            ):
                generations.append((at_ms, set()))
            generations[-1][1].add(mark)
        self.forget(at_ms)

    def forget(self, now_ms: int) -> None:
        generations = self._generations
        while len(generations) > _GENERATIONS or (generations and now_ms - generations[0][0] > self._age_ms):
            generations.popleft()


class EventWriter(PatientPart):
    """Delivers events.

    Args:
        producer: makes each client, in place of aiokafka's.
    """

    def __init__(
        self,
        settings: Settings,
        window: AcceptedWindow,
        *,
        producer: Callable[[], KafkaProducer] | None = None,
        limits: IngestLimits = INGEST_LIMITS,
    ) -> None:
        super().__init__("delivering events", settings)
        self._make = producer or partial(kafka_producer, connection_options(settings))
        self._topics = topic_names(settings)
        self._window = window
        self._limits = limits
        self._producer: KafkaProducer | None = None
        self._pending: dict[Mark, asyncio.Future[None]] = {}
        self._since_s: dict[asyncio.Task[None], float] = {}
        self._to_note: list[tuple[Mark, asyncio.Future[None]]] = []
        self._noting = asyncio.Event()
        self._broken = asyncio.Event()
        self._told: set[str] = set()

    @property
    def ready(self) -> bool:
        """Whether there is a client, and nothing waits for longer than an acknowledgement may take."""
        return self._producer is not None and self.waiting_s <= self._limits.ack_limit_s

    @property
    def waiting_s(self) -> float:
        now_s = time.monotonic()
        return now_s - min(self._since_s.values(), default=now_s)

    @property
    def pending(self) -> int:
        return len(self._pending)

    def is_accepted(self, mark: Mark) -> bool:
        return mark in self._window

    def waiting(self, mark: Mark) -> asyncio.Future[None] | None:
        return self._pending.get(mark)

    def write(self, events: Sequence[tuple[Mark, Observation]], done: Callable[[], None]) -> list[asyncio.Future[None]]:
        """Deliver events in order; returns what to wait for, for each: it ends in ``NotDelivered`` if that fails.

        Args:
            done: called once the fate of all is known, which may be long after the futures are abandoned.
        """
        loop = asyncio.get_running_loop()
        waits = [loop.create_future() for _ in events]
        for (mark, _), wait in zip(events, waits, strict=True):
            wait.add_done_callback(_retrieved)
            self._pending[mark] = wait
        task = loop.create_task(self._deliver(events, waits))
        self._since_s[task] = time.monotonic()

        def settle(settled: asyncio.Task[None]) -> None:
            del self._since_s[settled]
            for (mark, _), wait in zip(events, waits, strict=True):
                if self._pending.get(mark) is wait:
                    del self._pending[mark]
                if not wait.done():
                    wait.set_exception(NotDelivered())
            done()

        task.add_done_callback(settle)
        return waits

    async def run(self) -> None:
        """Keep a client, and note what it delivers, until stopped."""
        while not self.stopping.is_set():
            producer = self._make()
            notes: asyncio.Task[None] | None = None
            try:
                await producer.start()
                self._broken.clear()
                self.failures = 0
                notes = asyncio.create_task(self._note(producer))
                self._producer = producer
                await self.until_stopped(self._broken.wait())
            except MAY_PASS as error:
                await self.endure(error)
            finally:
                self._producer = None
                await disconnect(producer)
                # What this client still held will never be answered.
                for task in [*self._since_s, *([] if notes is None else [notes])]:
                    task.cancel()

    async def _deliver(self, events: Sequence[tuple[Mark, Observation]], waits: Sequence[asyncio.Future[None]]) -> None:
        producer = self._producer
        if producer is None:
            return
        observations = [observation for _, observation in events]
        outcomes = await send_all(producer, self._topics, observations, call_spread=self.settings.call_spread)
        noted = []
        for (mark, _), wait, error in zip(events, waits, outcomes, strict=True):
            if error is None:
                noted.append((mark, wait))
            else:
                wait.set_exception(NotDelivered(is_too_large=is_too_large(error)))
                self._judge(error)
        if noted:
            self._to_note += noted
            self._noting.set()
            await asyncio.wait([wait for _, wait in noted])

    async def _note(self, producer: KafkaProducer) -> None:
        """Note what was acknowledged, whatever has come together in the meantime in one record."""
        while True:
            await self._noting.wait()
            batch = self._to_note[: self._limits.ids_per_record_max]
            if len(batch) == len(self._to_note):
                self._noting.clear()
            marks = [mark for mark, _ in batch]
            topic, now_ms, is_noted = self._topics[Role.INGESTED], time.time_ns() // 1_000_000, False
            # They are in Kafka, whatever becomes of the note.
            self._window.add(marks, now_ms)
            try:
                sent = await producer.send(
                    topic, value=write_accepted(marks), key=marks[0], headers=[], timestamp_ms=now_ms
                )
                await sent
                is_noted = True
            except asyncio.CancelledError:
                self._noting.set()  # the next client notes them
                raise
            except Exception as error:  # noqa: BLE001 - whatever fails, the events count as not accepted
                self._judge(error)
            del self._to_note[: len(batch)]
            for _, wait in batch:
                if wait.done():
                    continue  # it counts as not delivered since its client was replaced
                if is_noted:
                    wait.set_result(None)
                else:
                    wait.set_exception(NotDelivered())

    def _judge(self, error: BaseException) -> None:
        if is_too_large(error):
            return
        name = type(error).__name__
        if name not in self._told:  # an absent broker must not fill the log
            self._told.add(name)
            _log.warning("events_not_delivered", kind=name)
        if not getattr(error, "retriable", False) and "Authorization" not in name and name not in _OF_RECORDS:
            self._broken.set()


def _retrieved(future: asyncio.Future[None]) -> None:
    """Keep asyncio from logging the outcomes of abandoned futures."""
    if not future.cancelled():
        future.exception()
