"""Names are looked up in threads that neither an exit nor a forked child waits for.

The C library's locks are copied as they stand at a fork, so a lookup that another thread is in the middle of leaves
them held for good in the child. A fork waits for such lookups, within a limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

Answer = TypeVar("Answer")

FORK_WAIT_S = 1.0
"""How long a fork waits for a lookup: several times what a name server that answers needs."""


class _Lookups:
    """Those under way in this process."""

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
    """An event loop whose lookups have a daemon thread each: an exit waits for those of asyncio, however long."""

    async def getaddrinfo(self, host: Any, port: Any, **how: Any) -> Any:
        """Look a name up, as ``socket.getaddrinfo`` does."""
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
    """Run a coroutine as ``asyncio.run`` does, on such a loop."""
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
