"""How commands read files and standard input."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay_stream.cli.lines import input_lines, read_input
from assay_stream.errors import InputError
from assay_stream.limits import DEFAULT_LIMITS


def test_lines_have_their_numbers_in_the_file(tmp_path: Path) -> None:
    """Blank lines are left out and counted all the same; line ends of both kinds go, also a missing last one."""
    path = tmp_path / "lines"
    path.write_bytes(b"a\n\n  \t\nb\r\nc")
    assert list(input_lines(path)) == [(1, b"a"), (4, b"b"), (5, b"c")]


def test_an_endless_line_is_cut_behind_the_limit(tmp_path: Path) -> None:
    """It is given over the limit, so that it is refused, and the next line is the next line."""
    limit = DEFAULT_LIMITS.record_bytes_max
    path = tmp_path / "lines"
    path.write_bytes(b"x" * (3 * limit) + b"\ny\n")
    (first, line), second = input_lines(path)
    assert (first, second) == (1, (2, b"y"))
    assert limit < len(line) <= limit + 2


@pytest.mark.parametrize("name", ["missing", "."])
def test_what_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    """A file that is not there, or is a folder, is an error with its path."""
    path = tmp_path / name
    for read in (lambda: list(input_lines(path)), lambda: read_input(path)):
        with pytest.raises(InputError, match=f"unreadable_file.*{path}"):
            read()
