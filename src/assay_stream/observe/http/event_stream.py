"""Server-sent events (WHATWG HTML, section 9.2.6) as JSON-RPC messages, passed through or held one by one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from assay_stream.observe.jsonrpc import may_list

LINE_END = re.compile(rb"\r\n|\r|\n")
_BOM = b"\xef\xbb\xbf"
_NAMES = (b"data", b"event")
ODD_BREAK = re.compile(rb"[\x0b\x0c\x1c-\x1e]|\xc2\x85|\xe2\x80[\xa8\xa9]")
"""Not line ends by the standard, but to clients that split lines as Python's ``splitlines`` does."""

_RESUMING = re.compile(rb"id:[ !#-~]*|retry:[ 0-9]*")
"""Fields that a client needs to resume a stream, excluding any that could hold an object member."""


class EventStream:
    """A stream of server-sent events; yields the data of each message event, lines joined by line feeds.

    Events of another type, and one cut off by the end of the stream, are not messages. But some clients ignore the
    type, accept a truncated last event, or split lines elsewhere. So what such a client could take for a message
    is reported as unreadable; in fields other than ``data`` and in non-messages, so is whatever may hold a list.

    Args:
        event_bytes_max: the longest event that is kept, field names included.
    """

    def __init__(self, event_bytes_max: int) -> None:
        self._bytes_max = event_bytes_max
        self._begun = False
        self._line = bytearray()
        self._after_cr = False
        self._event_bytes = 0
        self._lost = False
        self._data: bytearray | None = None
        self._type = b""

    @property
    def kept_bytes(self) -> int:
        return self._event_bytes if self._data is not None or self._line else 0

    @property
    def is_between(self) -> bool:
        return not self._line and not self._event_bytes

    def lose(self) -> None:
        """Discard the incomplete event, as if it were too long."""
        self._lost = True
        self._data = None
        self._line[1:] = b""

    def feed(self, data: bytes) -> Iterator[bytes | None]:
        if not data:
            return
        if self._after_cr:
            data = data.removeprefix(b"\n")
        start = 0
        for end in LINE_END.finditer(data):
            self._grow(data[start : end.start()])
            start = end.end()
            yield from self._line_ends()
        self._grow(data[start:])
        self._after_cr = data.endswith(b"\r")

    def end(self) -> Iterator[bytes | None]:
        if self._lost or any(map(may_list, (bytes(self._data or b""), bytes(self._line)))):
            yield None

    def _grow(self, part: bytes) -> None:
        self._event_bytes += len(part)
        if self._event_bytes > self._bytes_max:
            self.lose()
        if self._lost:
            # What the line begins with still tells whether it is the blank one that ends the event.
            part = b"" if self._line else part[:1]
        self._line += part

    def _line_ends(self) -> Iterator[bytes | None]:
        line = bytes(self._line)
        self._line.clear()
        if not self._begun:
            self._begun = True
            line = line.removeprefix(_BOM)
        if line:
            if line.partition(b":")[0] != b"data" and _may_be_taken(line):
                yield None
            self._field(line)
            return
        data, kind, lost = self._data, self._type, self._lost
        self._data, self._type, self._event_bytes, self._lost = None, b"", 0, False
        if lost:
            yield None
        elif data is not None and kind in (b"", b"message"):
            yield bytes(data)
        elif data is not None and _may_be_taken(bytes(data)):
            yield None

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name not in _NAMES or self._lost:
            if name == b"" and not self._lost:
                self._event_bytes -= min(len(line), self._event_bytes)  # comments keep a stream alive for days
            return
        value = value.removeprefix(b" ")
        if name != b"data":
            self._type = value
        elif self._data is None:
            self._data = bytearray(value)
        else:
            self._data += b"\n" + value


def _may_be_taken(part: bytes) -> bool:
    """Return True if some client may take a non-message for a message, or find a list in it."""
    return ODD_BREAK.search(part) is not None or may_list(part)


class HeldEvent(NamedTuple):
    """An event, or the bytes between two events, unchanged; empty if it was too long to hold.

    Args:
        messages: the message in it, if any; ``None`` for an unreadable one.
    """

    raw: bytes
    messages: list[bytes | None]

    def saying(self, message: bytes) -> bytes:
        """Return the event with another message, keeping the fields that the client needs to resume the stream."""
        kept = filter(_RESUMING.fullmatch, LINE_END.split(self.raw))
        return b"\n".join([*kept, b"data: " + message, b"", b""])


class HeldEvents:
    """Split a stream into events. One cut off by the end of the stream is dropped, as clients drop it.

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
        return len(self._raw)

    def feed(self, data: bytes) -> Iterator[HeldEvent]:
        start = 0
        for end in LINE_END.finditer(data):
            self._add(data[start : end.end()])
            start = end.end()
            if self._events.is_between:
                yield self._take()
        self._add(data[start:])

    def lose(self) -> None:
        """Discard the incomplete event as too long to hold."""
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
