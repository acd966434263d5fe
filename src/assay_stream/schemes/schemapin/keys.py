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
    """A public key on P-256; no other can be represented.

    Args:
        spki_der: the key as DER SubjectPublicKeyInfo, in the one form the library writes.
    """

    spki_der: bytes
    _key: ec.EllipticCurvePublicKey = field(repr=False, compare=False)

    @classmethod
    def from_pem(cls, pem: str) -> PublicKey:
        """Return the key that a PEM text holds.

        Raises:
            InputError: ``key_not_found`` where it is malformed or of another kind or curve; the code is that of
                the SDKs (specification, section 10: such keys must be rejected).
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
        """The name of the key: ``sha256:`` and SHA-256 over its SPKI in hexadecimal (section 8.2)."""
        return str(sha256_of(self.spki_der))

    @property
    def pem(self) -> str:
        spki = serialization.PublicFormat.SubjectPublicKeyInfo
        return self._key.public_bytes(serialization.Encoding.PEM, spki).decode()

    def holds(self, signature: bytes, digest: bytes, mode: Mode) -> bool:
        """Tell whether a signature over a digest was made with the private key of this one.

        Args:
            signature: DER.
            digest: the 32 bytes of a schema digest.
            mode: what it was made over.
        """
        try:
            self._key.verify(signature, digest, _algorithm(mode))
        except InvalidSignature:
            return False
        return True


def verify_digest(digest: bytes, signature: str, key: PublicKey) -> Mode | None:
    """Return the mode in which a signature holds for a schema digest, or ``None`` where it does not.

    Args:
        digest: the 32 bytes of a schema digest: nothing else of the schema is needed.
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
    """Return the private key that a PEM file holds.

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
    """Return a signature over a schema digest, base64 of DER. Not the same twice: ECDSA uses a random number.

    Args:
        digest: the 32 bytes of a schema digest.
        mode: what to sign; the default is what most SDKs check.
    """
    signature = private_key.sign(digest, _algorithm(mode))
    return base64.b64encode(signature).decode()
