"""The digest of everything that detection decides by."""

from __future__ import annotations

from pathlib import Path
from shutil import copytree

import pytest

from assay_stream.detect import RULES_DIGEST
from assay_stream.detect.catalog import digest_of

DATA = Path(digest_of.__code__.co_filename).parent / "data"


def test_a_copy_of_the_data_has_its_digest(tmp_path: Path) -> None:
    assert digest_of(Path(copytree(DATA, tmp_path / "data"))) == RULES_DIGEST


@pytest.mark.parametrize("name", ["rules.toml", "relations.toml", "weights.tsv", "phrases/en.toml"])
def test_any_change_of_any_file_is_another_digest(tmp_path: Path, name: str) -> None:
    data = Path(copytree(DATA, tmp_path / "data"))
    (data / name).write_bytes((data / name).read_bytes() + b"\n")
    assert digest_of(data) != RULES_DIGEST
