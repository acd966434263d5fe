"""Verification of a tool's signature: the steps in order, and when a key may be pinned (sections 7.2, 8.3, 15.1).

The order differs from the reference SDK in one place, on purpose: the SDK pins a key on first sight, before checking
the signature, so one bad first contact locks the right key out. Here a key is pinned only after its signature verified.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import StrEnum

from assay_stream.canonical.digest import Digest
from assay_stream.errors import InputError
from assay_stream.schemes.schemapin.canonical import Mode
from assay_stream.schemes.schemapin.discovery import PublicKey, WellKnown, is_revoked, verify_digest


class SchemaPinErrorCode(StrEnum):
    """Why a verification failed; the codes of the SDKs."""

    SIGNATURE_INVALID = "signature_invalid"
    KEY_NOT_FOUND = "key_not_found"
    KEY_REVOKED = "key_revoked"
    KEY_PIN_MISMATCH = "key_pin_mismatch"
    DISCOVERY_FETCH_FAILED = "discovery_fetch_failed"
    DISCOVERY_INVALID = "discovery_invalid"
    DOMAIN_MISMATCH = "domain_mismatch"
    SCHEMA_CANONICALIZATION_FAILED = "schema_canonicalization_failed"


class PinDecision(StrEnum):
    """How a key compares with the pinned one."""

    FIRST_USE = "first_use"
    PINNED = "pinned"
    KEY_PIN_MISMATCH = "key_pin_mismatch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """Result of one verification. Valid identifies the signer, and means nothing about what the tool does.

    Args:
        valid: the signature verifies and its key is accepted.
        mode: what was signed; ``None`` unless the signature verified.
        fingerprint: of the document's key; ``None`` if none could be read.
        error_code: ``None`` if valid.
        pin: how the key compares with the pinned one; ``None`` if that step was not reached. ``first_use`` with
            ``valid`` means: pin this key now.
    """

    valid: bool
    mode: Mode | None = None
    fingerprint: str | None = None
    error_code: SchemaPinErrorCode | None = None
    pin: PinDecision | None = None


def decide_pin(pinned_fingerprint: str | None, fingerprint: str) -> PinDecision:
    """Compare a key with the pinned one. A changed key is never accepted here: only an operator can do that.

    Args:
        pinned_fingerprint: ``sha256:<hex>``, ``None`` if no key is pinned.
    """
    if pinned_fingerprint is None:
        return PinDecision.FIRST_USE
    return PinDecision.PINNED if pinned_fingerprint == fingerprint else PinDecision.KEY_PIN_MISMATCH


def verify(
    digest: Digest | None,
    signature: str,
    well_known: WellKnown | None,
    *,
    pinned_fingerprint: str | None = None,
    domain: str | None = None,
    served_by: str | None = None,
    operator_revoked: AbstractSet[str] = frozenset(),
) -> Verification:
    """Verify the signature of a tool from its schema digest. Never raises.

    Args:
        digest: schema digest of the tool, ``None`` if it has no canonical form.
        signature: base64 of DER.
        well_known: ``None`` if it could not be fetched.
        pinned_fingerprint: ``sha256:<hex>`` of the key pinned for this tool and domain, if any.
        domain: the domain the tool belongs to, if configured by the operator.
        served_by: the domain that the document was fetched from, if known.
        operator_revoked: fingerprints revoked by the operator, regardless of the document.
    """
    # 1. There is a sound discovery document (what is not sound has not become a WellKnown).
    if well_known is None:
        return Verification(valid=False, error_code=SchemaPinErrorCode.DISCOVERY_FETCH_FAILED)
    # 2. It belongs to the tool's domain.
    claimed = {_plain_domain(name) for name in (domain, served_by, well_known.domain) if name is not None}
    if len(claimed) > 1:
        return Verification(valid=False, error_code=SchemaPinErrorCode.DOMAIN_MISMATCH)
    # 3. It holds a key on P-256.
    try:
        key = PublicKey.from_pem(well_known.public_key_pem)
    except InputError:
        return Verification(valid=False, error_code=SchemaPinErrorCode.KEY_NOT_FOUND)
    fingerprint = key.fingerprint
    # 4. The key is not revoked; looked up each time.
    if is_revoked(well_known, fingerprint) or fingerprint in operator_revoked:
        return Verification(valid=False, fingerprint=fingerprint, error_code=SchemaPinErrorCode.KEY_REVOKED)
    # 5. It is the pinned key, or none is pinned yet.
    pin = decide_pin(pinned_fingerprint, fingerprint)
    if pin is PinDecision.KEY_PIN_MISMATCH:
        return Verification(
            valid=False, fingerprint=fingerprint, error_code=SchemaPinErrorCode.KEY_PIN_MISMATCH, pin=pin
        )
    # 6. The tool has a canonical form.
    if digest is None:
        code = SchemaPinErrorCode.SCHEMA_CANONICALIZATION_FAILED
        return Verification(valid=False, fingerprint=fingerprint, error_code=code, pin=pin)
    # 7. The signature over its digest holds. Only now may the caller pin the key.
    mode = verify_digest(bytes.fromhex(digest.hex), signature, key)
    if mode is None:
        return Verification(
            valid=False, fingerprint=fingerprint, error_code=SchemaPinErrorCode.SIGNATURE_INVALID, pin=pin
        )
    return Verification(valid=True, mode=mode, fingerprint=fingerprint, pin=pin)


def _plain_domain(name: str) -> str:
    return name.strip().removesuffix(".").lower()
