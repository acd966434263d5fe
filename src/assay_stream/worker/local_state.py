"""Local state of a join worker: the binding topic as far as it was read, on a disk of the worker's own.

It names the offsets that it stands for. On any doubt about it the topic is read instead, from its beginning.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import structlog

from assay_stream.errors import OperatingError
from assay_stream.files.shelf import ShelfFile
from assay_stream.files.state_store import Stand, StateStore, Unusable, locked, remove, witness
from assay_stream.kafka.connection import Consumer, FetchedRecord, TopicPartition
from assay_stream.limits.files import STATE_AGE_MAX_MS, STATE_BATCH_FACTS, STATE_CACHE_KIB, STATE_COMMIT_S, STATE_MARK_S
from assay_stream.registry.state import Bindings
from assay_stream.registry.stored import StoredBindings
from assay_stream.worker.freshness import now_ms

_log = structlog.get_logger(__name__)

_WITNESS_WAIT_MS = 1_000
_PROGRESS_KEY = b'["progress",'


class LocalState:
    """The stores of the partitions of the binding topic, and what is known of the logs that they follow.

    Args:
        folder: where the files are; its subfolder ``join`` belongs to this process.
        cost_max: what servers in memory may cost, bytes of facts.
        origin: returns the cluster's id, and for how long the topic says that a key was deleted, milliseconds.
        failing: told whether the last attempt to write failed.
        clock_ms: the time, milliseconds since the epoch.

    Raises:
        ConfigurationError: ``state_dir_in_use``.
        OperatingError: ``state_dir_failed``.
    """

    def __init__(
        self,
        folder: Path,
        *,
        cost_max: int,
        origin: Callable[[], Awaitable[tuple[str, int]]],
        failing: Callable[[bool], None] = lambda _: None,
        clock_ms: Callable[[], int] = now_ms,
    ) -> None:
        self._open = ExitStack()
        self._shelf = ShelfFile(folder)
        self._folder = folder / "join"
        self._open.enter_context(locked(self._folder))
        self._cost_max = cost_max
        self._origin = origin
        self._failing = failing
        self._is_failing = False
        self._clock_ms = clock_ms
        self._stores: dict[TopicPartition, StateStore] = {}
        self._witnesses: dict[TopicPartition, dict[int, tuple[int, int]]] = {}
        self._marks: dict[TopicPartition, tuple[int, int]] = {}
        """When it was asked where a partition ends, milliseconds since the epoch, and where that was."""
        self._marked_ms = 0
        self._committed_ms = 0

    async def open(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Open the stores of partitions, and return the offsets from which on these are to be read.

        Args:
            consumer: started and assigned; its positions in these partitions are lost.
        """
        cluster, retention_ms = await self._origin()
        now = self._clock_ms()
        begins, ends = await consumer.beginning_offsets(partitions), await consumer.end_offsets(partitions)
        self._marks |= {tp: (now, end) for tp, end in ends.items()}
        for tp in partitions:
            identity = {"cluster": cluster, "topic": tp.topic, "partition": tp.partition}
            path = self._folder / f"bindings-{tp.partition}.sqlite"
            cache_kib = max(STATE_CACHE_KIB // len(partitions), 1_024)
            try:
                store = await asyncio.to_thread(StateStore, path, identity, cache_kib=cache_kib)
                why = await self._doubt(consumer, tp, store.stand, begins[tp], ends[tp], retention_ms)
                if why is not None:
                    store.close()
                    raise Unusable(why)
            except Unusable as unusable:
                _log.warning("state_snapshot_discarded", partition=tp.partition, reason=str(unusable))
                remove(path)
                store = StateStore(path, identity, cache_kib=cache_kib)
            self._stores[tp] = store
            self._witnesses[tp] = dict(enumerate(store.stand.witnesses))
        return {tp: self._stores[tp].stand.offset or begins[tp] for tp in partitions}

    async def _doubt(
        self, consumer: Consumer, tp: TopicPartition, stand: Stand, begin: int, end: int, retention_ms: int
    ) -> str | None:
        """Return why a log may not be the one that a store has followed, or not say all that came since."""
        if not stand.offset:
            return None
        if not begin <= stand.offset <= end:
            return "beyond_end" if stand.offset > end else "before_start"
        if not 0 <= self._clock_ms() - stand.at_ms <= min(STATE_AGE_MAX_MS, retention_ms // 2):
            return "too_old"
        for offset, content in stand.witnesses:
            if offset < begin:
                continue
            consumer.seek(tp, offset)
            fetched = await consumer.getmany(tp, timeout_ms=_WITNESS_WAIT_MS, max_records=1)
            for message in fetched.get(tp, []):
                if message.offset == offset:
                    is_same = witness(offset, message.key, message.value) == (offset, content)
                    return None if is_same else "other_log"
        return "unknown_log"

    def bindings(self, partitions: Sequence[TopicPartition], of: int) -> StoredBindings:
        """Return bindings over the stores of some partitions.

        Args:
            of: how many partitions the topic has: each may have its share of the memory.
        """
        stores = {tp.partition: self._stores[tp] for tp in partitions}
        return StoredBindings(stores, shelf=self._shelf, cost_max=self._cost_max * len(stores) // of)

    def drop(self, tp: TopicPartition, bindings: Bindings) -> None:
        """Close the store of a partition that is followed no more."""
        if isinstance(bindings, StoredBindings):
            bindings.release()
        store = self._stores.pop(tp, None)
        if store is not None:
            store.close()

    def applied(self, fetched: Mapping[TopicPartition, Sequence[FetchedRecord]]) -> None:
        """Note which records were applied last."""
        for tp, messages in fetched.items():
            # Progress is written again and again, and its older records soon go: a fact may stay for years.
            fact = next((each for each in reversed(messages) if not (each.key or b"").startswith(_PROGRESS_KEY)), None)
            for number, message in enumerate((messages[-1] if messages else None, fact)):
                if message is not None:
                    self._witnesses[tp][number] = witness(message.offset, message.key, message.value)

    async def note_ends(self, consumer: Consumer) -> None:
        """Ask where the topic ends, if that was long ago: who has read so far lacks nothing older."""
        now = self._clock_ms()
        if not 0 <= now - self._marked_ms < STATE_MARK_S * 1_000:
            self._marked_ms = now
            self._marks = {tp: (now, end) for tp, end in (await consumer.end_offsets(list(self._stores))).items()}

    @property
    def is_due(self) -> bool:
        """Whether it is time to write."""
        if not 0 <= self._clock_ms() - self._committed_ms < STATE_COMMIT_S * 1_000:
            return True
        return not self._is_failing and sum(store.pending for store in self._stores.values()) >= STATE_BATCH_FACTS

    def commit(self, positions: Mapping[TopicPartition, int]) -> None:
        """Write what was applied; where that fails it stays in memory, and is tried again.

        Args:
            positions: the offsets before which everything is applied.
        """
        self._committed_ms = self._clock_ms()
        failure: OperatingError | None = None
        for tp, store in self._stores.items():
            position, before = positions[tp], store.stand
            marked_ms, end = self._marks[tp]
            at_ms = marked_ms if position >= end else before.at_ms
            stand = Stand(position, at_ms, tuple(self._witnesses[tp].values()))
            if stand == before and not store.pending:
                continue
            try:
                store.commit(stand)
            except OperatingError as error:
                failure = error
        if (failure is not None) != self._is_failing:
            self._is_failing = failure is not None
            self._failing(self._is_failing)
            if failure is not None:
                _log.error("state_not_written", code=failure.code, why=str(failure))

    def close(self) -> None:
        """Close the files, and let other processes into the folder."""
        for store in self._stores.values():
            store.close()
        self._shelf.close()
        self._open.close()
