"""The two pumps of an enforcing tap: whole lines from the client through the gate, the server's bytes unchanged.

Unlike the watching tap it looks at a line before it passes. What goes wrong while looking at a line from the
client keeps that line back, with an answer that says so; what goes wrong on the other side is counted.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from datetime import datetime

from assay_stream.observe.events import Observation
from assay_stream.observe.gate import BLOCKED_CODE, NOT_RULED_ON, Gate, Passage
from assay_stream.observe.lines import LineSplitter
from assay_stream.observe.mcp_wire import LINE_BYTES_MAX
from assay_stream.observe.pumps import write_all

_log = logging.getLogger(__name__)


class ClientOutput:
    """What the client reads: the server's bytes, and answers of our own between its lines.

    Args:
        descriptor: where the client reads from.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._within_line = False
        self._waiting: list[bytes] = []

    def pass_on(self, data: bytes) -> None:
        """Write bytes of the server.

        Args:
            data: the bytes, wherever its lines end.
        """
        with self._lock:
            head, line_feed, rest = data.rpartition(b"\n")
            if line_feed and self._waiting:
                write_all(self._descriptor, head + line_feed + b"".join(self._waiting) + rest)
                self._waiting.clear()
            else:
                write_all(self._descriptor, data)
            self._within_line = bool(rest) if line_feed else self._within_line or bool(rest)

    def answer(self, line: bytes) -> None:
        """Write an answer of our own, after the server's line under way.

        Args:
            line: whole lines.
        """
        with self._lock:
            if self._within_line:
                self._waiting.append(line)
            else:
                write_all(self._descriptor, line)


class Enforcer:
    """Rules on what passes between a client and a server.

    Args:
        gate: the rules.
        server_input: descriptor that the server reads from.
        client: where the client reads.
        publish: gets every observation, in the thread that saw it.
        clock: gives the time.
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
        self._gate = gate
        self._server_input = server_input
        self._client = client
        self._publish = publish
        self._clock = clock
        self._lock = threading.Lock()
        self._ended = False
        self._inward = LineSplitter(LINE_BYTES_MAX)
        self._outward = LineSplitter(LINE_BYTES_MAX)

    def from_client(self, data: bytes) -> None:
        """Take bytes of the client, and pass on the lines that may pass.

        Args:
            data: the bytes.
        """
        for line in self._inward.feed(data):
            self._rule(line, b"\n")

    def client_ended(self) -> None:
        """Take the client's last line, if it has no line feed."""
        for line in self._inward.end():
            self._rule(line, b"")

    def from_server(self, data: bytes) -> None:
        """Look at bytes of the server before they reach the client.

        Args:
            data: the bytes.
        """
        for line in self._outward.feed(data):
            self._look(line)

    def server_ended(self) -> None:
        """Look at the server's last line, if it has no line feed."""
        for line in self._outward.end():
            self._look(line)

    def end(self, close: Callable[[datetime], list[Observation]]) -> None:
        """Pass nothing on from now, and publish what was not answered.

        Args:
            close: gives the calls without an answer.
        """
        with self._lock:
            self._ended = True
            observations = close(self._clock())
        self._hand_on(observations)

    def _look(self, line: bytes | None) -> None:
        observations: list[Observation] = []
        with self._lock:
            try:
                at = self._clock()
                observations = self._gate.missed(at) if line is None else self._gate.outward(line, at)
            except Exception:  # noqa: BLE001 - what the server says must reach its client all the same
                self._note_failure()
                self._gate.doubt()
        self._hand_on(observations)

    def _rule(self, line: bytes | None, end: bytes) -> None:
        if line is None:
            self.blocked += 1
            self._client.answer(_failure("assay-stream: the line is too long to look at; it was not passed on"))
            return
        with self._lock:
            if self._ended:
                return
            passage = self._ruled(line)
        self._hand_on(passage.observations)
        for name in passage.warnings:
            _log.warning("a call passed that the digest policy warns of: %r", name)
        if passage.forward:
            write_all(self._server_input, line + end)
        else:
            self.blocked += 1
            if passage.reply:
                self._client.answer(passage.reply)

    def _ruled(self, line: bytes) -> Passage:
        try:
            return self._gate.inward(line, self._clock())
        except Exception:  # noqa: BLE001 - a call that could not be ruled on does not pass
            self._note_failure()
        try:
            return self._gate.not_ruled_on(line, self._clock())
        except Exception:  # noqa: BLE001 - nor one that cannot even be answered by its id
            return Passage(forward=False, reply=_failure(f"assay-stream: {NOT_RULED_ON}"))

    def _hand_on(self, observations: list[Observation]) -> None:
        for observation in observations:
            try:
                self._publish(observation)
            except Exception:  # noqa: BLE001 - as without enforcing: no failure to publish is felt
                self._note_failure()

    def _note_failure(self) -> None:
        self.failures += 1
        if self.failures == 1:
            _log.exception("looking at a line failed; further failures are counted")


def _failure(text: str) -> bytes:
    error = {"code": BLOCKED_CODE, "message": text, "data": {"code": "not_ruled_on"}}
    return json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode() + b"\n"
