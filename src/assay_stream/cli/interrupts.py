"""Signals noted for a long command, so that it ends where it can go on."""

from __future__ import annotations

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
    for number in before:
        signal.signal(number, note)
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
