"""The shelf on disk: what is put there is read back or refused, and the file is gone with its process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay_stream.errors import IntegrityError, OperatingError
from assay_stream.files.shelf import ShelfFile


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[ShelfFile]:
    """An empty shelf."""
    made = ShelfFile(tmp_path)
    yield made
    made.close()


def test_what_is_put_is_read_back(shelf: ShelfFile) -> None:
    """Of any length, in any order."""
    texts = [bytes([number % 256]) * (number * 97 + 1) for number in range(50)]
    places = [shelf.put(text) for text in texts]
    assert [shelf.get(place) for place in reversed(places)] == texts[::-1]


def test_free_places_are_written_again(shelf: ShelfFile) -> None:
    """Rows that come and go for ever do not make the file grow, and what stays keeps its content."""
    kept = shelf.put(b"kept" * 100)
    size_bytes = []
    for number in range(100):
        place = shelf.put(b"%d" % number * 200)
        shelf.free(place)
        size_bytes.append(shelf.size_bytes)
    assert len(set(size_bytes[10:])) == 1
    assert shelf.get(kept) == b"kept" * 100


def test_no_file_is_left_behind(shelf: ShelfFile, tmp_path: Path) -> None:
    """It has no name: a killed worker leaves nothing to clear away."""
    shelf.put(b"rows")
    assert list(tmp_path.iterdir()) == []


def test_damaged_rows_are_refused(shelf: ShelfFile) -> None:
    """Bytes that changed on the disk, or are gone, never reach an answer."""
    place = shelf.put(b"rows of lists")
    os.pwrite(shelf._file, b"X", 9)
    with pytest.raises(IntegrityError, match="state_dir_damaged"):
        shelf.get(place)
    os.ftruncate(shelf._file, 5)
    with pytest.raises(IntegrityError, match="state_dir_damaged"):
        shelf.get(place)


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    """The message says which folder, and what to do."""
    with pytest.raises(OperatingError, match=r"state_dir_failed.*missing.*ASSAY_STREAM_STATE_DIR"):
        ShelfFile(tmp_path / "missing")


def test_a_full_disk_is_an_error_and_loses_nothing(shelf: ShelfFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """The place that could not be written is written by the next one."""
    first = shelf.put(b"first")

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        with pytest.raises(OperatingError, match=r"No space left"):
            shelf.put(b"second")
    second = shelf.put(b"second")
    assert (shelf.get(first), shelf.get(second)) == (b"first", b"second")
