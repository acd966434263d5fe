"""Files and standard input, as the commands that check something read them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from assay_stream.errors import InputError
from assay_stream.files.archive import EVENT_LINE_BYTES_MAX, lines_of, open_archive
from assay_stream.limits import DEFAULT_LIMITS

STANDARD_INPUT = Path("-")


def read_input(path: Path | None, *, bytes_max: int = DEFAULT_LIMITS.record_bytes_max, cut: bool = False) -> bytes:
    """Return everything in a file.

    Args:
        path: the file, ``None`` or ``-`` for standard input.
        bytes_max: what it may hold at most.
        cut: return one byte over the limit of a larger file, for a reader that refuses it with an answer.

    Raises:
        InputError: ``unreadable_file``, ``too_large``.
    """
    if path is None or path == STANDARD_INPUT:
        raw = sys.stdin.buffer.read(bytes_max + 1)
    else:
        try:
            with path.open("rb") as file:
                raw = file.read(bytes_max + 1)
        except OSError as error:
            raise _unreadable(path, error) from None
    if len(raw) > bytes_max and not cut:
        name = "standard input" if path is None else path
        raise InputError("too_large", f"{name} is over the limit of {bytes_max} bytes: give a smaller file")
    return raw


def every_line(path: Path) -> Iterator[bytes]:
    """Yield every line of a file; one over the limit of a record is cut behind it, so that its reader refuses it.

    Args:
        path: the file, or ``-`` for standard input.

    Raises:
        InputError: ``unreadable_file``.
    """
    cut = partial(lines_of, name=str(path), bytes_max=EVENT_LINE_BYTES_MAX, too_long=lambda _: None)
    if path == STANDARD_INPUT:
        yield from cut(sys.stdin.buffer)
        return
    try:
        with path.open("rb") as file:
            yield from cut(file)
    except OSError as error:
        raise _unreadable(path, error) from None


def input_lines(path: Path | None) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file that are not blank, with their numbers, which start at 1.

    A line over the size limit is cut behind it, so that whoever decodes it refuses it.

    Args:
        path: the file, ``None`` or ``-`` for standard input.

    Raises:
        InputError: ``unreadable_file``.
    """
    for number, line in enumerate(every_line(STANDARD_INPUT if path is None else path), start=1):
        if line.strip(b" \t\r\n"):
            yield number, line.rstrip(b"\r\n")


def archive_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file that are not blank, with their numbers; one in gzip or zstd is decompressed.

    Args:
        path: the file, or ``-`` for standard input.

    Raises:
        InputError: as ``open_archive``.
    """
    if path == STANDARD_INPUT:
        yield from input_lines(path)
        return
    for number, line in enumerate(open_archive(path), 1):
        if line.strip(b" \t\r\n"):
            yield number, line.rstrip(b"\r\n")


def _unreadable(path: Path, error: OSError) -> InputError:
    return InputError("unreadable_file", f"cannot read {path}: {error.strerror}")
