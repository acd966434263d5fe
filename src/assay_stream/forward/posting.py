"""Posts to one address over HTTP, bounded in time and in what is read of an answer.

Redirections are not followed, proxy variables are not used, and certificates are always checked.
"""

import asyncio
import ssl
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx

from assay_stream import __version__
from assay_stream.forward.delivery import AttemptResult, DeliveryOutcome, http_answer

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
        self.timeout_s = timeout_s
        self._client = httpx.AsyncClient(
            headers={"User-Agent": f"assay-stream/{__version__}"} | headers,
            timeout=timeout_s,
            verify=tls,
            follow_redirects=False,
            trust_env=False,
        )

    async def post(self, url: str, content: bytes, headers: dict[str, str] | None = None) -> HttpAnswer:
        """Post, and return what came back; failures outside this process are answers too."""
        try:
            # httpx bounds every wait for bytes; this bounds their sum.
            async with asyncio.timeout(self.timeout_s):
                return await self._exchange(url, content, headers)
        except (TimeoutError, httpx.TimeoutException):
            return _unavailable("timeout")
        except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as error:
            # A name that no encoding of host names takes is a UnicodeError.
            return _unavailable(type(error).__name__)

    async def _exchange(self, url: str, content: bytes, headers: dict[str, str] | None) -> HttpAnswer:
        async with self._client.stream("POST", url, content=content, headers=headers) as response:
            result = http_answer(
                response.status_code, retry_after=response.headers.get("retry-after"), now_s=time.time()
            )
            body = b""
            # A short answer is read to its end, so that the connection can be used again.
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > _ANSWER_BYTES_MAX:
                    break
            return HttpAnswer(result=result, status=response.status_code, body=body[:_ANSWER_BYTES_MAX])

    async def close(self) -> None:
        await self._client.aclose()


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
