"""Work queued for a dedicated thread, in order and within a bound; adding never blocks."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable

_log = logging.getLogger(__name__)


class Guard:
    """Count failures and log the first; none may affect a connection."""

    failures = 0

    def guard(self, step: Callable[[], object]) -> None:
        try:
            step()
        except Exception:  # noqa: BLE001 - as above
            self.note_failure()

    def note_failure(self) -> None:
        self.failures += 1
        if self.failures == 1:
            _log.exception("inspecting failed; further failures are only counted")


class Backlog(Guard, threading.Thread):
    """Run steps one after the other; a failing step does not stop the rest.

    Args:
        bytes_max: total size of the queued steps.
        share_bytes_max: total size queued per owner, so that one owner cannot starve the others; default:
            ``bytes_max``.
        last: runs after everything else, once the backlog is finished.
        pause_s: seconds to wait for more steps before each run: two threads that alternate at every step spend
            more time switching than working.
    """

    def __init__(
        self,
        name: str,
        *,
        bytes_max: int,
        last: Callable[[], None],
        share_bytes_max: int | None = None,
        pause_s: float = 0.0,
    ) -> None:
        threading.Thread.__init__(self, name=name, daemon=True)
        self._bytes_max = bytes_max
        self._share_bytes_max = bytes_max if share_bytes_max is None else share_bytes_max
        self._last = last
        self._pause_s = pause_s
        self._steps: queue.SimpleQueue[tuple[int, Hashable, Callable[[], None]] | None] = queue.SimpleQueue()
        self._bytes = 0
        self._shares: Counter[Hashable] = Counter()
        self._lock = threading.Lock()

    def add(self, size_bytes: int, step: Callable[[], None], *, owner: Hashable = None) -> bool:
        """Add a step and return True if there was room; there always is for a step of size 0."""
        with self._lock:
            if size_bytes and (
                self._bytes + size_bytes > self._bytes_max or self._shares[owner] + size_bytes > self._share_bytes_max
            ):
                return False
            self._bytes += size_bytes
            self._shares[owner] += size_bytes
            self._steps.put((size_bytes, owner, step))
        return True

    def finish(self) -> None:
        self._steps.put(None)

    def run(self) -> None:
        while (waiting := self._steps.get()) is not None:
            if self._pause_s:
                time.sleep(self._pause_s)
            while waiting is not None:
                size_bytes, owner, step = waiting
                with self._lock:
                    self._bytes -= size_bytes
                    self._shares[owner] -= size_bytes
                self.guard(step)
                if self._steps.empty():
                    break
                waiting = self._steps.get()
            else:
                break
        self.guard(self._last)
