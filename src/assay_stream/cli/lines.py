"""Files and standard input, as the commands that check something read them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from assay_stream.core.errors import InputError
from assay_stream.core.limits import DEFAULT_LIMITS
from assay_stream.forensics.archive import open_archive

STANDARD_INPUT = Path("-")
_LINE_BYTES_MAX = DEFAULT_LIMITS.record_bytes_max


def read_input(path: Path | None) -> bytes:
    """Return everything in a file.

    Args:
        path: the file, ``None`` or ``-`` for standard input.

    Raises:
        InputError: ``unreadable_file``.
    """
    if path is None or path == STANDARD_INPUT:
        return sys.stdin.buffer.read()
    try:
        return path.read_bytes()
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
    if path is None or path == STANDARD_INPUT:
        yield from _bounded(sys.stdin.buffer)
        return
    try:
        with path.open("rb") as file:
            yield from _bounded(file)
    except OSError as error:
        raise _unreadable(path, error) from None


def archive_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file that are not blank, with their numbers; one in gzip or zstd is decompressed.

    Args:
        path: the file, or ``-`` for standard input.

    Raises:
        InputError: ``unreadable_file``, ``archive_damaged``, ``archive_truncated``.
    """
    if path == STANDARD_INPUT:
        yield from input_lines(path)
        return
    for number, line in enumerate(open_archive(path), 1):
        if line.strip(b" \t\r\n"):
            yield number, line.rstrip(b"\r\n")


def _bounded(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    number = 0
    while line := file.readline(_LINE_BYTES_MAX + 2):
        number += 1
        rest = line
        while rest and not rest.endswith(b"\n"):
            rest = file.readline(_LINE_BYTES_MAX)
        if line.strip(b" \t\r\n"):
            yield number, line.rstrip(b"\r\n")


def _unreadable(path: Path, error: OSError) -> InputError:
    return InputError("unreadable_file", f"cannot read {path}: {error.strerror}")
