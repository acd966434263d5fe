"""Keyed digests of arguments and results: without the key they say nothing, and to nobody once it is destroyed.

A digest over few possible values is found by trying them all. A keyed digest is ``hmac-sha256:<key id>:<hex>``:
HMAC-SHA-256 (RFC 2104) over the text of the plain digest, so that whoever has the key finds the calls behind a plain
digest, and a plain digest that somebody else made can be keyed later.
"""

from __future__ import annotations

import hmac
import re
from hashlib import sha256

from assay_stream.canonical.redaction import DEFAULT_REDACTION, Redaction
from assay_stream.errors import ConfigurationError

PREFIX = "hmac-sha256:"
_KEY = re.compile(r"[0-9a-f]{64}")
_PLAIN = re.compile(r"sha256:[0-9a-f]{64}")
_KEYED = re.compile(PREFIX + r"[0-9a-f]{16}:[0-9a-f]{64}")
_ID_DIGITS = 16


class DigestKey:
    """A key of 32 random bytes.

    Args:
        text: 64 lowercase hexadecimal digits. A password would be guessed as the values are.
        redaction: what is left out of values before they are hashed.

    Attributes:
        id: tells keys apart, so that they can change: the first 16 digits of an HMAC under the key.

    Raises:
        ConfigurationError: ``bad_digest_key``.
    """

    def __init__(self, text: str, redaction: Redaction = DEFAULT_REDACTION) -> None:
        if not _KEY.fullmatch(text):
            raise ConfigurationError(
                "bad_digest_key", "a digest key is 32 random bytes as 64 hexadecimal digits: openssl rand -hex 32"
            )
        self.redaction = redaction
        self._secret = bytes.fromhex(text)
        self.id = self._hex("key id")[:_ID_DIGITS]

    def keyed(self, digest: str) -> str | None:
        """Return the keyed form of a plain digest; one that is keyed already stays, and ``None`` stands for others."""
        if _KEYED.fullmatch(digest):
            return digest
        return f"{PREFIX}{self.id}:{self._hex(digest)}" if _PLAIN.fullmatch(digest) else None

    def _hex(self, text: str) -> str:
        return hmac.new(self._secret, text.encode(), sha256).hexdigest()
