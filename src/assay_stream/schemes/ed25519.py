"""Ed25519 keys of seals: PEM files, and the id of a public key.

The id is ``sha256:`` and SHA-256 over the public key as DER SubjectPublicKeyInfo (RFC 8410), in hexadecimal.
"""

from collections.abc import Iterable, Mapping

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from assay_stream.canonical.digest import sha256_of
from assay_stream.errors import InputError

Keys = Mapping[str, Ed25519PublicKey]
"""Public keys that a reader was given, by their id."""


def key_id(key: Ed25519PublicKey) -> str:
    spki = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return str(sha256_of(spki))


def keys_of(keys: Iterable[Ed25519PublicKey]) -> dict[str, Ed25519PublicKey]:
    return {key_id(key): key for key in keys}


def load_public_key(pem: bytes) -> Ed25519PublicKey:
    """Load a public key from a PEM file.

    Raises:
        InputError: ``bad_seal_key``.
    """
    try:
        key = serialization.load_pem_public_key(pem)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise InputError("bad_seal_key", "the public key is malformed: give a PEM PUBLIC KEY block") from None
    if not isinstance(key, Ed25519PublicKey):
        raise InputError("bad_seal_key", "the public key is of the wrong kind: ed25519 is needed")
    return key


def load_private_key(pem: bytes, password: bytes | None = None) -> Ed25519PrivateKey:
    """Load a private key from a PEM file.

    Args:
        pem: PKCS #8.
        password: ``None`` for an unencrypted file.

    Raises:
        InputError: ``bad_seal_key``; ``bad_seal_key_password`` if only the password is wrong, missing or not needed.
    """
    try:
        key = serialization.load_pem_private_key(pem, password)
    except TypeError:
        why = "is encrypted and no password was given" if password is None else "is not encrypted: unset the password"
        raise InputError("bad_seal_key_password", f"the private key {why}") from None
    except (ValueError, UnsupportedAlgorithm):
        if password is not None and b"BEGIN ENCRYPTED PRIVATE KEY" in pem:
            raise InputError(
                "bad_seal_key_password", "the password of the private key is wrong, or its file is damaged"
            ) from None
        raise InputError("bad_seal_key", "the private key is malformed: give a PEM PRIVATE KEY block") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise InputError("bad_seal_key", "the private key is of the wrong kind: ed25519 is needed")
    return key


def private_pem(key: Ed25519PrivateKey, password: bytes | None = None) -> bytes:
    """Encode a private key as PEM (PKCS #8)."""
    protection = serialization.NoEncryption() if password is None else serialization.BestAvailableEncryption(password)
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, protection)


def public_pem(key: Ed25519PublicKey) -> bytes:
    """Encode a public key as PEM (SubjectPublicKeyInfo)."""
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
