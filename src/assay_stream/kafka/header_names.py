"""Header names that are no UTF-8: brokers take them from any producer, and aiokafka cannot read the record then.

What does not decode is read once more from the batch that holds it, with ``?`` for each byte of such a name that is not
ASCII. No name that means anything to us holds one.
"""

from collections.abc import Iterator
from typing import Any

from aiokafka.consumer import fetcher
from aiokafka.record.default_records import _DefaultRecordBatchPy
from aiokafka.record.memory_records import _MemoryRecordsPy
from aiokafka.record.util import decode_varint

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


class _PartitionRecords(fetcher.PartitionRecords):  # type: ignore[misc]
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


def read_any_header_name() -> None:
    """Have every consumer of this process read records with such names."""
    fetcher.MemoryRecords = _KeptRecords
    fetcher.PartitionRecords = _PartitionRecords
