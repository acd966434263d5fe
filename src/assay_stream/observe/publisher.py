"""The publisher for proxies: it never blocks and never breaks the call that it reports.

``publish`` puts an observation into a bounded queue and returns at once; a thread delivers the queue to Kafka and
retries for as long as the brokers are away. What does not fit is dropped and counted by reason.

The queue is first in, first out. Its last quarter is reserved for snapshots: there are many calls, and without a
snapshot every call after it is bound wrongly or not at all, so calls alone cannot fill the queue.

Delivery is at least once: after a failure a record may be sent again. Its event keeps its id, so that the evidence of
both is recognisably the same.

Each connection has an event loop of its own in that thread. aiokafka cannot abandon what it fails to deliver; when a
connection is abandoned, its loop goes, and with it everything that would keep trying.

What is dropped is counted by server, and the counts are published once the brokers are there.

With a spool (``observe.spool``), what is queued goes to disk while the brokers are away, and what is left when the
publisher is closed. Order is kept: what is in hand is older than the spool, and the spool older than the queue.

A process that exits closes its publishers first (``observe.delivery``). A forked child starts with an empty queue: its
parent delivers what was queued.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Self

from assay_stream.errors import ConfigurationError
from assay_stream.kafka.refusals import explained, why_refused
from assay_stream.limits.files import SPOOL_LIMITS
from assay_stream.model.record import TOPIC_NAMES, Role
from assay_stream.observe.delivery import (
    KafkaProducer,
    PublisherLimits,
    aiokafka_producer,
    disconnect,
    is_too_large,
    note_closed,
    note_open,
    send_all,
)
from assay_stream.observe.events import Observation
from assay_stream.observe.lookups import run_with_lookups
from assay_stream.observe.losses import Losses
from assay_stream.observe.sinks import DropReason, SinkStats
from assay_stream.observe.spool import Spool
from assay_stream.text.counting import counted

_log = logging.getLogger(__name__)

_STUCK_S = 1.0
"""A batch that waits for longer than this goes to the spool: a kill would lose it."""

_GIVE_UP_S = 3.0
"""What dropping a connection may take beyond the time that closing was given."""


class ObservationPublisher:
    """Delivers observations to Kafka. May be used from any thread.

    Args:
        connection: aiokafka's connection arguments: ``bootstrap_servers`` and whatever security needs.
        spool: keeps on disk what cannot be delivered yet; the publisher closes it.
        call_spread: over how many partitions the calls of one server are spread.
    """

    def __init__(
        self,
        connection: Mapping[str, Any],
        *,
        topics: Mapping[Role, str] = TOPIC_NAMES,
        limits: PublisherLimits | None = None,
        producer_factory: Callable[[], KafkaProducer] | None = None,
        spool: Spool | None = None,
        call_spread: int = 1,
    ) -> None:
        self._spool = spool
        self._call_spread = call_spread
        self._limits = limits or PublisherLimits()
        self._topics = dict(topics)
        self._connection_options = connection if producer_factory is None else None
        self._factory = producer_factory or (lambda: aiokafka_producer(connection, self._limits))
        self._begin_empty()
        note_open(self)

    def _begin_empty(self) -> None:
        self._thread: threading.Thread | None = None
        self._attempts = 0  # at the record at the head of the queue
        self._pause_s = self._limits.backoff_min_s
        # Shared by both threads, under the lock.
        self._lock = threading.Lock()
        self._queue: deque[Observation] = deque()
        self._hand: list[Observation] = []  # what is being delivered: older than the spool and the queue
        self._is_hand_spooled = False
        self._hand_since_s = 0.0
        self._is_disk_refused = False
        self._spooled = self._spooled_bytes = 0
        self._losses = Losses(self._limits.losses_max)
        self._queue_bytes = 0
        self._accepted = self._delivered = self._retries = 0
        self._dropped: Counter[DropReason] = Counter()
        self._note_spool()
        self._wake: Callable[[], object] | None = None
        self._cancel: Callable[[], object] | None = None
        self._connected = False
        self._away = False
        self._closing = threading.Event()
        self._given_up = threading.Event()

    @property
    def stats(self) -> SinkStats:
        with self._lock:
            return SinkStats(
                accepted=self._accepted,
                delivered=self._delivered,
                queued=len(self._queue) + len(self._own_hand()),
                queued_bytes=self._queue_bytes,
                spooled=self._spooled,
                spooled_bytes=self._spooled_bytes,
                dropped=dict(self._dropped),
                retries=self._retries,
                connected=self._connected,
            )

    def start(self) -> None:
        """Start to deliver in the background; does not wait for a broker."""
        with self._lock:
            if self._thread is None and not self._closing.is_set():
                self._thread = threading.Thread(target=self._run, name="assay-stream publisher", daemon=True)
                self._thread.start()

    def restart_in_child(self) -> None:
        """Start empty in a forked child, and deliver there too if this publisher was started in its parent."""
        started, closed = self._thread is not None, self._closing.is_set()
        self._spool = None  # its parent's
        self._begin_empty()
        if closed:
            self._closing.set()
        elif started:
            self.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def publish(self, observation: Observation) -> bool:
        """Queue an observation and return whether there was room. Never blocks, never raises."""
        with self._lock:
            reason = self._refusal(observation)
            if reason is None:
                self._accepted += 1
                self._queue.append(observation)
                self._queue_bytes += observation.size_bytes
                self._rouse()
                return True
            self._dropped[reason] += 1
            if reason != "closed":
                self._losses.note(observation)
                self._rouse()
            first = self._dropped[reason] == 1
        if first:
            _log.warning("dropped an observation (%s); further ones are only counted", reason)
        return False

    def close(self, timeout_ms: int = 10_000) -> None:
        """Deliver what is queued, as far as time allows, and disconnect. The rest counts as dropped.

        Blocks; from a coroutine use ``aclose``. May be called again, and from any thread.

        Args:
            timeout_ms: milliseconds for delivery; disconnecting may take three seconds more.
        """
        self._closing.set()
        with self._lock:
            self._rouse()
            is_worth_it = self._spool is None or self._connected
            wait_s = timeout_ms / 1_000 if is_worth_it and self._is_anything_left() else 0.0
            thread = self._thread
        if thread is not None:
            thread.join(wait_s)
            self._given_up.set()
            with self._lock:
                self._call(self._cancel)
            thread.join(_GIVE_UP_S)
        note_closed(self)
        if thread is None or not thread.is_alive():
            if self._spool is not None and self._losses:
                self._queue_losses()
            self._to_spool()
            if self._spool is not None:
                self._spool.close()
                self._spool = None
        with self._lock:
            self._thread = None
            left = len(self._queue) + len(self._own_hand())
            self._dropped["delivery_failed"] += left
            self._dropped += Counter()  # no entries of zero
            self._queue.clear()
            self._hand = []
            self._queue_bytes = 0
        if self._spooled:
            _log.warning("%s stay in the spool until the next start", counted(self._spooled, "observation"))
        if left:
            _log.warning("%s could not be delivered before closing", counted(left, "observation"))

    async def aclose(self, timeout_s: float = 10.0) -> None:
        """Close without blocking the event loop; ``timeout_s`` is in seconds, for delivery."""
        await asyncio.to_thread(self.close, round(timeout_s * 1_000))

    def _refusal(self, observation: Observation) -> DropReason | None:
        limits, size = self._limits, observation.size_bytes
        if self._closing.is_set():
            return "closed"
        if size > limits.record_bytes_max:
            return "too_large"
        share = 0.75 if observation.kind == "call" else 1.0
        if (
            self._queue_bytes + size > limits.queue_bytes_max * share
            or len(self._queue) + len(self._own_hand()) + 1 > limits.queue_records_max * share
        ):
            return "queue_full"
        return None

    def _rouse(self) -> None:
        wake, self._wake = self._wake, None
        self._call(wake)

    @staticmethod
    def _call(action: Callable[[], object] | None) -> None:
        if action is not None:
            with contextlib.suppress(RuntimeError):  # its loop has just ended
                action()

    # In the thread

    def _run(self) -> None:
        while not self._given_up.is_set() and not (self._closing.is_set() and not self._is_anything_left()):
            try:
                run_with_lookups(self._connection())
            except asyncio.CancelledError:
                return
            except Exception as error:  # noqa: BLE001 - whatever fails must not end the delivery
                self._to_spool()
                self._note_failure(self._why(error))
                self._wait_away()

    def _wait_away(self) -> None:
        """Wait before the next attempt, and take what is published meanwhile to the spool."""
        until_s = time.monotonic() + self._pause_s
        self._pause_s = min(self._pause_s * 2, self._limits.backoff_max_s)
        while (left_s := until_s - time.monotonic()) > 0:
            if self._given_up.wait(left_s if self._spool is None else min(left_s, SPOOL_LIMITS.interval_s)):
                return
            self._to_spool()

    async def _connection(self) -> None:
        loop, task, work = asyncio.get_running_loop(), asyncio.current_task(), asyncio.Event()
        with self._lock:
            self._cancel = None if task is None else lambda: loop.call_soon_threadsafe(task.cancel)
        if self._given_up.is_set():
            return
        keeping = loop.create_task(self._keep_room())
        producer = self._factory()
        try:
            async with asyncio.timeout(self._limits.start_timeout_s):
                await producer.start()
            self._note_connected()
            while True:
                with self._lock:
                    is_idle = not self._is_anything_left()
                    if is_idle:
                        if self._closing.is_set():
                            return
                        self._wake = lambda: loop.call_soon_threadsafe(work.set)
                if self._take():
                    await self._deliver(producer)
                elif is_idle:  # otherwise what was left turned out to be damaged
                    await work.wait()
                    work.clear()
        finally:
            keeping.cancel()
            with self._lock:
                self._wake = self._cancel = None
                self._connected = False
            await disconnect(producer)

    def _take(self) -> bool:
        """Take the oldest observations in hand, if there are any."""
        if self._losses:
            self._queue_losses()
        hand, is_spooled = self._own_hand(), False
        if not hand and self._spool is not None and self._spool.records:
            try:
                hand = self._spool.head(self._limits.batch_records_max)
            except OSError as error:
                self._give_spool_up(error)
            is_spooled = bool(hand)
            self._note_spool()
        with self._lock:
            if not self._spooled:
                count = min(len(self._queue), self._limits.batch_records_max - len(hand))
                hand = [*hand, *(self._queue.popleft() for _ in range(count))]
            self._hand, self._is_hand_spooled = hand, is_spooled
            self._hand_since_s = time.monotonic()
            return bool(self._hand)

    async def _deliver(self, producer: KafkaProducer) -> None:
        """Deliver what is in hand. A record leaves it only when its fate is known.

        Raises:
            Exception: the first failure that a retry may fix; what came before it is delivered.
        """
        batch = self._hand
        async with asyncio.timeout(self._limits.send_timeout_s):
            outcomes = await send_all(producer, self._topics, batch, call_spread=self._call_spread)
        kept: list[Observation] = []
        lost: list[Observation] = []
        failure: BaseException | None = None
        settled: Counter[str] = Counter()
        for index, (observation, outcome) in enumerate(zip(batch, outcomes, strict=True)):
            if failure is not None and self._is_hand_spooled:
                kept = list(batch[index - len(kept) :])  # the spool gives up its records in order only
                break
            if outcome is None:
                settled["delivered"] += 1
            elif is_too_large(outcome):
                settled["too_large"] += 1
                lost.append(observation)
            elif failure is None and self._is_hopeless(outcome):
                settled["delivery_failed"] += 1
                lost.append(observation)
                _log.error("Kafka permanently refuses an observation: %s", type(outcome).__name__)
            else:
                failure = failure or outcome
                kept.append(observation)
        self._settle(batch, kept, settled)
        with self._lock:
            for observation in lost:
                self._losses.note(observation)
        if settled:
            self._pause_s = self._limits.backoff_min_s
        if failure is not None:
            raise failure
        self._attempts = 0

    def _settle(self, batch: Sequence[Observation], kept: list[Observation], settled: Counter[str]) -> None:
        was_spooled = self._is_hand_spooled
        if was_spooled and self._spool is not None:
            try:
                self._spool.drop(len(batch) - len(kept))
            except OSError as error:
                self._give_spool_up(error)
            self._note_spool()
        with self._lock:
            self._hand, self._is_hand_spooled = ([] if was_spooled else kept), False
            if not was_spooled:
                self._queue_bytes -= sum(each.size_bytes for each in batch) - sum(each.size_bytes for each in kept)
            self._delivered += settled["delivered"]
            self._dropped["too_large"] += settled["too_large"]
            self._dropped["delivery_failed"] += settled["delivery_failed"]
            self._dropped += Counter()

    def _queue_losses(self) -> None:
        """Queue the counts of what was dropped, behind everything else. They take little room, whatever there is."""
        with self._lock:
            events = self._losses.take(lambda: str(uuid.uuid4()), datetime.now(UTC))
            self._accepted += len(events)
            self._queue += events
            self._queue_bytes += sum(event.size_bytes for event in events)

    def _own_hand(self) -> list[Observation]:
        """Return what is in hand and nowhere else."""
        return [] if self._is_hand_spooled else self._hand

    def _is_anything_left(self) -> bool:
        return bool(self._queue or self._own_hand() or self._spooled or (self._losses and self._connected))

    # The spool, in the thread

    async def _keep_room(self) -> None:
        """Take what waits to the spool while nothing is delivered, or faster than it is published."""
        while self._spool is not None:
            await asyncio.sleep(SPOOL_LIMITS.interval_s)
            with self._lock:
                is_stuck = bool(self._hand) and time.monotonic() - self._hand_since_s > _STUCK_S
                is_full = self._queue_bytes * 2 > self._limits.queue_bytes_max
                is_full |= len(self._queue) * 2 > self._limits.queue_records_max
            if not self._connected or is_stuck or is_full:
                self._to_spool()

    def _to_spool(self) -> None:
        """Take to the spool whatever is only in memory, as far as there is room: what is in hand before all others."""
        spool = self._spool
        if spool is None:
            return
        try:
            hand = self._own_hand()
            if hand and spool.prepend(hand):
                # It may still be under way; then it is dropped from the spool once it is delivered.
                spool.head(len(hand))
                with self._lock:
                    self._is_hand_spooled = True
                    self._queue_bytes -= sum(each.size_bytes for each in hand)
            while True:
                with self._lock:
                    chunk = list(itertools.islice(self._queue, self._limits.batch_records_max))
                count = spool.append(chunk) if chunk else 0
                with self._lock:
                    for _ in range(count):
                        self._queue_bytes -= self._queue.popleft().size_bytes
                if not count or count < len(chunk):
                    break
        except OSError as error:
            if not self._is_disk_refused:
                _log.error("the spool takes no more: %s", error.strerror)
            self._is_disk_refused = True
        self._note_spool()

    def _note_spool(self) -> None:
        spool = self._spool
        with self._lock:
            self._spooled, self._spooled_bytes = (0, 0) if spool is None else (spool.records, spool.size_bytes)
            if spool is not None and spool.lost:
                self._dropped["spool_damaged"] = spool.lost

    def _give_spool_up(self, error: OSError) -> None:
        """Go on without a disk that fails; what is on it is delivered by the next process that can read it."""
        _log.error("the spool cannot be used any more: %s", error.strerror)
        self._spool = None

    def _is_hopeless(self, error: BaseException) -> bool:
        """Tell whether to drop a record: only after attempts whose cause an operator could have fixed."""
        if getattr(error, "retriable", False) or isinstance(error, OSError | TimeoutError):
            return False
        if "Authorization" in type(error).__name__ or "Authentication" in type(error).__name__:
            return False
        self._attempts += 1
        if self._attempts < self._limits.attempts_max:
            return False
        self._attempts = 0
        return True

    def _note_connected(self) -> None:
        with self._lock:
            self._connected = True
            returned, self._away = self._away, False
        if returned:
            _log.warning("connected to Kafka again; %d observations are queued", len(self._queue))

    def _why(self, error: Exception) -> str:
        """Return what to fix, if that can be found out; looked up once each time the brokers go away."""
        if self._away or self._given_up.is_set():
            return ""
        cause = explained(error)
        if not isinstance(cause, ConfigurationError) and self._connection_options is not None:
            cause = run_with_lookups(why_refused(self._connection_options))
        return str(cause) if isinstance(cause, ConfigurationError) else type(error).__name__

    def _where(self) -> str:
        servers = (self._connection_options or {}).get("bootstrap_servers")
        return "" if not servers else f" at {servers if isinstance(servers, str) else ','.join(servers)}"

    def _note_failure(self, why: str) -> None:
        with self._lock:
            self._retries += 1
            first, self._away = not self._away, True
        if first:
            _log.warning("cannot deliver observations to Kafka%s, still trying: %s", self._where(), why)
