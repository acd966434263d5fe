"""The MCP servers behind a tap, and the HTTP/1.1 client that talks to them."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from assay_stream.errors import ConfigurationError
from assay_stream.files.local import entries_of, no_field
from assay_stream.limits import HTTP_LIMITS, HttpLimits
from assay_stream.observe.http.messages import HeaderFields
from assay_stream.observe.observation import Vantage

_OWN_FIELDS = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")


class UpstreamError(Exception):
    """A server cannot be reached, or its answer breaks off."""


def open_session(
    tls: ssl.SSLContext | bool, timeout: aiohttp.ClientTimeout, *, limits: HttpLimits = HTTP_LIMITS, **options: Any
) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=tls, keepalive_timeout=limits.idle_connection_s),
        # A cookie is its client's: kept here, it would go out with the requests of others.
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        timeout=timeout,
        max_line_size=limits.header_bytes_max,
        max_field_size=limits.header_bytes_max,
        **options,
    )


async def read_body(response: aiohttp.ClientResponse, bytes_max: int) -> bytes:
    """Return the body; if it is longer than ``bytes_max``, only its beginning, of more than ``bytes_max`` bytes."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > bytes_max:
            # Closing it in order would wait for a peer that still sends.
            if response.connection is not None and response.connection.transport is not None:
                response.connection.transport.abort()
            break
    return bytes(body)


class ResponseHead:
    """The head of a response whose body is still unread."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status
        # It means nothing, and aiohttp refuses to write some that it reads.
        self.reason = response.reason if response.reason and response.reason.isprintable() else ""
        self.fields: HeaderFields = list(response.headers.items())

    def here(self) -> bytes:
        """Return the body if all of it has arrived; otherwise empty."""
        content = self._response.content
        return content.read_nowait() if content.is_eof() and content.exception() is None else b""

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives; raises ``UpstreamError`` if it is cut off."""
        try:
            async for chunk in self._response.content.iter_any():
                yield chunk
        except (aiohttp.ClientError, OSError) as error:
            raise UpstreamError from error

    async def release(self) -> None:
        """Release the connection: reused if the body was read to its end, otherwise closed."""
        if not self._response.content.at_eof():
            self._response.close()
        else:
            self._response.release()


class Client:
    def __init__(self, limits: HttpLimits, tls: ssl.SSLContext) -> None:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=limits.connect_limit_s)
        # A server may begin as many answers as it has requests, and hold each of them.
        limits = replace(limits, header_bytes_max=limits.answer_field_bytes_max)
        self._session = open_session(tls, timeout, limits=limits, skip_auto_headers=_OWN_FIELDS)

    async def send(
        self, method: str, url: str, fields: HeaderFields, body: AsyncIterator[bytes] | bytes | None
    ) -> ResponseHead:
        """Return the head of a response; raises ``UpstreamError``."""
        try:
            response = await self._session.request(
                method, URL(url, encoded=True), headers=CIMultiDict(fields), data=body, allow_redirects=False
            )
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise UpstreamError from error
        return ResponseHead(response)

    async def close(self) -> None:
        await self._session.close()


WELL_KNOWN = ("/.well-known/oauth-protected-resource", "/.well-known/oauth-authorization-server")
"""Paths for authorisation discovery (RFC 9728, RFC 8414), each followed by the endpoint's path."""

_FIELDS = ("server_id", "url", "path", "auth_context")


def is_endpoint(url: object) -> bool:
    """Return True for ``http(s)://host[:port]/path``, without user name, query or fragment."""
    if not isinstance(url, str) or not url.isascii() or not url.isprintable() or " " in url:
        return False
    try:
        parts = urlsplit(url)
        has_port = parts.port is None or parts.port > 0
    except ValueError:
        return False
    is_plain = parts.username is None and not parts.query and not parts.fragment
    return parts.scheme in ("http", "https") and bool(parts.hostname) and has_port and is_plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """One server: its MCP endpoint, and the tap's path for it. Raises ``bad_upstream``."""

    vantage: Vantage
    url: str
    path: str = ""

    def __post_init__(self) -> None:
        if not is_endpoint(self.url):
            raise ConfigurationError(
                "bad_upstream",
                f"the upstream of {self.vantage.server_id!r} must be http(s)://host[:port]/path, without user name, "
                "query or fragment",
            )
        object.__setattr__(self, "path", self.path or urlsplit(self.url).path or "/")
        if not self.path.startswith("/") or not self.path.isascii() or set(self.path) & set("?#% "):
            raise ConfigurationError(
                "bad_upstream", f"the path of {self.vantage.server_id!r} must begin with / and be plain: /name"
            )

    @property
    def origin(self) -> str:
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"


def routes(upstreams: Sequence[Upstream]) -> dict[str, tuple[Upstream, str]]:
    """Return the server and URL behind each path of the tap; raises ``bad_upstream``."""
    found: dict[str, tuple[Upstream, str]] = {}
    for upstream in upstreams:
        if upstream.path in found:
            raise ConfigurationError("bad_upstream", f"two servers have the path {upstream.path}: give each its own")
        found[upstream.path] = upstream, upstream.url
        behind = urlsplit(upstream.url).path.rstrip("/")
        for place in WELL_KNOWN:
            found[place + upstream.path.rstrip("/")] = upstream, upstream.origin + place + behind
    if len(upstreams) == 1:
        for place in (*WELL_KNOWN, "/.well-known/openid-configuration"):
            found.setdefault(place, (upstreams[0], upstreams[0].origin + place))
    return found


def listed_upstreams(content: object, where: str, observer: Vantage) -> list[Upstream]:
    """Return the servers in the file ``where``; ``observer`` has their defaults. Raises ``bad_upstream``."""
    listed = entries_of(content, "upstreams", where, "bad_upstream", entries_max=HTTP_LIMITS.upstreams_max)
    found = []
    for number, entry in enumerate(listed, 1):
        strange = entry.keys() - _FIELDS if isinstance(entry, dict) else ()
        is_sound = isinstance(entry, dict) and {"server_id", "url", "path"} <= set(entry)
        if strange or not is_sound or not all(isinstance(value, str) for value in entry.values()):
            wanted = "give server_id, url and path, and optionally auth_context, each as text"
            why = no_field(strange, _FIELDS) if strange else wanted
            raise ConfigurationError("bad_upstream", f"{where}, entry {number}: {why}")
        named = {name: entry[name] for name in ("server_id", "auth_context") if name in entry}
        found.append(Upstream(vantage=replace(observer, **named), url=entry["url"], path=entry["path"]))
    return found
