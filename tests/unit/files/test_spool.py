"""Rows put in order on disk."""

from __future__ import annotations

import os
import random
import tempfile
from operator import itemgetter
from pathlib import Path

import pytest

from assay_stream.files.spool import Spool


def a_spool(**sizes: int) -> Spool[str]:
    return Spool(itemgetter(slice(2)), **sizes)


@pytest.mark.parametrize("sizes", [{}, {"in_memory_bytes_max": 1, "block_bytes": 1, "runs_max": 2}])
def test_rows_come_in_the_order_of_their_keys(sizes: dict[str, int]) -> None:
    rows = sorted((number, name, f"{number}{name}".encode()) for number in (-1, 2, 10) for name in ("", "a", "é"))
    with a_spool(**sizes) as spool:
        for row in random.Random(1).sample(rows, len(rows)):
            spool.put("one", row)
        spool.put("other", (0, "", b"other"))
        spool.finish()
        assert list(spool.rows("one")) == rows
        assert list(spool.rows("one", after=(2, "a"))) == rows[5:]
        assert list(spool.rows("other")) == [(0, "", b"other")]
        assert list(spool.rows("none")) == []


def test_of_equal_keys_the_first_row_counts() -> None:
    for sizes in ({}, {"in_memory_bytes_max": 1, "block_bytes": 1, "runs_max": 2}):
        with a_spool(**sizes) as spool:
            for value in (b"first", b"second", b"third"):
                spool.put("s", (1, "", value))
            spool.finish()
            assert [row[:2] for row in spool.rows("s")] == [(1, "")]


def test_rows_can_be_read_twice_and_added_to() -> None:
    with a_spool() as spool:
        spool.put("s", (2, "", b"2"))
        spool.finish()
        assert [row[-1] for row in spool.rows("s")] == [b"2"]
        spool.put("s", (1, "", b"1"))
        spool.finish()
        assert list(spool.rows("s")) == list(spool.rows("s")) == [(1, "", b"1"), (2, "", b"2")]


def test_nothing_is_left_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The temporary file has no name that anybody else could open."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with a_spool(in_memory_bytes_max=1, block_bytes=1) as spool:
        spool.put("s", (1, "", b"x" * 100))
        assert spool._file._rolled  # type: ignore[attr-defined]
    assert os.listdir(tmp_path) == []
