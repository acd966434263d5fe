"""Tables for a terminal: what strangers wrote is shown for what it is, and long names are shortened."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

import orjson
import typer

from assay_stream.text.escaping import json_text, visible

CELL_CHARACTERS_MAX = 44
"""Characters of one cell. A digest keeps its algorithm and twelve digits; JSON has it whole."""

_ELLIPSIS = "…"
_DIGEST_CHARACTERS = len("sha256:") + 12
_SHA256_CHARACTERS = len("sha256:") + 64


class RowFormat(StrEnum):
    """What rows are printed as."""

    TABLE = "table"
    JSON = "json"


def cell(value: object) -> str:
    """Return a value as a cell: nothing in it steers the terminal, and it is short.

    Args:
        value: any value; an origin's members stand as ``topic/partition/offset``.
    """
    if value is None or value == [] or value == ():
        return "-"
    if isinstance(value, Mapping) and value.keys() == {"topic", "partition", "offset"}:
        value = f"{value['topic']}/{value['partition']}/{value['offset']}"
    elif isinstance(value, list | tuple):
        value = ", ".join(cell(item) for item in value)
    text = visible(str(value))
    if text.startswith("sha256:") and len(text) == _SHA256_CHARACTERS:
        return text[:_DIGEST_CHARACTERS] + _ELLIPSIS
    return text if len(text) <= CELL_CHARACTERS_MAX else text[: CELL_CHARACTERS_MAX - 1] + _ELLIPSIS


def table_lines(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> list[str]:
    """Return rows as the lines of a table.

    Args:
        rows: what to show.
        columns: which members, in order.
    """
    table = [list(columns), *([cell(row.get(name)) for name in columns] for row in rows)]
    widths = [max(len(cells[index]) for cells in table) for index in range(len(columns))]
    return ["  ".join(text.ljust(width) for text, width in zip(cells, widths, strict=True)).rstrip() for cells in table]


def json_line(value: object, *, sort_keys: bool = False) -> str:
    """Return a value as one line of JSON in which nothing can steer a terminal or hide in it.

    Args:
        value: what to write.
        sort_keys: whether members stand in the order of their names.
    """
    return json_text(orjson.dumps(value, option=orjson.OPT_SORT_KEYS if sort_keys else None).decode())


def print_json(value: object, *, indented: bool = False, sort_keys: bool = False) -> None:
    """Print a value as JSON, as ``json_line`` writes it.

    Args:
        value: what to print.
        indented: whether to print it for a person, on many lines.
        sort_keys: whether members stand in the order of their names.
    """
    text = json_line(value, sort_keys=sort_keys)
    if indented:
        text = json_text(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())
    print_line(text)


def print_line(text: str) -> None:
    """Print a line in UTF-8: a terminal's own encoding may know fewer characters.

    Args:
        text: in which nothing steers a terminal.
    """
    typer.echo(text.encode())


def print_table(rows: Iterable[Mapping[str, Any]], columns: Sequence[str], target: RowFormat) -> None:
    """Print rows, for a person or for a program.

    Args:
        rows: what to print.
        columns: what a person sees of them, in order.
        target: table, or one JSON object a line.
    """
    if target is RowFormat.JSON:
        for row in rows:
            print_json(row)
        return
    for line in table_lines(rows, columns):
        print_line(line)
