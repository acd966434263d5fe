"""Files that may be compressed."""

import gzip
from pathlib import Path
from typing import Any

import pytest
import zstandard

from assay_stream.errors import AssayStreamError
from assay_stream.files.archive import read_files
from assay_stream.files.compressed import opened

TEXT = b"".join(b"line %d\n" % number for number in range(5_000))
FORMS = {
    "plain": TEXT,
    "gzip": gzip.compress(TEXT),
    "gzip twice": gzip.compress(TEXT[:100]) + gzip.compress(TEXT[100:]),
    "zstd": zstandard.compress(TEXT),
    "zstd twice": zstandard.compress(TEXT[:100]) + zstandard.compress(TEXT[100:]),
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
