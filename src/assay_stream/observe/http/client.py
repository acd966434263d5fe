"""Requests to servers: streamed both ways, never redirected, never decoded, with no header of our own.

HTTP/1.1 goes through aiohttp, which is several times faster here than the one library that speaks HTTP/2, httpx.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.cookiejar
import ssl
from collections.abc import AsyncIterator
from typing import Protocol

import aiohttp
import httpx
from multidict import CIMultiDict
from yarl import URL

from assay_stream.limits.serving import HttpLimits
from assay_stream.observe.http.headers import HeaderFields

_OWN_FIELDS = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")


class UpstreamError(Exception):
    """A server cannot be reached, or its answer breaks off."""


class ResponseHead(Protocol):
    """The head of a response whose body is still to be read."""

    status: int
    reason: str
    fields: HeaderFields

    def here(self) -> bytes:
        """Return the body if all of it has arrived; otherwise nothing."""

    def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives.

        Raises:
            UpstreamError: if it breaks off.
        """

    async def release(self) -> None:
        """Let go of the connection: it is used again if the body was read to its end, otherwise closed."""


class Client(Protocol):
    """Sends requests to servers."""

    async def send(
        self, method: str, url: str, fields: HeaderFields, body: AsyncIterator[bytes] | bytes | None
    ) -> ResponseHead:
        """Send a request and return the head of its response.

        Raises:
            UpstreamError: if the server cannot be reached, or does not answer in HTTP.
        """

    async def close(self) -> None:
        """Close every connection."""


class _Http1Answer:
    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status
        self.reason = response.reason or ""
        self.fields: HeaderFields = list(response.headers.items())

    def here(self) -> bytes:
        content = self._response.content
        return content.read_nowait() if content.is_eof() and content.exception() is None else b""

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._response.content.iter_any():
                yield chunk
        except (aiohttp.ClientError, OSError) as error:
            raise UpstreamError from error

    async def release(self) -> None:
        if not self._response.content.at_eof():
            self._response.close()
        else:
            self._response.release()


class Http1Client:
    """HTTP/1.1 (aiohttp)."""

    def __init__(self, limits: HttpLimits, tls: ssl.SSLContext) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=tls, keepalive_timeout=limits.idle_connection_s),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=_OWN_FIELDS,
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=limits.connect_limit_s),
            max_line_size=limits.header_bytes_max,
            max_field_size=limits.header_bytes_max,
        )

    async def send(
        self, method: str, url: str, fields: HeaderFields, body: AsyncIterator[bytes] | bytes | None
    ) -> ResponseHead:
        try:
            response = await self._session.request(
                method, URL(url, encoded=True), headers=CIMultiDict(fields), data=body, allow_redirects=False
            )
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise UpstreamError from error
        return _Http1Answer(response)

    async def close(self) -> None:
        await self._session.close()


class _Http2Answer:
    def __init__(self, response: httpx.Response) -> None:
        self._response = response
        self.status = response.status_code
        self.reason = response.reason_phrase
        self.fields: HeaderFields = [
            (name.decode("latin-1"), value.decode("latin-1")) for name, value in response.headers.raw
        ]

    def here(self) -> bytes:
        return b""  # httpx does not tell

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._response.aiter_raw():
                yield chunk
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise UpstreamError from error

    async def release(self) -> None:
        await self._response.aclose()


class Http2Client:
    """HTTP/2 where the server offers it over TLS, otherwise HTTP/1.1 (httpx)."""

    def __init__(self, limits: HttpLimits, tls: ssl.SSLContext) -> None:
        self._session = httpx.AsyncClient(
            http2=True,
            verify=tls,
            trust_env=False,
            timeout=httpx.Timeout(None, connect=limits.connect_limit_s),
            limits=httpx.Limits(keepalive_expiry=limits.idle_connection_s),
        )
        # A cookie is its client's: kept here, it would go out with the requests of others.
        self._session.cookies.jar.set_policy(http.cookiejar.DefaultCookiePolicy(allowed_domains=[]))

    async def send(
        self, method: str, url: str, fields: HeaderFields, body: AsyncIterator[bytes] | bytes | None
    ) -> ResponseHead:
        try:
            request = httpx.Request(method, url, headers=list(fields), content=body)
            return _Http2Answer(await self._session.send(request, stream=True, follow_redirects=False))
        except (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL, OSError, ValueError) as error:
            raise UpstreamError from error

    async def close(self) -> None:
        # A stream that is being read does not end by itself; one that ends badly ends all the same.
        with contextlib.suppress(TimeoutError, httpx.HTTPError, OSError):
            await asyncio.wait_for(self._session.aclose(), 1.0)
