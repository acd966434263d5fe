"""A Kafka cluster in memory: the part of aiokafka's interface that stages use, for tests that need no broker.

It keeps what exactly-once rests on:

1. A transaction's records are read by nobody before its commit, and never after its abort. Commit and abort take an
   offset of their own, as Kafka's markers do, and nothing is read past a transaction that is open.
2. Offsets sent to a transaction are committed with it or not at all.
3. Starting a producer raises the epoch of its transactional id and aborts what the previous one left open. From then
   on every request of the previous one raises ``ProducerFenced``.
4. A group's partitions are assigned by range; a member that loses any revokes them first.
5. Offsets of a past generation are refused, and nobody reads those that an open transaction has.

Pass a ``MemoryCluster`` where ``clients`` are asked for. It is not thread-safe: use it in one event loop.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple, Protocol

from aiokafka.errors import IllegalStateError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from aiokafka.structs import OffsetAndTimestamp

from assay_stream.kafka.aiokafka_private import GroupMember
from assay_stream.kafka.connection import (
    ConsumerRebalanceListener,
    FetchedRecord,
    KafkaError,
    ProducerFenced,
    TopicPartition,
)

Headers = Sequence[tuple[str, bytes]]


class _Transaction:
    def __init__(self) -> None:
        self.written: set[TopicPartition] = set()
        self.offsets: dict[str, dict[TopicPartition, tuple[int, str]]] = defaultdict(dict)
        self.is_open = True
        self.is_aborted = False


class _Entry(NamedTuple):
    message: FetchedRecord | None  # ``None`` for a marker
    transaction: _Transaction | None


class MemoryCluster:
    """Topics, consumer groups and transactional ids.

    Attributes:
        before: called with the name of each request of a producer before it takes effect: ``start``, ``begin``,
            ``send``, ``offsets``, ``commit`` or ``abort``. Let it raise to make the request fail.
        failing: transactional ids whose transactions cannot be begun.
        epochs: how often each transactional id was taken.
        deleted: topics that members no longer know, once their group is balanced again.
    """

    def __init__(self, partitions: Mapping[str, int]) -> None:
        self._logs: dict[TopicPartition, list[_Entry]] = {
            TopicPartition(topic, number): [] for topic, count in partitions.items() for number in range(count)
        }
        self._beginnings: dict[TopicPartition, int] = dict.fromkeys(self._logs, 0)
        self._groups: dict[str, _Group] = {}
        self.epochs: dict[str, int] = defaultdict(int)
        self._open: dict[str, _Transaction] = {}
        self._appended = asyncio.Event()
        self.before: Callable[[str], None] = lambda _: None
        self.failing: set[str] = set()
        self.deleted: set[str] = set()

    def consumer(self, *, group_id: str | None = None, isolation_level: str = "read_committed", **_: Any) -> Any:
        """Return a consumer of committed records, not started; the isolation says which ends it is told."""
        group = None if group_id is None else self._groups.setdefault(group_id, _Group(self))
        return MemoryConsumer(self, group, sees_open=isolation_level == "read_uncommitted")

    def producer(self, transactional_id: str) -> Any:
        return MemoryProducer(self, transactional_id)

    def append(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        *,
        headers: Headers = (),
        timestamp_ms: int = 0,
    ) -> int:
        """Append a record outside any transaction, and return its offset."""
        return self._append(TopicPartition(topic, partition), key, value, tuple(headers), timestamp_ms, None)

    def read(self, topic: str) -> list[FetchedRecord]:
        """Return the committed records of a topic, partition by partition."""
        return [
            message for tp in self._logs if tp.topic == topic for message in self._committed(tp, self._beginnings[tp])
        ]

    def committed(self, group_id: str) -> dict[TopicPartition, tuple[int, str]]:
        """Return the offsets that a group has committed, and their metadata."""
        return dict(self._groups[group_id].offsets) if group_id in self._groups else {}

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        self._beginnings[TopicPartition(topic, partition)] = offset

    def recreate(self, topic: str) -> None:
        """Delete a topic and create it again: its logs are empty, and groups keep their offsets."""
        for tp in self._logs:
            if tp.topic == topic:
                self._logs[tp], self._beginnings[tp] = [], 0
        self._wake()

    @property
    def has_open_transactions(self) -> bool:
        return bool(self._open)

    def forget_offsets(self, group_id: str) -> None:
        self._groups[group_id].offsets.clear()

    def fail_at(self, at_request: int, error: BaseException) -> list[str]:
        """Raise an error at one request of a producer, by its number; return the names of those asked for."""
        asked: list[str] = []

        def before(request: str) -> None:
            asked.append(request)
            if len(asked) == at_request:
                raise error

        self.before = before
        return asked

    def members(self, group_id: str) -> list[MemoryConsumer]:
        """Return the members of a group, in the order in which they joined."""
        return list(self._groups[group_id].members)

    async def rebalance(self, group_id: str) -> None:
        """Share a group's partitions out again, though nobody has come or gone."""
        await self._groups[group_id].balance()

    def _append(
        self,
        tp: TopicPartition,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[tuple[str, bytes], ...],
        timestamp_ms: int,
        transaction: _Transaction | None,
    ) -> int:
        log = self._logs[tp]
        message = FetchedRecord(tp.topic, tp.partition, len(log), timestamp_ms, key, value, headers)
        log.append(_Entry(message, transaction))
        self._wake()
        return message.offset

    def _is_unstable(self, partitions: Sequence[TopicPartition]) -> bool:
        offsets = [sent for transaction in self._open.values() for sent in transaction.offsets.values()]
        return any(partition in each for each in offsets for partition in partitions)

    def _wake(self) -> None:
        appended, self._appended = self._appended, asyncio.Event()
        appended.set()

    def _last_stable(self, tp: TopicPartition) -> int:
        log = self._logs[tp]
        return next((at for at, entry in enumerate(log) if entry.transaction and entry.transaction.is_open), len(log))

    def _committed(self, tp: TopicPartition, start: int) -> Iterable[FetchedRecord]:
        for entry in self._logs[tp][start : self._last_stable(tp)]:
            is_aborted = entry.transaction is not None and entry.transaction.is_aborted
            if entry.message is not None and not is_aborted:
                yield entry.message

    def _end(self, transactional_id: str, *, is_aborted: bool) -> None:
        transaction = self._open.pop(transactional_id, None)
        if transaction is None:
            return
        transaction.is_open, transaction.is_aborted = False, is_aborted
        for tp in transaction.written:
            self._logs[tp].append(_Entry(None, None))
        if not is_aborted:
            for group_id, offsets in transaction.offsets.items():
                self._groups.setdefault(group_id, _Group(self)).offsets.update(offsets)
        self._wake()


class _Builder:
    def __init__(self) -> None:
        self.records: list[tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes], ...]]] = []

    def append(self, *, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers = ()) -> bool:
        self.records.append((timestamp, key, value, tuple(headers)))
        return True


class MemoryProducer:
    def __init__(self, cluster: MemoryCluster, transactional_id: str) -> None:
        self._cluster = cluster
        self._id = transactional_id
        self._epoch = 0

    async def take_over(self, *_: object) -> None:
        """Start: this cluster tells every partition how a transaction ended."""
        await self.start()

    async def start(self) -> None:
        """Fence the previous producer of the transactional id, and abort what it left open."""
        self._cluster.before("start")
        self._cluster.epochs[self._id] += 1
        self._epoch = self._cluster.epochs[self._id]
        self._cluster._end(self._id, is_aborted=True)

    def create_batch(self) -> _Builder:
        return _Builder()

    async def begin_transaction(self) -> None:
        self._request("begin")
        if self._id in self._cluster.failing:
            raise KafkaError("the broker is away")
        if self._id in self._cluster._open:
            raise IllegalStateError("a transaction is open")
        self._cluster._open[self._id] = _Transaction()

    async def send_batch(self, batch: _Builder, topic: str, *, partition: int) -> asyncio.Future[None]:
        transaction = self._transaction("send")
        tp = TopicPartition(topic, partition)
        transaction.written.add(tp)
        for timestamp_ms, key, value, headers in batch.records:
            self._cluster._append(tp, key, value, headers, timestamp_ms, transaction)
        delivered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        delivered.set_result(None)
        return delivered

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, tuple[int, str]], group_id: str
    ) -> None:
        self._transaction("offsets").offsets[group_id].update(offsets)

    async def commit_transaction(self) -> None:
        self._transaction("commit")
        self._cluster._end(self._id, is_aborted=False)

    async def abort_transaction(self) -> None:
        self._transaction("abort")
        self._cluster._end(self._id, is_aborted=True)

    async def stop(self) -> None:
        """Close the connection; an open transaction is the next producer's to abort."""

    def _request(self, name: str) -> None:
        self._cluster.before(name)
        if self._cluster.epochs[self._id] != self._epoch:
            raise ProducerFenced

    def _transaction(self, request: str) -> _Transaction:
        self._request(request)
        if self._id not in self._cluster._open:
            raise IllegalStateError("no transaction is open")
        return self._cluster._open[self._id]


class _Group:
    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster = cluster
        self.members: list[MemoryConsumer] = []
        self._balancing = asyncio.Lock()
        self.offsets: dict[TopicPartition, tuple[int, str]] = {}
        self.generation = 0

    async def join(self, consumer: MemoryConsumer) -> None:
        self.members.append(consumer)
        await self.balance()

    async def leave(self, consumer: MemoryConsumer) -> None:
        self.members = [member for member in self.members if member is not consumer]
        await self.balance()

    async def balance(self) -> None:
        async with self._balancing:
            for member in self.members:
                await member.revoke()
            self.generation += 1
            for index, member in enumerate(self.members):
                await member.assign_share(index, len(self.members))


class MemoryConsumer:
    def __init__(self, cluster: MemoryCluster, group: _Group | None, *, sees_open: bool = False) -> None:
        self._sees_open = sees_open
        self._cluster = cluster
        self._group = group
        self._topics: Sequence[str] = ()
        self._listener: ConsumerRebalanceListener | None = None
        self._assigned: set[TopicPartition] = set()
        self._positions: dict[TopicPartition, int] = {}
        self._generation = 0

    def member(self) -> GroupMember:
        """What the group knows this member by; of a past generation once it was expelled."""
        names = {id(group): name for name, group in self._cluster._groups.items()}
        return GroupMember(names.get(id(self._group), ""), self._generation, f"member-{id(self)}")

    def subscribe(self, topics: Sequence[str], listener: ConsumerRebalanceListener | None = None) -> None:
        self._topics, self._listener = topics, listener

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        self._assigned = set(partitions)
        self._positions = {}

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._assigned)

    async def start(self) -> None:
        if self._group is not None and self._topics:
            await self._group.join(self)

    async def stop(self) -> None:
        if self._group is not None and self._topics:
            await self._group.leave(self)

    async def fall_silent(self) -> None:
        """Leave the group as after a session that expired: it still believes that its partitions are its own."""
        if self._group is not None:
            await self._group.leave(self)

    async def wake(self) -> None:
        """Join again, as a member does that learns that the group has expelled it."""
        await self.revoke()
        await self.start()

    async def revoke(self) -> None:
        if self._listener is not None:
            await self._listener.on_partitions_revoked(self._assigned)
        self.assign(())

    async def assign_share(self, index: int, members: int) -> None:
        mine: set[TopicPartition] = set()
        for topic in self._topics:
            numbers = sorted(self.partitions_for_topic(topic))
            each, extra = divmod(len(numbers), members)
            first = index * each + min(index, extra)
            mine |= {TopicPartition(topic, number) for number in numbers[first : first + each + (index < extra)]}
        self.assign(mine)
        self._generation = 0 if self._group is None else self._group.generation
        if self._listener is not None:
            await self._listener.on_partitions_assigned(mine)

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[FetchedRecord]]:
        """Return committed records from the positions on, or nothing when the time is over."""
        wanted = partitions or tuple(tp for tp in self._assigned if tp in self._positions)
        fetched = self._fetch(wanted, max_records)
        if not fetched:
            # ``wait_for`` would lose a cancellation that comes in the moment of a record (gh-86296).
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_ms / 1_000):
                    await self._cluster._appended.wait()
            # A rebalance may have taken some of them meanwhile: a client gives nothing of these then.
            fetched = self._fetch([tp for tp in wanted if tp in self._positions], max_records)
        return fetched

    def _fetch(
        self, partitions: Iterable[TopicPartition], max_records: int | None
    ) -> dict[TopicPartition, list[FetchedRecord]]:
        left = 1 << 31 if max_records is None else max_records
        fetched: dict[TopicPartition, list[FetchedRecord]] = {}
        for tp in partitions:
            if self._position(tp) > len(self._cluster._logs[tp]):
                raise OffsetOutOfRangeError({tp: self._position(tp)})
            messages = list(self._cluster._committed(tp, self._position(tp)))
            taken = messages[:left]
            left -= len(taken)
            whole = len(taken) == len(messages)
            # Past markers and aborted records, too, once all before them is read.
            self._positions[tp] = (
                self._cluster._last_stable(tp) if whole else taken[-1].offset + 1 if taken else self._positions[tp]
            )
            if taken:
                fetched[tp] = taken
        return fetched

    def _position(self, tp: TopicPartition) -> int:
        if tp not in self._assigned or tp not in self._positions:
            raise IllegalStateError(f"{tp} is not assigned, or has no position")
        return self._positions[tp]

    async def position(self, tp: TopicPartition) -> int:
        return self._position(tp)

    def seek(self, tp: TopicPartition, offset: int) -> None:
        if tp not in self._assigned:
            raise IllegalStateError(f"{tp} is not assigned")
        self._positions[tp] = offset

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        for tp in partitions:
            self.seek(tp, self._cluster._beginnings[tp])

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self._cluster._beginnings[tp] for tp in partitions}

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        await self.find(partitions)
        if self._sees_open:
            return {tp: len(self._cluster._logs[tp]) for tp in partitions}
        return {tp: self._cluster._last_stable(tp) for tp in partitions}

    async def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        return {
            tp: next(
                (
                    OffsetAndTimestamp(message.offset, message.timestamp)
                    for message in self._cluster._committed(tp, self._cluster._beginnings[tp])
                    if message.timestamp >= time_ms
                ),
                None,
            )
            for tp, time_ms in times_ms.items()
        }

    def partitions_for_topic(self, topic: str) -> set[int]:
        known = self._cluster._logs.keys() if topic not in self._cluster.deleted else ()
        return {tp.partition for tp in known if tp.topic == topic}

    async def find(self, places: Iterable[TopicPartition]) -> None:
        for place in places:
            if not self.partitions_for_topic(place.topic):
                raise UnknownTopicOrPartitionError(place.topic)

    def last_stable_offset(self, tp: TopicPartition) -> int:
        return self._cluster._last_stable(tp)

    async def committed_with_metadata(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[int | None, str]]:
        """Return what the group has committed; as brokers do, nothing for partitions where it has not."""
        wanted = list(partitions)
        while self._cluster._is_unstable(wanted):
            await asyncio.sleep(0.001)
        offsets = {} if self._group is None else self._group.offsets
        return {tp: offsets[tp] for tp in wanted if tp in offsets}


class _Runs(Protocol):
    async def run(self) -> None: ...

    def stop(self) -> None: ...


@asynccontextmanager
async def running(made: _Runs) -> AsyncIterator[asyncio.Task[None]]:
    """Run what reads until it is stopped, and stop it at the end of the block."""
    task = asyncio.create_task(made.run())
    try:
        yield task
    finally:
        made.stop()
        await task


async def until(condition: Callable[[], bool], *, limit_s: float = 20.0) -> None:
    async with asyncio.timeout(limit_s):
        while not condition():
            await asyncio.sleep(0.002)
