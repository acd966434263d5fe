"""Signatures and key documents as they are received: reduced to facts, so that a join needs no cryptography.

A signature arrives in the snapshot's ``signatures`` member, by tool (the base64 text, or an object with
``signature``, ``domain`` and the additions of SchemaPin 1.4), or within the tool itself, where its server put it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from assay_stream.bindings.offers import Offer
from assay_stream.canonical.digest import jcs_digest
from assay_stream.errors import InputError
from assay_stream.limits.core import Limits
from assay_stream.model.control import DOMAIN_PATTERN
from assay_stream.model.control_facts import Checked, Discovery, DiscoveryStatus, Signatures, Signed, signature_rows
from assay_stream.model.observation import SnapshotData
from assay_stream.schemes.schemapin.discovery import claims_of, parse_revocations, parse_well_known
from assay_stream.schemes.schemapin.keys import PublicKey, verify_digest

SCHEME = "schemapin.v1"

_FINGERPRINT = re.compile(r"sha256:[0-9a-f]{64}")
_DOMAIN = re.compile(DOMAIN_PATTERN)

_UNREADABLE = ""
"""Stands for an invalid signature or domain: it is present, and matches nothing."""


def signatures_of(data: SnapshotData, offer: Offer, limits: Limits) -> Signatures | None:
    """Return the signatures that came with a snapshot, ``None`` where none did.

    A name with several definitions has no signature: it is unknown which of them it is for.
    """
    stated = data.signatures or {}
    tools: dict[str, Signed] = {}
    for name, full in offer.tools.items() if stated or offer.carried else ():
        if full is None:
            continue
        given: Any = stated.get(name)
        domain = None
        claims: dict[str, str] = {}
        if isinstance(given, dict):
            domain = given.get("domain")
            claims = claims_of(given)
            given = given.get("signature", _UNREADABLE)
        if given is None:
            given = offer.carried.get(name)
        if given is not None:
            digest = offer.fingerprints[full].schemes.get(SCHEME)
            tools[name] = Signed(_domain(domain), _text(given, limits), digest, claims)
    if not tools:
        return None
    covered = jcs_digest(signature_rows(tools))
    return Signatures(server_id=data.server_id, digest=str(covered), tools=tools)


def check_against(signatures: Signatures, document: Discovery) -> Checked:
    key = PublicKey.from_pem(str(document.public_key_pem))
    modes: dict[str, str] = {}
    for name, (_, signature, digest, _) in signatures.tools.items():
        if digest is None:
            continue
        mode = verify_digest(bytes.fromhex(digest.removeprefix("sha256:")), signature, key)
        if mode is not None:
            modes[name] = mode.value
    return Checked(
        server_id=signatures.server_id, signatures=signatures.digest, fingerprint=str(document.fingerprint), modes=modes
    )


def read_document(
    document: Mapping[str, Any] | None, domain: str, revocations: Mapping[str, Any] | None = None
) -> tuple[DiscoveryStatus, PublicKey | None, tuple[str, ...]]:
    """Return the status of a key document, its key, and the keys that it revokes."""
    revoked: frozenset[str] = frozenset()
    try:
        found = parse_well_known(document or {})
        claimed = [found.domain]
        if revocations is not None:
            listed = parse_revocations(revocations)
            revoked = listed.revoked_keys
            claimed.append(listed.domain)
    except InputError:
        return "invalid", None, ()
    if any(name is not None and _plain_domain(name) != domain for name in claimed):
        return "other_domain", None, ()
    try:
        key = PublicKey.from_pem(found.public_key_pem)
    except InputError:
        return "no_key", None, ()
    # Anything else in the document is the domain's own text and names no key: it is not published.
    return "observed", key, tuple(sorted(filter(_FINGERPRINT.fullmatch, found.revoked_keys | revoked)))


def _text(given: Any, limits: Limits) -> str:
    if not isinstance(given, str) or len(given) > limits.signature_chars_max or not given.isascii():
        return _UNREADABLE
    return given


def _domain(given: Any) -> str | None:
    if given is None:
        return None
    name = _plain_domain(given) if isinstance(given, str) else _UNREADABLE
    return name if _DOMAIN.fullmatch(name) else _UNREADABLE


def _plain_domain(name: str) -> str:
    return name.strip().removesuffix(".").lower()
