"""Records as rows of typed columns (``columns.toml``), in Parquet files and in Timesketch timelines.

Timesketch asks for ``message``, ``datetime`` (ISO 8601) and ``timestamp_desc``, takes ``timestamp`` (microseconds
since the epoch) beside them, and every further column as an attribute (its guide "Create timeline from JSONL or
CSV file"). It reads files named ``.csv`` and ``.jsonl`` only.
"""

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from enum import StrEnum
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from assay_stream.canonical.digest import canonicalize
from assay_stream.errors import needing_extra
from assay_stream.export.input import Dataset, ExportRecord
from assay_stream.files.local import Aside, writing
from assay_stream.text.escaping import csv_line, json_bytes
from assay_stream.text.times import EPOCH, LAST_US, time_us_in

INT64_MAX = 2**63 - 1


class ColumnType(StrEnum):
    TEXT = "text"
    TIME = "time"
    INTEGER = "integer"
    NUMBER = "number"
    FLAG = "flag"
    JSON = "json"


class Column(NamedTuple):
    """One column, and the members that lead to its value in a record; none for the record itself.

    A time is microseconds since the epoch, JSON is canonical text.
    """

    name: str
    type: ColumnType
    path: tuple[str, ...]


def _columns() -> dict[Dataset, tuple[Column, ...]]:
    read = tomllib.loads(resources.files(__package__).joinpath("columns.toml").read_text("utf-8"))
    found = {}
    for kind in Dataset:
        columns = []
        for group in read[kind.value]:
            for text in group["names"].split():
                name, _, path = text.partition("=")
                columns.append(Column(name, ColumnType(group["type"]), (*group["at"], *(path or name).split("."))))
        found[kind] = (*columns, Column("record", ColumnType.JSON, ()))
    return found


COLUMNS = _columns()
"""The columns of each dataset, in order; the last one of each holds the whole record."""

Value = str | int | float | bool | None


def row_of(item: ExportRecord) -> dict[str, Value]:
    """Return a record as a row. A value of another type than its column's is null there; the record has it."""
    return {column.name: _value(item, column) for column in COLUMNS[item.kind]}


def _value(item: ExportRecord, column: Column) -> Value:
    if not column.path:
        return item.raw.decode()
    value: Any = item.content
    for name in column.path:
        if not isinstance(value, dict) or name not in value:
            return None
        value = value[name]
    return _READ[column.type](value)


def _int64(value: Any) -> int | None:
    return value if type(value) is int and abs(value) <= INT64_MAX else None


_READ: dict[ColumnType, Callable[[Any], Value]] = {
    ColumnType.TEXT: lambda value: value if type(value) is str else None,
    # Alerts have milliseconds since the epoch, envelopes a text.
    ColumnType.TIME: lambda value: _int64(value * 1_000 if type(value) is int else time_us_in(value)),
    ColumnType.INTEGER: _int64,
    ColumnType.NUMBER: lambda value: float(value) if type(value) in (int, float) else None,
    ColumnType.FLAG: lambda value: value if type(value) is bool else None,
    ColumnType.JSON: lambda value: canonicalize(value).decode(),
}


_DESCRIPTIONS = {Dataset.EVIDENCE: "Tool Call Time", Dataset.ALERTS: "Alert Time"}
_DATA_TYPES = {Dataset.EVIDENCE: "assay_stream:evidence", Dataset.ALERTS: "assay_stream:alert"}
_OURS = ("message", "datetime", "timestamp", "timestamp_desc", "data_type")
_LEFT_OUT = {"time", "message", "record"}
HEADER = (
    *_OURS,
    *dict.fromkeys(column.name for kind in _DESCRIPTIONS for column in COLUMNS[kind] if column.name not in _LEFT_OUT),
)
"""The columns of the CSV file; a JSON line has those that are not null."""


def event_of(item: ExportRecord) -> dict[str, Value]:
    row = row_of(item)
    time_us = min(max(item.place.time_us, 0), LAST_US)
    event: dict[str, Value] = {
        "message": _message(item.kind, row),
        "datetime": (EPOCH + timedelta(microseconds=time_us)).isoformat(timespec="microseconds"),
        "timestamp": time_us,
        "timestamp_desc": _DESCRIPTIONS[item.kind],
        "data_type": _DATA_TYPES[item.kind],
    }
    for column in COLUMNS[item.kind]:
        value = row[column.name]
        if column.name in _LEFT_OUT or value is None:
            continue
        if column.type is ColumnType.TIME and isinstance(value, int):
            value = (EPOCH + timedelta(microseconds=min(max(value, 0), LAST_US))).isoformat()
        event[column.name] = value
    return event


def _message(kind: Dataset, row: dict[str, Value]) -> Value:
    if kind is Dataset.ALERTS:
        return f"Alert ({row['severity']}, {row['activity']}): {row['message'] or row['title']}"
    subject = f"{row['server_id']}/{row['tool_name']}"
    bound = row["tool_definition_digest"] or f"unbound ({row['unbound_reason']})"
    return f"Tool call {row['decision']}: {subject}, definition {bound}, pin {row['pin_status']}"


def as_jsonl(items: Iterable[ExportRecord]) -> Iterator[bytes]:
    for item in items:
        yield json_bytes(orjson.dumps(event_of(item))) + b"\n"


def as_csv(items: Iterable[ExportRecord]) -> Iterator[bytes]:
    """Yield the lines of a CSV file of evidence and alerts, header first.

    Names of servers and tools are not ours, and a spreadsheet may run what starts like a formula: see ``csv_line``.
    JSON lines hold names as they are.
    """
    yield csv_line(HEADER).encode()
    for item in items:
        event = event_of(item)
        yield csv_line(event.get(name) for name in HEADER).encode()


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
    arrow, parquet = parquet_library()
    schema = arrow.schema([(column.name, _arrow_type(arrow, column.type)) for column in COLUMNS[kind]])
    count = 0
    with writing(path), Aside() as aside, parquet.ParquetWriter(aside.path(path), schema, compression="zstd") as writer:
        for group in _groups(rows):
            count += len(group)
            writer.write_table(arrow.Table.from_pylist(group, schema=schema))
    return count


def parquet_library() -> tuple[Any, Any]:
    """Return the modules that write Parquet files.

    Raises:
        ConfigurationError: ``extra_missing``.
    """
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
