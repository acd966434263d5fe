"""A webhook: every alert is one POST."""

import ssl
from urllib.parse import urlsplit

from assay_stream.alerts.formats import AlertView
from assay_stream.errors import ConfigurationError
from assay_stream.forward.delivery import AttemptResult, signature
from assay_stream.forward.posting import Poster, is_in_the_clear, place_of

IDEMPOTENCY_HEADER = "Idempotency-Key"
SIGNATURE_HEADER = "X-Assay-Stream-Signature"

_OURS = frozenset(
    {
        *("content-type", "content-length", "transfer-encoding", "connection", "host", "user-agent"),
        *(IDEMPOTENCY_HEADER.lower(), SIGNATURE_HEADER.lower()),
    }
)


class Webhook:
    """Posts alerts to one address.

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
        headers = {"Content-Type": content_type}
        if header is not None:
            _check_header(*header)
            headers[header[0]] = header[1]
        if (header is not None or "@" in urlsplit(url).netloc) and is_in_the_clear(url):
            raise ConfigurationError(
                "bad_header",
                "a header or a user in the address is a secret: the address must begin with https:// (http:// on "
                "loopback only)",
            )
        self.name = f"webhook:{place_of(url)}"
        self._url = url
        self._secret = secret
        self._poster = Poster(headers=headers, timeout_s=timeout_s, tls=tls)

    async def send(self, view: AlertView, body: str) -> AttemptResult:
        content, key = body.encode("utf-8"), view.key()
        headers = {IDEMPOTENCY_HEADER: key}
        if self._secret is not None:
            headers[SIGNATURE_HEADER] = signature(self._secret, key=key, body=content)
        return (await self._poster.post(self._url, content, headers)).result

    async def close(self) -> None:
        await self._poster.close()


def _check_header(name: str, value: str) -> None:
    token = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    if not token or name.lower() in _OURS or not (value.isascii() and value.isprintable()):
        raise ConfigurationError(
            "bad_header",
            "a further header has a name of letters, digits and hyphens that is not one of ours, "
            "and a value of one line of ASCII",
        )
