"""Records of evidence as they were published: those of consecutive rows are compressed together, with a checksum."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Annotated
from zlib import crc32

import msgspec
from cramjam import DecompressionError, zstd

from assay_stream.errors import InputError
from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.readmodel.schema import REBUILD

BLOCK_RECORDS = 16
"""Part of the store's format. Larger blocks save little more, and one record is read with all of its block."""

_LEVEL = 1
_CHECKSUM_BYTES = 4
_READ = "SELECT body FROM block WHERE id = ?"
_VALUES: msgspec.msgpack.Decoder[list[bytes | None]] = msgspec.msgpack.Decoder(
    Annotated[list[bytes | None], msgspec.Meta(max_length=BLOCK_RECORDS)]
)
_RECORD_BYTES_MAX = DEFAULT_LIMITS.record_bytes_max
_HEAD_BYTES_MAX = 5
"""Before a record in a block, and before all of them."""
_USUAL_BYTES = 1 << 17
"""Tried first: a block of usual evidence takes a third of it."""


def _packed(values: Sequence[bytes | None]) -> bytes:
    body = bytes(zstd.compress(msgspec.msgpack.encode(values), _LEVEL))
    return crc32(body).to_bytes(_CHECKSUM_BYTES, "big") + body


def _unpacked(stored: bytes) -> list[bytes | None]:
    body = stored[_CHECKSUM_BYTES:]
    if crc32(body).to_bytes(_CHECKSUM_BYTES, "big") == stored[:_CHECKSUM_BYTES]:
        # Into room that is there: a store that somebody else made may hold a few bytes that become gigabytes.
        for room in (_USUAL_BYTES, BLOCK_RECORDS * (_HEAD_BYTES_MAX + _RECORD_BYTES_MAX) + _HEAD_BYTES_MAX):
            written = bytearray(room)
            try:
                size = zstd.decompress_into(body, written)
                return _VALUES.decode(memoryview(written)[:size])
            except (DecompressionError, msgspec.DecodeError):
                continue
    raise InputError("store_unreadable", f"a record in the store is damaged: {REBUILD}")


def inflated(body: bytes) -> bytes:
    """Return a record that stands alone, decompressed.

    Raises:
        zlib.error: where it is damaged, or longer than a record can be.
    """
    stream = zlib.decompressobj()
    value = stream.decompress(body, _RECORD_BYTES_MAX + 1)
    if not stream.eof:
        raise zlib.error("no whole record")
    return value


def append(connection: sqlite3.Connection, first: int, values: Sequence[bytes]) -> None:
    """Store records behind those that are there.

    Args:
        first: row number of the first; the others follow it.
    """
    number, inside = divmod(first, BLOCK_RECORDS)
    row = connection.execute(_READ, (number,)).fetchone() if inside else None
    # Rows that were dropped since left their places empty.
    before: list[bytes | None] = [] if row is None else _unpacked(row[0])
    whole = [*before, *[None] * (inside - len(before)), *values]
    connection.executemany(
        "INSERT OR REPLACE INTO block VALUES (?, ?)",
        [
            (number + begin // BLOCK_RECORDS, _packed(whole[begin : begin + BLOCK_RECORDS]))
            for begin in range(0, len(whole), BLOCK_RECORDS)
        ],
    )


def read(connection: sqlite3.Connection, number: int) -> bytes | None:
    """Return the record of a row, ``None`` where there is none.

    Raises:
        InputError: ``store_unreadable``.
    """
    block, inside = divmod(number, BLOCK_RECORDS)
    row = connection.execute(_READ, (block,)).fetchone()
    values = [] if row is None else _unpacked(row[0])
    return values[inside] if inside < len(values) else None


def take_out(connection: sqlite3.Connection, numbers: Iterable[int]) -> Iterator[tuple[int, bytes | None]]:
    """Remove the records of some rows, and yield each with its number.

    Raises:
        InputError: ``store_unreadable``.
    """
    for block, group in groupby(sorted(numbers), lambda number: number // BLOCK_RECORDS):
        row = connection.execute(_READ, (block,)).fetchone()
        values = [] if row is None else _unpacked(row[0])
        for number in group:
            inside = number % BLOCK_RECORDS
            yield number, values[inside] if inside < len(values) else None
            values[inside : inside + 1] = [None]
        if any(value is not None for value in values):
            connection.execute("UPDATE block SET body = ? WHERE id = ?", (_packed(values), block))
        else:
            connection.execute("DELETE FROM block WHERE id = ?", (block,))
