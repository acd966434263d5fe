"""What commands print: JSON lines, tables, and the progress of long commands."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
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
    """Return a value as a cell: nothing in it steers the terminal, and it is short."""
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
    """Return rows as the lines of a table."""
    table = [list(columns), *([cell(row.get(name)) for name in columns] for row in rows)]
    widths = [max(len(cells[index]) for cells in table) for index in range(len(columns))]
    return ["  ".join(text.ljust(width) for text, width in zip(cells, widths, strict=True)).rstrip() for cells in table]


def json_line(value: object, *, sort_keys: bool = False) -> str:
    """Return a value as one line of JSON in which nothing can steer a terminal or hide in it."""
    return json_text(orjson.dumps(value, option=orjson.OPT_SORT_KEYS if sort_keys else None).decode())


def print_json(value: object, *, indented: bool = False, sort_keys: bool = False) -> None:
    """Print a value as JSON, as ``json_line`` writes it."""
    text = json_line(value, sort_keys=sort_keys)
    if indented:
        text = json_text(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())
    print_line(text)


def print_line(text: str) -> None:
    """Print a line in UTF-8: a terminal's own encoding may know fewer characters."""
    typer.echo(text.encode())


def print_summary(content: Mapping[str, Any], target: RowFormat) -> None:
    """Print a summary to standard error: in words for a person at a terminal, else as one JSON object."""
    if target is RowFormat.JSON or not sys.stderr.isatty():
        typer.echo(json_line({"summary": content}).encode(), err=True)
        return
    for line in summary_lines(content):
        typer.echo(line, err=True)


def summary_lines(content: Mapping[str, Any]) -> list[str]:
    """Return a summary in words: the counts in one line, and a line for each group that is not empty."""
    counts = [f"{value:,} {name}" for name, value in content.items() if not isinstance(value, Mapping)]
    groups = {name: value for name, value in content.items() if isinstance(value, Mapping) and value}
    lines = [", ".join(counts)]
    for name, group in groups.items():
        lines.append(f"{name}: " + ", ".join(f"{count:,} {cell(key)}" for key, count in group.items()))
    return lines


def print_table(rows: Iterable[Mapping[str, Any]], columns: Sequence[str], target: RowFormat) -> None:
    """Print rows, for a person or for a program."""
    if target is RowFormat.JSON:
        for row in rows:
            print_json(row)
        return
    for line in table_lines(rows, columns):
        print_line(line)


_EVERY_S = 1.0
_PARTITIONS_SHOWN_MAX = 8


class Meter:
    """Tells once a second how many calls are done, how fast, and how long it will take.

    Args:
        wanted: whether to tell at all; ``None``: on a terminal only.
        clock_s: seconds that only go up.
    """

    def __init__(self, wanted: bool | None, *, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._wanted = sys.stderr.isatty() if wanted is None else wanted
        self._overwrites = self._wanted and sys.stderr.isatty()
        self._clock_s = clock_s
        self._started_s = self._told_s = clock_s()
        self._first: int | None = None

    def reading(self, count: int) -> None:
        """Tell how many records were read in, if it is time to."""
        if self._is_time():
            self._tell(f"{count:,} records read")

    def replaying(self, partitions: Iterable[tuple[str, int, int]]) -> None:
        """Tell how far each partition of calls is, if it is time to."""
        if not self._is_time():
            return
        listed = list(partitions)
        done, total = sum(row[1] for row in listed), sum(row[2] for row in listed)
        if self._first is None:
            # The rate is that of this run, whatever was done before an interruption.
            self._first, self._started_s = done, self._clock_s()
            return
        rate = (done - self._first) / max(self._clock_s() - self._started_s, 0.001)
        left = f"{(total - done) / rate:,.0f} s left" if rate > 0 else "time left not known"
        each = ", ".join(f"{name} {_percent(part, of)}" for name, part, of in listed[:_PARTITIONS_SHOWN_MAX])
        more = f" and {len(listed) - _PARTITIONS_SHOWN_MAX} more" if len(listed) > _PARTITIONS_SHOWN_MAX else ""
        self._tell(f"{_percent(done, total)} of {total:,} calls, {rate:,.0f}/s, {left}: {each}{more}")

    def end(self) -> None:
        """Leave the line."""
        if self._overwrites:
            typer.echo("", err=True)

    def _is_time(self) -> bool:
        if not self._wanted or self._clock_s() - self._told_s < _EVERY_S:
            return False
        self._told_s = self._clock_s()
        return True

    def _tell(self, text: str) -> None:
        if self._overwrites:
            typer.echo(f"\r\x1b[K{text}", nl=False, err=True)
        else:
            typer.echo(f"assay-stream: {text}", err=True)


def _percent(part: int, total: int) -> str:
    return f"{100 * part // total if total else 100} %"
