"""Signals noted for a long command, so that it ends where it can go on."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def noting_interrupts() -> Iterator[list[int]]:
    """Note SIGINT and SIGTERM instead of dying of them; the second one kills as ever."""
    noted: list[int] = []

    def note(number: int, _: object) -> None:
        noted.append(number)
        signal.signal(number, before[number])

    before = {int(number): signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    thresholds = gc.get_threshold()
    # Records come and go by the hundred thousand and refer to nothing in circles.
    gc.set_threshold(50_000, 50, 100)
    for number in before:
        signal.signal(number, note)
    try:
        yield noted
    finally:
        gc.set_threshold(*thresholds)
        for number, handler in before.items():
            signal.signal(number, handler)
