"""Delivery of observations: what awaits it, in order, its limits, and how a process ends or forks.

A publisher delivers in a daemon thread, which an exiting interpreter does not wait for. So every open publisher is
closed first, all of them within one time limit.

Names are looked up in threads that neither an exit nor a forked child waits for. The C library's locks are copied as
they stand at a fork, so a lookup that another thread is in the middle of leaves them held for good in the child. A fork
waits for such lookups, within a limit.

1. A batch stays at the front, on disk or in memory, until its fate is known.
2. With a spool (``observe.spool``), what is in memory goes to disk while the brokers are away or slow, and what is
   left when the publisher is closed.
3. The last quarter of the memory is reserved for snapshots: there are many calls, and without a snapshot every call
   after it is bound wrongly or not at all, so calls alone cannot fill it.

What is dropped is counted by server, and the counts are queued once the brokers are there.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures.thread
import contextlib
import itertools
import logging
import os
import socket
import threading
import time
import uuid
import weakref
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from assay_stream.errors import ConfigurationError
from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.model.record import LOSS_TYPE, OBSERVER_HEADER
from assay_stream.observe.observation import Observation, ObservationKind, Vantage, loss_event
from assay_stream.observe.sinks import DropReason, SinkStats
from assay_stream.observe.spool import Spool

if TYPE_CHECKING:
    from assay_stream.observe.publisher import ObservationPublisher


Answer = TypeVar("Answer")

FORK_WAIT_S = 1.0
"""How long a fork waits for lookups: several times what a responsive name server needs."""

EXIT_FLUSH_MS = 5_000
"""Milliseconds that all publishers of an exiting process share: a reachable broker needs a fraction of it,
and a terminating program should not appear to hang.
"""

_open: weakref.WeakSet[Any] = weakref.WeakSet()


class _Lookups:
    """Lookups in progress in this process."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0

    def run(self, host: Any, port: Any, **how: Any) -> Any:
        with self._changed:
            self._count += 1
        try:
            return socket.getaddrinfo(host, port, **how)
        finally:
            with self._changed:
                self._count -= 1
                self._changed.notify_all()

    def before_fork(self) -> None:
        self._changed.acquire()
        self._changed.wait_for(lambda: not self._count, FORK_WAIT_S)

    def after_in_parent(self) -> None:
        self._changed.release()


_lookups = _Lookups()


class LookupLoop(asyncio.SelectorEventLoop):
    """Event loop with a daemon thread per lookup: asyncio's own lookup threads delay exit indefinitely."""

    async def getaddrinfo(self, host: Any, port: Any, **how: Any) -> Any:
        found: asyncio.Future[Any] = self.create_future()

        def settle(result: Any, error: BaseException | None) -> None:
            if found.done():
                return
            if error is None:
                found.set_result(result)
            else:
                found.set_exception(error)

        def look_up() -> None:
            result, error = None, None
            try:
                result = _lookups.run(host, port, **how)
            except Exception as caught:  # noqa: BLE001 -- raised where it is awaited
                error = caught
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self.call_soon_threadsafe(settle, result, error)

        threading.Thread(target=look_up, name="assay-stream lookup", daemon=True).start()
        return await found


def run_with_lookups(main: Coroutine[Any, Any, Answer]) -> Answer:
    """Run a coroutine like ``asyncio.run``, on a ``LookupLoop``."""
    with asyncio.Runner(loop_factory=LookupLoop) as runner:
        return runner.run(main)


def _begin_in_child() -> None:
    global _lookups
    _lookups = _Lookups()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=lambda: _lookups.before_fork(),
        after_in_parent=lambda: _lookups.after_in_parent(),
        after_in_child=_begin_in_child,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherLimits:
    """Bounds of one publisher."""

    queue_bytes_max: int = 64 * 1_024 * 1_024
    """Memory for unsent observations: over an hour of 1 KB calls at 13 per second."""

    queue_records_max: int = 100_000
    """The same in records, because a small record costs more than its bytes."""

    record_bytes_max: int = DEFAULT_LIMITS.record_bytes_max
    """Workers accept no larger records."""

    batch_records_max: int = 500
    """Records sent before their acknowledgements are awaited."""

    start_timeout_s: float = 30.0
    """Per attempt to connect."""

    send_timeout_s: float = 120.0
    """Per batch. Longer than aiokafka's own 40 s, so that it can retry first."""

    backoff_min_s: float = 0.2
    """Pause after the first failure; doubles with every further one."""

    backoff_max_s: float = 10.0
    """Longest pause, so that a returning broker is noticed soon."""

    losses_max: int = 1_000
    """Servers whose dropped observations are counted until the counts can be published."""

    attempts_max: int = 5
    """Attempts at a record that Kafka rejects with a non-retriable error."""


def note_open(one: ObservationPublisher) -> None:
    """Close this publisher at process exit unless it was closed before. Keeps no strong reference."""
    _open.add(one)


def note_closed(one: ObservationPublisher) -> None:
    _open.discard(one)


def close_all(limit_ms: int = EXIT_FLUSH_MS) -> None:
    """Close all open publishers within one limit in milliseconds."""
    deadline_s = time.monotonic() + limit_ms / 1_000
    for one in list(_open):
        one.close(timeout_ms=max(0, int((deadline_s - time.monotonic()) * 1_000)))


def _restart_all() -> None:
    for one in list(_open):
        one.restart_in_child()


def _at_exit(function: Callable[[], None]) -> None:
    """Run a function before the interpreter shuts down its thread pools.

    ``atexit`` is too late: asyncio resolves names in a thread pool, so by then connecting is impossible. CPython
    closes those pools with the hook used here, last in first out, so ours must be registered after theirs:
    hence the import of ``concurrent.futures.thread``.
    """
    assert concurrent.futures.thread  # noqa: S101 -- imported for the order of the hooks
    register = getattr(threading, "_register_atexit", atexit.register)
    register(function)


_at_exit(close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_restart_all)


_LOSS, _LOSS_WITHIN = LOSS_TYPE.encode(), 128

_log = logging.getLogger(__name__)
_STUCK_S = 1.0
"""A batch that waits longer than this is spooled: a kill would lose it."""


class Losses:
    """Counts of dropped observations. Not thread-safe; callers hold the publisher's lock.

    Args:
        servers_max: (server, observer) pairs that are counted; further losses are only logged.
    """

    def __init__(self, servers_max: int) -> None:
        self._servers_max = servers_max
        self._counts: dict[tuple[bytes, bytes], Counter[ObservationKind]] = {}

    def __bool__(self) -> bool:
        return bool(self._counts)

    def note(self, observation: Observation) -> None:
        """Count a dropped observation; a dropped loss count is only logged."""
        if _LOSS in observation.value[:_LOSS_WITHIN]:
            return
        whose = (observation.key, dict(observation.headers).get(OBSERVER_HEADER, b""))
        if whose in self._counts or len(self._counts) < self._servers_max:
            self._counts.setdefault(whose, Counter())[observation.kind] += 1

    def take(self, new_id: Callable[[], str], at: datetime) -> list[Observation]:
        counted, self._counts = self._counts, {}
        events = []
        for (server, observer), counts in counted.items():
            # Without a name that a record may carry there is nobody to say it of.
            with contextlib.suppress(ConfigurationError, UnicodeDecodeError):
                vantage = Vantage(server_id=server.decode(), observer_id=observer.decode())
                lists, calls = counts["list"], counts["call"]
                events.append(loss_event(vantage, event_id=new_id(), observed_at=at, lists=lists, calls=calls))
        return events


class DeliveryQueue:
    """Queue of one publisher. Only the delivery thread may call the methods that remove from it.

    Args:
        lock: guards the shared state. Callers of ``add``, ``stats``, ``drop_rest`` and ``is_anything_left``
            hold it; the other methods take it.
        spool: holds on disk what cannot be delivered yet; closed with the queue.
    """

    def __init__(self, limits: PublisherLimits, lock: threading.Lock, spool: Spool | None) -> None:
        self._limits = limits
        self._lock = lock
        self._spool = spool
        self._queue: deque[Observation] = deque()
        self._queue_bytes = 0
        self.batch: list[Observation] = []
        """In delivery: the front of the queue."""
        self.on_disk = 0
        """How many of the batch are on disk."""
        self._taken_s = 0.0
        self._is_disk_refused = False
        self.spooled = self._spooled_bytes = 0
        self._losses = Losses(limits.losses_max)
        self._accepted = self._delivered = 0
        self.dropped: Counter[DropReason] = Counter()
        self._note_spool()

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def has_spool(self) -> bool:
        return self._spool is not None

    def stats(self, *, retries: int, connected: bool) -> SinkStats:
        return SinkStats(
            accepted=self._accepted,
            delivered=self._delivered,
            queued=len(self._queue),
            queued_bytes=self._queue_bytes,
            spooled=self.spooled,
            spooled_bytes=self._spooled_bytes,
            dropped=dict(self.dropped),
            retries=retries,
            connected=connected,
        )

    def add(self, observation: Observation) -> DropReason | None:
        """Queue an observation, or count it as dropped and return why."""
        reason = self._refusal(observation)
        if reason is None:
            self._accepted += 1
            self._queue.append(observation)
            self._queue_bytes += observation.size_bytes
        else:
            self.dropped[reason] += 1
            self._losses.note(observation)
        return reason

    def is_anything_left(self, *, connected: bool) -> bool:
        """Return True if anything waits; loss counts matter only while connected."""
        return bool(self._queue or self.spooled or (self._losses and connected))

    def take(self) -> bool:
        """Form a batch of the oldest observations; return True if there are any."""
        if self._losses:
            self._queue_losses()
        found: list[Observation] = []
        if self._spool is not None and self._spool.records:
            try:
                found = self._spool.head(self._limits.batch_records_max)
            except OSError as error:
                self._give_spool_up(error)
            self._note_spool()
        with self._lock:
            self.on_disk = len(found)
            if not self.spooled:
                found = list(itertools.islice(self._queue, self._limits.batch_records_max))
            self.batch = found
            self._taken_s = time.monotonic()
        return bool(self.batch)

    def settle(self, kept: list[Observation], lost: list[Observation], settled: Counter[str]) -> None:
        """Record the outcome of the batch.

        Args:
            kept: to be retried; of a batch on disk, its tail.
            lost: dropped.
            settled: counts of delivered, and of dropped by reason.
        """
        done = len(self.batch) - len(kept)
        on_disk = min(done, self.on_disk)
        if on_disk and self._spool is not None:
            try:
                self._spool.drop(on_disk)
            except OSError as error:
                self._give_spool_up(error)
            self._note_spool()
        with self._lock:
            if not self.batch:
                return  # given up meanwhile
            if not self.on_disk:
                self._pop(len(self.batch))
                self._queue.extendleft(reversed(kept))
                self._queue_bytes += sum(each.size_bytes for each in kept)
            else:
                self._pop(done - on_disk)
            self.batch, self.on_disk = [], 0
            self._delivered += settled["delivered"]
            self.dropped["too_large"] += settled["too_large"]
            self.dropped["delivery_failed"] += settled["delivery_failed"]
            self.dropped += Counter()
            for observation in lost:
                self._losses.note(observation)

    def to_spool(self) -> None:
        """Spool everything held only in memory, as far as there is room."""
        spool = self._spool
        if spool is None:
            return
        try:
            while True:
                with self._lock:
                    chunk = list(itertools.islice(self._queue, self._limits.batch_records_max))
                count = spool.append(chunk) if chunk else 0
                with self._lock:
                    self._pop(count)
                    # It is still under way; once it is delivered, it is dropped from the spool.
                    self.on_disk += min(count, len(self.batch) - self.on_disk)
                if not count or count < len(chunk):
                    break
        except OSError as error:
            if not self._is_disk_refused:
                _log.error("the spool takes no more: %s", error.strerror)
            self._is_disk_refused = True
        self._note_spool()

    def is_pressing(self) -> bool:
        """Return True if a batch is stuck, or the queue is more than half full."""
        with self._lock:
            is_stuck = bool(self.batch) and time.monotonic() - self._taken_s > _STUCK_S
            is_full = self._queue_bytes * 2 > self._limits.queue_bytes_max
            return is_stuck or is_full or len(self._queue) * 2 > self._limits.queue_records_max

    def close_spool(self) -> None:
        if self._spool is None:
            return
        if self._losses:
            self._queue_losses()
        self.to_spool()
        if self._spool is not None:
            self._spool.close()
            self._spool = None

    def abandon_spool(self) -> None:
        if self._spool is not None:
            self._spool.abandon()
            self._spool = None

    def drop_rest(self) -> int:
        left = len(self._queue)
        self.batch, self.on_disk = [], 0
        self.dropped["delivery_failed"] += left
        self.dropped += Counter()  # no entries of zero
        self._pop(left)
        return left

    def _pop(self, count: int) -> None:
        for _ in range(count):
            self._queue_bytes -= self._queue.popleft().size_bytes

    def _refusal(self, observation: Observation) -> DropReason | None:
        limits, size = self._limits, observation.size_bytes
        if size > limits.record_bytes_max:
            return "too_large"
        share = 0.75 if observation.kind == "call" else 1.0
        if (
            self._queue_bytes + size > limits.queue_bytes_max * share
            or len(self._queue) + 1 > limits.queue_records_max * share
        ):
            return "queue_full"
        return None

    def _queue_losses(self) -> None:
        with self._lock:
            events = self._losses.take(lambda: str(uuid.uuid4()), datetime.now(UTC))
            self._accepted += len(events)
            self._queue += events
            self._queue_bytes += sum(event.size_bytes for event in events)

    def _note_spool(self) -> None:
        spool = self._spool
        with self._lock:
            self.spooled, self._spooled_bytes = (0, 0) if spool is None else (spool.records, spool.size_bytes)
            if spool is not None and spool.lost:
                self.dropped["spool_damaged"] = spool.lost

    def _give_spool_up(self, error: OSError) -> None:
        """Continue without a failing disk; its contents are delivered by the next process that can read it."""
        _log.error("the spool cannot be used any more: %s", error.strerror)
        self._spool = None
