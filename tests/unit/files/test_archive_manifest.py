"""What an archive says about its own making."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay_stream.errors import InputError
from assay_stream.files.archive import ARCHIVE_MANIFEST, ArchivedOffsets, archived_offsets, check_whole, manifest_bytes

CALLS, LISTS = ("calls", 0), ("lists", 0)


def test_a_manifest_gives_back_what_was_written(tmp_path: Path) -> None:
    assert archived_offsets([tmp_path / "calls.ndjson"]) == ArchivedOffsets({}, {})
    (tmp_path / ARCHIVE_MANIFEST).write_bytes(manifest_bytes({CALLS: 9, LISTS: 4}, {CALLS: 7}, {CALLS: 8}))
    assert archived_offsets([tmp_path / "calls.ndjson"]) == ArchivedOffsets({CALLS: 7}, {CALLS: 8})


def test_a_manifest_that_names_no_last_offset_is_read(tmp_path: Path) -> None:
    raw = b'{"schema":"assay.archive.v1","partitions":[{"topic":"calls","partition":0,"end":9,"joined":7}]}'
    (tmp_path / ARCHIVE_MANIFEST).write_bytes(raw)
    assert archived_offsets([tmp_path / "x"]) == ArchivedOffsets({CALLS: 7}, {})


@pytest.mark.parametrize("ranges", [{CALLS: (0, 7)}, {("calls", 1): (0, 9)}])
def test_an_archive_that_lost_its_end_is_refused(ranges: dict[tuple[str, int], tuple[int, int]]) -> None:
    with pytest.raises(InputError) as caught:
        check_whole(ArchivedOffsets({}, {CALLS: 8}), ranges)
    assert caught.value.code == "archive_truncated"


@pytest.mark.parametrize("ranges", [{CALLS: (0, 8)}, {CALLS: (3, 12)}, {LISTS: (0, 4)}])
def test_a_whole_archive_or_another_topic_is_not(ranges: dict[tuple[str, int], tuple[int, int]]) -> None:
    check_whole(ArchivedOffsets({}, {CALLS: 8}), ranges)
