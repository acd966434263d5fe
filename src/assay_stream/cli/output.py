"""What commands print: JSON lines, tables, and pages with colours."""

import csv
import io
import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, TextIO

import orjson
import typer
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from assay_stream.alerts.page import PageLine
from assay_stream.text.escaping import csv_cell, json_text, visible
from assay_stream.text.visible import LineSpan, Style

CELL_CHARACTERS_MAX = 44
"""Characters of one cell. A digest keeps its algorithm and twelve digits; JSON has it whole."""

_ELLIPSIS = "…"
_DIGEST_CHARACTERS = len("sha256:") + 12
_SHA256_CHARACTERS = len("sha256:") + 64
_COLUMNS_DEFAULT = 100
_COLUMNS_MIN = 40
_CHUNK_CHARS = 2_000
_CELL_MIN = 12

_LOOKS: dict[Style, str] = {
    "": "",
    "title": "bold",
    "dim": "dim",
    "grave": "bold red",
    "warn": "yellow",
    "mark": "black on yellow",
    "gone": "red strike",
    "come": "green",
}


class RowFormat(StrEnum):
    TABLE = "table"
    JSON = "json"


class ReportFormat(StrEnum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"


class Colour(StrEnum):
    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


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


def json_line(value: object, *, sort_keys: bool = False, indented: bool = False) -> str:
    """Return a value as JSON, on one line by default, in which nothing can steer a terminal or hide in it."""
    options = (orjson.OPT_SORT_KEYS if sort_keys else 0) | (orjson.OPT_INDENT_2 if indented else 0)
    return json_text(orjson.dumps(value, option=options).decode())


def print_json(value: object, *, sort_keys: bool = False, indented: bool = False) -> None:
    print_line(json_line(value, sort_keys=sort_keys, indented=indented))


def print_line(text: str) -> None:
    """Print a line in UTF-8: a terminal's own encoding may know fewer characters."""
    typer.echo(text.encode())


def print_rows(
    rows: Iterable[Mapping[str, Any]], columns: Sequence[str], target: RowFormat | ReportFormat, *, whole: bool = False
) -> None:
    """Print rows: some columns as a table for people or as CSV for a spreadsheet, or each row as one JSON object.

    Args:
        whole: whether long values stay whole in the table, to be copied.
    """
    if target == "json":
        for row in rows:
            print_json(row)
        return
    if target == "csv":
        for cells in ([*columns], *([_csv_cell(row.get(name)) for name in columns] for row in rows)):
            line = io.StringIO()
            csv.writer(line, lineterminator="\r").writerow(cells)  # the line feed follows with the line
            print_line(line.getvalue())
        return
    shown = cell if not whole else lambda value: "-" if value is None else visible(str(value))
    table = [
        [LineSpan(name) for name in columns],
        *([LineSpan(shown(row.get(name))) for name in columns] for row in rows),
    ]
    Painter(Colour.NEVER).table(table)


def _csv_cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        value = ", ".join(value)
    return csv_cell(value if isinstance(value, str) else orjson.dumps(value).decode())


def print_summary(content: Mapping[str, Any], target: RowFormat) -> None:
    """Print a summary to standard error: in words for a person at a terminal, else as one JSON object.

    The words are the counts in one line, and a line for each group that is not empty.
    """
    if target is RowFormat.JSON or not sys.stderr.isatty():
        typer.echo(json_line({"summary": content}).encode(), err=True)
        return
    counts = [f"{value:,} {name}" for name, value in content.items() if not isinstance(value, Mapping)]
    typer.echo(", ".join(counts), err=True)
    for name, group in content.items():
        if isinstance(group, Mapping) and group:
            typer.echo(f"{name}: " + ", ".join(f"{count:,} {cell(key)}" for key, count in group.items()), err=True)


class Painter:
    """Prints lines and tables to one stream.

    ``rich`` wraps and colours; its own tables would cut uids and digests where a terminal is narrow.
    """

    def __init__(self, colour: Colour, *, file: TextIO | None = None, columns: int | None = None) -> None:
        stream = sys.stdout if file is None else file
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            # A terminal that knows no Unicode gets escapes.
            reconfigure(errors="backslashreplace")
        self.is_terminal = stream.isatty()
        wanted = colour is Colour.ALWAYS
        if colour is Colour.AUTO:
            wanted = self.is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self.columns = max(columns or shutil.get_terminal_size((_COLUMNS_DEFAULT, 24)).columns, _COLUMNS_MIN)
        self._console = Console(
            file=stream,
            width=self.columns,
            force_terminal=wanted,
            color_system="standard" if wanted else None,
            no_color=not wanted,
            legacy_windows=False,
        )

    def lines(self, lines: Iterable[PageLine]) -> None:
        """Print lines, wrapped to the width, each with its gutter."""
        for line in lines:
            for text in _split(line.spans):
                parts: Iterable[Text] = [text]
                if line.wraps:
                    parts = text.wrap(self._console, self.columns - cell_len(line.gutter), overflow="fold")
                for part in parts:
                    if line.wraps:
                        part.rstrip()
                    self._print(Text.assemble((line.gutter, "dim"), part))

    def table(self, rows: Sequence[Sequence[LineSpan]], *, flexible: Sequence[int] = ()) -> None:
        """Print rows in columns; on a narrow terminal the flexible columns are cut."""
        widths = [max(cell_len(span.text) for span in column) for column in zip(*rows, strict=True)]
        over = sum(widths) + 2 * (len(widths) - 1) - self.columns if self.is_terminal else 0
        for index in sorted(flexible, key=lambda each: -widths[each]):
            cut = min(max(over, 0), max(widths[index] - _CELL_MIN, 0))
            widths[index] -= cut
            over -= cut
        for row in rows:
            text = Text()
            for span, width in zip(row, widths, strict=True):
                shown = span.text if cell_len(span.text) <= width else set_cell_size(span.text, width - 1) + _ELLIPSIS
                text.append(set_cell_size(shown, width), _LOOKS[span.style]).append("  ")
            text.rstrip()
            self._print(text)

    def _print(self, text: Text) -> None:
        self._console.print(text, no_wrap=True, overflow="ignore", crop=False, soft_wrap=True)


def _split(spans: Iterable[LineSpan]) -> Iterable[Text]:
    """Yield what stands between two line feeds; in pieces, for wrapping takes more than linear time."""
    text = Text()
    for span in spans:
        for number, piece in enumerate(span.text.split("\n")):
            if number:
                yield text
                text = Text()
            for start in range(0, len(piece), _CHUNK_CHARS):
                if len(text) > _CHUNK_CHARS:
                    yield text
                    text = Text()
                text.append(piece[start : start + _CHUNK_CHARS], _LOOKS[span.style])
    yield text
