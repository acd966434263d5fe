"""How much room brokers have on their disks, as they tell it themselves (KIP-827): aiokafka does not ask."""

from typing import Any

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import IncompatibleBrokerVersion, for_code
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Boolean, CompactArray, CompactString, Int16, Int32, Int64, Schema, TaggedFields

from assay_stream.kafka.aiokafka_private import ask_broker

_FORBIDDEN = 31
_NOT_TOLD = -1
_TEXT = CompactString("utf-8")
_TAGS = ("tags", TaggedFields)
_NO_TOPICS: list[Any] = []


class _DescribeLogDirsResponseV4(Response):  # type: ignore[misc]
    API_KEY = 35
    API_VERSION = 4
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        (
            "log_dirs",
            CompactArray(
                ("error_code", Int16),
                ("log_dir", _TEXT),
                (
                    "topics",
                    CompactArray(
                        ("name", _TEXT),
                        (
                            "partitions",
                            CompactArray(
                                ("partition", Int32),
                                ("size_bytes", Int64),
                                ("offset_lag", Int64),
                                ("is_future", Boolean),
                                _TAGS,
                            ),
                        ),
                        _TAGS,
                    ),
                ),
                ("total_bytes", Int64),
                ("usable_bytes", Int64),
                _TAGS,
            ),
        ),
        _TAGS,
    )


class _DescribeLogDirsRequestV4(RequestStruct):  # type: ignore[misc]
    FLEXIBLE_VERSION = True
    API_KEY = 35
    API_VERSION = 4
    RESPONSE_TYPE = _DescribeLogDirsResponseV4
    SCHEMA = Schema(("topics", CompactArray(("name", _TEXT), ("partitions", CompactArray(Int32)), _TAGS)), _TAGS)


class _DescribeLogDirs(Request[_DescribeLogDirsRequestV4]):  # type: ignore[misc]
    """Asks a broker for its disks, and for no topic on them."""

    API_KEY = 35

    def build(self, request_struct_class: type[_DescribeLogDirsRequestV4]) -> _DescribeLogDirsRequestV4:
        return request_struct_class(_NO_TOPICS, {})


async def disk_free_bytes(admin: AIOKafkaAdminClient) -> int | None:
    """Return what replicas that are spread evenly may take: the least that a disk has free, times the disks.

    Disks that share a file system count as several: brokers do not tell.

    Returns:
        ``None`` where a broker is older than Kafka 3.3, does not know, or may not tell us: that takes ``Describe`` on
        the cluster.

    Raises:
        KafkaError: where a broker does not answer.
    """
    disks: list[int] = []
    for broker in (await admin.describe_cluster())["brokers"]:
        try:
            answer = await ask_broker(admin, broker["node_id"], _DescribeLogDirs())
        except (IncompatibleBrokerVersion, NotImplementedError):
            return None
        if answer.error_code == _FORBIDDEN:
            return None
        if answer.error_code:
            raise for_code(answer.error_code)
        # A disk that failed holds nothing: the broker works with the others.
        disks += [usable_bytes for error_code, _, _, _, usable_bytes, _ in answer.log_dirs if not error_code]
    return min(disks) * len(disks) if disks and _NOT_TOLD not in disks else None
