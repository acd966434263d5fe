"""Lines and tables on a terminal: colours, its width, and characters that are two columns wide."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import TextIO

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from assay_stream.alerts.page import Line
from assay_stream.text.visible import Span, Style

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


class Colour(StrEnum):
    """When to use colours."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class Painter:
    """Prints to one stream.

    Args:
        colour: when to use colours; by itself where the stream is a terminal and ``NO_COLOR`` is not set.
        file: the stream, standard output unless said otherwise.
        columns: its width, the terminal's unless said otherwise.
    """

    def __init__(self, colour: Colour, *, file: TextIO | None = None, columns: int | None = None) -> None:
        stream = sys.stdout if file is None else file
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            # A terminal that knows no Unicode is told the escapes.
            reconfigure(errors="backslashreplace")
        self.is_terminal = stream.isatty()
        if colour is Colour.AUTO:
            wanted = self.is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        else:
            wanted = colour is Colour.ALWAYS
        width = columns or shutil.get_terminal_size((_COLUMNS_DEFAULT, 24)).columns
        self.columns = max(width, _COLUMNS_MIN)
        self._console = Console(
            file=stream,
            width=self.columns,
            force_terminal=wanted,
            color_system="standard" if wanted else None,
            no_color=not wanted,
            highlight=False,
            markup=False,
            emoji=False,
            legacy_windows=False,
        )

    def lines(self, lines: Iterable[Line]) -> None:
        """Print lines, wrapped to the width, each with its gutter."""
        for line in lines:
            for text in _split(line.spans):
                if not line.wraps:
                    self._print(Text.assemble((line.gutter, "dim"), text))
                    continue
                for part in text.wrap(self._console, self.columns - cell_len(line.gutter), overflow="fold"):
                    part.rstrip()
                    self._print(Text.assemble((line.gutter, "dim"), part))

    def table(self, rows: Sequence[Sequence[Span]], *, flexible: Sequence[int]) -> None:
        """Print rows in columns; on a terminal some columns give way where the width does not do."""
        widths = [max(cell_len(row[index].text) for row in rows) for index in range(len(rows[0]))]
        if self.is_terminal:
            over = sum(widths) + 2 * (len(widths) - 1) - self.columns
            for index in sorted(flexible, key=lambda each: -widths[each]):
                given = min(max(over, 0), max(widths[index] - _CELL_MIN, 0))
                widths[index] -= given
                over -= given
        for row in rows:
            text = Text()
            for cell, width in zip(row, widths, strict=True):
                shown = cell.text
                if cell_len(shown) > width:
                    shown = set_cell_size(shown, width - 1) + "…"
                text.append(set_cell_size(shown, width), _LOOKS[cell.style])
                text.append("  ")
            text.rstrip()
            self._print(text)

    def _print(self, text: Text) -> None:
        self._console.print(text, no_wrap=True, overflow="ignore", crop=False, soft_wrap=True)


def _split(spans: Iterable[Span]) -> Iterable[Text]:
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
