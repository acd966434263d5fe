"""OCSF 1.8.0, class 2004: the alert as it is, in canonical form, one JSON object a line."""

from __future__ import annotations

from typing import Any

from assay_stream.canonical.digest import canonicalize


def to_ocsf(alert: dict[str, Any]) -> str:
    """Return the alert as one line of JSON, every member kept.

    Raises:
        InputError: ``not_canonicalizable`` where a member cannot be written (RFC 8785).
    """
    return canonicalize(alert).decode()
