"""Records kept in blocks."""

from __future__ import annotations

import random
import sqlite3
import zlib

import msgspec
import pytest
from cramjam import zstd
from hypothesis import given
from hypothesis import strategies as st

from assay_stream.errors import InputError
from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.model.record import Role
from assay_stream.readmodel import blocks, schema
from assay_stream.readmodel.blocks import BLOCK_RECORDS
from assay_stream.readmodel.calls import read_line
from tests.support.readmodel import history, of_role


def _bodies(connection: sqlite3.Connection) -> list[tuple[int, bytes]]:
    return connection.execute("SELECT id, body FROM block ORDER BY id").fetchall()


def _values(count: int) -> list[bytes]:
    return [b"record %d" % number for number in range(count)]


@given(cuts=st.lists(st.integers(0, 50), max_size=6), first=st.integers(0, 40))
def test_blocks_are_the_same_however_records_are_cut(cuts: list[int], first: int) -> None:
    """A block that a batch left unfinished is finished by the next one."""
    whole, pieces = schema.in_memory(), schema.in_memory()
    blocks.append(whole, first, _values(50))
    begin = 0
    for end in [*sorted(cuts), 50]:
        blocks.append(pieces, first + begin, _values(50)[begin:end])
        begin = end
    assert _bodies(pieces) == _bodies(whole)
    assert [blocks.read(pieces, first + number) for number in range(50)] == _values(50)


def test_what_is_not_there_is_none() -> None:
    """Before, behind, and between what was stored."""
    connection = schema.in_memory()
    blocks.append(connection, 3, _values(2))
    assert [blocks.read(connection, number) for number in (0, 2, 5, 100)] == [None] * 4


@given(gone=st.sets(st.integers(0, 49)))
def test_nothing_is_left_of_what_was_taken_out(gone: set[int]) -> None:
    """Its bytes are in no block, and a block without records is no row."""
    connection = schema.in_memory()
    blocks.append(connection, 0, _values(50))
    assert dict(blocks.take_out(connection, gone)) == {number: _values(50)[number] for number in gone}
    kept = set(range(50)) - gone
    assert {number for number in range(50) if blocks.read(connection, number)} == kept
    assert {block for block, _ in _bodies(connection)} == {number // BLOCK_RECORDS for number in kept}
    blocks.append(connection, 50, [b"next"])
    assert blocks.read(connection, 50) == b"next"


@pytest.mark.parametrize("body", [b"", b"\0" * 40, b"\0\0\0\0"])
def test_a_damaged_block_is_an_error(body: bytes) -> None:
    """Whatever its checksum says."""
    connection = schema.in_memory()
    connection.execute("INSERT INTO block VALUES (0, ?)", (body,))
    with pytest.raises(InputError) as caught:
        blocks.read(connection, 0)
    assert caught.value.code == "store_unreadable"


def test_a_long_record_is_read_back() -> None:
    """Also where its block takes more room than usual ones."""
    connection = schema.in_memory()
    values = [random.Random(number).randbytes(100_000) for number in range(BLOCK_RECORDS)]
    blocks.append(connection, 0, values)
    assert [blocks.read(connection, number) for number in range(BLOCK_RECORDS)] == values
    assert blocks.inflated(zlib.compress(values[0])) == values[0]


@pytest.mark.parametrize("values", [[b"\0" * (1 << 22)], [None] * (BLOCK_RECORDS + 1)])
def test_a_block_that_no_store_writes_is_not_unpacked(
    values: list[bytes | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever hands a store over may have made a few bytes of it into more than memory holds, with a sound checksum."""
    monkeypatch.setattr(blocks, "_RECORD_BYTES_MAX", 1 << 16)
    body = bytes(zstd.compress(msgspec.msgpack.encode(values)))
    connection = schema.in_memory()
    connection.execute("INSERT INTO block VALUES (0, ?)", (zlib.crc32(body).to_bytes(4, "big") + body,))
    with pytest.raises(InputError) as caught:
        blocks.read(connection, 0)
    assert caught.value.code == "store_unreadable"


@pytest.mark.parametrize("cut", [0, 4])
def test_a_definition_or_an_alert_is_inflated_to_its_longest_only(cut: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged one is an error too."""
    monkeypatch.setattr(blocks, "_RECORD_BYTES_MAX", 1_000)
    body = zlib.compress(b"\0" * (1_000 if cut else 1_002))
    with pytest.raises(zlib.error):
        blocks.inflated(body[: len(body) - cut])
    assert len(blocks.inflated(zlib.compress(b"\0" * 1_000))) == 1_000


def test_evidence_longer_than_a_record_is_none() -> None:
    """What is stored must be read back, and a block that is read is bounded."""
    value = of_role(history(), Role.EVIDENCE)[0].value
    assert value is not None
    assert read_line(value) is not None
    assert read_line(value + b" " * DEFAULT_LIMITS.record_bytes_max) is None
