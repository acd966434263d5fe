"""Kafka's default partitioner."""

from __future__ import annotations

import pytest
from aiokafka.partitioner import DefaultPartitioner, murmur2
from hypothesis import given
from hypothesis import strategies as st

from assay_stream.model.record import _murmur2, _remembered, home_of, murmur2_partition


@given(st.binary(max_size=64), st.integers(1, 200))
def test_partitions_are_those_of_the_producer(key: bytes, partitions: int) -> None:
    every = list(range(partitions))
    assert murmur2_partition(key, partitions) == DefaultPartitioner()(key, every, every)


@given(st.binary(max_size=64))
def test_the_hash_is_the_producer_s(key: bytes) -> None:
    assert _murmur2(key) & 0xFFFFFFFF == murmur2(key) & 0xFFFFFFFF


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_the_java_client_s(key: bytes, signed: int) -> None:
    """The test vectors of Apache Kafka's own UtilsTest hold."""
    assert _murmur2(key) == signed & 0xFFFFFFFF


def test_a_server_s_partition_is_that_of_its_key() -> None:
    """Remembered or not: long names, which anybody can make up, are not."""
    before = _remembered.cache_info().currsize
    for name in ("server-1", "s" * 129, "Zürich" * 100):
        for _ in range(2):
            assert home_of(name, 7) == murmur2_partition(name.encode(), 7)
    assert _remembered.cache_info().currsize <= before + 1
