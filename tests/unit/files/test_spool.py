"""Records put in order on disk."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from assay_stream.files.spool import Place, Spool


def test_records_come_in_the_order_of_their_places() -> None:
    """Time first, then name, partition and offset, each by its own order; other kinds apart."""
    places = [Place("k", *rest) for rest in [(1, "b", 0, 0), (1, "a", 2, 0), (1, "a", 10, 0), (2, "", 0, 9)]]
    expected = sorted(places)
    with Spool() as spool:
        for place in reversed(expected):
            spool.add(place, repr(place).encode())
        spool.add(Place("other"), b"other")
        assert list(spool.records("k")) == [repr(place).encode() for place in expected]
        assert list(spool.records("other")) == [b"other"]


def test_equal_records_count_once() -> None:
    """The same bytes at the same place; other bytes there are another record."""
    with Spool() as spool:
        for raw in (b"x", b"y", b"x", b"x"):
            spool.add(Place("k"), raw)
        assert sorted(spool.records("k")) == [b"x", b"y"]


def test_equal_bytes_at_two_places_are_two_records() -> None:
    """A place is part of what a record is."""
    with Spool() as spool:
        spool.add(Place("k", 1), b"x")
        spool.add(Place("k", 2), b"x")
        assert list(spool.records("k")) == [b"x", b"x"]


def test_records_can_be_read_twice_and_added_to() -> None:
    """Reading does not use them up."""
    with Spool() as spool:
        spool.add(Place("k", 2), b"2")
        assert list(spool.records("k")) == [b"2"]
        spool.add(Place("k", 1), b"1")
        assert list(spool.records("k")) == list(spool.records("k")) == [b"1", b"2"]


def test_nothing_is_left_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The temporary file goes with the spool."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Spool() as spool:
        spool.add(Place("k"), b"x")
        assert os.listdir(tmp_path)
    assert os.listdir(tmp_path) == []
