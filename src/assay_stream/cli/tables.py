"""Tables for a terminal: what strangers wrote is shown for what it is, and long names are shortened."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

import orjson
import typer

from assay_stream.cli.options import printable

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
    text = printable(str(value))
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
    return [
        "  ".join(text.ljust(width) for text, width in zip(cells, widths, strict=True)).rstrip() for cells in table
    ]


def json_line(row: Mapping[str, Any]) -> str:
    """Return a row as one line of JSON in ASCII, so that no character of it can steer a terminal.

    Args:
        row: what to write.
    """
    return "".join(
        character if character.isascii() else _escaped(character)
        for character in orjson.dumps(row).decode().replace("\x7f", "\\u007f")
    )


def print_table(rows: Iterable[Mapping[str, Any]], columns: Sequence[str], target: RowFormat) -> None:
    """Print rows, for a person or for a program.

    Args:
        rows: what to print.
        columns: what a person sees of them, in order.
        target: table, or one JSON object a line.
    """
    if target is RowFormat.JSON:
        for row in rows:
            typer.echo(json_line(row))
        return
    for line in table_lines(rows, columns):
        typer.echo(line)


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[index]:02x}{units[index + 1]:02x}" for index in range(0, len(units), 2))
