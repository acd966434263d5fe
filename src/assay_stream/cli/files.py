"""Files that commands read, and files that they must not overwrite."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from assay_stream.errors import ConfigurationError, InputError
from assay_stream.files.archive import EVENT_LINE_BYTES_MAX, lines_of, open_archive
from assay_stream.limits import DEFAULT_LIMITS

STANDARD_INPUT = Path("-")


def read_input(path: Path | None, *, bytes_max: int = DEFAULT_LIMITS.record_bytes_max, cut: bool = False) -> bytes:
    """Return everything in a file.

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

    A line over the size limit is cut behind it, so that decoding refuses it.

    Raises:
        InputError: ``unreadable_file``.
    """
    for number, line in enumerate(every_line(STANDARD_INPUT if path is None else path), start=1):
        if line.strip(b" \t\r\n"):
            yield number, line.rstrip(b"\r\n")


def archive_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file that are not blank, with their numbers; one in gzip or zstd is decompressed.

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


Force = Annotated[bool, typer.Option("--force", help="Replace existing results once the new ones are complete.")]


def refuse_existing_file(path: Path, *, force: bool) -> None:
    """Make sure that no file with content is replaced without being asked for.

    Raises:
        ConfigurationError: ``output_exists``.
    """
    if not force and path.is_file() and path.stat().st_size:
        raise ConfigurationError("output_exists", f"{path} exists: choose another name, or give --force to replace it")


def refuse_filled_folder(folder: Path, *, force: bool, leftovers: Collection[str] = (), hint: str = "") -> None:
    """Make sure that no results are written among what a folder holds already.

    Raises:
        ConfigurationError: ``output_exists``.
        InputError: ``unwritable_folder`` where it cannot be listed.
    """
    if force or not folder.is_dir():
        return
    try:
        found = sorted(entry.name for entry in folder.iterdir() if entry.name not in leftovers)
    except OSError as error:
        raise InputError("unwritable_folder", f"cannot write to {folder}: {error.strerror}") from None
    if found:
        raise ConfigurationError(
            "output_exists",
            f"{folder} is not empty (it has {found[0]}): choose another folder, {hint}or give --force to replace "
            "the results in it",
        )


def write_key_files(private: tuple[Path, bytes], public: tuple[Path, bytes]) -> None:
    """Write both files of a key pair, or none.

    Raises:
        ConfigurationError: ``file_exists`` or ``unwritable_file``.
    """
    _write_new(*private, 0o600)
    try:
        _write_new(*public, 0o644)
    except ConfigurationError:
        private[0].unlink(missing_ok=True)
        raise


def _write_new(path: Path, content: bytes, file_mode: int) -> None:
    """Write a file that does not exist, with its final permissions from its first byte on."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, file_mode)
    except FileExistsError:
        raise ConfigurationError("file_exists", f"{path} exists: keys are never overwritten") from None
    except OSError as error:
        raise ConfigurationError("unwritable_file", f"cannot write {path}: {error.strerror}") from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
