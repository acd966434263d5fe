"""Stopping on a signal, within a bound."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog

_log = structlog.get_logger(__name__)
_CUT_SHORT = 3


@contextmanager
def stopped_by_signals(stop: Callable[[], None], *, limit_s: int) -> Iterator[None]:
    """Call a function on SIGTERM or SIGINT, and end the process if the block has not ended in time after that.

    What was not committed by then is done again by whoever comes next. Needs a running event loop.

    Args:
        stop: asks what runs in the block to end.
        limit_s: how long that may take, seconds.
    """
    deadline: list[threading.Timer] = []

    def on_signal() -> None:
        stop()
        if not deadline:
            deadline.append(threading.Timer(limit_s, _give_up, [limit_s]))
            deadline[0].daemon = True
            deadline[0].start()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    try:
        yield
    finally:
        for timer in deadline:
            timer.cancel()


def _give_up(limit_s: int) -> None:
    _log.error("stop_cut_short", limit_s=limit_s)
    os._exit(_CUT_SHORT)
