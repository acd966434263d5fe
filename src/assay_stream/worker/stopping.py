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
_STDERR = 2


class Deadline:
    """Ends the process when stopping takes too long. What was not committed is done again by the next owner.

    Its thread is made at once: a process without memory may be unable to start one.

    Args:
        limit_s: how long stopping may take, seconds.
    """

    def __init__(self, limit_s: int) -> None:
        self._limit_s = limit_s
        self._started = threading.Event()
        self._cancelled = threading.Event()
        self._reason: str | None = None
        threading.Thread(target=self._watch, name="deadline", daemon=True).start()

    def start(self, reason: str | None = None) -> None:
        """Start the countdown; later calls change nothing.

        Args:
            reason: the error to print if the process has to be ended.
        """
        if not self._started.is_set():
            self._reason = reason
            self._started.set()

    def settle(self) -> None:
        """Note that all is done. Where other threads would keep the process alive, the time goes on for them."""
        here = threading.current_thread()
        if any(thread is not here and not thread.daemon for thread in threading.enumerate()):
            self.start()
        else:
            self.cancel()

    def cancel(self) -> None:
        """Let the process live, and the thread end."""
        self._cancelled.set()
        self._started.set()

    def _watch(self) -> None:
        self._started.wait()
        if self._cancelled.wait(self._limit_s):
            return
        try:
            _log.error("stop_cut_short", limit_s=self._limit_s)
            if self._reason is not None:
                os.write(_STDERR, f"assay-stream: {self._reason}\n".encode())
        finally:
            # Whatever logging needs may be what is missing.
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
