"""Authorisation contexts of requests, derived without keeping credentials.

A list may vary by authorisation, so lists are kept apart by it. What is published is a keyed hash of the issuer, the
subject and the scopes that an access token states (RFC 9068), stable across token refresh; nothing is known of
opaque credentials, which share one published context. That is a claim: tokens are not verified here, and anyone can
forge one. So clients are distinguished by the whole credential, hashed under a key that lives only as long as the
process.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay_stream.canonical.decode import decode_json
from assay_stream.errors import InputError
from assay_stream.limits.serving import HTTP_LIMITS

OPAQUE = "opaque"
_HASH_CHARS = 32


@dataclass(frozen=True, slots=True)
class Context:
    """The authorisation context of a request.

    Args:
        label: the published context; ``None`` if the request has no credentials and nothing was configured.
        client: distinguishes credentials, whatever they claim; never published. Empty without one.
    """

    label: str | None
    client: bytes = b""


class Contexts:
    """Derive contexts from requests.

    Args:
        key: for published labels: the same in every tap whose contexts are to be comparable.
        process_key: for unpublished client hashes; random.
        default: the label of requests without credentials.
    """

    def __init__(self, key: bytes, process_key: bytes, *, default: str | None = None) -> None:
        self._key = key
        self._process_key = process_key
        self._default = default

    def of(self, authorization: str | None) -> Context:
        if authorization is None:
            return Context(self._default)
        client = hmac.digest(self._process_key, authorization.encode("utf-8", "backslashreplace"), "sha256")
        scheme, _, credential = authorization.partition(" ")
        claims = _claims(credential.strip()) if scheme.lower() in ("bearer", "dpop") else None
        if claims is not None and (rights := _rights(claims)):
            return Context("oauth:" + hmac.digest(self._key, rights, "sha256").hex()[:_HASH_CHARS], client)
        return Context(self._default or OPAQUE, client)


def _claims(token: str) -> Mapping[str, Any] | None:
    parts = token.split(".")
    if len(parts) != 3 or len(token) > HTTP_LIMITS.token_chars_max:
        return None
    try:
        payload = base64.b64decode(parts[1] + "=" * (-len(parts[1]) % 4), altchars=b"-_", validate=True)
        claims = decode_json(payload)
    except (binascii.Error, ValueError, InputError):
        return None
    return claims if isinstance(claims, dict) else None


def _rights(claims: Mapping[str, Any]) -> bytes:
    """Return issuer, subject and scopes, unambiguously encoded; empty if the token has neither issuer nor subject."""
    names = [claims.get(name) if isinstance(claims.get(name), str) else None for name in ("iss", "sub")]
    if names == [None, None]:
        return b""
    scopes: set[str] = set()
    for stated in (claims.get("scope"), claims.get("scp")):
        each = stated.split() if isinstance(stated, str) else stated if isinstance(stated, list) else []
        scopes |= {scope for scope in each if isinstance(scope, str)}
    texts = [*("" if name is None else f"={name}" for name in names), *sorted(scopes)]
    return b"".join(len(part).to_bytes(4, "big") + part for part in (text.encode() for text in texts))
