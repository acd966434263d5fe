"""Header names that are no UTF-8 stop no reader."""

from __future__ import annotations

import gzip
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer import fetcher
from aiokafka.consumer.fetcher import READ_COMMITTED
from aiokafka.record.default_records import DefaultRecordBatchBuilder

import assay_stream.kafka.connection

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
    """The batch with its last ``xx``, the header's name, made no UTF-8."""
    found = batch.rindex(b"xx\x02") if b"xx\x02" in batch else batch.rindex(b"xx")
    return batch[:found] + b"\xffx" + batch[found + 2 :]


def read(*batches: bytes, first: int = 0, aborted: list[tuple[int, int]] | None = None) -> list[Any]:
    """What a consumer gives out of an answer."""
    assert assay_stream.kafka.connection
    records = fetcher.MemoryRecords(b"".join(batches))
    return list(fetcher.PartitionRecords(TP, records, aborted, first, None, None, False, READ_COMMITTED))


def test_a_name_that_is_no_utf8_is_read_with_question_marks() -> None:
    """Everything else of the record, and those before and behind it, are as they were sent."""
    got = read(a_batch(0), broken(a_batch(3, ("a", b"2"), NAMED, ("é", None))), a_batch(6))
    assert [each.offset for each in got] == list(range(9))
    assert got[4].headers == (("a", b"2"), ("?x", b"1"), ("é", None))
    assert {(each.key, each.value) for each in got} == {(b"xx", b"value xx")}


@pytest.mark.parametrize("first", range(3, 6))
def test_reading_begins_where_it_is_asked_to(first: int) -> None:
    """No record is given out twice, however many of the batch came before; an answer begins with their batch."""
    got = read(broken(a_batch(3, NAMED)), a_batch(6), first=first)
    assert [each.offset for each in got] == list(range(first, 9))


def test_what_was_aborted_stays_left_out() -> None:
    """Also behind the record that was read again."""
    batches = a_batch(0, producer=7), broken(a_batch(3, NAMED)), a_batch(6, producer=7), broken(a_batch(9, NAMED))
    assert [each.offset for each in read(*batches, aborted=[(7, 0)])] == [3, 4, 5, 9, 10, 11]


def test_names_that_are_utf8_are_read_as_before() -> None:
    """By aiokafka itself."""
    got = read(a_batch(0, ("ä", b"1")))
    assert got[1].headers == (("ä", b"1"),)


def test_a_compressed_batch_is_read_too() -> None:
    """It is decompressed once more."""
    plain = broken(a_batch(3, NAMED))
    head, records = bytearray(plain[:_HEAD]), gzip.compress(plain[_HEAD:])
    head[8:12] = (_HEAD - 12 + len(records)).to_bytes(4, "big")
    head[22] |= _GZIP
    got = read(a_batch(0), bytes(head) + records, a_batch(6))
    assert [each.offset for each in got] == list(range(9))
    assert got[4].headers == (("?x", b"1"),)
