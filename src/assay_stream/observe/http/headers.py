"""HTTP headers: which to forward, which hosts and origins to serve, and whether headers and body agree."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from assay_stream.observe.http.bodies import READABLE_ENCODINGS, media_type
from assay_stream.observe.jsonrpc import params_of

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
