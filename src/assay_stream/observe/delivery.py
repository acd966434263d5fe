"""Process-level support for the publisher: limits, DNS lookups, and handling of exit and fork.

A publisher delivers in a daemon thread, which an exiting interpreter does not wait for. So every open publisher is
closed first, all of them within one time limit.

Names are looked up in threads that neither an exit nor a forked child waits for. The C library's locks are copied as
they stand at a fork, so a lookup that another thread is in the middle of leaves them held for good in the child. A fork
waits for such lookups, within a limit.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures.thread
import contextlib
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from assay_stream.limits.core import DEFAULT_LIMITS

if TYPE_CHECKING:
    from assay_stream.observe.publisher import ObservationPublisher

Answer = TypeVar("Answer")

FORK_WAIT_S = 1.0
"""How long a fork waits for lookups: several times what a responsive name server needs."""

EXIT_FLUSH_MS = 5_000
"""Milliseconds that all publishers of an exiting process share: a reachable broker needs a fraction of it,
and a terminating program should not appear to hang.
"""

_open: weakref.WeakSet[Any] = weakref.WeakSet()


class _Lookups:
    """Lookups in progress in this process."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0

    def run(self, host: Any, port: Any, **how: Any) -> Any:
        with self._changed:
            self._count += 1
        try:
            return socket.getaddrinfo(host, port, **how)
        finally:
            with self._changed:
                self._count -= 1
                self._changed.notify_all()

    def before_fork(self) -> None:
        self._changed.acquire()
        self._changed.wait_for(lambda: not self._count, FORK_WAIT_S)

    def after_in_parent(self) -> None:
        self._changed.release()


_lookups = _Lookups()


class LookupLoop(asyncio.SelectorEventLoop):
    """Event loop with a daemon thread per lookup: asyncio's own lookup threads delay exit indefinitely."""

    async def getaddrinfo(self, host: Any, port: Any, **how: Any) -> Any:
        found: asyncio.Future[Any] = self.create_future()

        def settle(result: Any, error: BaseException | None) -> None:
            if found.done():
                return
            if error is None:
                found.set_result(result)
            else:
                found.set_exception(error)

        def look_up() -> None:
            result, error = None, None
            try:
                result = _lookups.run(host, port, **how)
            except Exception as caught:  # noqa: BLE001 -- raised where it is awaited
                error = caught
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self.call_soon_threadsafe(settle, result, error)

        threading.Thread(target=look_up, name="assay-stream lookup", daemon=True).start()
        return await found


def run_with_lookups(main: Coroutine[Any, Any, Answer]) -> Answer:
    """Run a coroutine like ``asyncio.run``, on a ``LookupLoop``."""
    with asyncio.Runner(loop_factory=LookupLoop) as runner:
        return runner.run(main)


def _begin_in_child() -> None:
    global _lookups
    _lookups = _Lookups()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=lambda: _lookups.before_fork(),
        after_in_parent=lambda: _lookups.after_in_parent(),
        after_in_child=_begin_in_child,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherLimits:
    """Bounds of one publisher."""

    queue_bytes_max: int = 64 * 1_024 * 1_024
    """Memory for unsent observations: over an hour of 1 KB calls at 13 per second."""

    queue_records_max: int = 100_000
    """The same in records, because a small record costs more than its bytes."""

    record_bytes_max: int = DEFAULT_LIMITS.record_bytes_max
    """Workers accept no larger records."""

    batch_records_max: int = 500
    """Records sent before their acknowledgements are awaited."""

    start_timeout_s: float = 30.0
    """Per attempt to connect."""

    send_timeout_s: float = 120.0
    """Per batch. Longer than aiokafka's own 40 s, so that it can retry first."""

    backoff_min_s: float = 0.2
    """Pause after the first failure; doubles with every further one."""

    backoff_max_s: float = 10.0
    """Longest pause, so that a returning broker is noticed soon."""

    losses_max: int = 1_000
    """Servers whose dropped observations are counted until the counts can be published."""

    attempts_max: int = 5
    """Attempts at a record that Kafka rejects with a non-retriable error."""


def note_open(one: ObservationPublisher) -> None:
    """Close this publisher at process exit unless it was closed before. Keeps no strong reference."""
    _open.add(one)


def note_closed(one: ObservationPublisher) -> None:
    _open.discard(one)


def close_all(limit_ms: int = EXIT_FLUSH_MS) -> None:
    """Close all open publishers within one limit in milliseconds."""
    deadline_s = time.monotonic() + limit_ms / 1_000
    for one in list(_open):
        one.close(timeout_ms=max(0, int((deadline_s - time.monotonic()) * 1_000)))


def _restart_all() -> None:
    for one in list(_open):
        one.restart_in_child()


def _at_exit(function: Callable[[], None]) -> None:
    """Run a function before the interpreter shuts down its thread pools.

    ``atexit`` is too late: asyncio resolves names in a thread pool, so by then connecting is impossible. CPython
    closes those pools with the hook used here, last in first out, so ours must be registered after theirs:
    hence the import of ``concurrent.futures.thread``.
    """
    assert concurrent.futures.thread  # noqa: S101 -- imported for the order of the hooks
    register = getattr(threading, "_register_atexit", atexit.register)
    register(function)


_at_exit(close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_restart_all)
