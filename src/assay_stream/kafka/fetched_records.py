"""Records as aiokafka's consumers give them to us: for less, and whatever their header names.

A header name may be no UTF-8: brokers take it from any producer, and aiokafka cannot read the record then. What does
not decode is read once more from the batch that holds it, with ``?`` for each byte of such a name that is not ASCII. No
name that means anything to us holds one.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from aiokafka import TopicPartition
from aiokafka.consumer import fetcher
from aiokafka.record.default_records import _DefaultRecordBatchPy
from aiokafka.record.memory_records import _MemoryRecordsPy
from aiokafka.record.util import decode_varint

from assay_stream.model.record import Headers, made_of

_MAGIC = 16
"""Where a batch tells the version of its format."""


class _Batch(_DefaultRecordBatchPy):  # type: ignore[misc]
    def _read_msg(self) -> Any:
        start: int = self._pos  # type: ignore[has-type]
        try:
            return super()._read_msg()
        except UnicodeDecodeError:
            _replace_names(self._buffer, start)
            self._pos = start
            return super()._read_msg()


class _Records(_MemoryRecordsPy):  # type: ignore[misc]
    """Batches of an answer, of which those before an offset are left out."""

    def __init__(self, data: bytes, first: int) -> None:
        super().__init__(data)
        while self._next_slice is not None and _DefaultRecordBatchPy(self._next_slice).next_offset <= first:
            self._cache_next()

    def next_batch(self) -> Any:
        ours = self._next_slice
        batch = super().next_batch()
        return batch if ours is None or ours[_MAGIC] < 2 else _Batch(ours)


class _KeptRecords(fetcher.MemoryRecords):  # type: ignore[misc]
    """Batches as aiokafka reads them, which also know the bytes they are read from."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.data = data


class FetchedRecord(NamedTuple):
    """What is used of aiokafka's ``ConsumerRecord``, which takes five times as long to make."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


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
            self._records = _Records(self._records.data, self.next_fetch_offset)  # type: ignore[has-type]
            yield from super()._unpack_records()


def _replace_names(buffer: bytearray, pos: int) -> None:
    """Make the header names of the record at a position readable, where they are not, in place."""
    for _ in range(4):  # length, attributes, time, offset
        _, pos = decode_varint(buffer, pos)
    for _ in range(2):  # key, value
        size, pos = decode_varint(buffer, pos)
        pos += max(size, 0)
    count, pos = decode_varint(buffer, pos)
    for _ in range(count):
        size, pos = decode_varint(buffer, pos)
        name = bytes(buffer[pos : pos + size])
        try:
            name.decode()
        except UnicodeDecodeError:
            buffer[pos : pos + size] = name.decode("ascii", "replace").replace("\ufffd", "?").encode()
        pos += size
        size, pos = decode_varint(buffer, pos)
        pos += max(size, 0)


def give_fetched_records() -> None:
    """Have every consumer of this process give ``FetchedRecord``, and read records with any header names."""
    fetcher.MemoryRecords = _KeptRecords
    fetcher.PartitionRecords = _PartitionRecords
