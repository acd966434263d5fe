"""A webhook: every alert is one POST."""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any, ClassVar
from urllib.parse import urlsplit

from assay_stream.alerts.formats import AlertView, render
from assay_stream.errors import ConfigurationError
from assay_stream.forward.posting import HttpReceiver, Poster
from assay_stream.forward.receivers import AttemptResult, Entry, Setting
from assay_stream.plugins import FORMATS
from assay_stream.text.urls import is_address, is_in_the_clear, is_one_word, place_of

IDEMPOTENCY_HEADER = "Idempotency-Key"
SIGNATURE_HEADER = "X-Assay-Stream-Signature"

_OURS = frozenset(
    {
        *("content-type", "content-length", "transfer-encoding", "connection", "host", "user-agent"),
        *(IDEMPOTENCY_HEADER.lower(), SIGNATURE_HEADER.lower()),
    }
)


_ONE_WORD = "one word of ASCII: write other characters as %XX"


class Webhook(HttpReceiver):
    """Posts alerts to one address.

    Raises:
        ConfigurationError: ``bad_header``, or of the entry.
    """

    settings: ClassVar[Mapping[str, Setting]] = {
        "url": Setting("where alerts are posted, unless `url_file` says it", must_be=_ONE_WORD, is_good=is_one_word),
        "url_file": Setting("file that holds the address, if that is a secret: https only (http on loopback)"),
        "format": Setting("a [format](#formats); `ocsf` by default"),
        "header": Setting("name of a further header"),
        "header_file": Setting("file that holds its value"),
        "hmac_file": Setting("file that holds the secret with which deliveries are signed"),
    }

    def __init__(self, entry: Entry) -> None:
        if ("url" in entry) == ("url_file" in entry):
            raise entry.refuse("give either url or url_file")
        if ("header" in entry) != ("header_file" in entry):
            raise entry.refuse("header is the name of a further header, header_file the file with its value: give both")
        self._url = url = entry["url"] if "url" in entry else entry.secret("url_file")
        if not is_address(url):
            raise entry.refuse("url must be http(s)://HOST/PATH")
        if "url_file" in entry and not is_one_word(url):
            raise entry.refuse(f"url must be {_ONE_WORD}")
        if "url_file" in entry and is_in_the_clear(url):
            raise entry.refuse("an address in a file of its own is a secret: it must be https (http on loopback only)")
        self._format = entry.format("ocsf")
        headers = {"Content-Type": FORMATS.load(self._format).media_type}
        if "header" in entry:
            headers |= _further_header(entry["header"], entry.secret("header_file"))
        if ("header" in entry or "@" in urlsplit(url).netloc) and is_in_the_clear(url):
            raise ConfigurationError(
                "bad_header",
                "a header or a user in the address is a secret: the address must begin with https:// (http:// on "
                "loopback only)",
            )
        self.name = f"webhook:{place_of(url)}"
        self._secret = entry.secret("hmac_file").encode() if "hmac_file" in entry else None
        self._poster = Poster(headers=headers, **entry.connection())

    def write(self, alert: dict[str, Any]) -> str:
        return render(alert, self._format)

    async def send(self, view: AlertView, body: str) -> AttemptResult:
        content, key = body.encode("utf-8"), view.key()
        headers = {IDEMPOTENCY_HEADER: key}
        if self._secret is not None:
            headers[SIGNATURE_HEADER] = signature(self._secret, key=key, body=content)
        return (await self._poster.post(self._url, content, headers)).result


def signature(secret: bytes, *, key: str, body: bytes) -> str:
    """Return the signature of a delivery: HMAC-SHA256 (RFC 2104) over idempotency key, a dot and the body."""
    return "sha256=" + hmac.new(secret, key.encode() + b"." + body, hashlib.sha256).hexdigest()


def _further_header(name: str, value: str) -> dict[str, str]:
    token = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    if not token or name.lower() in _OURS or not (value.isascii() and value.isprintable()):
        raise ConfigurationError(
            "bad_header",
            "a further header must have a name of letters, digits and hyphens that assay-stream does not set, "
            "and a value of one line of ASCII",
        )
    return {name: value}
