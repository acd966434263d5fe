"""What aiokafka 0.14 lacks of KIP-447: offsets in a transaction with the group's generation, and stable reads of them.

Both are flexible versions: compact strings and arrays, and tagged fields, of which we send none. And requests to
produce, whose batches it copies at each level of their schema.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from aiokafka import TopicPartition
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.produce import ProduceRequest_v8
from aiokafka.protocol.types import (
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

UNSTABLE_OFFSET_COMMIT = 88
"""An open transaction holds an offset of the partition: ask again. aiokafka does not know it."""
_NO_EPOCH = -1
_ALL_REPLICAS = -1
_LONG_STRING = String("utf-8")
_STRING = CompactString("utf-8")
_TAGS = ("tags", TaggedFields)
_NO_TAGS: Mapping[int, bytes] = {}


class GroupMember(NamedTuple):
    """A group, and what its coordinator tells generations of members by; without them, whoever commits offsets."""

    group_id: str
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None

    def follows(self, earlier: "GroupMember") -> bool:
        """Return whether no generation lies between the two: what this member has in both was nobody else's."""
        is_known = self.generation >= 0 and self.member_id == earlier.member_id
        return is_known and 0 <= self.generation - earlier.generation <= 1


class _TxnOffsetCommitResponseV3(Response):  # type: ignore[misc]
    API_KEY = 28
    API_VERSION = 3
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            CompactArray(
                ("name", _STRING),
                ("partitions", CompactArray(("partition", Int32), ("error_code", Int16), _TAGS)),
                _TAGS,
            ),
        ),
        _TAGS,
    )


class _TxnOffsetCommitRequestV3(RequestStruct):  # type: ignore[misc]
    FLEXIBLE_VERSION = True
    API_KEY = 28
    API_VERSION = 3
    RESPONSE_TYPE = _TxnOffsetCommitResponseV3
    SCHEMA = Schema(
        ("transactional_id", _STRING),
        ("group_id", _STRING),
        ("producer_id", Int64),
        ("producer_epoch", Int16),
        ("generation_id", Int32),
        ("member_id", _STRING),
        ("group_instance_id", _STRING),
        (
            "topics",
            CompactArray(
                ("name", _STRING),
                (
                    "partitions",
                    CompactArray(
                        ("partition", Int32), ("offset", Int64), ("leader_epoch", Int32), ("metadata", _STRING), _TAGS
                    ),
                ),
                _TAGS,
            ),
        ),
        _TAGS,
    )


class TxnOffsetCommit(Request[_TxnOffsetCommitRequestV3]):  # type: ignore[misc]
    """Commits offsets in a transaction, as a member of the group's generation.

    Args:
        offsets: next offset and metadata of each partition.
    """

    API_KEY = 28

    def __init__(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        member: GroupMember,
        offsets: Mapping[TopicPartition, tuple[int, str]],
    ) -> None:
        self._transactional_id = transactional_id
        self._producer = producer
        self._member = member
        self._offsets = offsets

    def build(self, request_struct_class: type[_TxnOffsetCommitRequestV3]) -> _TxnOffsetCommitRequestV3:
        member = self._member
        topics = [
            (
                topic,
                [(tp.partition, self._offsets[tp][0], _NO_EPOCH, self._offsets[tp][1], _NO_TAGS) for tp in tps],
                _NO_TAGS,
            )
            for topic, tps in by_topic(self._offsets)
        ]
        return request_struct_class(
            self._transactional_id,
            member.group_id,
            *self._producer,
            member.generation,
            member.member_id,
            member.instance_id,
            topics,
            _NO_TAGS,
        )


class _OffsetFetchResponseV7(Response):  # type: ignore[misc]
    API_KEY = 9
    API_VERSION = 7
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            CompactArray(
                ("name", _STRING),
                (
                    "partitions",
                    CompactArray(
                        ("partition", Int32),
                        ("offset", Int64),
                        ("leader_epoch", Int32),
                        ("metadata", _STRING),
                        ("error_code", Int16),
                        _TAGS,
                    ),
                ),
                _TAGS,
            ),
        ),
        ("error_code", Int16),
        _TAGS,
    )


class _OffsetFetchRequestV7(RequestStruct):  # type: ignore[misc]
    FLEXIBLE_VERSION = True
    API_KEY = 9
    API_VERSION = 7
    RESPONSE_TYPE = _OffsetFetchResponseV7
    SCHEMA = Schema(
        ("group_id", _STRING),
        ("topics", CompactArray(("name", _STRING), ("partitions", CompactArray(Int32)), _TAGS)),
        ("require_stable", Boolean),
        _TAGS,
    )


class StableOffsetFetch(Request[_OffsetFetchRequestV7]):  # type: ignore[misc]
    """Asks for committed offsets; refused for partitions that an open transaction has offsets of."""

    API_KEY = 9

    def __init__(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        self._group_id = group_id
        self._partitions = partitions

    def build(self, request_struct_class: type[_OffsetFetchRequestV7]) -> _OffsetFetchRequestV7:
        topics = [(topic, [tp.partition for tp in tps], _NO_TAGS) for topic, tps in by_topic(self._partitions)]
        return request_struct_class(self._group_id, topics, True, _NO_TAGS)


class _ProduceRequestV8(ProduceRequest_v8):  # type: ignore[misc]
    def encode(self) -> bytes:
        """Return the bytes that the schema gives, each batch copied once."""
        parts = [
            _LONG_STRING.encode(self.transactional_id),
            Int16.encode(self.required_acks),
            Int32.encode(self.timeout),
            Int32.encode(len(self.topics)),
        ]
        for topic, partitions in self.topics:
            parts += (_LONG_STRING.encode(topic), Int32.encode(len(partitions)))
            for partition, batch in partitions:
                parts += (Int32.encode(partition), Int32.encode(len(batch)), batch)
        return b"".join(parts)


class Produce(Request[_ProduceRequestV8]):  # type: ignore[misc]
    """Writes batches in a transaction, acknowledged by all replicas in sync.

    Args:
        batches: the bytes of one batch of each partition.
    """

    API_KEY = 0

    def __init__(self, transactional_id: str, limit_ms: int, batches: Mapping[TopicPartition, bytes]) -> None:
        self._transactional_id = transactional_id
        self._limit_ms = limit_ms
        self._batches = batches

    def build(self, request_struct_class: type[_ProduceRequestV8]) -> _ProduceRequestV8:
        topics = [(topic, [(tp.partition, self._batches[tp]) for tp in tps]) for topic, tps in by_topic(self._batches)]
        return request_struct_class(self._transactional_id, _ALL_REPLICAS, self._limit_ms, topics)


def by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[TopicPartition]]]:
    """Return partitions as requests name them, in order."""
    topics: dict[str, list[TopicPartition]] = {}
    for partition in sorted(partitions):
        topics.setdefault(partition.topic, []).append(partition)
    return list(topics.items())
