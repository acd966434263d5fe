"""Lines and tables on a terminal."""

from __future__ import annotations

import io
import time

import pytest

from assay_stream.alerts.page import Line
from assay_stream.cli.painting import Colour, Painter
from assay_stream.text.visible import Span


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Yes."""
        return True


def painted(*lines: Line, colour: Colour = Colour.NEVER, terminal: bool = False, columns: int = 40) -> str:
    """What is printed."""
    file = Terminal() if terminal else io.StringIO()
    Painter(colour, file=file, columns=columns).lines(lines)
    return file.getvalue()


GONE = Line("", (Span("a "), Span("b", "gone")))


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal that can show colours, and nobody who does not want them."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")


def test_lines_are_wrapped_behind_their_gutter() -> None:
    """Every line that a text gives, by its own line feeds too: none of a server's begins where ours do."""
    line = Line("  │ ", (Span("one two three four five six seven eight nine\n"), Span("uid: ten")))
    assert painted(line) == "  │ one two three four five six seven\n  │ eight nine\n  │ uid: ten\n"


def test_wide_characters_take_two_columns() -> None:
    """And a word that does not fit is folded."""
    assert painted(Line("", (Span("漢" * 25),))) == "漢" * 20 + "\n" + "漢" * 5 + "\n"
    assert painted(Line("", (Span("x" * 45),))) == "x" * 40 + "\n" + "x" * 5 + "\n"


def test_what_is_to_be_copied_is_not_wrapped() -> None:
    """A terminal does that without a line's end."""
    assert painted(Line("$ ", (Span("x " * 40 + "y"),), wraps=False)) == "$ " + "x " * 40 + "y\n"


def test_a_blank_line_stays() -> None:
    """Before a heading."""
    assert painted(Line("", (Span("\nHead", "title"),))) == "\nHead\n"


@pytest.mark.parametrize(
    ("colour", "terminal", "no_color", "term", "coloured"),
    [
        (Colour.AUTO, True, "", "xterm", True),
        (Colour.AUTO, True, "1", "xterm", False),
        (Colour.AUTO, True, "", "dumb", False),
        (Colour.AUTO, False, "", "xterm", False),
        (Colour.ALWAYS, False, "1", "xterm", True),
        (Colour.NEVER, True, "", "xterm", False),
    ],
)
def test_colours_are_used_when_they_are_wanted(
    monkeypatch: pytest.MonkeyPatch, colour: Colour, terminal: bool, no_color: str, term: str, coloured: bool
) -> None:
    """By itself on a terminal, unless NO_COLOR or a dumb terminal says otherwise; and as the option says."""
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("TERM", term)
    text = painted(GONE, colour=colour, terminal=terminal)
    assert ("\x1b[" in text) is coloured
    assert text.startswith("a ")


def test_what_went_is_red_and_what_came_is_green() -> None:
    """By codes of the standard palette, so that every terminal has them."""
    text = painted(Line("", (Span("b", "gone"), Span("c", "come"))), colour=Colour.ALWAYS)
    assert text == "\x1b[9;31mb\x1b[0m\x1b[32mc\x1b[0m\n"


def test_nothing_in_a_text_is_markup() -> None:
    """Neither rich's nor a name of an emoji."""
    text = "[bold red]x[/] :warning: [link=http://x]"
    assert painted(Line("", (Span(text),)), columns=80) == text + "\n"


def test_a_table_gives_way_on_a_terminal_only() -> None:
    """The columns that may be cut; what is cut says so."""
    rows = [[Span("uid"), Span("tool")], [Span("12345678"), Span("漢" * 30)]]
    file, terminal = io.StringIO(), Terminal()
    Painter(Colour.NEVER, file=file, columns=40).table(rows, flexible=[1])
    Painter(Colour.NEVER, file=terminal, columns=40).table(rows, flexible=[1])
    assert file.getvalue() == "uid       tool\n12345678  " + "漢" * 30 + "\n"
    assert terminal.getvalue() == "uid       tool\n12345678  " + "漢" * 14 + " …\n"


def test_a_terminal_that_knows_no_unicode_is_told_escapes() -> None:
    """Nothing fails."""
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    Painter(Colour.NEVER, file=stream, columns=80).lines([Line("", (Span("⟦+漢+⟧"),))])
    stream.flush()
    assert raw.getvalue() == b"\\u27e6+\\u6f22+\\u27e7\n"


def test_a_megabyte_is_printed_in_seconds() -> None:
    """In one word, too."""
    start = time.process_time()
    assert len(painted(Line("│ ", (Span("x" * 1_000_000),)))) > 1_000_000
    assert time.process_time() - start < 30
