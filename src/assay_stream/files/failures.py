"""Errors of the system about files, as our own: which file, and what the system says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from assay_stream.errors import InputError


@contextmanager
def reading(path: object) -> Iterator[None]:
    """Read a file within the block.

    Raises:
        InputError: ``unreadable_file``.
    """
    try:
        yield
    except OSError as error:
        raise InputError("unreadable_file", f"cannot read {path}: {error.strerror}") from None


@contextmanager
def writing(path: object) -> Iterator[None]:
    """Write a file within the block.

    Raises:
        InputError: ``unwritable_file``.
    """
    try:
        yield
    except OSError as error:
        raise InputError("unwritable_file", f"cannot write {path}: {error.strerror}") from None


@contextmanager
def writing_to(folder: object) -> Iterator[None]:
    """Write into a folder within the block.

    Raises:
        InputError: ``unwritable_folder``.
    """
    try:
        yield
    except OSError as error:
        raise InputError("unwritable_folder", f"cannot write to {folder}: {error.strerror}") from None
