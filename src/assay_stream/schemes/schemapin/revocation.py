"""Standalone revocation documents (SchemaPin 1.2, sections 8.5 to 8.7)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay_stream.errors import InputError
from assay_stream.limits import DEFAULT_LIMITS, Limits
from assay_stream.schemes.schemapin.discovery import document_content, document_text

REASONS = frozenset({"key_compromise", "superseded", "cessation_of_operation", "privilege_withdrawn"})
"""The reasons that the specification knows. Another one revokes a key all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Revocations:
    """What a revocation document says.

    Args:
        revoked_keys: their fingerprints, in lower case.
    """

    domain: str
    revoked_keys: frozenset[str]


def parse_revocations(document: bytes | Mapping[str, Any], *, limits: Limits = DEFAULT_LIMITS) -> Revocations:
    """Return what a revocation document says.

    An entry that cannot be read makes the whole document invalid, so that no revocation is passed over.

    Args:
        document: its bytes as they were fetched, or the JSON object in them.
        limits: ``discovery_bytes_max`` and ``identifier_chars_max`` are used.

    Raises:
        InputError: ``discovery_invalid``.
    """
    content = document_content(document, limits)
    domain = document_text(content, "domain", limits)
    if domain is None:
        raise InputError("discovery_invalid", "the document does not say whose keys it revokes", path="$.domain")
    entries = content.get("revoked_keys")
    if not isinstance(entries, list):
        raise InputError("discovery_invalid", "must be a list of revoked keys", path="$.revoked_keys")
    revoked: set[str] = set()
    for index, entry in enumerate(entries):
        fingerprint = entry.get("fingerprint") if isinstance(entry, dict) else None
        if not isinstance(fingerprint, str):
            raise InputError(
                "discovery_invalid",
                "a revoked key must be an object with its fingerprint",
                path=f"$.revoked_keys[{index}]",
            )
        revoked.add(fingerprint.strip().lower())
    return Revocations(domain=domain, revoked_keys=frozenset(revoked))
