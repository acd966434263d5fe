"""Posts to one address over HTTP, bounded in time and in what is read of an answer.

Certificates are always checked.
"""

import ssl
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from assay_stream import __version__
from assay_stream.forward.delivery import AttemptResult, DeliveryOutcome, http_answer
from assay_stream.observe.http.client import open_session, read_body

_ANSWER_BYTES_MAX = 65_536
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """What came back.

    Args:
        result: what the status alone says about the alert.
        status: HTTP status, 0 where there was no answer.
        body: its first bytes.
    """

    result: AttemptResult
    status: int = 0
    body: bytes = b""


class Poster:
    """Posts over connections that it keeps.

    Args:
        timeout_s: how long one exchange may take.
    """

    def __init__(self, *, headers: dict[str, str], timeout_s: float, tls: ssl.SSLContext | bool) -> None:
        self._headers = {"User-Agent": f"assay-stream/{__version__}", "Accept-Encoding": "identity"} | headers
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None

    async def post(self, url: str, content: bytes, headers: dict[str, str] | None = None) -> HttpAnswer:
        """Post, and return what came back; failures outside this process are answers too."""
        try:
            return await self._exchange(url, content, headers)
        except TimeoutError:
            return _unavailable("timeout")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # A name that no encoding of host names takes is a ValueError.
            return _unavailable(type(error).__name__)

    async def _exchange(self, url: str, content: bytes, headers: dict[str, str] | None) -> HttpAnswer:
        if self._session is None:  # it needs a running loop
            self._session = open_session(self._tls, self._timeout, headers=self._headers)
        address = URL(url, encoded=url.isascii())  # one that is signed must arrive as it was given
        async with self._session.post(address, data=content, headers=headers, allow_redirects=False) as response:
            result = http_answer(response.status, retry_after=response.headers.get("retry-after"), now_s=time.time())
            # A short answer is read to its end, so that the connection can be used again.
            body = await read_body(response, _ANSWER_BYTES_MAX)
            return HttpAnswer(result=result, status=response.status, body=body[:_ANSWER_BYTES_MAX])

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


def place_of(url: str) -> str:
    """Return scheme, host and port of an address: what may be logged of it."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")


def is_in_the_clear(url: str) -> bool:
    """Tell whether others could read what is posted there: plain HTTP beyond this machine."""
    parts = urlsplit(url)
    return parts.scheme != "https" and parts.hostname not in _LOOPBACK


def _unavailable(code: str) -> HttpAnswer:
    return HttpAnswer(result=AttemptResult(outcome=DeliveryOutcome.UNAVAILABLE, code=code))
