"""The publisher for proxies: never blocks and never breaks the reported call.

``publish`` puts an observation into a bounded queue and returns at once; a thread delivers the queue to Kafka and
retries for as long as the brokers are away. What does not fit is dropped, counted by server and by reason, and the
counts are queued once the brokers are there.

1. Delivery is at least once: after a failure a record may be sent again. Its event keeps its id, so that the evidence
   of both is recognisably the same.
2. A batch stays at the front of the queue, on disk or in memory, until its fate is known.
3. With a spool (``observe.spool``), what is in memory goes to disk while the brokers are away or slow, and what is
   left when the publisher is closed.
4. The last quarter of the memory is reserved for snapshots: there are many calls, and without a snapshot every call
   after it is bound wrongly or not at all, so calls alone cannot fill it.
5. Each connection has an event loop of its own in that thread. aiokafka cannot abandon what it fails to deliver; when
   a connection is abandoned, its loop goes, and with it everything that would keep trying.
6. An exiting interpreter does not wait for daemon threads, so every open publisher is closed first, all of them within
   one time limit. A forked child starts with an empty queue: its parent delivers what was queued.
7. Names are looked up in threads that neither an exit nor a forked child waits for. The C library's locks are copied
   as they stand at a fork, so a lookup that another thread is in the middle of leaves them held for good in the child.
   A fork waits for such a lookup, within a limit. Lookups run one at a time.
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
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, Self, TypeVar

from assay_stream.canonical.digest import DigestKey
from assay_stream.errors import ConfigurationError
from assay_stream.kafka.publishing import KafkaProducer, disconnect, is_too_large, kafka_producer, send_all
from assay_stream.kafka.refusals import why_away
from assay_stream.limits import DEFAULT_LIMITS, SPOOL_LIMITS
from assay_stream.model.record import LOSS_TYPE, OBSERVER_HEADER, TOPIC_NAMES, Role
from assay_stream.observe.observation import Observation, ObservationKind, Vantage, loss_event, with_keyed_digests
from assay_stream.observe.sinks import DropReason, SinkStats
from assay_stream.observe.spool import Spool
from assay_stream.text.escaping import counted

Answer = TypeVar("Answer")
Fate = DropReason | Literal["delivered"]

_LOSS, _LOSS_WITHIN = LOSS_TYPE.encode(), 128
_STUCK_S = 1.0
"""A batch that waits longer than this is spooled: a kill would lose it."""

_FORK_WAIT_S = 1.0
"""How long a fork waits for lookups: several times what a responsive name server needs."""

_EXIT_FLUSH_MS = 5_000
"""Milliseconds that all publishers of an exiting process share: a reachable broker needs a fraction of it,
and a terminating program should not appear to hang.
"""

_GIVE_UP_S = 3.0
"""Limit for dropping a connection, beyond the time given for closing."""

_log = logging.getLogger(__name__)
_open: weakref.WeakSet[ObservationPublisher] = weakref.WeakSet()


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherLimits:
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


class DeliveryQueue:
    """Queue of one publisher. Only the delivery thread may call the methods that remove from it.

    Callers of ``add``, ``stats``, ``drop_rest`` and ``is_anything_left`` hold the lock; the other methods take it.

    Args:
        spool: holds on disk what cannot be delivered yet; closed with the queue.
    """

    def __init__(self, limits: PublisherLimits, spool: Spool | None) -> None:
        self.lock = threading.Lock()
        self.spool = spool
        """``None`` also once the disk has failed."""
        self.batch: list[Observation] = []
        """In delivery: the front of the queue."""
        self.on_disk = 0
        """How many of the batch are on disk."""
        self.dropped: Counter[str] = Counter()
        self._limits = limits
        self._queue: deque[Observation] = deque()
        self._queue_bytes = 0
        self._taken_s = 0.0
        self._is_disk_refused = False
        self._losses: dict[tuple[bytes, bytes], Counter[ObservationKind]] = {}
        """What was dropped, by server and observer, until it can be published."""
        self._accepted = self._delivered = 0

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def spooled(self) -> int:
        return 0 if self.spool is None else self.spool.records

    def stats(self, *, retries: int, connected: bool) -> SinkStats:
        damaged = Counter(spool_damaged=0 if self.spool is None else self.spool.lost)
        return SinkStats(
            accepted=self._accepted,
            delivered=self._delivered,
            queued=len(self._queue),
            queued_bytes=self._queue_bytes,
            spooled=self.spooled,
            spooled_bytes=0 if self.spool is None else self.spool.size_bytes,
            dropped=dict(self.dropped + damaged),  # type: ignore[arg-type]  # the reasons, without those of zero
            retries=retries,
            connected=connected,
        )

    def add(self, observation: Observation) -> DropReason | None:
        """Queue an observation, or count it as dropped and return why."""
        limits, size_bytes = self._limits, observation.size_bytes
        share = 0.75 if observation.kind == "call" else 1.0
        if size_bytes > limits.record_bytes_max:
            return self._drop(observation, "too_large")
        if (
            self._queue_bytes + size_bytes > limits.queue_bytes_max * share
            or len(self._queue) + 1 > limits.queue_records_max * share
        ):
            return self._drop(observation, "queue_full")
        self._append([observation])
        return None

    def is_anything_left(self, *, connected: bool) -> bool:
        """Return True if anything waits; loss counts matter only while connected."""
        return bool(self._queue or self.spooled or (self._losses and connected))

    def take(self, records_max: int) -> bool:
        """Form a batch of the oldest observations; return True if there are any."""
        self._queue_losses()
        found: list[Observation] = []
        if self.spool is not None and self.spooled:
            with self._giving_spool_up():
                found = self.spool.head(records_max)
        with self.lock:
            self.on_disk = len(found)
            if not self.spooled:
                found = self._front(records_max)
            self.batch = found
            self._taken_s = time.monotonic()
        return bool(found)

    def settle(self, fates: Sequence[Fate | None]) -> None:
        """Record what became of each of the batch: ``None`` is to be retried, which on disk only the last may be."""
        with self.lock:
            batch = self.batch
        kept = [each for each, fate in zip(batch, fates, strict=False) if fate is None]
        done = len(batch) - len(kept)
        on_disk = min(done, self.on_disk)
        if on_disk and self.spool is not None:
            with self._giving_spool_up():
                self.spool.drop(on_disk)
        with self.lock:
            if not self.batch:
                return  # closed meanwhile
            if not self.on_disk:
                self._pop(len(batch))
                self._queue.extendleft(reversed(kept))
                self._queue_bytes += sum(each.size_bytes for each in kept)
            else:
                self._pop(done - on_disk)
            self.batch, self.on_disk = [], 0
            for observation, fate in zip(batch, fates, strict=True):
                if fate == "delivered":
                    self._delivered += 1
                elif fate is not None:
                    self._drop(observation, fate)

    def to_spool(self) -> None:
        """Spool everything held only in memory, as far as there is room."""
        try:
            while self.spool is not None:
                with self.lock:
                    chunk = self._front(self._limits.batch_records_max)
                count = self.spool.append(chunk) if chunk else 0
                with self.lock:
                    self._pop(count)
                    # It is still under way; once it is delivered, it is dropped from the spool.
                    self.on_disk += min(count, len(self.batch) - self.on_disk)
                if not count or count < len(chunk):
                    break
        except OSError as error:
            if not self._is_disk_refused:
                _log.error("the spool takes no more: %s", error.strerror)
            self._is_disk_refused = True

    def is_pressing(self) -> bool:
        """Return True if a batch is stuck, or the queue is more than half full."""
        with self.lock:
            is_stuck = bool(self.batch) and time.monotonic() - self._taken_s > _STUCK_S
            is_full = self._queue_bytes * 2 > self._limits.queue_bytes_max
            return is_stuck or is_full or len(self._queue) * 2 > self._limits.queue_records_max

    def close_spool(self) -> None:
        if self.spool is not None:
            self._queue_losses()
            self.to_spool()
            self.spool.close()

    def drop_rest(self) -> int:
        left = len(self._queue)
        self.batch, self.on_disk = [], 0
        self.dropped["delivery_failed"] += left
        self._pop(left)
        return left

    def _front(self, records_max: int) -> list[Observation]:
        return list(itertools.islice(self._queue, records_max))

    def _append(self, observations: list[Observation]) -> None:
        self._accepted += len(observations)
        self._queue += observations
        self._queue_bytes += sum(each.size_bytes for each in observations)

    def _pop(self, count: int) -> None:
        for _ in range(count):
            self._queue_bytes -= self._queue.popleft().size_bytes

    def _drop(self, observation: Observation, reason: DropReason) -> DropReason:
        self.dropped[reason] += 1
        whose = (observation.key, dict(observation.headers).get(OBSERVER_HEADER, b""))
        is_count = _LOSS in observation.value[:_LOSS_WITHIN]  # these would be counted for ever
        if not is_count and (whose in self._losses or len(self._losses) < self._limits.losses_max):
            self._losses.setdefault(whose, Counter())[observation.kind] += 1
        return reason

    def _queue_losses(self) -> None:
        with self.lock:
            losses, self._losses = self._losses, {}
            for (server, observer), counts in losses.items():
                # A name that no record may carry cannot be reported.
                with contextlib.suppress(ConfigurationError, UnicodeDecodeError):
                    vantage = Vantage(server_id=server.decode(), observer_id=observer.decode())
                    event_id, at, calls = str(uuid.uuid4()), datetime.now(UTC), counts["call"]
                    lost = loss_event(vantage, event_id=event_id, observed_at=at, lists=counts["list"], calls=calls)
                    self._append([lost])

    @contextlib.contextmanager
    def _giving_spool_up(self) -> Iterator[None]:
        """Go on without a disk that fails; its contents are delivered by the next process that can read it."""
        try:
            yield
        except OSError as error:
            left = counted(self.spooled, "observation")
            _log.error("the spool cannot be used any more and keeps %s: %s", left, error.strerror)
            if self.spool is not None:
                self.dropped["spool_damaged"] = self.spool.lost
                self.spool.close()  # lets another process have it
            self.spool = None


_lookups = threading.RLock()
"""Held during a lookup, so that no fork happens in the middle of one. Only the thread that holds it can release it."""


class _LookupLoop(asyncio.SelectorEventLoop):
    """Event loop with a daemon thread per lookup: asyncio's own lookup threads delay exit indefinitely."""

    async def getaddrinfo(self, host: Any, port: Any, **how: Any) -> Any:
        found = concurrent.futures.Future[Any]()
        found.set_running_or_notify_cancel()  # nobody can cancel a lookup

        def look_up() -> None:
            try:
                with _lookups:
                    found.set_result(socket.getaddrinfo(host, port, **how))
            except Exception as error:  # noqa: BLE001 -- raised where it is awaited
                found.set_exception(error)

        threading.Thread(target=look_up, name="assay-stream lookup", daemon=True).start()
        return await asyncio.wrap_future(found, loop=self)


def _run_with_lookups(main: Coroutine[Any, Any, Answer]) -> Answer:
    with asyncio.Runner(loop_factory=_LookupLoop) as runner:
        return runner.run(main)


@dataclass(eq=False, repr=False)
class ObservationPublisher:
    """Deliver observations to Kafka. Thread-safe.

    Args:
        connection: aiokafka's connection arguments: ``bootstrap_servers`` and security settings.
        producer_factory: makes each producer, in place of aiokafka's with that connection.
        spool: holds on disk what cannot be delivered yet; closed by the publisher.
        call_spread: number of partitions for the calls of one server.
        digest_key: keys the digests of arguments and results.
    """

    connection: Mapping[str, Any]
    _: KW_ONLY
    topics: Mapping[Role, str] = field(default_factory=lambda: TOPIC_NAMES)
    limits: PublisherLimits = field(default_factory=PublisherLimits)
    producer_factory: Callable[[], KafkaProducer] | None = None
    spool: Spool | None = None
    call_spread: int = 1
    digest_key: DigestKey | None = None

    def __post_init__(self) -> None:
        self._begin_empty(self.spool)
        _open.add(self)  # closed at exit

    def _begin_empty(self, spool: Spool | None) -> None:
        self._thread: threading.Thread | None = None
        self._attempts = 0  # at the record at the head of the queue
        self._pause_s = self.limits.backoff_min_s
        self._is_away = False  # as far as the log says
        # Shared by both threads, under the lock.
        self._queue = DeliveryQueue(self.limits, spool)
        self._lock = self._queue.lock
        self._retries = 0
        self._wake: Callable[[], object] | None = None
        self._cancel: Callable[[], object] | None = None
        self._connected = False
        self._closing = threading.Event()
        self._given_up = threading.Event()

    @property
    def stats(self) -> SinkStats:
        with self._lock:
            return self._queue.stats(retries=self._retries, connected=self._connected)

    def start(self) -> None:
        """Start delivery in the background; does not wait for a broker."""
        with self._lock:
            if self._thread is None and not self._closing.is_set():
                self._thread = threading.Thread(target=self._run, name="assay-stream publisher", daemon=True)
                self._thread.start()

    def restart_in_child(self) -> None:
        """Start empty in a forked child, and deliver there if this publisher was started in the parent."""
        started, closed = self._thread is not None, self._closing.is_set()
        if self._queue.spool is not None:
            self._queue.spool.abandon()
        self._begin_empty(None)
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
        """Queue an observation and return True if there was room. Never blocks, never raises."""
        if self.digest_key is not None:
            observation = with_keyed_digests(observation, self.digest_key)
        with self._lock:
            reason: DropReason | None = "closed"
            if self._closing.is_set():
                self._queue.dropped["closed"] += 1
            else:
                reason = self._queue.add(observation)
                self._rouse()
            first = reason is not None and self._queue.dropped[reason] == 1
        if first:
            _log.warning("dropped an observation (%s); further ones are only counted", reason)
        return reason is None

    def close(self, timeout_ms: int = 10_000) -> None:
        """Deliver what is queued, as far as time allows, and disconnect, in up to 3 s more. The rest is dropped."""
        self._closing.set()
        with self._lock:
            self._rouse()
            is_worth_it = self._connected or self._queue.spool is None
            wait_s = timeout_ms / 1_000 if is_worth_it and self._is_anything_left() else 0.0
            thread = self._thread
        if thread is not None:
            thread.join(wait_s)
            self._given_up.set()
            with self._lock:
                self._call(self._cancel)
            thread.join(_GIVE_UP_S)
        _open.discard(self)
        if thread is None or not thread.is_alive():
            self._queue.close_spool()
        with self._lock:
            self._thread = None
            left = self._queue.drop_rest()
        if self._queue.spooled:
            _log.warning("%s stay in the spool until the next start", counted(self._queue.spooled, "observation"))
        if left:
            _log.warning("%s could not be delivered before closing", counted(left, "observation"))

    async def aclose(self, timeout_s: float = 10.0) -> None:
        """Close without blocking the event loop; ``timeout_s`` limits delivery."""
        await asyncio.to_thread(self.close, round(timeout_s * 1_000))

    def _is_anything_left(self) -> bool:
        return self._queue.is_anything_left(connected=self._connected)

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
                _run_with_lookups(self._connection())
            except asyncio.CancelledError:
                return
            except Exception as error:  # noqa: BLE001 - whatever fails must not end the delivery
                self._queue.to_spool()
                self._note_failure(error)
                with self._lock:
                    self._retries += 1
                self._wait_away()

    def _note_failure(self, error: Exception) -> None:
        """Log once that the brokers are unreachable and what to fix, but not for the last attempt."""
        if self._is_away:
            return
        self._is_away, connection = True, self.connection if self.producer_factory is None else None
        why = ""
        if not self._given_up.is_set():
            why = _run_with_lookups(why_away(error, connection))
        servers = (connection or {}).get("bootstrap_servers")
        where = "" if not servers else f" at {servers if isinstance(servers, str) else ','.join(servers)}"
        _log.warning("cannot deliver observations to Kafka%s, still trying: %s", where, why)

    def _wait_away(self) -> None:
        """Wait before the next attempt, spooling what is published meanwhile."""
        until_s = time.monotonic() + self._pause_s
        self._pause_s = min(self._pause_s * 2, self.limits.backoff_max_s)
        while (left_s := until_s - time.monotonic()) > 0:
            if self._given_up.wait(min(left_s, SPOOL_LIMITS.interval_s) if self._queue.spool is not None else left_s):
                return
            self._queue.to_spool()

    async def _connection(self) -> None:
        loop, task, work = asyncio.get_running_loop(), asyncio.current_task(), asyncio.Event()
        with self._lock:
            self._cancel = None if task is None else lambda: loop.call_soon_threadsafe(task.cancel)
        if self._given_up.is_set():
            return
        keeping = loop.create_task(self._keep_room())
        producer: KafkaProducer = (
            kafka_producer(self.connection, record_bytes_max=self.limits.record_bytes_max)
            if self.producer_factory is None
            else self.producer_factory()
        )
        try:
            async with asyncio.timeout(self.limits.start_timeout_s):
                await producer.start()
            with self._lock:
                self._connected = True
            if self._is_away:
                _log.warning("connected to Kafka again; %d observations are queued", len(self._queue))
            self._is_away = False
            while True:
                with self._lock:
                    is_idle = not self._is_anything_left()
                    if is_idle:
                        if self._closing.is_set():
                            return
                        self._wake = lambda: loop.call_soon_threadsafe(work.set)
                # Kafka refuses a record together with those sent beside it: one by one, the others are delivered.
                if self._queue.take(1 if self._attempts else self.limits.batch_records_max):
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

    async def _deliver(self, producer: KafkaProducer) -> None:
        """Deliver a batch, and raise the first retriable failure."""
        async with asyncio.timeout(self.limits.send_timeout_s):
            outcomes = await send_all(producer, self.topics, self._queue.batch, call_spread=self.call_spread)
        fates: list[Fate | None] = []
        failure: BaseException | None = None
        for outcome in outcomes:
            if failure is not None and self._queue.on_disk:
                fates.append(None)  # the spool gives up its records in order only
            elif outcome is None:
                fates.append("delivered")
            elif is_too_large(outcome):
                fates.append("too_large")
            elif failure is None and self._is_hopeless(outcome):
                fates.append("delivery_failed")
                _log.error("Kafka permanently refuses an observation: %s", type(outcome).__name__)
            else:
                failure = failure or outcome
                fates.append(None)
        self._queue.settle(fates)
        if any(fates):
            self._pause_s = self.limits.backoff_min_s
        if failure is not None:
            raise failure
        self._attempts = 0

    async def _keep_room(self) -> None:
        """Spool the queue while nothing is delivered, or records arrive faster than they are delivered."""
        while self._queue.spool is not None:
            await asyncio.sleep(SPOOL_LIMITS.interval_s)
            if not self._connected or self._queue.is_pressing():
                self._queue.to_spool()

    def _is_hopeless(self, error: BaseException) -> bool:
        """Return True to drop a record: only after attempts whose cause an operator could have fixed."""
        if getattr(error, "retriable", False) or isinstance(error, OSError | TimeoutError):
            return False
        if any(cause in type(error).__name__ for cause in ("Authorization", "Authentication", "Timeout")):
            return False
        self._attempts += 1
        if self._attempts < self.limits.attempts_max:
            return False
        self._attempts = 0
        return True


def _close_all() -> None:
    deadline_s = time.monotonic() + _EXIT_FLUSH_MS / 1_000
    for one in list(_open):
        one.close(timeout_ms=max(0, int((deadline_s - time.monotonic()) * 1_000)))


def _let_lookups_go() -> None:
    with contextlib.suppress(RuntimeError):  # one took longer than a fork waits
        _lookups.release()


def _begin_in_child() -> None:
    global _lookups
    _lookups = threading.RLock()
    for one in list(_open):
        one.restart_in_child()


# ``atexit`` is too late: asyncio resolves names in a thread pool, so by then connecting is impossible. CPython closes
# those pools with the hook used here, last in first out, so ours must be registered after theirs: hence the import.
assert concurrent.futures.thread  # noqa: S101
getattr(threading, "_register_atexit", atexit.register)(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=lambda: _lookups.acquire(timeout=_FORK_WAIT_S),
        after_in_parent=_let_lookups_go,
        after_in_child=_begin_in_child,
    )
