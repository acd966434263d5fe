"""What aiokafka 0.14 lacks of KIP-447: committed offsets that no open transaction is about to change.

OffsetFetch version 7 is flexible: compact strings and arrays, and tagged fields, of which we send none.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from aiokafka import TopicPartition
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Boolean, CompactArray, CompactString, Int16, Int32, Int64, Schema, TaggedFields

UNSTABLE_OFFSET_COMMIT = 88
"""An open transaction holds an offset of the partition: ask again. aiokafka does not know it."""
_STRING = CompactString("utf-8")
_TAGS = ("tags", TaggedFields)
_NO_TAGS: Mapping[int, bytes] = {}


class GroupMember(NamedTuple):
    """A group, and what its coordinator tells generations of members by."""

    group_id: str
    generation: int = -1
    member_id: str = ""

    def follows(self, earlier: "GroupMember") -> bool:
        """Return whether no generation lies between the two: what this member has in both was nobody else's."""
        is_known = self.generation >= 0 and self.member_id == earlier.member_id
        return is_known and 0 <= self.generation - earlier.generation <= 1


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
        topics: dict[str, list[int]] = {}
        for topic, partition in sorted(self._partitions):
            topics.setdefault(topic, []).append(partition)
        named = [(topic, partitions, _NO_TAGS) for topic, partitions in topics.items()]
        return request_struct_class(self._group_id, named, True, _NO_TAGS)
