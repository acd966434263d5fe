"""Lines out of a file, in memory bounded by the longest line allowed, whatever the file holds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import BinaryIO

from assay_stream.errors import InputError
from assay_stream.limits import DEFAULT_LIMITS, LINE_BYTES_MAX

TooLong = Callable[[InputError], None]
"""Gets the error of a line that is over the limit, of which only the beginning is given."""

EVENT_LINE_BYTES_MAX = DEFAULT_LIMITS.record_bytes_max + 2
"""The longest event, and the line feed behind it."""
RECORD_LINE_START = re.compile(rb'\s*\{\s*"origin"\s*:')

_LINE_FEED = 0x0A


def lines_of(
    stream: BinaryIO, *, name: str, bytes_max: int = LINE_BYTES_MAX, too_long: TooLong | None = None
) -> Iterator[bytes]:
    """Yield the lines of a stream with their line feeds.

    Args:
        stream: what to read; its ``readline`` takes a limit.
        name: the file, for the error.
        bytes_max: bytes of one line at most, line feed included.
        too_long: called for a line over the limit; its first ``bytes_max`` bytes are then given, its rest is
            skipped in pieces of that size. Without it such a line is an error.

    Raises:
        InputError: ``line_too_long``.
    """
    for number, line in enumerate(iter(partial(stream.readline, bytes_max), b""), start=1):
        if len(line) == bytes_max and line[-1] != _LINE_FEED:
            _skip_rest(stream, number, name, bytes_max, too_long)
        yield line


def observation_lines(stream: BinaryIO, *, name: str, too_long: TooLong | None = None) -> Iterator[bytes]:
    """Yield the lines of recorded observations: record lines may be longer than events.

    Args:
        stream: as in ``lines_of``.
        name: the file, for the error.
        too_long: as in ``lines_of``.

    Raises:
        InputError: ``line_too_long``.
    """
    for number, start in enumerate(iter(partial(stream.readline, EVENT_LINE_BYTES_MAX), b""), start=1):
        line, bytes_max = start, EVENT_LINE_BYTES_MAX
        if len(line) == bytes_max and line[-1] != _LINE_FEED:
            if RECORD_LINE_START.match(line):
                bytes_max = LINE_BYTES_MAX
                line += stream.readline(bytes_max - len(line))
            if len(line) == bytes_max and line[-1] != _LINE_FEED:
                _skip_rest(stream, number, name, bytes_max, too_long)
        yield line


def _skip_rest(stream: BinaryIO, number: int, name: str, bytes_max: int, too_long: TooLong | None) -> None:
    rest = stream.readline(bytes_max)
    if not rest:
        return
    told = f"line {number} of {name} is over the limit of {bytes_max} bytes"
    if too_long is None:
        raise InputError("line_too_long", f"{told}: remove the line, or split what it holds")
    length = bytes_max
    while rest:
        length += len(rest)
        rest = b"" if rest[-1] == _LINE_FEED else stream.readline(bytes_max)
    too_long(InputError("line_too_long", f"{told} (it has {length}): only its beginning is kept"))
