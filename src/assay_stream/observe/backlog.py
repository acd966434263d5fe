"""Work that waits for a thread of its own, in order and within a bound, so that whoever adds it never waits."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable

_log = logging.getLogger(__name__)


class Failures:
    """Counts failures of an observer; the first one is logged."""

    def __init__(self) -> None:
        self.count = 0

    def note(self) -> None:
        """Count the failure that is being handled."""
        self.count += 1
        if self.count == 1:
            _log.exception("observing failed; the connection goes on, further failures are only counted")


class Backlog(threading.Thread):
    """Runs steps one after the other. A step that fails is counted; the first failure is logged.

    Args:
        bytes_max: what may wait, by the size that each step is given.
        last: runs after everything else, once the backlog is finished.
        pause_s: seconds to wait for more before each run of steps: two threads that take turns at every step spend
            more on taking turns than on the steps.
    """

    def __init__(self, name: str, *, bytes_max: int, last: Callable[[], None], pause_s: float = 0.0) -> None:
        super().__init__(name=name, daemon=True)
        self._failures = Failures()
        self._bytes_max = bytes_max
        self._last = last
        self._pause_s = pause_s
        self._steps: queue.SimpleQueue[tuple[int, Callable[[], None]] | None] = queue.SimpleQueue()
        self._bytes = 0
        self._lock = threading.Lock()

    @property
    def failures(self) -> int:
        """How many steps have failed."""
        return self._failures.count

    def add(self, size_bytes: int, step: Callable[[], None]) -> bool:
        """Add a step and return whether there was room; for one of no size there always is."""
        with self._lock:
            if size_bytes and self._bytes + size_bytes > self._bytes_max:
                return False
            self._bytes += size_bytes
            self._steps.put((size_bytes, step))
        return True

    def finish(self) -> None:
        """End once everything added so far has been done."""
        self._steps.put(None)

    def run(self) -> None:
        while (waiting := self._steps.get()) is not None:
            if self._pause_s:
                time.sleep(self._pause_s)
            while waiting is not None:
                size_bytes, step = waiting
                with self._lock:
                    self._bytes -= size_bytes
                self.guard(step)
                if self._steps.empty():
                    break
                waiting = self._steps.get()
            else:
                break
        self.guard(self._last)

    def guard(self, step: Callable[[], None]) -> None:
        """Run a step; never raises."""
        try:
            step()
        except Exception:  # noqa: BLE001 - no failure of the observer may reach the connection
            self.note_failure()

    def note_failure(self) -> None:
        """Count the failure that is being handled."""
        self._failures.note()
