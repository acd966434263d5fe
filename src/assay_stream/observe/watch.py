"""Looks at what the pumps copy, in a thread of its own and in the order in which it passed."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from assay_stream.observe.events import Observation
from assay_stream.observe.jsonrpc import Direction
from assay_stream.observe.lines import LineSplitter
from assay_stream.observe.mcp_wire import LINE_BYTES_MAX, WireObserver

BACKLOG_BYTES_MAX = 2 * LINE_BYTES_MAX
"""What may wait to be looked at: two of the longest lines. The wire does not wait for the observer."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Chunk:
    direction: Direction
    data: bytes | None
    """``None`` stands for bytes that passed unseen."""
    at: datetime


class Watch(threading.Thread):
    """Feeds a wire observer and hands on what it gives.

    Args:
        observer: the state machine; used by this thread only.
        publish: gets every observation, in this thread.
        clock: gives the time.
        backlog_bytes_max: what may wait to be looked at.
        line_bytes_max: longest line looked at.
    """

    def __init__(
        self,
        observer: WireObserver,
        *,
        publish: Callable[[Observation], object],
        clock: Callable[[], datetime],
        backlog_bytes_max: int = BACKLOG_BYTES_MAX,
        line_bytes_max: int = LINE_BYTES_MAX,
    ) -> None:
        super().__init__(name="assay-stream watch", daemon=True)
        self.failures = 0
        self._observer = observer
        self._publish = publish
        self._clock = clock
        self._backlog_bytes_max = backlog_bytes_max
        self._backlog: queue.SimpleQueue[_Chunk | None] = queue.SimpleQueue()
        self._backlog_bytes = 0
        self._losing: dict[Direction, bool] = {"client->server": False, "server->client": False}
        self._lock = threading.Lock()
        self._splitters: dict[Direction, LineSplitter] = {
            direction: LineSplitter(line_bytes_max) for direction in self._losing
        }

    def see(self, direction: Direction, data: bytes) -> None:
        """Take note of some bytes; returns at once and never raises.

        Args:
            direction: which way they go.
            data: the bytes.
        """
        self._guard(lambda: self._note(direction, data))

    def _note(self, direction: Direction, data: bytes) -> None:
        at = self._clock()
        with self._lock:
            fits = self._backlog_bytes + len(data) <= self._backlog_bytes_max
            if fits:
                self._backlog_bytes += len(data)
                self._backlog.put(_Chunk(direction, data, at))
            elif not self._losing[direction]:
                self._backlog.put(_Chunk(direction, None, at))
            self._losing[direction] = not fits

    def finish(self) -> None:
        """End after everything noted so far has been looked at."""
        self._backlog.put(None)

    def run(self) -> None:
        """Look at what passes until told to finish."""
        while (chunk := self._backlog.get()) is not None:
            self._guard(lambda chunk=chunk: self._look(chunk))  # type: ignore[misc]
        at = self._clock()
        for direction, splitter in self._splitters.items():
            self._guard(lambda d=direction, s=splitter: self._lines(d, s.end(), at))  # type: ignore[misc]
        self._guard(lambda: self._hand_on(self._observer.close(at)))

    def _look(self, chunk: _Chunk) -> None:
        splitter = self._splitters[chunk.direction]
        if chunk.data is None:
            splitter.lose()
            return
        with self._lock:
            self._backlog_bytes -= len(chunk.data)
        self._lines(chunk.direction, splitter.feed(chunk.data), chunk.at)

    def _lines(self, direction: Direction, lines: Iterable[bytes | None], at: datetime) -> None:
        for line in lines:
            if line is None:
                self._hand_on(self._observer.missed(direction, at))
            else:
                self._hand_on(self._observer.feed(direction, line, at))

    def _hand_on(self, observations: Iterable[Observation]) -> None:
        for observation in observations:
            self._publish(observation)

    def _guard(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception:  # noqa: BLE001 - no failure of the observer may reach the connection
            self.failures += 1
            if self.failures == 1:
                _log.exception("observing failed; the connection goes on, further failures are counted")
