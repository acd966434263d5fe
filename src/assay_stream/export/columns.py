"""The columns of an export (``columns.toml``): their names, their types, and where in a record each value stands."""

from __future__ import annotations

import tomllib
from enum import StrEnum
from importlib import resources
from typing import Any, NamedTuple

from assay_stream.canonical.digest import canonicalize
from assay_stream.export.input import Item, Kind, time_us_of

INT64_MAX = 2**63 - 1


class ColumnType(StrEnum):
    """What a column holds; everything may be null."""

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


def _columns() -> dict[Kind, tuple[Column, ...]]:
    read = tomllib.loads(resources.files(__package__).joinpath("columns.toml").read_text("utf-8"))
    found = {}
    for kind in Kind:
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


def row_of(item: Item) -> dict[str, Value]:
    """Return a record as a row. A value of another type than its column's is null there; the record has it."""
    return {column.name: _value(item, column) for column in COLUMNS[item.kind]}


def _value(item: Item, column: Column) -> Value:
    if not column.path:
        return item.raw.decode()
    value: Any = item.content
    for name in column.path:
        if not isinstance(value, dict) or name not in value:
            return None
        value = value[name]
    return _READ[column.type](value)


def _text(value: Any) -> Value:
    return value if isinstance(value, str) else None


def _time(value: Any) -> Value:
    # Alerts have milliseconds since the epoch, envelopes a text.
    whole = _integer(value)
    time_us = whole * 1_000 if isinstance(whole, int) else time_us_of(value)
    return time_us if time_us is not None and abs(time_us) <= INT64_MAX else None


def _integer(value: Any) -> Value:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and abs(value) <= INT64_MAX else None


def _number(value: Any) -> Value:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _flag(value: Any) -> Value:
    return value if isinstance(value, bool) else None


def _json(value: Any) -> Value:
    return canonicalize(value).decode()


_READ = {
    ColumnType.TEXT: _text,
    ColumnType.TIME: _time,
    ColumnType.INTEGER: _integer,
    ColumnType.NUMBER: _number,
    ColumnType.FLAG: _flag,
    ColumnType.JSON: _json,
}
