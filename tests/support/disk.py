"""A disk that is full, and what a power failure would leave on it."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def files_of_at_most(size_bytes: int) -> Iterator[None]:
    """Let this process write files of no more than so many bytes; writing more fails, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def synced_sizes(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """Return the size that each file has on the disk, by its number: what it had when it was last synced."""
    sizes: dict[int, int] = {}

    def sync(handle: int) -> None:
        found = os.fstat(handle)
        sizes[found.st_ino] = found.st_size

    monkeypatch.setattr(os, "fsync", sync)
    return sizes
