"""What a tap does with the bytes between client and server: watch them from the side, or rule on them as they pass.

Watching never delays the connection and never breaks it: it runs in a thread of its own, in the order in which bytes
passed. Enforcing reads each line before it passes: if inspecting a client's line fails, the line is held back and
answered; if inspecting a server's line fails, the failure is counted and the line passes.
"""

from __future__ import annotations

import functools
import json
import logging
import threading
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from assay_stream.observe.backlog import Backlog
from assay_stream.observe.jsonrpc import BLOCKED_CODE, NOT_RULED_ON, Direction
from assay_stream.observe.mcp_wire import LINE_BYTES_MAX, WireObserver
from assay_stream.observe.observation import Observation
from assay_stream.observe.pumps import LineSplitter, write_all

if TYPE_CHECKING:
    from assay_stream.observe.gate import Gate, Passage

BACKLOG_BYTES_MAX = 2 * LINE_BYTES_MAX
"""What may wait to be inspected: two of the longest lines. The wire never waits for the observer."""

_log = logging.getLogger(__name__)


class Watch(Backlog):
    """Feeds a wire observer and publishes what it yields.

    Args:
        backlog_bytes_max: what may wait to be inspected.
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
        super().__init__("assay-stream watch", bytes_max=backlog_bytes_max, last=self._end)
        self._observer = observer
        self._publish = publish
        self._clock = clock
        self._losing: dict[Direction, bool] = {"client->server": False, "server->client": False}
        self._splitters: dict[Direction, LineSplitter] = {
            direction: LineSplitter(line_bytes_max) for direction in self._losing
        }

    def see(self, direction: Direction, data: bytes) -> None:
        """Note some bytes; returns at once and never raises."""
        self.guard(lambda: self._note(direction, data))

    def _note(self, direction: Direction, data: bytes) -> None:
        splitter, at = self._splitters[direction], self._clock()
        fits = self.add(len(data), lambda: self._lines(direction, splitter.feed(data), at))
        if not fits and not self._losing[direction]:
            self.add(0, splitter.lose)
        self._losing[direction] = not fits

    def _end(self) -> None:
        at = self._clock()
        for direction, splitter in self._splitters.items():
            self.guard(functools.partial(self._lines, direction, splitter.end(), at))
        self._hand_on(self._observer.close(at))

    def _lines(self, direction: Direction, lines: Iterable[bytes | None], at: datetime) -> None:
        for line in lines:
            if line is None:
                self._hand_on(self._observer.missed(direction, at))
            else:
                self._hand_on(self._observer.feed(direction, line, at))

    def _hand_on(self, observations: Iterable[Observation]) -> None:
        for observation in observations:
            self._publish(observation)


class ClientOutput:
    """What the client reads: the server's bytes, with answers of our own between its lines."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._within_line = False
        self._waiting: list[bytes] = []

    def pass_on(self, data: bytes) -> None:
        """Write bytes of the server, wherever its lines end."""
        with self._lock:
            head, line_feed, rest = data.rpartition(b"\n")
            if line_feed and self._waiting:
                write_all(self._descriptor, head + line_feed + b"".join(self._waiting) + rest)
                self._waiting.clear()
            else:
                write_all(self._descriptor, data)
            self._within_line = bool(rest) if line_feed else self._within_line or bool(rest)

    def answer(self, line: bytes) -> None:
        """Write an answer of our own, in whole lines, after the server's current line."""
        with self._lock:
            if self._within_line:
                self._waiting.append(line)
            else:
                write_all(self._descriptor, line)


class Enforcer:
    """Rules on what passes between a client and a server.

    Args:
        publish: gets every observation, in the thread that saw it.
    """

    def __init__(
        self,
        gate: Gate,
        *,
        server_input: int,
        client: ClientOutput,
        publish: Callable[[Observation], object],
        clock: Callable[[], datetime],
    ) -> None:
        self.failures = 0
        self.blocked = 0
        self.withheld = 0
        self._gate = gate
        self._server_input = server_input
        self.client = client
        self._publish = publish
        self._clock = clock
        self._lock = threading.Lock()
        self._ended = False
        self._inward = LineSplitter(LINE_BYTES_MAX)
        self._outward = LineSplitter(LINE_BYTES_MAX)

    def from_client(self, data: bytes) -> None:
        """Take bytes of the client, and pass on the lines that may pass."""
        for line in self._inward.feed(data):
            self._rule(line, b"\n")

    def client_ended(self) -> None:
        """Take the client's last line, if it has no line feed."""
        for line in self._inward.end():
            self._rule(line, b"")

    def from_server(self, data: bytes) -> None:
        """Inspect bytes of the server, then pass them on: as they come, or in whole lines if the gate hides tools.

        A line means nothing to a client before its end, so holding it back delays nothing.
        """
        lines = [self._look(line, b"\n") for line in self._outward.feed(data)]
        self._give(b"".join(lines) if self._gate.hides else data)

    def server_ended(self) -> None:
        """Inspect the server's last line, if it has no line feed."""
        lines = [self._look(line, b"") for line in self._outward.end()]
        self._give(b"".join(lines) if self._gate.hides else b"")

    def _give(self, data: bytes) -> None:
        self.client.pass_on(data)
        with self._lock:
            self._gate.offered.delivered()

    def end(self, close: Callable[[datetime], list[Observation]]) -> None:
        """Pass nothing on from now; publish the unanswered calls that ``close`` returns."""
        with self._lock:
            self._ended = True
            observations = close(self._clock())
        self._hand_on(observations)

    def _look(self, line: bytes | None, end: bytes) -> bytes:
        """Return what the client gets of a line, if the gate hides tools."""
        with self._lock:
            shown = None
            try:
                at = self._clock()
                shown = self._gate.missed_line(at) if line is None else self._gate.show(line, at)
            except Exception:  # noqa: BLE001 - what the server says must reach its client all the same
                self._note_failure()
                self._gate.offered.doubt()
        if shown is None:
            self.withheld += self._gate.hides
            return _failure("a line of the server could not be inspected; it was not passed on")
        self._hand_on(shown.observations)
        self.withheld += shown.is_withheld
        if shown.hidden:
            _log.warning("the digest policy hides tools from a list: %s", shown.hidden_text)
        return shown.text + end

    def _rule(self, line: bytes | None, end: bytes) -> None:
        if line is None:
            self.blocked += 1
            self.client.answer(_failure("the line is too long to inspect; it was not passed on"))
            return
        with self._lock:
            if self._ended:
                return
            passage = self._ruled(line)
        if passage is None:
            self.blocked += 1
            self.client.answer(_failure(NOT_RULED_ON))
            return
        self._hand_on(passage.observations)
        for name in passage.warnings:
            _log.warning("the digest policy warns of a call that passed: %r", name)
        if passage.forward:
            write_all(self._server_input, line + end)
        else:
            self.blocked += 1
            if passage.reply:
                self.client.answer(passage.reply)

    def _ruled(self, line: bytes) -> Passage | None:
        try:
            return self._gate.inward(line, self._clock())
        except Exception:  # noqa: BLE001 - a call that could not be ruled on does not pass
            self._note_failure()
        try:
            return self._gate.not_ruled_on(line, self._clock())
        except Exception:  # noqa: BLE001 - nor does one that cannot even be answered by its id
            return None

    def _hand_on(self, observations: list[Observation]) -> None:
        for observation in observations:
            try:
                self._publish(observation)
            except Exception:  # noqa: BLE001 - no failure to publish may be felt, enforcing or not
                self._note_failure()

    def _note_failure(self) -> None:
        self.failures += 1
        if self.failures == 1:
            _log.exception("inspecting a line failed; further failures are only counted")


def _failure(text: str) -> bytes:
    error = {"code": BLOCKED_CODE, "message": f"assay-stream: {text}", "data": {"code": "not_ruled_on"}}
    return json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode() + b"\n"
