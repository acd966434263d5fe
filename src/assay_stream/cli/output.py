"""What commands print: JSON lines, tables, and pages with colours."""

import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TextIO

import orjson
import typer
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from assay_stream.errors import InputError
from assay_stream.text.escaping import LineSpan, PageLine, Style, csv_line, json_text, shown

CELL_CHARACTERS_MAX = 44
"""Characters of one cell. A digest keeps its algorithm and twelve digits; JSON has it whole."""

_ELLIPSIS = "…"
_COLUMNS_DEFAULT = 100
_COLUMNS_MIN = 40
_CHUNK_CHARS = 2_000
_CELL_MIN = 12
_GAP = 2
_UNCUT = frozenset({"value", "scheme", "time", "since", "reference", "calls", "action", "now", "planned"})
"""Columns whose values say nothing, or something else, if they are cut."""
_SHA256 = re.compile(r"(sha256:[0-9a-f]{12})[0-9a-f]{52}\b")

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


RowFormat = Literal["table", "json"]
ReportFormat = Literal["table", "json", "csv"]
Colour = Literal["auto", "always", "never"]


def cell(value: object) -> str:
    """Format a value as a short table cell, escaped for terminals."""
    if value is None or value == [] or value == ():
        return "-"
    if isinstance(value, Mapping) and value.keys() == {"topic", "partition", "offset"}:
        value = f"{value['topic']}/{value['partition']}/{value['offset']}"
    elif isinstance(value, list | tuple):
        value = ", ".join(cell(item) for item in value)
    text = shown(str(value))
    text = _SHA256.sub(rf"\1{_ELLIPSIS}", text)
    return text if len(text) <= CELL_CHARACTERS_MAX else text[: CELL_CHARACTERS_MAX - 1] + _ELLIPSIS


def json_line(value: object, *, sort_keys: bool = False, indented: bool = False) -> str:
    """Format a value as JSON, on one line by default, escaped so that nothing can steer a terminal or hide in it."""
    options = (orjson.OPT_SORT_KEYS if sort_keys else 0) | (orjson.OPT_INDENT_2 if indented else 0)
    return json_text(orjson.dumps(value, option=options).decode())


def print_json(value: object, *, sort_keys: bool = False, indented: bool = False) -> None:
    print_line(json_line(value, sort_keys=sort_keys, indented=indented))


def refusal(error: InputError) -> dict[str, Any]:
    """Return the verdict on what an error refuses, for JSON output."""
    return {"valid": False, "code": error.code, "path": error.path, "message": error.message}


def print_line(text: str) -> None:
    """Print a line in UTF-8: the terminal's own encoding may lack characters."""
    typer.echo(text.encode())


def print_rows(
    rows: Iterable[Mapping[str, Any]], columns: Sequence[str], target: ReportFormat, *, whole: bool = False
) -> None:
    """Print rows as a table, as CSV, or as one JSON object each; ``columns`` applies to table and CSV.

    Args:
        whole: keep long values whole in the table, for copying.
    """
    if target == "json":
        for row in rows:
            print_json(row)
        return
    if target == "csv":
        typer.echo(csv_line(columns).encode(), nl=False)
        for row in rows:
            typer.echo(csv_line(row.get(name) for name in columns).encode(), nl=False)
        return
    written = cell if not whole else lambda value: "-" if value is None else shown(str(value))
    flexible = [name for name in columns if name not in _UNCUT and not whole]
    Painter("never").table(columns, [[written(row.get(name)) for name in columns] for row in rows], flexible=flexible)


def print_summary(content: Mapping[str, Any], target: RowFormat) -> None:
    """Print a summary to standard error: as text on a terminal, else as one JSON object.

    The text has the counts on one line, and a line for each non-empty group.
    """
    if target == "json" or not sys.stderr.isatty():
        typer.echo(json_line({"summary": content}).encode(), err=True)
        return
    counts = [f"{value:,} {name}" for name, value in content.items() if not isinstance(value, Mapping)]
    typer.echo(", ".join(counts), err=True)
    for name, group in content.items():
        if isinstance(group, Mapping) and group:
            typer.echo(f"{name}: " + ", ".join(f"{count:,} {cell(key)}" for key, count in group.items()), err=True)


class Painter:
    """Print lines and tables to one stream.

    ``rich`` wraps and colours; its own tables would truncate uids and digests on a narrow terminal.
    """

    def __init__(self, colour: Colour, *, file: TextIO | None = None, columns: int | None = None) -> None:
        stream = sys.stdout if file is None else file
        self.is_terminal = stream.isatty()
        wanted = colour == "always"
        if colour == "auto":
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
        """Print lines, wrapped to the terminal width, each with its gutter."""
        for line in lines:
            for text in _split(line.spans):
                parts: Iterable[Text] = [text]
                if line.wraps:
                    parts = text.wrap(self._console, self.columns - cell_len(line.gutter), overflow="fold")
                for part in parts:
                    if line.wraps:
                        part.rstrip()
                    self._print(Text.assemble((line.gutter, "dim"), part))

    def table(
        self,
        headings: Sequence[str],
        cells: Iterable[Sequence[str | LineSpan]],
        *,
        flexible: Sequence[str] = (),
        optional: Sequence[str] = (),
        wide: bool = False,
    ) -> None:
        """Print rows of cells in columns.

        If the terminal is too narrow, flexible columns are truncated, then optional ones dropped; if that does not
        suffice, each row is printed as a block of lines. Off a terminal, and if ``wide``, lines are as long as needed.

        Args:
            flexible: headings of columns that may be truncated; headings that the table lacks do not matter.
            optional: headings of columns that may be dropped, least important first.
        """
        may_cut, may_drop = ([headings.index(name) for name in of if name in headings] for of in (flexible, optional))
        rows = [[LineSpan(name, "dim") for name in headings]]
        rows += [[LineSpan(each) if isinstance(each, str) else each for each in row] for row in cells]
        widths = [max(cell_len(span.text) for span in column) for column in zip(*rows, strict=True)]
        wanted, left_out = tuple(widths), list[int]()
        if self.is_terminal and not wide:
            over = sum(widths) + _GAP * (len(widths) - 1) - self.columns
            for index in sorted(may_cut, key=lambda each: -widths[each]):
                cut = min(max(over, 0), max(widths[index] - _CELL_MIN, 0))
                widths[index] -= cut
                over -= cut
            for index in may_drop:
                if over > 0:
                    left_out.append(index)
                    over -= widths[index] + _GAP
            if over > 0:
                self._blocks(rows)
                return
            for index in may_cut:
                # What a column that was left out freed.
                back = min(-over, wanted[index] - widths[index])
                widths[index] += back
                over += back
        kept = [index for index in range(len(widths)) if index not in left_out]
        for row in rows:
            text = Text()
            for index in kept:
                span, width = row[index], widths[index]
                fits = cell_len(span.text) <= width
                written = span.text if fits else set_cell_size(span.text, width - 1) + _ELLIPSIS
                text.append(set_cell_size(written, width), _LOOKS[span.style]).append(" " * _GAP)
            text.rstrip()
            self._print(text)
        if left_out:
            names = ", ".join(rows[0][index].text for index in sorted(left_out))
            for part in Text(f"too narrow for: {names}", "dim").wrap(self._console, self.columns):
                self._print(part)

    def _blocks(self, rows: Sequence[Sequence[LineSpan]]) -> None:
        width = max(cell_len(span.text) for span in rows[0])
        for number, row in enumerate(rows[1:]):
            if number:
                self._print(Text())
            for heading, span in zip(rows[0], row, strict=True):
                if span.text == "-":
                    continue
                gutter = set_cell_size(heading.text, width + _GAP)
                for part in Text(span.text, _LOOKS[span.style]).wrap(
                    self._console, self.columns - width - _GAP, overflow="fold"
                ):
                    self._print(Text.assemble((gutter, "dim"), part))
                    gutter = " " * (width + _GAP)

    def _print(self, text: Text) -> None:
        self._console.print(text, no_wrap=True, overflow="ignore", crop=False, soft_wrap=True)


def _split(spans: Iterable[LineSpan]) -> Iterable[Text]:
    """Split spans at line feeds; wrapping takes more than linear time, so in pieces."""
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
