"""A webhook: every alert is one POST."""

import hashlib
import hmac
import ssl
from functools import partial
from urllib.parse import urlsplit

from assay_stream.alerts.formats import CONTENT_TYPES, AlertFormat, AlertView, render
from assay_stream.errors import ConfigurationError
from assay_stream.forward.posting import Poster
from assay_stream.forward.receivers import (
    AttemptResult,
    Entry,
    Plugin,
    Receiver,
    Writer,
    is_address,
    is_in_the_clear,
    is_one_word,
    place_of,
)

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


def signature(secret: bytes, *, key: str, body: bytes) -> str:
    """Return the signature of a delivery: HMAC-SHA256 (RFC 2104) over idempotency key, a dot and the body."""
    return "sha256=" + hmac.new(secret, key.encode() + b"." + body, hashlib.sha256).hexdigest()


def _check_header(name: str, value: str) -> None:
    token = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    if not token or name.lower() in _OURS or not (value.isascii() and value.isprintable()):
        raise ConfigurationError(
            "bad_header",
            "a further header has a name of letters, digits and hyphens that is not one of ours, "
            "and a value of one line of ASCII",
        )


def _make(entry: Entry) -> tuple[Receiver, Writer]:
    if ("url" in entry) == ("url_file" in entry):
        raise entry.refuse("give either url or url_file")
    if ("header" in entry) != ("header_file" in entry):
        raise entry.refuse("header is the name of a further header, header_file the file with its value: give both")
    url = entry.get("url") or entry.secret("url_file")
    if not is_one_word(url):
        raise entry.refuse("url must be one word of ASCII: write other characters as %XX")
    if not is_address(url):
        raise entry.refuse("url is http(s)://HOST/PATH")
    if "url_file" in entry and is_in_the_clear(url):
        raise entry.refuse("an address in a file of its own is a secret: it must be https (http on loopback only)")
    chosen = entry.format(AlertFormat.OCSF)
    receiver = Webhook(
        url,
        content_type=CONTENT_TYPES[chosen],
        header=(entry["header"], entry.secret("header_file")) if "header" in entry else None,
        secret=entry.secret("hmac_file").encode() if "hmac_file" in entry else None,
        **entry.connection(),
    )
    return receiver, partial(render, target=chosen)


PLUGIN = Plugin(
    make=_make,
    fields=frozenset({"url", "url_file", "format", "header", "header_file", "hmac_file"}),
    required=frozenset(),
)
