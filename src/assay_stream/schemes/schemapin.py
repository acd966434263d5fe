"""SchemaPin (ThirdKeyAI/SchemaPin): keys and signatures (ECDSA on P-256), the documents of a domain, verification.

Pure: the clock, the network and key generation are up to the caller. Covers SchemaPin 1.1, the revocation documents of
1.2, and expiry and lineage of 1.4; not DNS records, trust bundles and skill signatures.

A signature does not cover the further claims of its document: they are kept as information, and only lower confidence.

The order differs from the reference SDK in one place, on purpose: the SDK pins a key on first sight, before checking
the signature, so one bad first contact locks the right key out. Here a key is pinned only after its signature verified.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping, Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed

from assay_stream.canonical.decode import decode_json
from assay_stream.canonical.digest import Digest, sha256_of
from assay_stream.errors import InputError
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.schemes.schemapin_canonical import Mode, canonical
from assay_stream.text.times import time_us_in

_SIGNATURE_CHARS_MAX = 1_024
"""A signature has 96 characters at most; the rest is room for line breaks."""


def _algorithm(mode: Mode) -> ec.ECDSA:
    return ec.ECDSA(hashes.SHA256() if mode is Mode.DOUBLE_SHA256 else Prehashed(hashes.SHA256()))


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A public key on P-256; no other curve can be represented.

    Args:
        spki_der: DER SubjectPublicKeyInfo, as encoded by the library.
    """

    spki_der: bytes
    _key: ec.EllipticCurvePublicKey = field(repr=False, compare=False)

    @classmethod
    def from_pem(cls, pem: str) -> PublicKey:
        """Parse a PEM public key.

        Raises:
            InputError: ``key_not_found`` if it is malformed or of another type or curve; the SDKs use the same code
                (specification, section 10: such keys must be rejected).
        """
        try:
            key = serialization.load_pem_public_key(pem.encode())
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise InputError("key_not_found", "the public key is malformed: give a PEM PUBLIC KEY block") from None
        if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
            raise InputError("key_not_found", "the public key is of the wrong kind or curve: P-256 is needed")
        return cls.of(key)

    @classmethod
    def of(cls, key: ec.EllipticCurvePublicKey) -> PublicKey:
        spki = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
        return cls(spki, key)

    @property
    def fingerprint(self) -> str:
        """``sha256:`` and the SHA-256 of the key's SPKI in hexadecimal (section 8.2)."""
        return str(sha256_of(self.spki_der))

    @property
    def pem(self) -> str:
        spki = serialization.PublicFormat.SubjectPublicKeyInfo
        return self._key.public_bytes(serialization.Encoding.PEM, spki).decode()

    def holds(self, signature: bytes, digest: bytes, mode: Mode) -> bool:
        """Return True if the signature, in DER, over the 32 bytes of a schema digest verifies under this key."""
        try:
            self._key.verify(signature, digest, _algorithm(mode))
        except InvalidSignature:
            return False
        return True


def verify_digest(digest: bytes, signature: str, key: PublicKey) -> Mode | None:
    """Return the mode in which a signature verifies for a schema digest, or ``None`` if it does not.

    Args:
        digest: the 32 bytes of a schema digest; the schema itself is not needed.
        signature: base64 of DER; line breaks are ignored, anything else makes it invalid.
    """
    if len(signature) > _SIGNATURE_CHARS_MAX:
        return None
    try:
        der = binascii.a2b_base64("".join(signature.split()).encode("ascii"), strict_mode=True)
    except ValueError:
        return None
    return next((mode for mode in Mode if key.holds(der, digest, mode)), None)


def load_private_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    """Load a private key from a PEM file.

    Raises:
        InputError: ``bad_private_key``.
    """
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise InputError(
            "bad_private_key", "the private key is malformed or encrypted: give a plain PEM file"
        ) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise InputError("bad_private_key", "the private key is of the wrong kind or curve: P-256 is needed")
    return key


def sign_digest(digest: bytes, private_key: ec.EllipticCurvePrivateKey, *, mode: Mode = Mode.DOUBLE_SHA256) -> str:
    """Sign a schema digest; base64 of DER. Not deterministic: ECDSA uses a random nonce.

    Args:
        digest: the 32 bytes of a schema digest.
        mode: the default is what most SDKs check.
    """
    signature = private_key.sign(digest, _algorithm(mode))
    return base64.b64encode(signature).decode()


CLAIMS: Final = ("expires_at", "schema_version", "previous_hash")
EXPIRED: Final = "signature_expired"
UNPARSEABLE: Final = "signature_expires_at_unparseable"

_PRINTABLE: Final = re.compile(r"[\x20-\x7e]{1,128}")


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
    expires_us = time_us_in(text)
    if expires_us is None:
        return UNPARSEABLE
    return EXPIRED if time_us > expires_us else None


_VERSION = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){1,2}")
_BARE_SHA256 = re.compile(r"[0-9a-f]{64}")
_PEM_MARK = "-----BEGIN PUBLIC KEY-----"


@dataclass(frozen=True, slots=True, kw_only=True)
class WellKnown:
    """A discovery document, of any version: what versions add is optional (section 12).

    Args:
        public_key_pem: the key, not yet parsed: a document may be valid though its key is not.
        revoked_keys: fingerprints in lower case.
        domain: the domain the document claims; only documents from bundles have it (section 13.1).
        revocation_endpoint: URL of the domain's revocation document, if it has one (section 8.5).
    """

    public_key_pem: str
    revoked_keys: frozenset[str] = frozenset()
    domain: str | None = None
    revocation_endpoint: str | None = None


def parse_well_known(document: bytes | Mapping[str, Any]) -> WellKnown:
    """Parse a discovery document.

    Raises:
        InputError: ``discovery_invalid``.
    """
    content = _content(document)
    version = _member(content, "schema_version")
    if version is None or not _VERSION.fullmatch(version):
        raise _invalid('the version is missing or no version: write "1.1"', "$.schema_version")
    pem = content.get("public_key_pem")
    if not isinstance(pem, str) or _PEM_MARK not in pem:
        raise _invalid("the key is missing or no PEM PUBLIC KEY block: publish one", "$.public_key_pem")
    revoked_keys = _revoked_keys(content)
    for name in ("developer_name", "contact"):
        _member(content, name)
    return WellKnown(
        public_key_pem=pem,
        revoked_keys=revoked_keys,
        domain=_member(content, "domain"),
        revocation_endpoint=_member(content, "revocation_endpoint"),
    )


def build_well_known(
    key: PublicKey, *, developer_name: str, contact: str | None = None, revoked_keys: Iterable[str] = ()
) -> dict[str, Any]:
    """Build a discovery document of version 1.1.

    Args:
        revoked_keys: fingerprints of the revoked keys.
    """
    document: dict[str, Any] = {
        "schema_version": "1.1",
        "developer_name": developer_name,
        "public_key_pem": key.pem,
        "revoked_keys": list(revoked_keys),
    }
    return document if contact is None else document | {"contact": contact}


def _content(document: bytes | Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        raw = document if isinstance(document, bytes) else canonical(dict(document))
        if len(raw) > DEFAULT_LIMITS.discovery_bytes_max:
            raise InputError("too_large", f"{len(raw)} bytes, {DEFAULT_LIMITS.discovery_bytes_max} are allowed")
        content = decode_json(raw)
    except InputError as error:
        raise _invalid(f"the document is refused: {error.message}", error.path) from None
    if not isinstance(content, dict):
        raise _invalid("the document must be one JSON object", "$")
    return content


def _revoked_keys(content: Mapping[str, Any]) -> frozenset[str]:
    listed = content.get("revoked_keys")
    if listed is None:
        return frozenset()
    if not isinstance(listed, list) or not all(isinstance(entry, str) for entry in listed):
        raise _invalid("revoked keys must be a list of fingerprints", "$.revoked_keys")
    return frozenset(map(_fingerprint, listed))


def _fingerprint(entry: str) -> str:
    """Return an entry in the form of ``PublicKey.fingerprint``: a revocation must not fail on its spelling."""
    text = entry.strip().lower()
    return f"sha256:{text}" if _BARE_SHA256.fullmatch(text) else text


def _member(content: Mapping[str, Any], name: str) -> str | None:
    """Return a string member, ``None`` if it is absent or ``null``."""
    text = content.get(name)
    if text is None:
        return None
    if not isinstance(text, str) or len(text) > DEFAULT_LIMITS.identifier_chars_max:
        raise _invalid(f"must be a string of {DEFAULT_LIMITS.identifier_chars_max} characters at most", f"$.{name}")
    return text


def _invalid(message: str, path: str) -> InputError:
    return InputError("discovery_invalid", message, path=path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Revocations:
    """A parsed revocation document: a domain and fingerprints in lower case."""

    domain: str
    revoked_keys: frozenset[str]


def parse_revocations(document: bytes | Mapping[str, Any]) -> Revocations:
    """Parse a revocation document.

    One unreadable entry makes the whole document invalid, so that no revocation is missed.

    Args:
        document: the fetched bytes, or the decoded JSON object.

    Raises:
        InputError: ``discovery_invalid``.
    """
    content = _content(document)
    domain = _member(content, "domain")
    if domain is None:
        raise _invalid("the document does not say whose keys it revokes", "$.domain")
    entries = content.get("revoked_keys")
    if not isinstance(entries, list):
        raise _invalid("must be a list of revoked keys", "$.revoked_keys")
    revoked: set[str] = set()
    for index, entry in enumerate(entries):
        fingerprint = entry.get("fingerprint") if isinstance(entry, dict) else None
        if not isinstance(fingerprint, str):
            raise _invalid("a revoked key must be an object with its fingerprint", f"$.revoked_keys[{index}]")
        revoked.add(_fingerprint(fingerprint))
    return Revocations(domain=domain, revoked_keys=frozenset(revoked))


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """Result of one verification. Valid identifies the signer, and means nothing about what the tool does.

    Args:
        valid: the signature verifies and its key is accepted.
        mode: what was signed; ``None`` unless the signature verified.
        fingerprint: of the document's key; ``None`` if none could be read.
        error_code: ``None`` if valid.
    """

    valid: bool
    mode: Mode | None = None
    fingerprint: str | None = None
    error_code: SchemaPinErrorCode | None = None


def verify(
    digest: Digest | None,
    signature: str,
    well_known: WellKnown,
    *,
    pinned_fingerprint: str | None = None,
    domain: str | None = None,
    operator_revoked: AbstractSet[str] = frozenset(),
) -> Verification:
    """Verify the signature of a tool from its schema digest. Never raises.

    Args:
        digest: schema digest of the tool, ``None`` if it has no canonical form.
        signature: base64 of DER.
        pinned_fingerprint: ``sha256:<hex>`` of the key pinned for this tool and domain, if any.
        domain: the domain the tool belongs to, if configured by the operator.
        operator_revoked: fingerprints revoked by the operator, regardless of the document.
    """
    # 1. There is a sound discovery document: what is not sound has not become a WellKnown.
    # 2. It belongs to the tool's domain.
    if len({plain_domain(name) for name in (domain, well_known.domain) if name is not None}) > 1:
        return _refused(SchemaPinErrorCode.DOMAIN_MISMATCH)
    # 3. It holds a key on P-256.
    try:
        key = PublicKey.from_pem(well_known.public_key_pem)
    except InputError:
        return _refused(SchemaPinErrorCode.KEY_NOT_FOUND)
    fingerprint = key.fingerprint
    # 4. The key is not revoked; looked up each time.
    if fingerprint in well_known.revoked_keys or fingerprint in operator_revoked:
        return _refused(SchemaPinErrorCode.KEY_REVOKED, fingerprint)
    # 5. It is the pinned key, or none is pinned yet. Only an operator accepts a changed one.
    if pinned_fingerprint not in (None, fingerprint):
        return _refused(SchemaPinErrorCode.KEY_PIN_MISMATCH, fingerprint)
    # 6. The tool has a canonical form.
    if digest is None:
        return _refused(SchemaPinErrorCode.SCHEMA_CANONICALIZATION_FAILED, fingerprint)
    # 7. The signature over its digest holds. Only now may the caller pin the key.
    mode = verify_digest(bytes.fromhex(digest.hex), signature, key)
    if mode is None:
        return _refused(SchemaPinErrorCode.SIGNATURE_INVALID, fingerprint)
    return Verification(valid=True, mode=mode, fingerprint=fingerprint)


def _refused(code: SchemaPinErrorCode, fingerprint: str | None = None) -> Verification:
    return Verification(valid=False, fingerprint=fingerprint, error_code=code)


def plain_domain(name: str) -> str:
    """Return a domain as it is compared: in lower case, without the dot of the root."""
    return name.strip().removesuffix(".").lower()
