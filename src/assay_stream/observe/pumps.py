"""Copy bytes between file descriptors in threads, and split streams into lines.

Threads with blocking reads and writes serve every kind of descriptor (pipes, sockets, terminals, plain files) and
never change a descriptor's mode, which other processes may share. Nothing that happens in the event loop or in the
observer delays them.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable, Iterator

_CHUNK_BYTES = 64 * 1_024


class Pump(threading.Thread):
    """Copy until the source ends, the destination is gone, or it is stopped."""

    def __init__(
        self, source: int, take: Callable[[bytes], None], *, done: Callable[[], None], name: str = "assay-stream pump"
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._source = source
        self._take = take
        self._done = done
        self._wake_reader, self._wake_writer = os.pipe()
        self._lock = threading.Lock()
        self._ended = False

    def run(self) -> None:
        try:
            while data := self._read():
                self._take(data)
        except OSError:
            pass  # The source or the target is gone: an end like any other, which each side sees for itself.
        finally:
            with self._lock:
                self._ended = True
                os.close(self._wake_reader)
                os.close(self._wake_writer)
            self._done()

    def stop(self) -> None:
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
                    continue  # another reader of the same pipe was first
            if self._wake_reader in ready:
                return b""


def write_all(descriptor: int, data: bytes) -> None:
    """Write all bytes, whatever the descriptor's mode.

    Raises:
        OSError: the other side is gone.
    """
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            poll = select.poll()
            poll.register(descriptor, select.POLLOUT)
            poll.poll()


class LineSplitter:
    """Split a stream into lines, within bounded memory.

    Args:
        line_bytes_max: the longest line that is kept; a longer one comes out as ``None``.
    """

    def __init__(self, line_bytes_max: int) -> None:
        self._line_bytes_max = line_bytes_max
        self._parts: list[bytes] = []
        self._size_bytes = 0
        self._broken = False

    def feed(self, data: bytes) -> Iterator[bytes | None]:
        """Yield the lines that end in ``data``, without line feeds; ``None`` for a lost one."""
        *ends, rest = data.split(b"\n")
        for end in ends:
            self._add(end)
            yield self._take()
        self._add(rest)

    def lose(self) -> None:
        self._parts.clear()
        self._broken = True

    def end(self) -> Iterator[bytes | None]:
        if self._broken or self._parts:
            yield self._take()

    def _add(self, part: bytes) -> None:
        self._size_bytes += len(part)
        if self._size_bytes > self._line_bytes_max:
            self.lose()
        elif part and not self._broken:
            self._parts.append(part)

    def _take(self) -> bytes | None:
        line = None if self._broken else b"".join(self._parts)
        self._parts.clear()
        self._size_bytes = 0
        self._broken = False
        return line
