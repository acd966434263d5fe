"""The columns of an export (``columns.toml``): their names, their types, and where in a record each value stands."""

import tomllib
from collections.abc import Callable
from enum import StrEnum
from importlib import resources
from typing import Any, NamedTuple

from assay_stream.canonical.digest import canonicalize
from assay_stream.export.input import Dataset, ExportRecord, time_us_of

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
    ColumnType.TIME: lambda value: _int64(value * 1_000 if type(value) is int else time_us_of(value)),
    ColumnType.INTEGER: _int64,
    ColumnType.NUMBER: lambda value: float(value) if type(value) in (int, float) else None,
    ColumnType.FLAG: lambda value: value if type(value) is bool else None,
    ColumnType.JSON: lambda value: canonicalize(value).decode(),
}
