"""Datasets as Parquet files, read back by their own library."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from assay_stream.errors import ConfigurationError, InputError
from assay_stream.export import rows as module
from assay_stream.export.input import Dataset
from assay_stream.export.rows import COLUMNS, Value, write_parquet

ROW: dict[str, Value] = {column.name: None for column in COLUMNS[Dataset.EVIDENCE]}


def rows(count: int) -> list[dict[str, Value]]:
    return [ROW | {"origin_offset": number, "time": 1_772_366_400_000_001, "ok": True} for number in range(count)]


def test_types_are_the_columns(tmp_path: Path) -> None:
    write_parquet(tmp_path / "e.parquet", Dataset.EVIDENCE, [ROW])
    schema = pq.read_schema(tmp_path / "e.parquet")
    assert schema.names == list(ROW)
    found = {name: schema.field(name).type for name in ("time", "id", "ok", "duration_ms", "origin_offset")}
    assert found == {
        "time": pa.timestamp("us", tz="UTC"),
        "id": pa.string(),
        "ok": pa.bool_(),
        "duration_ms": pa.float64(),
        "origin_offset": pa.int64(),
    }


def test_values_are_read_back(tmp_path: Path) -> None:
    assert write_parquet(tmp_path / "e.parquet", Dataset.EVIDENCE, rows(3)) == 3
    (first, *_) = found = pq.read_table(tmp_path / "e.parquet").to_pylist()
    assert [line["origin_offset"] for line in found] == [0, 1, 2]
    assert (first["time"], first["ok"]) == (datetime(2026, 3, 1, 12, 0, 0, 1, tzinfo=UTC), True)


def test_rows_are_written_in_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROWS_PER_GROUP", 4)
    write_parquet(tmp_path / "e.parquet", Dataset.EVIDENCE, rows(9))
    assert pq.read_metadata(tmp_path / "e.parquet").num_row_groups == 3
    monkeypatch.setattr(module, "ROW_GROUP_BYTES", 10)
    write_parquet(tmp_path / "e.parquet", Dataset.EVIDENCE, [row | {"record": "x" * 20} for row in rows(3)])
    assert pq.read_metadata(tmp_path / "e.parquet").num_row_groups == 3


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "e.parquet"
    path.write_bytes(b"before")

    def broken() -> Iterator[dict[str, Any]]:
        yield ROW
        raise InputError("not_exportable", "x")

    with pytest.raises(InputError):
        write_parquet(path, Dataset.EVIDENCE, broken())
    assert (path.read_bytes(), os.listdir(tmp_path)) == (b"before", ["e.parquet"])


def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigurationError, match=r"assay-stream\[parquet\]") as caught:
        module.check_installed()
    assert caught.value.code == "extra_missing"


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        write_parquet(tmp_path / "no" / "e.parquet", Dataset.EVIDENCE, [ROW])
    assert caught.value.code == "unwritable_file"
