"""Keys and signatures of SchemaPin: ECDSA on P-256 with SHA-256, DER, base64 (sections 3, 5, 8.2)."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed

from assay_stream.canonical.digest import sha256_of
from assay_stream.errors import InputError
from assay_stream.schemes.schemapin.canonical import Mode

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
        """Return True if the signature over a digest verifies under this key.

        Args:
            signature: DER.
            digest: the 32 bytes of a schema digest.
            mode: what the signature covers.
        """
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
