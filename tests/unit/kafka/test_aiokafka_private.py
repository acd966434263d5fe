"""What is used of aiokafka beyond its promises, and what ours makes of it."""

from __future__ import annotations

import asyncio
import gzip
import inspect
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from aiokafka.cluster import ClusterMetadata
from aiokafka.consumer import consumer, fetcher
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.errors import KafkaTimeoutError, NodeNotReadyError, UnknownTopicOrPartitionError
from aiokafka.producer.sender import Sender
from aiokafka.producer.transaction_manager import TransactionManager
from aiokafka.record.default_records import DefaultRecordBatchBuilder, _DefaultRecordBatchPy
from aiokafka.record.memory_records import _MemoryRecordsPy

from assay_stream.kafka import aiokafka_private as module
from assay_stream.kafka.aiokafka_private import (
    Consumer,
    GroupMember,
    Producer,
    RecordFetcher,
    stable_offset_fetch,
    with_names,
)

USED: dict[Callable[..., Any], str] = {
    AIOKafkaConsumer.start: "self",
    AIOKafkaClient.add_topic: "self topic",
    AIOKafkaClient.bootstrap: "self",
    AIOKafkaClient.send: "self node_id request group",
    AIOKafkaClient.force_metadata_update: "self",
    AIOKafkaAdminClient._send_request: "self request node_id",
    ClusterMetadata.brokers: "self",
    ClusterMetadata.leader_for_partition: "self partition",
    ClusterMetadata.partitions_for_topic: "self topic",
    GroupCoordinator._send_req: "self request",
    GroupCoordinator.ensure_coordinator_known: "self",
    GroupCoordinator.coordinator_dead: "self",
    fetcher.Fetcher._proc_fetch_request: "self assignment node_id request",
    fetcher.PartitionRecords._consumer_record: "self tp record",
    fetcher.PartitionRecords._unpack_records: "self",
    Sender._coordinator_dead: "self coordinator_type",
    Sender._do_add_offsets_to_txn: "self group_id",
    Sender._find_coordinator: "self coordinator_type coordinator_key",
    TransactionManager.maybe_add_partition_to_txn: "self tp",
    _DefaultRecordBatchPy.__init__: "self buffer",
    _DefaultRecordBatchPy._maybe_uncompress: "self",
    _MemoryRecordsPy.__init__: "self bytes_data",
    _MemoryRecordsPy._cache_next: "self len_offset log_overhead",
    _MemoryRecordsPy.next_batch: "self _min_slice _magic_offset",
}


@pytest.mark.parametrize("function", USED, ids=lambda function: function.__qualname__)
def test_what_is_used_has_these_parameters(function: Callable[..., Any]) -> None:
    """Where a release of aiokafka changes one, look at what is made of it."""
    assert " ".join(inspect.signature(function).parameters) == USED[function]


def test_attributes_that_are_used_are_there() -> None:
    """Those that aiokafka sets when it makes an object."""
    for made_by, names in {
        AIOKafkaConsumer.__init__: {"_client", "_coordinator"},
        AIOKafkaProducer.__init__: {"_sender", "_txn_manager"},
        GroupCoordinator.__init__: {"group_id", "generation", "member_id"},
        fetcher.PartitionRecords.__init__: {"_records", "next_fetch_offset"},
        _DefaultRecordBatchPy.__init__: {"_buffer"},
        _MemoryRecordsPy._cache_next: {"_next_slice"},
    }.items():
        assert names <= set(made_by.__code__.co_names), made_by.__qualname__


def test_nothing_of_aiokafka_is_replaced() -> None:
    """Other consumers of the process are as its authors made them."""
    assert module
    for owner in (consumer, fetcher):
        for name in ("Fetcher", "FetchResult", "PartitionRecords", "MemoryRecords"):
            found = getattr(owner, name, None)
            assert found is None or found.__module__.startswith("aiokafka."), name


def test_a_name_that_a_function_does_not_use_is_refused() -> None:
    """A release that makes its fetcher otherwise is noticed when the module is imported."""
    with pytest.raises(AssertionError, match="Fetcher"):
        with_names(AIOKafkaConsumer.stop, Fetcher=RecordFetcher)


# Reading records

TP = TopicPartition("mcp.tools.call", 0)
NAMED = ("xx", b"1")
_HEAD = 61
"""Bytes of a batch before its records."""
_GZIP = 1


def a_batch(first: int, *headers: tuple[str, bytes | None], producer: int = -1) -> bytes:
    """A batch of three records from an offset on, the second with headers; ``xx`` becomes what is no UTF-8."""
    builder = DefaultRecordBatchBuilder(2, 0, int(producer >= 0), producer, 0, 0, 1 << 20)
    for delta in range(3):
        given = [*headers] if delta == 1 else []
        builder.append(delta, timestamp=delta, key=b"xx", value=b"value xx", headers=given)
    batch = bytearray(builder.build())
    batch[:8] = first.to_bytes(8, "big")
    return bytes(batch)


def broken(batch: bytes) -> bytes:
    found = batch.rindex(b"xx\x02") if b"xx\x02" in batch else batch.rindex(b"xx")
    return batch[:found] + b"\xffx" + batch[found + 2 :]


async def read(*batches: bytes, first: int = 0, aborted: list[tuple[int, int]] | None = None) -> list[Any]:
    async def send(_node: int, _request: object) -> Any:
        part = (TP.partition, 0, 99, 99, 0, aborted, -1, b"".join(batches))
        return SimpleNamespace(API_VERSION=11, topics=[(TP.topic, [part])])

    client: Any = SimpleNamespace(_loop=asyncio.get_running_loop(), _metadata_max_age_ms=1, send=send)
    made = RecordFetcher(client, SubscriptionState(), isolation_level="read_committed", check_crcs=False)
    state = SimpleNamespace(has_valid_position=True, position=first)
    assignment = SimpleNamespace(active=True, state_value=lambda _: state)
    request = SimpleNamespace(topics=[(TP.topic, [(TP.partition, first, 1 << 20)])])
    assert await made._proc_fetch_request(assignment, 1, request)
    records = list(made._records[TP]._partition_records)
    await made.close()
    return records


async def test_a_name_that_is_no_utf8_is_read_with_question_marks() -> None:
    """Everything else of the record, and those before and behind it, are as they were sent."""
    got = await read(a_batch(0), broken(a_batch(3, ("a", b"2"), NAMED, ("é", None))), a_batch(6))
    assert [each.offset for each in got] == list(range(9))
    assert got[4].headers == (("a", b"2"), ("?x", b"1"), ("é", None))
    assert {(each.key, each.value) for each in got} == {(b"xx", b"value xx")}


@pytest.mark.parametrize("first", range(3, 6))
async def test_reading_begins_where_it_is_asked_to(first: int) -> None:
    """No record is given out twice, however many of the batch came before; an answer begins with their batch."""
    got = await read(broken(a_batch(3, NAMED)), a_batch(6), first=first)
    assert [each.offset for each in got] == list(range(first, 9))


async def test_what_was_aborted_stays_left_out() -> None:
    """Also behind the record that was read again."""
    batches = a_batch(0, producer=7), broken(a_batch(3, NAMED)), a_batch(6, producer=7), broken(a_batch(9, NAMED))
    assert [each.offset for each in await read(*batches, aborted=[(7, 0)])] == [3, 4, 5, 9, 10, 11]


async def test_names_that_are_utf8_are_read_as_before() -> None:
    got = await read(a_batch(0, ("ä", b"1")))
    assert got[1].headers == (("ä", b"1"),)


async def test_a_compressed_batch_is_read_too() -> None:
    plain = broken(a_batch(3, NAMED))
    head, records = bytearray(plain[:_HEAD]), gzip.compress(plain[_HEAD:])
    head[8:12] = (_HEAD - 12 + len(records)).to_bytes(4, "big")
    head[22] |= _GZIP
    got = await read(a_batch(0), bytes(head) + records, a_batch(6))
    assert [each.offset for each in got] == list(range(9))
    assert got[4].headers == (("?x", b"1"),)


# Committed offsets

CALLS = TopicPartition("calls", 2)


def test_committed_offsets_are_asked_for_stable() -> None:
    """The byte behind the topics says so."""
    request = stable_offset_fetch("group", [CALLS]).prepare({9: (1, 9)})
    assert (request.API_KEY, request.API_VERSION, request.FLEXIBLE_VERSION) == (9, 7, True)
    assert request.encode() == b"\x06group\x02\x06calls\x02\x00\x00\x00\x02\x00\x01\x00"


def test_the_answer_has_offset_metadata_and_error_of_each_partition() -> None:
    request = stable_offset_fetch("group", [CALLS]).prepare({9: (1, 9)})
    answer = request.RESPONSE_TYPE.decode(
        b"\x00\x00\x00\x00\x02\x06calls\x02\x00\x00\x00\x02"
        + b"\xff" * 8
        + b"\x00\x00\x00\x01\x01\x00\x58\x00\x00"
        + b"\x00\x0e\x00"
    )
    [(_, [part], _)] = answer.topics
    assert (part[:5], answer.error_code) == ((2, -1, 1, "", 88), 14)


@pytest.mark.parametrize(
    ("later", "follows"),
    [
        (GroupMember("group", 7, "member"), True),
        (GroupMember("group", 8, "member"), True),
        (GroupMember("group", 9, "member"), False),
        (GroupMember("group", 8, "again"), False),
        (GroupMember("group", -1, "member"), False),
    ],
)
def test_a_membership_follows_another_where_no_generation_lies_between(later: GroupMember, follows: bool) -> None:
    """In a generation that a member missed, what it had may have been another's."""
    assert later.follows(GroupMember("group", 7, "member")) is follows


# Where logs end, while a broker that was frozen still takes itself for the leader of some

PLACE = TopicPartition("assay.control", 0)
OLD, NEW, THIRD = 1, 2, 3


class Brokers:
    """Three brokers as a client sees them; each has its own word of who leads, and of where the log ends.

    Args:
        leader_by: whom each broker takes for the leader; one that is left out does not answer.
        ends: where the log ends, by each that takes itself for the leader.
        known: whom the client takes for the leader at first.
    """

    def __init__(self, leader_by: Mapping[int, int], ends: Mapping[int, int], known: int = OLD) -> None:
        self.leader_by, self.ends, self.known = dict(leader_by), ends, known
        self.updates = 0
        self.topics = {PLACE.topic}
        self.is_there = True
        self.cluster = SimpleNamespace(
            brokers=lambda: [SimpleNamespace(nodeId=node) for node in (OLD, NEW, THIRD)],
            partitions_for_topic=lambda topic: {PLACE.partition} if topic in self.topics else None,
            leader_for_partition=lambda _: self.known,
        )

    async def send(self, node: int, _request: object) -> Any:
        if node not in self.leader_by:
            await asyncio.sleep(60)
        if self.leader_by[node] == 0:
            raise NodeNotReadyError
        return SimpleNamespace(topics=[(0, PLACE.topic, False, [(0, PLACE.partition, self.leader_by[node], [], [])])])

    async def add_topic(self, topic: str) -> None:
        """Known already."""

    async def force_metadata_update(self) -> bool:
        """Ask any broker who leads: here the one that was frozen at first, and then another."""
        self.updates += 1
        self.known = self.leader_by[OLD if self.updates == 1 else THIRD]
        return self.is_there


async def ends_by(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> int:
    async def end_offsets(_: object, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(places, brokers.ends[brokers.known])

    monkeypatch.setattr(AIOKafkaConsumer, "end_offsets", end_offsets)
    monkeypatch.setattr(module, "_LEADERS_PAUSE_S", 0.0)
    consumer = Consumer.__new__(Consumer)
    consumer._client = brokers
    monkeypatch.setattr(Consumer, "__del__", lambda _: None, raising=False)
    async with asyncio.timeout(10):
        return (await consumer.end_offsets([PLACE]))[PLACE]


async def test_a_leader_that_was_frozen_does_not_say_where_a_log_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its log ended before the control record that its successor took: a call would not wait for that."""
    brokers = Brokers({OLD: OLD, NEW: NEW, THIRD: NEW}, {OLD: 5, NEW: 6})
    assert await ends_by(brokers, monkeypatch) == 6
    assert brokers.updates == 2


async def test_a_leader_that_nobody_else_names_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its word about itself counts for one, and a broker that cannot be reached for nothing."""
    brokers = Brokers({OLD: OLD, NEW: 0, THIRD: NEW}, {OLD: 5, NEW: 6})
    with pytest.raises(KafkaTimeoutError):
        await ends_by(brokers, monkeypatch)
    brokers.leader_by[NEW] = NEW
    assert await ends_by(brokers, monkeypatch) == 6


async def test_another_broker_that_hangs_delays_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that names the leader is enough."""
    brokers = Brokers({NEW: NEW, THIRD: NEW}, {NEW: 6}, known=NEW)
    assert await ends_by(brokers, monkeypatch) == 6
    assert brokers.updates == 0


async def test_a_topic_that_does_not_exist_is_asked_for_a_counted_number_of_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that was just created may be known a moment later; nothing is said of it while no broker answers."""
    brokers = Brokers({NEW: NEW, OLD: NEW, THIRD: NEW}, {NEW: 6}, known=NEW)
    brokers.topics.clear()
    with pytest.raises(UnknownTopicOrPartitionError):
        await ends_by(brokers, monkeypatch)
    assert brokers.updates == 40
    brokers.is_there = False
    with pytest.raises(KafkaTimeoutError):
        await ends_by(brokers, monkeypatch)


class ScriptedProducer(Producer):
    """Is told what brokers answer, and notes what it does."""

    def __init__(self, state: str, *, is_held: bool, undecided: dict[str, str]) -> None:
        self.answers = state, is_held
        self.done: list[str] = []
        self.client = SimpleNamespace(bootstrap=self._nothing)
        self._sender = SimpleNamespace(_do_add_offsets_to_txn=self._added)
        self._txn_manager = SimpleNamespace(transactional_id="id", maybe_add_partition_to_txn=self._noted)
        self._undecided = undecided

    async def _nothing(self) -> None: ...

    async def _added(self, group_id: str) -> bool:
        self._noted(group_id)
        return True

    def _noted(self, what: object) -> None:
        self.done.append(str(what))

    async def _last_transaction(self, _: str) -> tuple[str, set[TopicPartition]]:
        return self.answers[0], set()

    async def _has_held(self, *_: object) -> bool:
        return self.answers[1]

    async def _wait_for_leaders(self, places: object) -> None: ...

    async def start(self) -> None:
        self.done.append("start")

    async def begin_transaction(self) -> None: ...

    async def abort_transaction(self) -> None:
        self.done.append("abort")

    async def commit_transaction(self) -> None:
        self.done.append("commit")


PLACE = TopicPartition("outputs", 0)


@pytest.mark.parametrize(
    ("state", "is_held", "undecided", "end"),
    [
        ("", False, {}, ""),
        ("Empty", False, {}, ""),
        ("Ongoing", True, {}, ""),
        ("CompleteCommit", False, {}, ""),
        ("CompleteCommit", True, {}, "commit"),
        ("CompleteAbort", False, {}, "abort"),
        ("CompleteAbort", True, {}, "abort"),
        ("Empty", True, {}, ""),
        ("Empty", True, {"id": "CompleteCommit"}, "commit"),
        ("Empty", False, {"id": "CompleteAbort"}, "abort"),
    ],
)
async def test_a_transaction_is_ended_again_only_as_it_ended(
    state: str, is_held: bool, undecided: dict[str, str], end: str, caplog: pytest.LogCaptureFixture
) -> None:
    """And only if partitions may lack its marker; an earlier attempt that was cut short is remembered."""
    producer = ScriptedProducer(state, is_held=is_held, undecided=undecided)
    with caplog.at_level("INFO", module.__name__):
        await producer.take_over("group", [], [PLACE])
    assert [each.partition(":")[0] for each in caplog.messages] == (["transaction_ended_again"] if end else [])
    assert producer.done == ["start", *(["group", str(PLACE), end] if end else [])]
    assert not undecided


class Closing:
    """A part of a consumer that notes that it was closed."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error
        self.is_closed = False

    async def close(self) -> None:
        self.is_closed = True
        if self.error is not None:
            raise self.error


async def test_what_stopping_cancels_does_not_cancel_its_caller() -> None:
    """As a fetch that brokers do not answer; its connections are closed nevertheless."""
    consumer, client = Consumer(bootstrap_servers="127.0.0.1:1"), Closing()
    consumer._fetcher, consumer._client = Closing(asyncio.CancelledError()), client
    await consumer.stop()
    assert client.is_closed


async def test_stopping_can_be_cancelled() -> None:
    consumer, waiting = Consumer(bootstrap_servers="127.0.0.1:1"), asyncio.Event()
    consumer._fetcher, consumer._client = SimpleNamespace(close=waiting.wait), Closing()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(consumer.stop(), 0.01)
