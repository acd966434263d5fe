"""Evidence, alerts and definitions as Parquet files: typed columns, written in row groups."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from assay_stream.errors import needing_extra
from assay_stream.export.columns import COLUMNS, ColumnType, Value
from assay_stream.export.input import Dataset
from assay_stream.files.aside import Aside
from assay_stream.files.failures import writing

ROWS_PER_GROUP = 10_000
"""Rows held in memory at once: some 20 MB of evidence."""
ROW_GROUP_BYTES = 64 * 1024 * 1024
"""Or as many as have this much text: a definition may have megabytes."""


def write_parquet(path: Path, kind: Dataset, rows: Iterable[Mapping[str, Value]]) -> int:
    """Write a dataset, replacing the file whole or not at all, and return its number of rows.

    Raises:
        ConfigurationError: ``extra_missing``.
        InputError: ``unwritable_file``.
    """
    arrow, parquet = _libraries()
    schema = arrow.schema([(column.name, _arrow_type(arrow, column.type)) for column in COLUMNS[kind]])
    count = 0
    with writing(path), Aside() as aside, parquet.ParquetWriter(aside.path(path), schema, compression="zstd") as writer:
        for group in _groups(rows):
            count += len(group)
            writer.write_table(arrow.Table.from_pylist(group, schema=schema))
    return count


def check_installed() -> None:
    """Check for the library that writes before any work is done.

    Raises:
        ConfigurationError: ``extra_missing``.
    """
    _libraries()


def _libraries() -> tuple[Any, Any]:
    with needing_extra("parquet"):
        import pyarrow
        import pyarrow.parquet
    return pyarrow, pyarrow.parquet


def _arrow_type(arrow: Any, type_: ColumnType) -> Any:
    types = {
        ColumnType.TIME: arrow.timestamp("us", tz="UTC"),
        ColumnType.INTEGER: arrow.int64(),
        ColumnType.NUMBER: arrow.float64(),
        ColumnType.FLAG: arrow.bool_(),
    }
    return types.get(type_, arrow.string())


def _groups(rows: Iterable[Mapping[str, Value]]) -> Iterator[list[Mapping[str, Value]]]:
    remaining = iter(rows)
    while first := list(islice(remaining, 1)):
        group, size_bytes = first, _size_bytes(first[0])
        while len(group) < ROWS_PER_GROUP and size_bytes < ROW_GROUP_BYTES:
            row = next(remaining, None)
            if row is None:
                break
            group.append(row)
            size_bytes += _size_bytes(row)
        yield group


def _size_bytes(row: Mapping[str, Value]) -> int:
    return sum(len(value) for value in row.values() if isinstance(value, str))
