"""Kafka's default partitioner, so that the core can tell where a record belongs.

``murmur2`` as the Java client and aiokafka compute it (``org.apache.kafka.common.utils.Utils.murmur2``).
librdkafka clients agree only with ``partitioner=murmur2_random``.
"""

from functools import lru_cache

from assay_stream.limits.core import DEFAULT_LIMITS

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2_partition(key: bytes, partitions: int) -> int:
    return (_murmur2(key) & 0x7FFFFFFF) % partitions


def home_of(server_id: str, partitions: int) -> int:
    """Return the partition for the records of a server; cached, since it is needed for every call."""
    if len(server_id) > DEFAULT_LIMITS.partition_name_chars_max:
        return murmur2_partition(server_id.encode(), partitions)
    return _remembered(server_id, partitions)


@lru_cache(maxsize=DEFAULT_LIMITS.partitions_kept_max)
def _remembered(server_id: str, partitions: int) -> int:
    return murmur2_partition(server_id.encode(), partitions)


def _murmur2(data: bytes) -> int:
    length = len(data)
    state = _SEED ^ length
    whole = length - length % 4
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ (word >> 24)) * _MULTIPLIER & _MASK
        state = (state * _MULTIPLIER & _MASK) ^ word
    if whole < length:
        state = (state ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    state = (state ^ (state >> 13)) * _MULTIPLIER & _MASK
    return state ^ (state >> 15)
