"""Garbage collection for commands that go through records by the million."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_THRESHOLDS = (50_000, 50, 100)


@contextmanager
def collecting_seldom() -> Iterator[None]:
    """Look for circles less often: records come and go by the hundred thousand and refer to nothing in circles."""
    before = gc.get_threshold()
    gc.set_threshold(*_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
