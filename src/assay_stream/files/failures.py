"""Errors of the system about files, as our own: which file, and what the system says."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from assay_stream.errors import InputError


def reading(path: object) -> AbstractContextManager[None]:
    """Read a file within the block; raises ``InputError`` ``unreadable_file``."""
    return _failing(InputError("unreadable_file", f"cannot read {path}"))


def writing(path: object) -> AbstractContextManager[None]:
    """Write a file within the block; raises ``InputError`` ``unwritable_file``."""
    return _failing(InputError("unwritable_file", f"cannot write {path}"))


def writing_to(folder: object) -> AbstractContextManager[None]:
    """Write into a folder within the block; raises ``InputError`` ``unwritable_folder``."""
    return _failing(InputError("unwritable_folder", f"cannot write to {folder}"))


@contextmanager
def _failing(ours: InputError) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(ours.code, f"{ours.message}: {error.strerror}") from None
