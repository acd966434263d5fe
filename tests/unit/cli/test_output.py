"""Tables: nothing in a cell steers the terminal, and no name makes the table useless."""

from __future__ import annotations

import json
import logging
import sys
from typing import ClassVar

import pytest

from assay_stream.cli.output import CELL_CHARACTERS_MAX, Meter, RowFormat, cell, json_line, print_summary, table_lines
from assay_stream.cli.shared import InertFormatter

HOSTILE = ["\x1b[2J", "\x07", "a\nb", "a\rb", "\u202eevil", "\u2066x", "\x9b31m", "\u200b", "\x7f"]


@pytest.mark.parametrize("text", HOSTILE)
def test_what_would_steer_a_terminal_is_shown_for_what_it_is(text: str) -> None:
    """In a cell and in a line of JSON; what JSON holds is the text itself all the same."""
    assert cell(text).isprintable()
    line = json_line({"name": text})
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line) == {"name": text}


def test_a_character_beyond_the_first_plane_survives_json() -> None:
    """As two escapes, as JSON writes it in ASCII."""
    assert json.loads(json_line({"name": "\U0001f600"})) == {"name": "\U0001f600"}


def test_long_names_are_shortened_and_digests_keep_their_algorithm() -> None:
    """A digest is told by its first twelve digits; what is shortened shows it."""
    assert cell("sha256:" + "ab" * 32) == "sha256:" + "ab" * 6 + "…"
    assert len(cell("x" * 500)) == CELL_CHARACTERS_MAX
    assert cell("x" * 500).endswith("…")


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "-"), ([], "-"), (3, "3"), (["a", "b"], "a, b"), ({"topic": "t", "partition": 1, "offset": 2}, "t/1/2")],
)
def test_values_are_shown_shortly(value: object, shown: str) -> None:
    """Absence as a dash, origins as places, lists with commas."""
    assert cell(value) == shown


def test_columns_line_up() -> None:
    """Under their heads."""
    assert table_lines([{"a": "xx", "b": 1}, {"b": 2}], ("a", "b")) == ["a   b", "xx  1", "-   2"]


@pytest.mark.parametrize("text", HOSTILE)
def test_log_lines_are_inert(text: str) -> None:
    """Of a tap, which logs to the terminal of whoever runs the client."""
    record = logging.LogRecord("x", logging.WARNING, "", 0, "server %s", (text,), None)
    assert InertFormatter("tap: %(message)s").format(record).isprintable()


def test_rate_and_time_left_are_of_this_run(capsys: pytest.CaptureFixture[str]) -> None:
    """A thousand calls in ten seconds, nine thousand to go: ninety seconds."""
    now = iter(range(0, 1_000, 10))
    meter = Meter(True, clock_s=lambda: next(now))
    meter.replaying([("calls:0", 0, 10_000)])
    meter.replaying([("calls:0", 1_000, 10_000)])
    said = capsys.readouterr().err
    assert "10 % of 10,000 calls" in said
    assert "calls:0 10 %" in said
    assert "s left" in said


def test_nothing_is_said_where_it_is_not_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    """Not on a pipe unless asked for."""
    meter = Meter(False, clock_s=lambda: 10_000.0)
    meter.reading(5)
    meter.end()
    assert capsys.readouterr().err == ""


class TestSummary:
    """Words for a person at a terminal, JSON for everything else."""

    CONTENT: ClassVar = {"records": 1200, "wrong": 1, "codes": {"digest_differs": 1}, "producers": {}}

    def test_a_pipe_gets_json(self, capsys: pytest.CaptureFixture[str]) -> None:
        """One object, whatever the rows are."""
        print_summary(self.CONTENT, RowFormat.TABLE)
        assert json.loads(capsys.readouterr().err) == {"summary": self.CONTENT}

    def test_a_person_gets_words(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        """Empty groups are left out."""
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        print_summary(self.CONTENT, RowFormat.TABLE)
        assert capsys.readouterr().err == "1,200 records, 1 wrong\ncodes: 1 digest_differs\n"

    def test_a_person_who_asks_for_json_gets_it(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """``--format json`` is JSON throughout."""
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        print_summary(self.CONTENT, RowFormat.JSON)
        assert json.loads(capsys.readouterr().err) == {"summary": self.CONTENT}
