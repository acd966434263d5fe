"""DSSE v1 (Dead Simple Signing Envelope), signed with ed25519.

The key id is ``sha256:`` and SHA-256 over the public key as DER SubjectPublicKeyInfo, in hexadecimal. It is a
hint, as the specification has it: what counts is that a signature holds under a key that the reader was given.
"""

import base64
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from assay_stream.canonical.decode import decode_base64
from assay_stream.canonical.digest import sha256_of
from assay_stream.errors import InputError

_SIGNATURES_MAX = 16
"""Signatures of one envelope: each costs a check."""

Keys = Mapping[str, Ed25519PublicKey]
"""Public keys that a reader was given, by their id."""


class Opened(NamedTuple):
    """What an envelope holds whose signature held.

    Args:
        key_ids: whose signatures held, in the envelope's order.
    """

    payload: bytes
    payload_type: str
    key_ids: tuple[str, ...]


def pae(payload_type: str, payload: bytes) -> bytes:
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def key_id(key: Ed25519PublicKey) -> str:
    spki = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return str(sha256_of(spki))


def keys_of(keys: Iterable[Ed25519PublicKey]) -> dict[str, Ed25519PublicKey]:
    return {key_id(key): key for key in keys}


def load_public_key(pem: bytes) -> Ed25519PublicKey:
    """Return the public key that a PEM file holds.

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
    """Return the private key that a PEM file holds.

    Args:
        pem: PKCS #8.
        password: of an encrypted file; ``None`` for one that is not.

    Raises:
        InputError: ``bad_seal_key``; ``bad_seal_key_password`` where only the password is wrong, missing or
            one too many.
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
    """Return the PEM file of a private key: PKCS #8."""
    protection = serialization.NoEncryption() if password is None else serialization.BestAvailableEncryption(password)
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, protection)


def public_pem(key: Ed25519PublicKey) -> bytes:
    """Return the PEM file of a public key: SubjectPublicKeyInfo."""
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def signed(payload_type: str, payload: bytes, keys: Iterable[Ed25519PrivateKey]) -> dict[str, Any]:
    covered = pae(payload_type, payload)
    return {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": payload_type,
        "signatures": [
            {"keyid": key_id(key.public_key()), "sig": base64.b64encode(key.sign(covered)).decode()} for key in keys
        ],
    }


def opened(envelope: Any, keys: Keys) -> Opened:
    """Return what an envelope holds, if at least one signature is of a key that was given.

    Signatures under other key ids are passed over. One under the id of a given key must hold.

    Raises:
        InputError: ``bad_envelope``, ``seal_key_unknown`` or ``seal_signature_invalid``.
    """
    payload_type, signatures = (
        (envelope.get("payloadType"), envelope.get("signatures")) if isinstance(envelope, dict) else (None, None)
    )
    if not isinstance(payload_type, str) or not isinstance(signatures, list) or not signatures:
        raise InputError("bad_envelope", "a DSSE envelope has payload, payloadType and signatures")
    if len(signatures) > _SIGNATURES_MAX:
        raise InputError("bad_envelope", f"an envelope has {_SIGNATURES_MAX} signatures at most")
    payload = _from_base64(envelope.get("payload"), "$.payload")
    covered = pae(payload_type, payload)
    held = []
    for number, signature in enumerate(signatures):
        if not isinstance(signature, dict):
            raise InputError("bad_envelope", "a signature is an object", path=f"$.signatures[{number}]")
        name = signature.get("keyid")
        raw = _from_base64(signature.get("sig"), f"$.signatures[{number}].sig")
        key = keys.get(name) if isinstance(name, str) else None
        if key is None or not isinstance(name, str):
            continue
        try:
            key.verify(raw, covered)
        except InvalidSignature:
            raise InputError(
                "seal_signature_invalid",
                "the signature does not hold under the key that it names: something was altered",
                path=f"$.signatures[{number}]",
            ) from None
        held.append(name)
    if not held:
        raise InputError("seal_key_unknown", "no signature is of a key that was given: add its public key with --key")
    return Opened(payload, payload_type, tuple(held))


def _from_base64(text: Any, path: str) -> bytes:
    """Decode standard or URL-safe base64, as the specification asks of readers."""
    raw = decode_base64(text.translate(_STANDARD)) if isinstance(text, str) else None
    if raw is None:
        raise InputError("bad_envelope", "base64 text is needed, with nothing behind its last byte", path=path)
    return raw


_STANDARD = str.maketrans("-_", "+/")
