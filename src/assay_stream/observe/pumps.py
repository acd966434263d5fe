"""Bytes from one file descriptor to another, unchanged, by a thread of its own.

Threads with blocking reads and writes serve every kind of descriptor (pipes, sockets, terminals, plain files)
and never change a descriptor's mode, which it may share with other processes. Nothing that happens in the
event loop or in the observer delays them.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable

_CHUNK_BYTES = 64 * 1_024


class Pump(threading.Thread):
    """Copies until the source ends, the target is gone, or it is told to stop.

    Args:
        source: descriptor to read.
        target: descriptor to write.
        see: gets every chunk just *before* it is written: whatever the other side does in answer comes after.
        done: called at the end, in this thread.
        name: for debuggers.
        write: takes every chunk in place of the target.
    """

    def __init__(
        self,
        source: int,
        target: int,
        *,
        see: Callable[[bytes], None],
        done: Callable[[], None],
        name: str,
        write: Callable[[bytes], None] | None = None,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._source = source
        self._target = target
        self._see = see
        self._done = done
        self._write = write or self._to_target
        self._wake_reader, self._wake_writer = os.pipe()
        self._lock = threading.Lock()
        self._ended = False

    def run(self) -> None:
        """Copy."""
        try:
            while data := self._read():
                self._see(data)
                self._write(data)
        except OSError:
            pass  # The source or the target is gone: an end like any other, each side sees its own.
        finally:
            with self._lock:
                self._ended = True
                os.close(self._wake_reader)
                os.close(self._wake_writer)
            self._done()

    def stop(self) -> None:
        """End as soon as there is nothing more to read at once."""
        with self._lock:
            if not self._ended:
                os.write(self._wake_writer, b"!")

    def _read(self) -> bytes:
        poll = select.poll()
        poll.register(self._source, select.POLLIN)
        poll.register(self._wake_reader, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in poll.poll()}
            if self._source in ready:
                try:
                    return os.read(self._source, _CHUNK_BYTES)
                except BlockingIOError:
                    continue  # someone else, with the same pipe, was first
            if self._wake_reader in ready:
                return b""

    def _to_target(self, data: bytes) -> None:
        write_all(self._target, data)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of some bytes, whatever the descriptor's mode.

    Args:
        descriptor: where to write.
        data: what to write.

    Raises:
        OSError: where the other side is gone.
    """
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            poll = select.poll()
            poll.register(descriptor, select.POLLOUT)
            poll.poll()
