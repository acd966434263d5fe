"""Parse Streamable HTTP bodies as JSON-RPC messages: incrementally, in bounded memory, without modifying a byte.

A body is one JSON text, or a stream of server-sent events (``observe.http.event_stream``) whose data are JSON texts.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from typing import Protocol

from assay_stream.observe.http.event_stream import EventStream

_IDENTITY = "identity"
_OPENS = re.compile(rb"[ \t\r\n]*[{\[]")
READABLE_ENCODINGS = frozenset(("gzip", "x-gzip", "deflate", _IDENTITY))
"""Content encodings that can be decoded here."""


class Body(Protocol):
    """A body parsed as it passes."""

    @property
    def kept_bytes(self) -> int:
        """Bytes buffered for an incomplete message."""

    def feed(self, data: bytes) -> Iterator[bytes | None]:
        """Yield the messages that end in ``data``; ``None`` for an unreadable one."""

    def end(self) -> Iterator[bytes | None]:
        """Yield the messages completed by the end of the body."""


class JsonBody:
    """A body that is one JSON text.

    Args:
        bytes_max: the longest text that is kept.
        content_encoding: the stated encoding, which servers do not always apply.
    """

    def __init__(self, bytes_max: int, content_encoding: str | None = None) -> None:
        self._bytes_max = bytes_max
        self._encoding = content_encoding
        # One buffer: a list of parts would take many times their size where a server sends them byte by byte.
        self._text = bytearray()
        self._size_bytes = 0

    @property
    def kept_bytes(self) -> int:
        return len(self._text)

    @property
    def is_lost(self) -> bool:
        return self._size_bytes > self._bytes_max

    def feed(self, data: bytes) -> Iterator[bytes | None]:
        self._size_bytes += len(data)
        if self.is_lost:
            self._text = bytearray()
        else:
            self._text += data
        yield from ()

    def end(self) -> Iterator[bytes | None]:
        if self.is_lost:
            yield None
        elif self._text:
            text = bytes(self._text)
            # Nothing that is compressed begins as JSON does.
            encoding = None if _OPENS.match(text) else self._encoding
            yield plain_body(text, encoding, message_bytes_max=self._bytes_max)


class Opaque:
    """A body that no MCP client takes for messages."""

    kept_bytes = 0

    def feed(self, data: bytes) -> Iterator[bytes | None]:  # noqa: ARG002 - the protocol's
        yield from ()

    def end(self) -> Iterator[bytes | None]:
        yield from ()


class Unreadable:
    """An unreadable body of messages, reported at its first bytes, since its client may act on them."""

    kept_bytes = 0

    def __init__(self) -> None:
        self._reported = False

    def feed(self, data: bytes) -> Iterator[bytes | None]:
        if data and not self._reported:
            self._reported = True
            yield None

    def end(self) -> Iterator[bytes | None]:
        yield from ()


class Compressed:
    """A compressed body, decompressed in steps of bounded size; reported once decoding fails."""

    _STEP_BYTES = 256 * 1_024

    def __init__(self, inner: Body) -> None:
        self._inner = inner
        self._inflate: zlib._Decompress | None = None
        self._head = b""
        self._broken = False

    @property
    def kept_bytes(self) -> int:
        return self._inner.kept_bytes

    def feed(self, data: bytes) -> Iterator[bytes | None]:
        if self._inflate is None:
            self._head += data
            if len(self._head) < 2:
                return
            data, self._head = self._head, b""
            self._inflate = zlib.decompressobj(_window_bits(data))
        more = True
        while more and not self._broken:
            try:
                plain = self._inflate.decompress(data, self._STEP_BYTES)
            except zlib.error:
                yield from self._breaks()
                return
            data = self._inflate.unconsumed_tail
            more = bool(data) or len(plain) == self._STEP_BYTES
            yield from self._inner.feed(plain)
            # Some clients read on after the end, others stop there. And a text too long to keep is not worth inflating.
            if self._inflate.unused_data or (isinstance(self._inner, JsonBody) and self._inner.is_lost):
                yield from self._breaks()

    def end(self) -> Iterator[bytes | None]:
        if self._broken:
            return
        is_cut_off = self._inflate is not None and not self._inflate.eof and isinstance(self._inner, JsonBody)
        if is_cut_off or self._head:
            yield from self._breaks()
        else:
            yield from self._inner.end()

    def _breaks(self) -> Iterator[None]:
        self._broken = True
        self._inner = Opaque()
        yield None


def _window_bits(head: bytes) -> int:
    """Return the ``wbits`` for zlib: some servers send "deflate" without its header (RFC 9110, section 8.4.1.2)."""
    is_zlib = head[0] & 0x0F == zlib.DEFLATED and int.from_bytes(head[:2], "big") % 31 == 0
    return zlib.MAX_WBITS | 32 if is_zlib or head[:2] == b"\x1f\x8b" else -zlib.MAX_WBITS


def media_type(content_type: str | None) -> str:
    return (content_type or "").partition(";")[0].strip().lower()


def body_of(content_type: str | None, content_encoding: str | None, *, message_bytes_max: int) -> Body:
    kind, encoding = media_type(content_type), _encoding(content_encoding)
    body: Body
    if kind == "text/event-stream":
        body = EventStream(message_bytes_max)
    elif "json" in kind or not kind:
        body = JsonBody(message_bytes_max)
    else:
        return Opaque()
    if encoding not in READABLE_ENCODINGS:
        return Unreadable()
    return body if encoding == _IDENTITY else Compressed(body)


def _encoding(content_encoding: str | None) -> str:
    return (content_encoding or "").strip().lower() or _IDENTITY


def plain_body(data: bytes, content_encoding: str | None, *, message_bytes_max: int) -> bytes | None:
    """Return a complete body as the JSON text that it should be; ``None`` if it cannot be decompressed reliably."""
    encoding = _encoding(content_encoding)
    if not data or encoding == _IDENTITY:
        return data if len(data) <= message_bytes_max else None
    if encoding not in READABLE_ENCODINGS:
        return None
    # Never "deflate" without its header: the same bytes may be JSON to a server that ignores the encoding.
    inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)
    try:
        plain = inflate.decompress(data, message_bytes_max + 1)
    except zlib.error:
        return None
    is_whole = inflate.eof and not inflate.unused_data and len(plain) <= message_bytes_max
    return plain if is_whole else None
