"""A webhook: every alert is one POST."""

import asyncio
import ssl
import time
from urllib.parse import urlsplit

import httpx

from assay_stream import __version__
from assay_stream.alerts.formats import AlertView
from assay_stream.errors import ConfigurationError
from assay_stream.forward.delivery import AttemptResult, DeliveryOutcome, http_answer, signature

IDEMPOTENCY_HEADER = "Idempotency-Key"
SIGNATURE_HEADER = "X-Assay-Stream-Signature"

_ANSWER_BYTES_MAX = 65_536
_OURS = frozenset({"content-type", "content-length", "host", "user-agent", "idempotency-key"})


class Webhook:
    """Posts alerts to one address. Redirections are not followed, and proxy variables are not used.

    Raises:
        ConfigurationError: ``bad_header``.
    """

    def __init__(
        self,
        url: str,
        *,
        content_type: str,
        timeout_s: float,
        tls: ssl.SSLContext | bool = True,
        header: tuple[str, str] | None = None,
        secret: bytes | None = None,
    ) -> None:
        headers = {"Content-Type": content_type, "User-Agent": f"assay-stream/{__version__}"}
        if header is not None:
            _check_header(*header)
            headers[header[0]] = header[1]
        parts = urlsplit(url)
        self.name = f"webhook:{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")
        self._url = url
        self._secret = secret
        self._timeout_s = timeout_s
        self._client = httpx.AsyncClient(
            headers=headers, timeout=timeout_s, verify=tls, follow_redirects=False, trust_env=False
        )

    async def send(self, view: AlertView, body: str) -> AttemptResult:
        content, key = body.encode("utf-8"), view.key()
        headers = {IDEMPOTENCY_HEADER: key}
        if self._secret is not None:
            headers[SIGNATURE_HEADER] = signature(self._secret, key=key, body=content)
        try:
            # httpx bounds every wait for bytes; this bounds their sum.
            async with asyncio.timeout(self._timeout_s):
                return await self._post(content, headers)
        except (TimeoutError, httpx.TimeoutException):
            return AttemptResult(outcome=DeliveryOutcome.UNAVAILABLE, code="timeout")
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            return AttemptResult(outcome=DeliveryOutcome.UNAVAILABLE, code=type(error).__name__)

    async def _post(self, content: bytes, headers: dict[str, str]) -> AttemptResult:
        async with self._client.stream("POST", self._url, content=content, headers=headers) as response:
            answer = http_answer(
                response.status_code, retry_after=response.headers.get("retry-after"), now_s=time.time()
            )
            read = 0
            # A short answer is read to its end, so that the connection can be used again.
            async for chunk in response.aiter_raw():
                read += len(chunk)
                if read > _ANSWER_BYTES_MAX:
                    break
            return answer

    async def close(self) -> None:
        await self._client.aclose()


def _check_header(name: str, value: str) -> None:
    token = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    if not token or name.lower() in _OURS or not (value.isascii() and value.isprintable()):
        raise ConfigurationError(
            "bad_header",
            "a further header has a name of letters, digits and hyphens that is not one of ours, "
            "and a value of one line of ASCII",
        )
