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


class Deadline:
    """Ends the process where stopping takes too long: what was not committed is done again by whoever comes next.

    Args:
        limit_s: how long stopping may take, seconds.
    """

    def __init__(self, limit_s: int) -> None:
        self._limit_s = limit_s
        self._timer: threading.Timer | None = None

    def start(self) -> None:
        """Let the time run, from the first call on."""
        if self._timer is None:
            self._timer = threading.Timer(self._limit_s, self._give_up)
            self._timer.daemon = True
            self._timer.start()

    def settle(self) -> None:
        """Note that all is done. Where other threads would keep the process alive, the time goes on for them."""
        here = threading.current_thread()
        if any(thread is not here and not thread.daemon for thread in threading.enumerate()):
            self.start()
        else:
            self.cancel()

    def cancel(self) -> None:
        """Let the process live."""
        if self._timer is not None:
            self._timer.cancel()

    def _give_up(self) -> None:
        _log.error("stop_cut_short", limit_s=self._limit_s)
        os._exit(_CUT_SHORT)


@contextmanager
def stopped_by_signals(stop: Callable[[], None], *, limit_s: int) -> Iterator[None]:
    """Call a function on SIGTERM or SIGINT, and end the process if the block has not ended in time after that.

    What was not committed by then is done again by whoever comes next. Needs a running event loop.

    Args:
        stop: asks what runs in the block to end.
        limit_s: how long that may take, seconds.
    """
    deadline = Deadline(limit_s)

    def on_signal() -> None:
        stop()
        deadline.start()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    try:
        yield
    finally:
        deadline.cancel()
