"""Records kept in blocks."""

from __future__ import annotations

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_stream.errors import InputError
from assay_stream.readmodel import blocks, schema
from assay_stream.readmodel.blocks import BLOCK_RECORDS


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
