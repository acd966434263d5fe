"""Unsigned claims of a signature document (SchemaPin 1.4, sections 16 and 18).

The signature covers none of them. They are kept as information, and can only lower confidence.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

CLAIMS: Final = ("expires_at", "schema_version", "previous_hash")
EXPIRED: Final = "signature_expired"
UNPARSEABLE: Final = "signature_expires_at_unparseable"

_PRINTABLE: Final = re.compile(r"[\x20-\x7e]{1,128}")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def claims_of(document: Mapping[str, Any]) -> dict[str, str]:
    """Return the claims of a signature document that are short, printable text."""
    stated = {name: document.get(name) for name in CLAIMS}
    return {name: text for name, text in stated.items() if isinstance(text, str) and _PRINTABLE.fullmatch(text)}


def expiry_warning(claims: Mapping[str, str], time_us: int) -> str | None:
    """Return the expiry warning of a signature at a given time, if any.

    An expired signature is degraded, not invalid, and an unreadable expiry time has no effect (section 16.2).

    Args:
        time_us: microseconds since the epoch.
    """
    text = claims.get("expires_at")
    if text is None:
        return None
    try:
        since = datetime.fromisoformat(text.upper()) - _EPOCH
    except (ValueError, TypeError, OverflowError):
        return UNPARSEABLE
    expires_us = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    return EXPIRED if time_us > expires_us else None
