"""Streamable HTTP: bodies and server-sent events as JSON-RPC messages, and which headers to forward and serve.

A body is one JSON text, or a stream of server-sent events whose data are JSON texts.
"""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from assay_stream.observe.wire import may_list, params_of

LINE_END = re.compile(rb"\r\n|\r|\n")
_BOM = b"\xef\xbb\xbf"
_LINE = re.compile(rb"[^\r\n]+")
ODD_BREAK = re.compile(rb"[\x0b\x0c\x1c-\x1e]|\xc2\x85|\xe2\x80[\xa8\xa9]")
"""Not line ends by the standard, but to clients that split lines as Python's ``splitlines`` does."""

_RESUMING = re.compile(rb"id:[ !#-~]*|retry:[ 0-9]*")
"""Fields that a client needs to resume a stream, excluding any that could hold an object member."""


class Body:
    """A body parsed as it passes; by itself one without messages."""

    @property
    def kept_bytes(self) -> int:
        """Bytes buffered for an incomplete message."""
        return 0

    def feed(self, data: bytes) -> Iterator[bytes | None]:  # noqa: ARG002 - for bodies with messages
        """Yield the messages that end in ``data``; ``None`` for an unreadable one."""
        yield from ()

    def end(self) -> Iterator[bytes | None]:
        """Yield the messages completed by the end of the body."""
        yield from ()


class Opaque(Body):
    """A body that no MCP client takes for messages."""


class Event(NamedTuple):
    """An event, or the bytes between two, empty if too long to keep; and its messages, ``None`` if unreadable."""

    raw: bytes
    messages: list[bytes | None]

    def saying(self, message: bytes) -> bytes:
        """Return the event with another message, and the fields needed to resume the stream."""
        kept = filter(_RESUMING.fullmatch, LINE_END.split(self.raw))
        return b"\n".join([*kept, b"data: " + message, b"", b""])


class EventStream(Body):
    """A stream of server-sent events; yields the data of each message event, lines joined by line feeds.

    Events of another type, and one cut off by the end of the stream, are not messages. But some clients ignore the
    type, accept a truncated last event, or split lines elsewhere. So what such a client could take for a message
    is reported as unreadable; in fields other than ``data`` and in non-messages, so is whatever may hold a list.

    Args:
        event_bytes_max: the longest event that is kept, field names included.
    """

    def __init__(self, event_bytes_max: int) -> None:
        self._bytes_max = event_bytes_max
        self._event = bytearray()
        """The event so far; of one that is lost, the byte that its latest line begins with."""
        self._line_start = 0
        """Where its latest line begins."""
        self._odd: list[None] = []
        """For each of its lines that is no data, and yet may be taken for a message or hold a list."""
        self._is_first = True
        self._is_lost = self._after_cr = False

    @property
    def kept_bytes(self) -> int:
        return len(self._event)

    def lose(self) -> None:
        self._is_lost = True
        # What the line begins with still tells whether it is the blank one that ends the event.
        self._event = self._event[self._line_start : self._line_start + 1]
        self._line_start = 0

    def feed(self, data: bytes) -> Iterator[bytes | None]:
        for event in self.events(data):
            yield from event.messages
        yield from self._odd
        self._odd.clear()

    def events(self, data: bytes) -> Iterator[Event]:
        """Yield the events that end in ``data``, and the comments between them, which keep a stream alive for days."""
        if not data:
            return
        start, is_rest_of_end = 0, self._after_cr and data.startswith(b"\n")
        for end in LINE_END.finditer(data):
            self._add(data[start : end.start()])
            start, line = end.end(), self._text(self._line_start)
            self._event += end[0]
            if line.partition(b":")[0] != b"data" and _may_be_taken(line):
                self._odd.append(None)
            is_within = self._is_lost or self._line_start > 0
            is_last = not line and not (is_within and is_rest_of_end)
            if is_last or (line.startswith(b":") and not is_within):
                yield Event(b"" if self._is_lost else bytes(self._event), [*self._odd, *self._messages()])
                self._event.clear()
                self._odd.clear()
                self._is_lost = self._is_first = False
            elif self._is_lost:
                self._event.clear()
            self._line_start, is_rest_of_end = len(self._event), False
        self._add(data[start:])
        self._after_cr = data.endswith(b"\r")

    def end(self) -> Iterator[bytes | None]:
        ends = (self._text(self._line_start), *self._messages())
        if any(each is None or may_list(each) for each in ends):
            yield None

    def _add(self, part: bytes) -> None:
        self._event += part
        if self._is_lost or len(self._event) > self._bytes_max:
            self.lose()

    def _text(self, start: int = 0) -> bytes:
        text = bytes(self._event[start:])
        return text.removeprefix(_BOM) if self._is_first and not start else text

    def _messages(self) -> Iterator[bytes | None]:
        """Yield what clients may take the event for, once it has ended."""
        data, kind = bytearray(), None
        if self._is_lost:
            yield None
            return
        for line in map(re.Match.group, _LINE.finditer(self._text())):
            name, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if name == b"data":
                data += b"\n" + value
            elif name == b"event":
                kind = value
        if data and kind in (None, b"", b"message"):
            yield bytes(memoryview(data)[1:])
        elif _may_be_taken(bytes(data)):
            yield None


def _may_be_taken(part: bytes) -> bool:
    """Return True if some client may take a non-message for a message, or find a list in it."""
    return ODD_BREAK.search(part) is not None or may_list(part)


_IDENTITY = "identity"
_OPENS = re.compile(rb"[ \t\r\n]*[{\[]")
READABLE_ENCODINGS = frozenset(("gzip", "x-gzip", "deflate", _IDENTITY))
"""Content encodings that can be decoded here."""


class JsonBody(Body):
    """A body that is one JSON text, in the stated encoding, which servers do not always apply."""

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


class Unreadable(Body):
    """An unreadable body of messages, reported at its first bytes, since its client may act on them."""

    _reported = False

    def feed(self, data: bytes) -> Iterator[bytes | None]:
        if data and not self._reported:
            self._reported = True
            yield None


class Compressed(Body):
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


HeaderFields = Sequence[tuple[str, str]]
"""Header fields in order, including repeated ones."""

LOOPBACK = frozenset(("127.0.0.1", "localhost", "::1"))

_OF_ONE_HOP = frozenset(
    ("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer")
).union(("transfer-encoding", "upgrade"))
_NOT_FORWARDED = frozenset(("host", "expect", "accept-encoding"))
_CHARSET = re.compile(r"charset([^;]*)", re.IGNORECASE)
_QUOTING = str.maketrans("", "", " \t\"'")
UTF_8 = frozenset(("utf-8", "utf8", "us-ascii", "ascii"))
CHARSETS_WITH_ASCII = UTF_8.union(("iso-8859-1", "latin1", "iso-8859-15", "windows-1252"))
"""Charsets in which member names read as in UTF-8; some servers state one by mistake."""

_STATED_ONCE = frozenset(("content-type", "content-encoding", "authorization", "mcp-protocol-version")).union(
    ("mcp-session-id", "mcp-method", "mcp-name")
)

_NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"} | dict.fromkeys(
    ("tasks/get", "tasks/update", "tasks/cancel"), "taskId"
)


def passed_on(fields: HeaderFields) -> list[tuple[str, str]]:
    """Return the fields without hop-by-hop ones (RFC 9110, section 7.6.1)."""
    dropped = _OF_ONE_HOP
    for name, value in fields:
        if name.lower() == "connection":
            dropped = dropped.union(part.strip().lower() for part in value.split(","))
    return [field for field in fields if field[0].lower() not in dropped]


def forwarded(fields: HeaderFields, *, plain: bool = False) -> list[tuple[str, str]]:
    """Return what ``passed_on`` left for the server, offering encodings read here; with ``plain`` none."""
    kept, offered = [], []
    for field in fields:
        name = field[0].lower()
        if name not in _NOT_FORWARDED:
            kept.append(field)
        elif name == "accept-encoding" and not plain:
            parts = (part.strip() for part in field[1].split(","))
            offered += [part for part in parts if part.partition(";")[0].strip().lower() in READABLE_ENCODINGS]
    return [*kept, ("Accept-Encoding", ", ".join(offered) or "identity")]


def is_host_served(host: str, served: Collection[str]) -> bool:
    """Return True if a ``Host`` header names one of the hosts (with any port, or as ``host:port``)."""
    try:
        name = urlsplit(f"//{host}").hostname
    except ValueError:
        return False
    return name is not None and (name in served or host.lower() in served)


def is_origin_served(origin: str, host: str, served: Collection[str], *, is_loopback: bool) -> bool:
    """Return True if a page of this origin may send requests (MCP, Streamable HTTP, security warning)."""
    if origin.lower() in served:
        return True
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    if parts.scheme not in ("http", "https"):
        return False
    return parts.netloc.lower() == host.lower() or (is_loopback and parts.hostname in LOOPBACK)


def mismatch(fields: HeaderFields, message: Mapping[str, Any]) -> str | None:
    """Return the header that contradicts the message: what relies on the headers would misread it."""
    params = params_of(message)
    method = message.get("method")
    member = _NAMED_BY.get(method) if isinstance(method, str) else None
    subject = None if member is None else params.get(member)
    for name, meant in (("Mcp-Method", "" if method is None else method), ("Mcp-Name", subject)):
        stated = first(fields, name)
        if stated is not None and meant is not None and _decoded(stated.strip()) != meant:
            return name
    return None


def repeated(fields: HeaderFields) -> str | None:
    """Return a header that is repeated, or whose underscores only some servers (CGI, WSGI) read as hyphens."""
    seen = set()
    for name, _ in fields:
        meant = name.lower().replace("_", "-")  # as CGI and WSGI have it
        if meant in _STATED_ONCE and (meant in seen or "_" in name):
            return name
        seen.add(meant)
    return None


def _decoded(value: str) -> str | None:
    """Return a header's decoded value: non-ASCII text is encoded as ``=?base64?...?=``."""
    if not (value.startswith("=?base64?") and value.endswith("?=")):
        return value if value.isascii() else None
    try:
        return base64.b64decode(value[9:-2], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


def values_of(fields: Iterable[tuple[str, str]], name: str) -> list[str]:
    name = name.lower()
    length = len(name)
    return [value for field, value in fields if len(field) == length and field.lower() == name]


def first(fields: Iterable[tuple[str, str]], name: str) -> str | None:
    return next(iter(values_of(fields, name)), None)


def is_body_unclear(fields: HeaderFields, *, charsets: Collection[str] = UTF_8) -> bool:
    """Return True if programs may read a body differently, given its headers."""
    types, encodings = values_of(fields, "content-type"), values_of(fields, "content-encoding")
    stated = (found.translate(_QUOTING).lower() for each in types for found in _CHARSET.findall(each))
    if any(not each.startswith("=") or each[1:] not in charsets for each in stated):
        return True
    if len(types) > 1 or len(encodings) > 1 or any("," in each or not each.isascii() for each in types + encodings):
        return True
    # Some clients look for the name anywhere in the field.
    return any("text/event-stream" in each.lower() and not is_event_stream(fields) for each in types)


def is_request_unclear(fields: HeaderFields) -> bool:
    """Return True if servers may not read a request's body as one JSON text in UTF-8."""
    return is_body_unclear(fields) or media_type(first(fields, "content-type")) not in ("", "application/json")


def is_plain(fields: HeaderFields) -> bool:
    """Return True if a body is uncompressed and its headers are unambiguous."""
    return not is_body_unclear(fields) and (first(fields, "content-encoding") or "identity").lower() == "identity"


def is_event_stream(fields: HeaderFields) -> bool:
    return media_type(first(fields, "content-type")) == "text/event-stream"
