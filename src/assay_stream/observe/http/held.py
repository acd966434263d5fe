"""A stream of server-sent events, held back event by event until it is known what the client gets of each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from assay_stream.observe.http.event_stream import LINE_END, EventStream

_RESUMING = re.compile(rb"id:[ !#-~]*|retry:[ 0-9]*")
"""Fields that a client needs to resume a stream, without what could hold a member of an object."""


class HeldEvent(NamedTuple):
    """An event, or what stands between two events, as it came; empty if it was too long to hold.

    Args:
        messages: the message in it, if any; ``None`` for one that cannot be read.
    """

    raw: bytes
    messages: list[bytes | None]

    def saying(self, message: bytes) -> bytes:
        """Return an event with another message, and what the client needs to resume the stream."""
        kept = filter(_RESUMING.fullmatch, LINE_END.split(self.raw))
        return b"\n".join([*kept, b"data: " + message, b"", b""])


class HeldEvents:
    """Cuts a stream into events. One that the end of the stream cuts off is dropped: to a client it is none.

    Args:
        event_bytes_max: the longest event that is held.
    """

    def __init__(self, event_bytes_max: int) -> None:
        self._bytes_max = event_bytes_max
        self._events = EventStream(event_bytes_max)
        self._raw = bytearray()
        self._messages: list[bytes | None] = []
        self._is_lost = False

    @property
    def kept_bytes(self) -> int:
        """What it holds."""
        return len(self._raw)

    def feed(self, data: bytes) -> Iterator[HeldEvent]:
        """Yield the events that end in the next bytes."""
        start = 0
        for end in LINE_END.finditer(data):
            self._add(data[start : end.end()])
            start = end.end()
            if self._events.is_between:
                yield self._take()
        self._add(data[start:])

    def lose(self) -> None:
        """Let go of the event whose end has not come: it is too long to hold."""
        self._is_lost = True
        self._raw.clear()
        self._events.lose()

    def _add(self, part: bytes) -> None:
        if len(self._raw) + len(part) > self._bytes_max:
            self.lose()
        if not self._is_lost:
            self._raw += part
        self._messages += self._events.feed(part)

    def _take(self) -> HeldEvent:
        event = HeldEvent(bytes(self._raw), self._messages)
        self._raw.clear()
        self._messages, self._is_lost = [], False
        return event
