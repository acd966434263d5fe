"""What becomes of open publishers when their process ends, or is forked.

A publisher delivers in a daemon thread, which an exiting interpreter does not wait for. So every open one is
closed first, all of them within one limit.
"""

from __future__ import annotations

import atexit
import concurrent.futures.thread
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Protocol

EXIT_FLUSH_MS = 5_000
"""Milliseconds that an exiting process gives all its publishers together: a reachable broker needs a fraction, and
a program that was told to end should not look as if it hung."""


class Closable(Protocol):
    """What is closed at exit, and made anew in a forked child."""

    def close(self, timeout_ms: int = ...) -> None:
        """Deliver what is queued, within the time, and disconnect.

        Args:
            timeout_ms: milliseconds to take for delivery.
        """

    def restart_in_child(self) -> None:
        """Begin empty in a forked child: the parent still has the queue, and the thread that delivers it."""


_open: weakref.WeakSet[Any] = weakref.WeakSet()


def note_open(one: Closable) -> None:
    """Close this one when the process exits, unless it was closed before.

    Args:
        one: is not kept alive by this.
    """
    _open.add(one)


def note_closed(one: Closable) -> None:
    """Forget one that was closed.

    Args:
        one: noted before or not.
    """
    _open.discard(one)


def close_all(limit_ms: int = EXIT_FLUSH_MS) -> None:
    """Close everything that is open, within one limit.

    Args:
        limit_ms: milliseconds for delivery.
    """
    deadline_s = time.monotonic() + limit_ms / 1_000
    for one in list(_open):
        one.close(timeout_ms=max(0, int((deadline_s - time.monotonic()) * 1_000)))


def _restart_all() -> None:
    for one in list(_open):
        one.restart_in_child()


def _at_exit(function: Callable[[], None]) -> None:
    """Run a function before the interpreter shuts its thread pools down.

    ``atexit`` is too late: from then on no name can be looked up, since asyncio does that in a thread pool, and
    what has not connected yet never will. CPython closes those pools with the hook that is used here, last in
    first out, so ours must be registered after theirs: hence the import of ``concurrent.futures.thread``.
    """
    assert concurrent.futures.thread  # noqa: S101 -- imported for the order of the hooks
    register = getattr(threading, "_register_atexit", atexit.register)
    register(function)


_at_exit(close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_restart_all)
