"""HTTP/1.1 client: does not decode bodies or keep cookies, and ignores proxy variables and .netrc by default."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from assay_stream.limits.serving import HTTP_LIMITS, HttpLimits
from assay_stream.observe.http.headers import HeaderFields

_OWN_FIELDS = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")


class UpstreamError(Exception):
    """A server cannot be reached, or its answer breaks off."""


def open_session(
    tls: ssl.SSLContext | bool, timeout: aiohttp.ClientTimeout, *, limits: HttpLimits = HTTP_LIMITS, **options: Any
) -> aiohttp.ClientSession:
    """Return a client session; pass ``allow_redirects=False`` with each request.

    Args:
        tls: trust settings; ``True``: the system's authorities.
        options: further ``ClientSession`` arguments.
    """
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
        self.reason = response.reason or ""
        self.fields: HeaderFields = list(response.headers.items())

    def here(self) -> bytes:
        """Return the body if all of it has arrived; otherwise empty."""
        content = self._response.content
        return content.read_nowait() if content.is_eof() and content.exception() is None else b""

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives.

        Raises:
            UpstreamError: the body is cut off.
        """
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
        self._session = open_session(tls, timeout, limits=limits, skip_auto_headers=_OWN_FIELDS)

    async def send(
        self, method: str, url: str, fields: HeaderFields, body: AsyncIterator[bytes] | bytes | None
    ) -> ResponseHead:
        """Send a request and return the head of its response.

        Raises:
            UpstreamError: the server cannot be reached, or its response is not HTTP.
        """
        try:
            response = await self._session.request(
                method, URL(url, encoded=True), headers=CIMultiDict(fields), data=body, allow_redirects=False
            )
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise UpstreamError from error
        return ResponseHead(response)

    async def close(self) -> None:
        await self._session.close()
