"""Archives: their manifests, folders of their files, and what may be compressed."""

import gzip
import os
from pathlib import Path
from typing import Any

import pytest
import zstandard

from assay_stream.errors import AssayStreamError, InputError
from assay_stream.files.archive import (
    ARCHIVE_MANIFEST,
    ArchivedOffsets,
    archived_offsets,
    check_whole,
    files_in,
    manifest_bytes,
    opened,
    read_files,
)
from tests.support.errors import raises_code

TEXT = b"".join(b"line %d\n" % number for number in range(5_000))
FORMS = {
    "plain": TEXT,
    "gzip": gzip.compress(TEXT),
    "gzip twice": gzip.compress(TEXT[:100]) + gzip.compress(TEXT[100:]),
    "zstd": zstandard.compress(TEXT),
    "zstd twice": zstandard.compress(TEXT[:100]) + zstandard.compress(TEXT[100:]),
    "zstd behind a skippable frame": b"\x5f\x2a\x4d\x18\x04\x00\x00\x00size" + zstandard.compress(TEXT),
}


def read(path: Path, **options: Any) -> bytes:
    with opened(path, **options) as stream:
        return stream.read()


def refused(path: Path, **options: int) -> str:
    with pytest.raises(AssayStreamError) as caught:
        read(path, **options)
    return caught.value.code


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_bytes(form: str, tmp_path: Path) -> None:
    path = tmp_path / "any"
    path.write_bytes(FORMS[form])
    assert read(path) == TEXT


@pytest.mark.parametrize("form", ["gzip", "zstd"])
def test_a_cut_file_is_named_as_cut(form: str, tmp_path: Path) -> None:
    path = tmp_path / "any"
    path.write_bytes(FORMS[form][:-20])
    assert refused(path) == "archive_truncated"


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_an_empty_file_that_should_be_compressed_is_named_as_cut(suffix: str, tmp_path: Path) -> None:
    """An archive without records has a header and a trailer, too: no byte at all is a copy that failed."""
    path = tmp_path / f"calls.ndjson.{suffix}"
    path.touch()
    assert refused(path) == "archive_truncated"


@pytest.mark.parametrize("form", ["gzip", "zstd"])
def test_a_damaged_file_is_named_as_damaged(form: str, tmp_path: Path) -> None:
    path = tmp_path / "any"
    path.write_bytes(FORMS[form][:12] + b"\xff" * 50 + FORMS[form][62:])
    assert refused(path) == "archive_damaged"


@pytest.mark.parametrize("form", FORMS)
def test_a_bomb_ends_at_the_limit(form: str, tmp_path: Path) -> None:
    path = tmp_path / "any"
    path.write_bytes(FORMS[form])
    assert read(path, decoded_bytes_max=len(TEXT)) == TEXT
    assert refused(path, decoded_bytes_max=len(TEXT) - 1) == "archive_too_large"


def test_a_missing_file_and_a_folder_are_unreadable(tmp_path: Path) -> None:
    assert refused(tmp_path / "none") == refused(tmp_path) == "unreadable_file"


@pytest.mark.parametrize("form", FORMS)
def test_a_replay_reads_each_form(form: str, tmp_path: Path) -> None:
    path = tmp_path / "any"
    path.write_bytes(FORMS[form])
    assert [record.value for record in read_files([path])] == TEXT.splitlines()


def a_folder(path: Path, *names: str) -> Path:
    for name in names:
        (path / name).touch()
    return path


def names_of(path: Path, kind: str | None = None) -> list[str]:
    return [file.name for file in files_in(path, kind)]


def test_a_file_stands_for_itself(tmp_path: Path) -> None:
    assert list(files_in(tmp_path / "x.bin")) == [tmp_path / "x.bin"]


def test_an_archive_gives_its_observations_and_its_manifest(tmp_path: Path) -> None:
    folder = a_folder(
        tmp_path, "snapshots.ndjson.zst", "calls.ndjson.gz", "control.ndjson", "archive.json", ".hidden.ndjson"
    )
    assert names_of(folder) == ["calls.ndjson.gz", "control.ndjson", "snapshots.ndjson.zst", "archive.json"]


def test_results_of_a_replay_are_no_observations(tmp_path: Path) -> None:
    folder = a_folder(tmp_path, "evidence.ndjson", "alerts.ndjson", "definitions.ndjson", "o.jsonl", "notes.txt")
    assert names_of(folder) == ["o.jsonl"]
    assert names_of(folder, "evidence") == ["evidence.ndjson"]
    assert names_of(folder, "alerts") == ["alerts.ndjson"]


def test_an_archive_of_seals_gives_the_evidence_of_every_partition(tmp_path: Path) -> None:
    folder = a_folder(tmp_path, "evidence-0.ndjson.gz", "evidence-1.ndjson.gz", "checkpoints-0.ndjson")
    assert names_of(folder, "evidence") == ["evidence-0.ndjson.gz", "evidence-1.ndjson.gz"]


@pytest.mark.parametrize("kind", [None, "evidence"])
def test_a_folder_without_such_files_is_an_error(tmp_path: Path, kind: str | None) -> None:
    with pytest.raises(InputError, match=r"unreadable_file.*ndjson"):
        names_of(a_folder(tmp_path, "notes.txt"), kind)


def test_a_folder_of_results_alone_is_called_that(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no file of observations.*these are results\..*--evidence"):
        names_of(a_folder(tmp_path, "evidence.ndjson", "alerts.ndjson"))


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    """A pipe under the name of a file has nobody at its other end."""
    os.mkfifo(tmp_path / "in.ndjson")
    with pytest.raises(InputError, match=r"in\.ndjson: it is not a file"):
        names_of(tmp_path)


@pytest.mark.parametrize("packed", ["in.ndjson.gz", "in.ndjson.zst"])
def test_a_file_and_its_packed_copy_are_not_both_read(tmp_path: Path, packed: str) -> None:
    """What ``gzip -k`` leaves would give every record twice."""
    with pytest.raises(InputError, match="twice"):
        names_of(a_folder(tmp_path, "in.ndjson", packed))


def test_what_is_skipped_in_a_folder_is_named(tmp_path: Path) -> None:
    """With the reason, once for the folder: a file that only begins like a result would be missed otherwise."""
    folder = a_folder(tmp_path, "changes-of-may.ndjson", "evidence.ndjson", "o.ndjson", "notes.txt", ".hidden")
    for kind, read, said in (
        (None, ["o.ndjson"], "skipped changes-of-may.ndjson, evidence.ndjson, notes.txt (named like results"),
        ("evidence", ["evidence.ndjson"], "skipped o.ndjson (not evidence*.ndjson)"),
    ):
        skipped: list[str] = []
        assert [file.name for file in files_in(folder, kind, skipped.append)] == read
        [sentence] = skipped
        assert said in sentence


def test_nothing_is_said_where_nothing_is_skipped(tmp_path: Path) -> None:
    folder = a_folder(tmp_path, "calls.ndjson", "archive.json")
    skipped: list[str] = []
    list(files_in(folder, None, skipped.append))
    list(files_in(a_folder(tmp_path, "alerts.ndjson", "evidence.ndjson") / "calls.ndjson", None, skipped.append))
    (folder / "calls.ndjson").unlink()
    list(files_in(folder, "alerts", skipped.append))
    assert skipped == []


def test_many_skipped_files_are_counted(tmp_path: Path) -> None:
    skipped: list[str] = []
    list(files_in(a_folder(tmp_path, "o.ndjson", *(f"{n}.txt" for n in range(10))), None, skipped.append))
    assert "7.txt and 2 more" in skipped[0]


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
    with raises_code("archive_truncated"):
        check_whole(ArchivedOffsets({}, {CALLS: 8}), ranges)


@pytest.mark.parametrize("ranges", [{CALLS: (0, 8)}, {CALLS: (3, 12)}, {LISTS: (0, 4)}])
def test_a_whole_archive_or_another_topic_is_not(ranges: dict[tuple[str, int], tuple[int, int]]) -> None:
    check_whole(ArchivedOffsets({}, {CALLS: 8}), ranges)
