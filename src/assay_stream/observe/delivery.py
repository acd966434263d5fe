"""Where observations go, and those that await delivery: their order, their limits, and what is dropped.

1. A batch stays at the front, on disk or in memory, until its fate is known.
2. With a spool (``observe.spool``), what is in memory goes to disk while the brokers are away or slow, and what is
   left when the publisher is closed.
3. The last quarter of the memory is reserved for snapshots: there are many calls, and without a snapshot every call
   after it is bound wrongly or not at all, so calls alone cannot fill it.

What is dropped is counted by server, and the counts are queued once the brokers are there.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Literal, Protocol

from assay_stream.canonical.digest import DigestKey
from assay_stream.errors import ConfigurationError
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.record import LOSS_TYPE, OBSERVER_HEADER
from assay_stream.observe.observation import Observation, ObservationKind, Vantage, loss_event, with_keyed_digests
from assay_stream.observe.spool import Spool

DropReason = Literal["queue_full", "too_large", "delivery_failed", "closed", "spool_damaged"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkStats:
    """Counts since the sink was created.

    Args:
        delivered: observations with confirmed delivery.
        spooled: observations on disk, including those of earlier processes.
        connected: whether the destination is reachable, as far as known.
    """

    accepted: int = 0
    delivered: int = 0
    queued: int = 0
    queued_bytes: int = 0
    spooled: int = 0
    spooled_bytes: int = 0
    dropped: Mapping[DropReason, int] = field(default_factory=dict)
    retries: int = 0
    connected: bool = True


class Sink(Protocol):
    """Destination for the tap and the adapters."""

    @property
    def stats(self) -> SinkStats:
        pass

    def publish(self, observation: Observation) -> bool:
        """Accept an observation from any thread; return False if it was dropped. Never blocks, never raises."""

    async def aclose(self, timeout_s: float = 10.0) -> None:
        """Deliver accepted observations within ``timeout_s`` seconds, as far as possible, and release all resources."""


class FileSink:
    """Write events to a file, one JSON object per line, in the format of ``assay-stream replay``.

    Every line is flushed at once, so that nothing is lost with the process. Existing content is kept: a client that
    restarts its server restarts the tap, too.

    Args:
        target: a path to append to, or an open binary file, which stays open.
        digest_key: keys the digests of arguments and results.

    Raises:
        ConfigurationError: ``unwritable_file``.
    """

    def __init__(self, target: Path | BinaryIO, *, digest_key: DigestKey | None = None) -> None:
        self._digest_key = digest_key
        self._owned = isinstance(target, Path)
        try:
            self._file = _opened(target) if isinstance(target, Path) else target
        except OSError as error:
            raise ConfigurationError("unwritable_file", f"cannot write {target}: {error.strerror}") from None
        self._lock = threading.Lock()
        self._delivered = 0
        self._dropped: Counter[DropReason] = Counter()

    @property
    def stats(self) -> SinkStats:
        taken = self._delivered + self._dropped["delivery_failed"]
        return SinkStats(accepted=taken, delivered=self._delivered, dropped=dict(self._dropped))

    def publish(self, observation: Observation) -> bool:
        if self._digest_key is not None:
            observation = with_keyed_digests(observation, self._digest_key)
        # Only an unsound message kept as it came can contain a line feed: between tokens, where a space means the
        # same, or inside a string, where both are errors.
        line = observation.value.replace(b"\n", b" ") + b"\n"
        with self._lock:
            try:
                self._file.write(line)
                self._file.flush()
            except ValueError:
                self._dropped["closed"] += 1
                return False
            except OSError as error:
                if not self._dropped["delivery_failed"]:
                    _log.error("cannot write observations: %s", error.strerror)
                self._dropped["delivery_failed"] += 1
                return False
            self._delivered += 1
            return True

    async def aclose(self, timeout_s: float = 10.0) -> None:  # noqa: ARG002 - every line is already written
        if self._owned:
            # What closing would still write is a line that could not be written, and was counted.
            with suppress(OSError):
                self._file.close()


def _opened(path: Path) -> BinaryIO:
    """Open a file for appending; a last line cut off by a kill is terminated first."""
    cut = False
    if path.is_file() and path.stat().st_size:
        with path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            cut = file.read(1) != b"\n"
    target = path.open("ab")
    if cut:
        target.write(b"\n")
    return target


class MemorySink:
    def __init__(self) -> None:
        self.observations: list[Observation] = []

    @property
    def stats(self) -> SinkStats:
        return SinkStats(accepted=len(self.observations), delivered=len(self.observations))

    def publish(self, observation: Observation) -> bool:
        self.observations.append(observation)
        return True

    async def aclose(self, timeout_s: float = 10.0) -> None:
        pass


Fate = DropReason | Literal["delivered"]

_LOSS, _LOSS_WITHIN = LOSS_TYPE.encode(), 128
_STUCK_S = 1.0
"""A batch that waits longer than this is spooled: a kill would lose it."""


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
        reason: DropReason | None = None
        if size_bytes > limits.record_bytes_max:
            reason = "too_large"
        elif (
            self._queue_bytes + size_bytes > limits.queue_bytes_max * share
            or len(self._queue) + 1 > limits.queue_records_max * share
        ):
            reason = "queue_full"
        if reason is None:
            self._append([observation])
        else:
            self._drop(observation, reason)
        return reason

    def is_anything_left(self, *, connected: bool) -> bool:
        """Return True if anything waits; loss counts matter only while connected."""
        return bool(self._queue or self.spooled or (self._losses and connected))

    def take(self) -> bool:
        """Form a batch of the oldest observations; return True if there are any."""
        self._queue_losses()
        found: list[Observation] = []
        if self.spool is not None and self.spooled:
            with self._giving_spool_up():
                found = self.spool.head(self._limits.batch_records_max)
        with self.lock:
            self.on_disk = len(found)
            if not self.spooled:
                found = self._front()
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
                    chunk = self._front()
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

    def _front(self) -> list[Observation]:
        return list(itertools.islice(self._queue, self._limits.batch_records_max))

    def _append(self, observations: list[Observation]) -> None:
        self._accepted += len(observations)
        self._queue += observations
        self._queue_bytes += sum(each.size_bytes for each in observations)

    def _pop(self, count: int) -> None:
        for _ in range(count):
            self._queue_bytes -= self._queue.popleft().size_bytes

    def _drop(self, observation: Observation, reason: DropReason) -> None:
        self.dropped[reason] += 1
        if _LOSS in observation.value[:_LOSS_WITHIN]:
            return  # counts would be counted for ever
        whose = (observation.key, dict(observation.headers).get(OBSERVER_HEADER, b""))
        if whose in self._losses or len(self._losses) < self._limits.losses_max:
            self._losses.setdefault(whose, Counter())[observation.kind] += 1

    def _queue_losses(self) -> None:
        with self.lock:
            losses, self._losses = self._losses, {}
            for (server, observer), counts in losses.items():
                # A name that no record may carry cannot be reported.
                with suppress(ConfigurationError, UnicodeDecodeError):
                    vantage = Vantage(server_id=server.decode(), observer_id=observer.decode())
                    event_id, at, calls = str(uuid.uuid4()), datetime.now(UTC), counts["call"]
                    lost = loss_event(vantage, event_id=event_id, observed_at=at, lists=counts["list"], calls=calls)
                    self._append([lost])

    @contextmanager
    def _giving_spool_up(self) -> Iterator[None]:
        """Go on without a disk that fails; its contents are delivered by the next process that can read it."""
        try:
            yield
        except OSError as error:
            _log.error("the spool cannot be used any more: %s", error.strerror)
            if self.spool is not None:
                self.dropped["spool_damaged"] = self.spool.lost
                self.spool.close()  # lets another process have it
            self.spool = None
