"""Tables and pages: nothing in a text steers the terminal, and no name makes a table useless."""

import io
import json
import logging
import sys
from typing import Any, ClassVar

import pytest
from hypothesis import given, strategies as st
from rich.cells import cell_len

from assay_stream.cli.output import CELL_CHARACTERS_MAX, Colour, Painter, cell, json_line, print_rows, print_summary
from assay_stream.cli.shared import InertFormatter, say, set_up_streams
from assay_stream.text.escaping import LineSpan, PageLine, spans_of
from tests.support.counting import counted_calls

HOSTILE = ["\x1b[2J", "\x07", "a\nb", "a\rb", "\u202eevil", "\u2066x", "\x9b31m", "\u200b", "\x7f"]


@pytest.mark.parametrize("text", HOSTILE)
def test_what_would_steer_a_terminal_is_shown_for_what_it_is(text: str) -> None:
    """In a cell and in a line of JSON; what JSON holds is the text itself all the same."""
    assert cell(text).isprintable()
    line = json_line({"name": text})
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line) == {"name": text}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        ([], "-"),
        (3, "3"),
        (["a", "b"], "a, b"),
        ({"topic": "t", "partition": 1, "offset": 2}, "t/1/2"),
        ("x" * 500, "x" * (CELL_CHARACTERS_MAX - 1) + "…"),
        ("sha256:" + "ab" * 32, "sha256:" + "ab" * 6 + "…"),
        ("assay.v1 sha256:" + "ab" * 32, "assay.v1 sha256:" + "ab" * 6 + "…"),
    ],
    ids=["nothing", "empty", "number", "list", "origin", "long", "digest", "digest of a scheme"],
)
def test_values_are_shown_shortly(value: object, shown: str) -> None:
    """Absence as a dash, origins as places, lists with commas; digests keep their algorithm; what is cut says so."""
    assert cell(value) == shown


def test_columns_line_up(capsys: pytest.CaptureFixture[str]) -> None:
    """Under their heads; no blanks at the ends."""
    print_rows([{"a": "xx", "b": 1}, {"b": 2}], ("a", "b"), "table")
    assert capsys.readouterr().out.splitlines() == ["a   b", "xx  1", "-   2"]


def test_what_is_to_be_copied_stays_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """A digest of a pin, for one; it still cannot steer the terminal."""
    digest = "sha256:" + "ab" * 32
    print_rows([{"a": digest}, {"a": "x" * 500 + "\x1b"}], ("a",), "table", whole=True)
    assert capsys.readouterr().out.splitlines() == ["a", digest, "x" * 500 + "⟦U+001B ESCAPE⟧"]


def test_rows_are_whole_objects_for_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    """Columns that a person does not see included."""
    print_rows([{"a": "\x1b", "hidden": [1]}], ("a",), "json")
    assert json.loads(capsys.readouterr().out) == {"a": "\x1b", "hidden": [1]}


@pytest.mark.parametrize("text", HOSTILE)
def test_log_lines_are_inert(text: str) -> None:
    """Of a tap, which logs to the terminal of whoever runs the client."""
    record = logging.LogRecord("x", logging.WARNING, "", 0, "server %s", (text,), None)
    assert InertFormatter("tap: %(message)s").format(record).isprintable()


class TestSummary:
    CONTENT: ClassVar = {"records": 1200, "wrong": 1, "codes": {"digest_differs": 1}, "producers": {}}

    def test_a_pipe_gets_json(self, capsys: pytest.CaptureFixture[str]) -> None:
        print_summary(self.CONTENT, "table")
        assert json.loads(capsys.readouterr().err) == {"summary": self.CONTENT}

    def test_a_person_gets_words(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        print_summary(self.CONTENT, "table")
        assert capsys.readouterr().err == "1,200 records, 1 wrong\ncodes: 1 digest_differs\n"

    def test_a_person_who_asks_for_json_gets_it(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """``--format json`` is JSON throughout."""
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        print_summary(self.CONTENT, "json")
        assert json.loads(capsys.readouterr().err) == {"summary": self.CONTENT}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def painted(*lines: PageLine, colour: Colour = "never", terminal: bool = False, columns: int = 40) -> str:
    file = Terminal() if terminal else io.StringIO()
    Painter(colour, file=file, columns=columns).lines(lines)
    return file.getvalue()


GONE = PageLine("", (LineSpan("a "), LineSpan("b", "gone")))


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")


def test_lines_are_wrapped_behind_their_gutter() -> None:
    """Every line that a text gives, by its own line feeds too: none of a server's begins where ours do."""
    line = PageLine("  │ ", (LineSpan("one two three four five six seven eight nine\n"), LineSpan("uid: ten")))
    assert painted(line) == "  │ one two three four five six seven\n  │ eight nine\n  │ uid: ten\n"


def test_wide_characters_take_two_columns() -> None:
    """And a word that does not fit is folded."""
    assert painted(PageLine("", (LineSpan("漢" * 25),))) == "漢" * 20 + "\n" + "漢" * 5 + "\n"
    assert painted(PageLine("", (LineSpan("x" * 45),))) == "x" * 40 + "\n" + "x" * 5 + "\n"


def test_what_is_to_be_copied_is_not_wrapped() -> None:
    """A terminal does that without a line's end."""
    assert painted(PageLine("$ ", (LineSpan("x " * 40 + "y"),), wraps=False)) == "$ " + "x " * 40 + "y\n"


def test_a_blank_line_stays() -> None:
    assert painted(PageLine("", (LineSpan("\nHead", "title"),))) == "\nHead\n"


@pytest.mark.parametrize(
    ("colour", "terminal", "no_color", "term", "coloured"),
    [
        ("auto", True, "", "xterm", True),
        ("auto", True, "1", "xterm", False),
        ("auto", True, "", "dumb", False),
        ("auto", False, "", "xterm", False),
        ("always", False, "1", "xterm", True),
        ("never", True, "", "xterm", False),
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
    text = painted(PageLine("", (LineSpan("b", "gone"), LineSpan("c", "come"))), colour="always")
    assert text == "\x1b[9;31mb\x1b[0m\x1b[32mc\x1b[0m\n"


def test_nothing_in_a_text_is_markup() -> None:
    """Neither rich's nor a name of an emoji."""
    text = "[bold red]x[/] :warning: [link=http://x]"
    assert painted(PageLine("", (LineSpan(text),)), columns=80) == text + "\n"


def test_a_table_gives_way_on_a_terminal_only() -> None:
    """The columns that may be cut; what is cut says so."""
    file, terminal = io.StringIO(), Terminal()
    for each in (file, terminal):
        Painter("never", file=each, columns=40).table(["uid", "tool"], [["12345678", "漢" * 30]], flexible=["tool"])
    assert file.getvalue() == "uid       tool\n12345678  " + "漢" * 30 + "\n"
    assert terminal.getvalue() == "uid       tool\n12345678  " + "漢" * 14 + " …\n"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_no_locale_writes_a_mark_of_ours_as_a_server_could_write_it(
    monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    """Escapes in place of our brackets could stand in a server's text."""
    out, err = io.BytesIO(), io.BytesIO()
    for name, raw in (("stdout", out), ("stderr", err)):
        monkeypatch.setattr(sys, name, io.TextIOWrapper(raw, encoding=encoding, errors="backslashreplace"))
    text = "\u200b漢\\u27e6"
    set_up_streams()
    Painter("never").lines([PageLine("", tuple(spans_of(text)))])
    say(text)
    assert out.getvalue().decode() == "⟦U+200B ZERO WIDTH SPACE⟧漢\\u27e6\n"
    assert err.getvalue().decode() == "assay-stream: ⟦U+200B ZERO WIDTH SPACE⟧漢\\u27e6\n"


def test_a_long_word_is_printed_in_a_few_calls_for_each_character() -> None:
    """Eight or so: whatever grows faster would take minutes for a megabyte."""
    line = PageLine("│ ", (LineSpan("x" * 100_000),))
    assert len(painted(line)) > 100_000
    assert counted_calls(lambda: painted(line)) / 100_000 < 40


def table_on(columns: int, rows: list[list[str]], **options: Any) -> list[str]:
    terminal = Terminal()
    Painter("never", file=terminal, columns=columns).table(rows[0], rows[1:], **options)
    return terminal.getvalue().splitlines()


WIDE = [["name", "digest", "seen", "note"], ["n" * 30, "sha256:0123456789ab…", "10:00", "x" * 30]]


def test_the_least_important_columns_go_first_and_are_named() -> None:
    lines = table_on(60, WIDE, flexible=("name",), optional=("note", "seen"))
    assert lines[0].split() == ["name", "digest", "seen"]
    assert lines[-1] == "too narrow for: note"
    assert all(len(line) <= 60 for line in lines)


def test_rows_that_fit_no_terminal_become_blocks() -> None:
    """Nothing is cut there, and what is empty is left out."""
    lines = table_on(40, [*WIDE, ["b", "-", "-", "-"]])
    assert "".join(line[8:] for line in lines if ("n" in line and "name" in line) or "nn" in line).count("n") == 30
    assert any(line.endswith("sha256:0123456789ab…") for line in lines)
    assert lines[-2:] == ["", "name    b"]
    assert all(len(line) <= 40 for line in lines)


def test_a_pipe_and_whoever_asks_for_it_get_a_line_for_each_row() -> None:
    assert len(table_on(40, WIDE, wide=True)) == 2


HEADINGS = ["uid", "server", "tool", "first seen", "last seen"]


@given(
    st.lists(st.lists(st.text(alphabet="abc漢 ", min_size=1, max_size=60), min_size=5, max_size=5), min_size=1),
    st.integers(min_value=40, max_value=120),
)
def test_no_line_of_a_table_is_wider_than_its_terminal(rows: list[list[str]], columns: int) -> None:
    may = {"flexible": ("server", "tool"), "optional": ("last seen", "first seen")}
    assert all(cell_len(line) <= columns for line in table_on(columns, [HEADINGS, *rows], **may))
