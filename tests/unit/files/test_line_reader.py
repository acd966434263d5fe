"""Lines in bounded memory."""

from __future__ import annotations

from io import BytesIO

import pytest

from assay_stream.errors import InputError
from assay_stream.files.line_reader import EVENT_LINE_BYTES_MAX, lines_of, observation_lines
from assay_stream.limits import LINE_BYTES_MAX


def read(raw: bytes, bytes_max: int = 4) -> tuple[list[bytes], list[str]]:
    """The lines, and what is said of those over the limit."""
    errors: list[InputError] = []
    lines = list(lines_of(BytesIO(raw), name="f", bytes_max=bytes_max, too_long=errors.append))
    return lines, [error.message for error in errors]


@pytest.mark.parametrize("raw", [b"", b"a\nb\n", b"abc\nabc\n", b"abcd", b"\n\n", b"a\nabcd"])
def test_lines_within_the_limit_are_whole(raw: bytes) -> None:
    """The line feed counts; the last line may have none."""
    assert read(raw) == (raw.splitlines(keepends=True), [])


def test_a_line_over_the_limit_is_cut_and_the_next_one_is_the_next() -> None:
    """With its number, the limit and its length."""
    lines, told = read(b"a\nabcdefghij\nb\n")
    assert lines == [b"a\n", b"abcd", b"b\n"]
    assert told == ["line 2 of f is over the limit of 4 bytes (it has 11): only its beginning is kept"]


def test_without_anyone_to_tell_it_is_an_error() -> None:
    """It says what to do."""
    with pytest.raises(InputError, match="line 1 of f is over the limit of 4 bytes: remove the line") as caught:
        list(lines_of(BytesIO(b"abcde\n"), name="f", bytes_max=4))
    assert caught.value.code == "line_too_long"


@pytest.mark.parametrize(("start", "limit"), [(b'{"a":"', EVENT_LINE_BYTES_MAX), (b'{"origin":"', LINE_BYTES_MAX)])
def test_a_record_line_may_be_longer_than_an_event(start: bytes, limit: int) -> None:
    """It holds a whole record in escapes or base64."""
    longest = start.ljust(limit - 1, b"x") + b"\n"
    assert list(observation_lines(BytesIO(longest + b"y\n"), name="f")) == [longest, b"y\n"]
    with pytest.raises(InputError, match=f"over the limit of {limit} bytes"):
        list(observation_lines(BytesIO(b"x" + longest if limit < LINE_BYTES_MAX else b" " + longest), name="f"))
