"""Credentials from files, read when they are needed: one that is replaced counts from the next listing on."""

from __future__ import annotations

from pathlib import Path

from assay_stream.limits.listing import LISTING_LIMITS
from assay_stream.observe.listing.transport import ListingError


def read_credential(file: Path) -> str:
    """Return what a file holds, without the line feed at its end.

    Raises:
        ListingError: ``credentials`` where it cannot be read, or holds what no header or variable may.
    """
    try:
        with file.open("rb") as opened:
            raw = opened.read(LISTING_LIMITS.credential_bytes_max + 1)
        text = raw.decode("ascii").rstrip("\r\n")
    except (OSError, UnicodeDecodeError):
        raise ListingError("credentials") from None
    if len(raw) > LISTING_LIMITS.credential_bytes_max or not text.strip() or not text.isprintable():
        raise ListingError("credentials")
    return text
