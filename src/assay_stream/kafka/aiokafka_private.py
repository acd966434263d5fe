"""Everything that depends on private parts of aiokafka.

``tests/unit/kafka/test_aiokafka_private.py`` checks each of them. Nothing of aiokafka is patched: only our own classes
behave differently.

1. ``Consumer`` creates ``FetchedRecord`` instead of ``ConsumerRecord``, which takes five times as long.
2. It reads records with any header names. Brokers accept any bytes as a name, and aiokafka fails where they are
   no UTF-8. Then the rest of the answer is read once more, with ``?`` for each byte of such a name that is not ASCII.
   No name that means anything to us holds one.
3. It finds committed offsets with their metadata, once no open transaction is about to change them, and tells its
   membership of the group.
4. It does not trust a single broker that claims to be the leader, and learns of all topics it asks about at once. For
   one that does not exist aiokafka asks thousands of times a second.
5. ``ask_any_broker`` sends a request that aiokafka's admin client lacks, such as ``topic_rights``.
6. ``add_to_transaction`` makes a transaction write its marker to a partition that it has no record in.
7. ``Producer`` ends a transaction again where brokers forgot that it had ended.
8. Both can be stopped while brokers are away: aiokafka cancels its tasks then, and passes that on to whoever stops it.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from types import FunctionType
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient, ConnectionGroup, CoordinationType
from aiokafka.consumer import fetcher
from aiokafka.errors import (
    IncompatibleBrokerVersion,
    KafkaError,
    KafkaTimeoutError,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.types import (
    Array,
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    String,
    TaggedFields,
)
from aiokafka.record.default_records import _DefaultRecordBatchPy
from aiokafka.record.memory_records import _MemoryRecordsPy

from assay_stream.model.record import Headers, made_of

_log = logging.getLogger(__name__)  # proxies follow verdicts without structlog

_HELD = 88
"""An open transaction has an offset of the partition."""
_COORDINATOR_LOADS = 14
_COORDINATOR_MOVED = frozenset({15, 16})
_NO_SUCH_TRANSACTION = 105
_STABLE_LIMIT_S = 15.0
_STABLE_PAUSE_S = 0.02
_ASKED, _NAMED_BY = 3, 2
_ANSWER_LIMIT_S = 2.0
_WAS_ABORTED, _WAS_COMMITTED = "CompleteAbort", "CompleteCommit"
_LEADERS_LOOKS = 40
_LEADERS_PAUSE_S = 0.1
_MAGIC = 16
"""Offset of the format version in a batch."""
_STRING = CompactString("utf-8")
_TAGS = ("tags", TaggedFields)
_NO_TAGS: Mapping[int, bytes] = {}


class FetchedRecord(NamedTuple):
    """The fields used of aiokafka's ``ConsumerRecord``."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class GroupMember(NamedTuple):
    group_id: str
    generation: int = -1
    member_id: str = ""

    def follows(self, earlier: "GroupMember") -> bool:
        """Return True if no generation lies between the two, so that partitions in both had no other owner."""
        is_known = self.generation >= 0 and self.member_id == earlier.member_id
        return is_known and 0 <= self.generation - earlier.generation <= 1


# Reading records


class _Name(bytearray):
    def decode(self, *_: str) -> str:
        try:
            return super().decode()
        except UnicodeDecodeError:
            return super().decode("ascii", "replace").replace("\ufffd", "?")


class _Buffer(bytearray):
    """The buffer from which header names are decoded; keys and values are copied as bytes."""

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        return _Name(found) if isinstance(found, bytearray) else found


class _Batch(_DefaultRecordBatchPy):  # type: ignore[misc]
    def _maybe_uncompress(self) -> None:
        super()._maybe_uncompress()
        self._buffer = _Buffer(self._buffer)  # type: ignore[has-type]


class _Reread(_MemoryRecordsPy):  # type: ignore[misc]
    """Batches of a response without those before an offset."""

    def __init__(self, data: bytes, first: int) -> None:
        super().__init__(data)
        while self._next_slice is not None and _DefaultRecordBatchPy(self._next_slice).next_offset <= first:
            self._cache_next()

    def next_batch(self) -> Any:
        ours = self._next_slice
        batch = super().next_batch()
        return batch if ours is None or ours[_MAGIC] < 2 else _Batch(ours)


class _KeptRecords(fetcher.MemoryRecords):  # type: ignore[misc]
    """Batches as parsed by aiokafka, along with their raw bytes."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.data = data


class _PartitionRecords(fetcher.PartitionRecords):  # type: ignore[misc]
    def _consumer_record(self, tp: TopicPartition, record: Any) -> FetchedRecord:
        # No consumer of ours has a deserializer.
        topic, partition = tp
        headers = tuple(record.headers)
        fields = (topic, partition, record.offset, record.timestamp, record.key, record.value, headers)
        return made_of(FetchedRecord, fields)

    def _unpack_records(self) -> Iterator[Any]:
        try:
            yield from super()._unpack_records()
        except UnicodeDecodeError:
            # Up to here records were given out, and transactions that were aborted are noted.
            self._records = _Reread(self._records.data, self.next_fetch_offset)  # type: ignore[has-type]
            yield from super()._unpack_records()


def with_names(function: Callable[..., Any], **names: object) -> Any:
    """Return a copy of a function with some of its module's names rebound.

    aiokafka's consumer creates its fetcher, and the fetcher its records, by name: there is no parameter for either.
    """
    if not isinstance(function, FunctionType) or not set(names) <= set(function.__code__.co_names):
        raise AssertionError(f"{function} does not use all of {sorted(names)}")
    return FunctionType(function.__code__, function.__globals__ | names, function.__name__, function.__defaults__)


class RecordFetcher(fetcher.Fetcher):  # type: ignore[misc]
    """aiokafka's fetcher, creating our records."""

    _proc_fetch_request = with_names(
        fetcher.Fetcher._proc_fetch_request, MemoryRecords=_KeptRecords, PartitionRecords=_PartitionRecords
    )


# Requests that aiokafka lacks. Most are flexible, with compact strings and arrays, and tagged fields


def _struct_of(
    key: int, version: int, asked: Schema, answered: Schema, *, is_flexible: bool = True
) -> type[RequestStruct]:
    """Return one version of a request, with the class of its answer, as aiokafka declares its own."""
    named = {"API_KEY": key, "API_VERSION": version}
    answer = type("Answer", (Response,), named | {"SCHEMA": answered})
    fields = {"FLEXIBLE_VERSION": is_flexible, "RESPONSE_TYPE": answer, "SCHEMA": asked}
    return type("Asked", (RequestStruct,), named | fields)


class OwnRequest(Request[RequestStruct]):  # type: ignore[misc]
    """A request in the one version of it that we use."""

    API_KEY = -1

    def __init__(self, struct: type[RequestStruct], *fields: object) -> None:
        self.API_KEY, self._CLASSES, self._fields = struct.API_KEY, (struct,), fields

    def build(self, request_struct_class: type[RequestStruct]) -> RequestStruct:
        return request_struct_class(*self._fields)


_ERROR = ("error_code", Int16)
_PARTITION_NUMBER = ("partition", Int32)
_PLACES = CompactArray(("name", _STRING), ("partitions", CompactArray(Int32)), _TAGS)
_COMMITTED = CompactArray(
    _PARTITION_NUMBER, ("offset", Int64), ("leader_epoch", Int32), ("metadata", _STRING), _ERROR, _TAGS
)
_OFFSET_FETCH = _struct_of(
    9,
    7,
    asked=Schema(("group_id", _STRING), ("topics", _PLACES), ("require_stable", Boolean), _TAGS),
    answered=Schema(
        ("throttle_time_ms", Int32),
        ("topics", CompactArray(("name", _STRING), ("partitions", _COMMITTED), _TAGS)),
        _ERROR,
        _TAGS,
    ),
)


def stable_offset_fetch(group_id: str, partitions: Iterable[TopicPartition]) -> OwnRequest:
    """Request committed offsets; fails for partitions with offsets in an open transaction (KIP-447)."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return OwnRequest(_OFFSET_FETCH, group_id, [(*named, _NO_TAGS) for named in topics.items()], True, _NO_TAGS)


_TRANSACTION = CompactArray(
    _ERROR,
    ("transactional_id", _STRING),
    ("state", _STRING),
    ("timeout_ms", Int32),
    ("start_time_ms", Int64),
    ("producer_id", Int64),
    ("producer_epoch", Int16),
    ("topics", _PLACES),
    _TAGS,
)
_DESCRIBE_TRANSACTIONS = _struct_of(
    65,
    0,
    asked=Schema(("transactional_ids", CompactArray(_STRING)), _TAGS),
    answered=Schema(("throttle_time_ms", Int32), ("transactions", _TRANSACTION), _TAGS),
)
"""How the last transactions of ids stand (KIP-664)."""

_BROKERS = Array(("node_id", Int32), ("host", String()), ("port", Int32), ("rack", String()))
_REPLICAS = [(name, Array(Int32)) for name in ("replicas", "isr", "offline_replicas")]
_LED = Array(_ERROR, _PARTITION_NUMBER, ("leader", Int32), ("leader_epoch", Int32), *_REPLICAS)
_TOPICS = Array(_ERROR, ("name", String()), ("is_internal", Boolean), ("partitions", _LED), ("operations", Int32))
_METADATA = _struct_of(
    3,
    8,
    asked=Schema(
        ("topics", Array(String())),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_operations", Boolean),
        ("include_topic_operations", Boolean),
    ),
    answered=Schema(
        ("throttle_time_ms", Int32),
        ("brokers", _BROKERS),
        ("cluster_id", String()),
        ("controller_id", Int32),
        ("topics", _TOPICS),
        ("cluster_operations", Int32),
    ),
    is_flexible=False,
)


def topic_rights(topics: Iterable[str]) -> OwnRequest:
    """Request what this user may do with topics (KIP-430); creates none."""
    return OwnRequest(_METADATA, list(topics), False, False, True)


class Consumer(AIOKafkaConsumer):  # type: ignore[misc]
    """aiokafka's consumer with the changes listed in the module docstring."""

    start = with_names(AIOKafkaConsumer.start, Fetcher=RecordFetcher)

    async def stop(self) -> None:
        await _stopped(super().stop(), self._client)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return end offsets from leaders confirmed by two of three brokers, or by all if there are fewer.

        A broker that was frozen or partitioned considers itself the leader until it learns of its successor, and
        returns where the log ended before. Trusting it would make a call ready too early, or restore half a state.

        Raises:
            KafkaTimeoutError: brokers disagree on the leader, or are unreachable.
            UnknownTopicOrPartitionError: no such topic.
        """
        places = list(partitions)
        await self.find(places)
        for _ in range(_LEADERS_LOOKS):
            leaders = _leaders(self._client, places)
            ends, are_named = await asyncio.gather(super().end_offsets(places), self._are_named(leaders))
            if are_named and leaders == _leaders(self._client, places):
                return dict(ends)
            await self._client.force_metadata_update()
            await asyncio.sleep(_LEADERS_PAUSE_S)
        raise KafkaTimeoutError("brokers do not agree who leads")

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first available offsets; errors are those of ``end_offsets``."""
        places = list(partitions)
        await self.find(places)
        return dict(await super().beginning_offsets(places))

    async def find(self, places: Iterable[TopicPartition]) -> None:
        """Make sure that partitions are known; errors are those of ``end_offsets``."""
        topics = {place.topic for place in places}

        def missing() -> list[str]:
            return [topic for topic in topics if not self.partitions_for_topic(topic)]

        if missing():
            await _learn_of(self._client, topics)
        for _ in range(_LEADERS_LOOKS):
            if not missing():
                return
            await asyncio.sleep(_LEADERS_PAUSE_S)
            if not await self._client.force_metadata_update():
                raise KafkaTimeoutError("no broker says where topics are")
        raise UnknownTopicOrPartitionError(f"no such topic: {', '.join(missing())}")

    async def _are_named(self, leaders: Mapping[TopicPartition, int | None]) -> bool:
        nodes = [broker.nodeId for broker in self._client.cluster.brokers()]
        lacking = min(len(nodes), _NAMED_BY) if len(nodes) > 1 else 0
        chosen = random.sample(nodes, min(len(nodes), _ASKED)) if lacking else []
        waiting = {asyncio.create_task(self._does_name(node, leaders)) for node in chosen}
        while lacking > 0 and waiting:
            done, waiting = await asyncio.wait(waiting, timeout=_ANSWER_LIMIT_S, return_when=asyncio.FIRST_COMPLETED)
            lacking -= sum(each.result() for each in done)
            if not done:
                break
        for each in waiting:
            each.cancel()
        return lacking <= 0

    async def _does_name(self, node: int, leaders: Mapping[TopicPartition, int | None]) -> bool:
        request = MetadataRequest(sorted({tp.topic for tp in leaders}), allow_auto_topic_creation=False)
        try:
            topics = (await self._client.send(node, request)).topics
        except KafkaError:
            return False
        named = {(TopicPartition(topic[1], part[1]), part[2]) for topic in topics for part in topic[-1]}
        return leaders.items() <= named

    def member(self) -> GroupMember:
        """Return the group membership; of a past generation once the group has expelled it."""
        group = self._coordinator
        return GroupMember(group.group_id, group.generation, group.member_id)

    async def committed_with_metadata(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[int | None, str]]:
        """Return the group's committed offset of each partition, ``None`` where there is none, and its metadata.

        Waits until no open transaction holds offsets of them.

        Raises:
            KafkaTimeoutError: such a transaction does not end.
        """
        group = self._coordinator
        request = stable_offset_fetch(group.group_id, partitions)
        deadline = asyncio.get_running_loop().time() + _STABLE_LIMIT_S
        while True:
            await group.ensure_coordinator_known()
            answer = await group._send_req(request)
            parts = [(topic[0], part) for topic in answer.topics for part in topic[1]]
            codes = _codes(answer)
            if not codes:
                return {
                    TopicPartition(topic, part[0]): (None if part[1] < 0 else part[1], part[3] or "")
                    for topic, part in parts
                }
            refused = codes - _COORDINATOR_MOVED - {_COORDINATOR_LOADS, _HELD}
            if refused:
                raise for_code(min(refused))()
            if codes & _COORDINATOR_MOVED:
                group.coordinator_dead()
            if asyncio.get_running_loop().time() > deadline:
                raise KafkaTimeoutError(
                    "an open transaction has offsets of these partitions and does not end: see kafka-transactions.sh "
                    "find-hanging"
                )
            await asyncio.sleep(_STABLE_PAUSE_S)


class Producer(AIOKafkaProducer):  # type: ignore[misc]
    """aiokafka's transactional producer, with a safe takeover of its transactional id.

    Args:
        undecided: how the transactions ended that still have to be ended again, by transactional id. Shared by the
            producers of a process, so that a takeover that failed half-way is finished by the next one.
    """

    def __init__(self, *, undecided: dict[str, str], **options: Any) -> None:
        super().__init__(**options)
        self._undecided = undecided

    async def stop(self) -> None:
        await _stopped(super().stop(), self.client)

    async def take_over(
        self, group_id: str, inputs: Collection[TopicPartition], outputs: Collection[TopicPartition]
    ) -> None:
        """Start, once all partitions know how the last transaction of this id ended.

        A broker that ends a transaction skips partitions without a leader, as all are after an outage of the whole
        cluster (KAFKA-20734). There it stays open: readers stop in front of it, and the next transaction of this id
        decides it too, which can commit what was aborted. So it is ended once more, the way it ended before.

        Args:
            group_id: owner of the offsets in its transactions, of partitions ``inputs``.
            outputs: all partitions that its transactions may have written to.

        Raises:
            KafkaError: it did not start, and must be stopped.
        """
        name = self._txn_manager.transactional_id
        await self.client.bootstrap()
        state, unfinished = await self._last_transaction(name)
        if state == "Empty":
            state = self._undecided.get(name, state)
        is_held = await self._has_held(group_id, inputs)
        is_forgotten = state == _WAS_ABORTED or (state == _WAS_COMMITTED and is_held)
        # A partition without a leader would be skipped again. The group's offsets have one: it has just answered.
        await self._wait_for_leaders([place for place in outputs if is_forgotten or place in unfinished])
        if is_forgotten:
            self._undecided[name] = state
        await self.start()
        if is_forgotten:
            await self.begin_transaction()
            # Without any offsets, for which aiokafka would wait.
            while not await self._sender._do_add_offsets_to_txn(group_id):
                pass
            for place in outputs:
                add_to_transaction(self, place)
            await (self.abort_transaction() if state == _WAS_ABORTED else self.commit_transaction())
            _log.info("transaction_ended_again: %s, as %s", name, state)
        self._undecided.pop(name, None)

    async def _last_transaction(self, name: str) -> tuple[str, set[TopicPartition]]:
        """Return its state, and the partitions it is still open in."""
        request = OwnRequest(_DESCRIBE_TRANSACTIONS, [name], _NO_TAGS)
        try:
            answer = await self._ask(
                CoordinationType.TRANSACTION, name, request, lambda answer: [answer.transactions[0][0]]
            )
        except IncompatibleBrokerVersion:
            return "", set()
        [(_, _, state, _, _, _, _, topics, _)] = answer.transactions
        return state, {TopicPartition(topic, number) for topic, numbers, _ in topics for number in numbers}

    async def _has_held(self, group_id: str, inputs: Iterable[TopicPartition]) -> bool:
        request = stable_offset_fetch(group_id, inputs)
        return _HELD in _codes(await self._ask(CoordinationType.GROUP, group_id, request, _codes))

    async def _ask(self, kind: int, key: str, request: Request[Any], codes_of: Callable[[Any], Iterable[int]]) -> Any:
        """Return the answer of a coordinator, once it has loaded its log."""
        deadline = asyncio.get_running_loop().time() + _STABLE_LIMIT_S
        while True:
            node = await self._sender._find_coordinator(kind, key)
            answer = await self.client.send(node, request, group=ConnectionGroup.COORDINATION)
            refused = set(codes_of(answer)) - {0, _HELD, _NO_SUCH_TRANSACTION}
            if not refused:
                return answer
            if refused - _COORDINATOR_MOVED - {_COORDINATOR_LOADS} or asyncio.get_running_loop().time() > deadline:
                raise for_code(min(refused))()
            self._sender._coordinator_dead(kind)
            await asyncio.sleep(_STABLE_PAUSE_S)

    async def _wait_for_leaders(self, places: Collection[TopicPartition]) -> None:
        await _learn_of(self.client, {place.topic for place in places})
        for _ in range(_LEADERS_LOOKS):
            if all(leader is not None and leader >= 0 for leader in _leaders(self.client, places).values()):
                return
            await asyncio.sleep(_LEADERS_PAUSE_S)
            await self.client.force_metadata_update()
        raise KafkaTimeoutError("partitions of its last transaction have no leader")


async def _stopped(stopping: Coroutine[Any, Any, None], client: AIOKafkaClient) -> None:
    """Stop a client. That it cancels its own tasks, such as a fetch waiting for a retry, does not cancel the caller."""
    task = asyncio.create_task(stopping)
    try:
        await asyncio.wait((task,))
    finally:
        task.cancel()
    if task.cancelled():
        # It came no further than that.
        await client.close()
    else:
        task.result()


def _codes(answer: Any) -> set[int]:
    """Return the errors in an answer with committed offsets."""
    return {answer.error_code, *(part[4] for topic in answer.topics for part in topic[1])} - {0}


def _leaders(client: AIOKafkaClient, places: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
    return {place: client.cluster.leader_for_partition(place) for place in places}


async def _learn_of(client: AIOKafkaClient, topics: Iterable[str]) -> None:
    # All at once: aiokafka would learn of one topic at a time, and pause after each.
    await asyncio.gather(*(client.add_topic(topic) for topic in topics))


async def ask_any_broker(admin: AIOKafkaAdminClient, request: Request[Any]) -> Any:
    """Send a request to some broker and return the response.

    Raises:
        KafkaError: no response.
        IncompatibleBrokerVersion: the broker lacks the request.
    """
    try:
        return await admin._send_request(request)
    except TimeoutError:
        raise KafkaTimeoutError("a broker does not answer") from None


def add_to_transaction(producer: AIOKafkaProducer, place: TopicPartition) -> None:
    """Make the end of the open transaction take an offset in a partition, with or without records in it."""
    producer._txn_manager.maybe_add_partition_to_txn(place)
