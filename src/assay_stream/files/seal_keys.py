"""The key files of seals: the private one that a sealer signs with, and the public ones that a reader trusts."""

from __future__ import annotations

import stat
from collections.abc import Iterable
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from assay_stream.errors import InputError
from assay_stream.schemes import dsse

_KEY_BYTES_MAX = 16_384
_SHARED = stat.S_IWGRP | stat.S_IRWXO


def read_private_key(path: Path, password: str | None) -> Ed25519PrivateKey:
    """Return the private key of a file that nobody but its owner and group can read, and its owner alone write.

    Args:
        path: a PEM file.
        password: of an encrypted file; ``None`` or empty for one that is not.

    Raises:
        InputError: ``seal_key_missing``, ``unreadable_file``, ``seal_key_exposed``; as ``dsse.load_private_key``,
            with the path in the message.
    """
    pem = _read(path, "the public key of the old one with --also-trust continues its chain under a new one")
    if path.stat().st_mode & _SHARED:
        raise InputError(
            "seal_key_exposed", f"others can read or write {path}: chmod 600, and think of it as known to them"
        )
    try:
        return dsse.load_private_key(pem, password.encode() if password else None)
    except InputError as error:
        raise InputError(error.code, f"{path}: {error.message}") from None


def read_public_keys(paths: Iterable[Path]) -> dict[str, Ed25519PublicKey]:
    """Return public keys by their ids.

    Args:
        paths: PEM files.

    Raises:
        InputError: ``seal_key_missing``, ``unreadable_file``; as ``dsse.load_public_key``, with the path in the
            message.
    """
    keys = []
    for path in paths:
        pem = _read(path, "whoever holds the private key can make its public key again")
        try:
            keys.append(dsse.load_public_key(pem))
        except InputError as error:
            raise InputError(error.code, f"{path}: {error.message}") from None
    return dsse.keys_of(keys)


def _read(path: Path, where_lost: str) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_KEY_BYTES_MAX)
    except FileNotFoundError:
        raise InputError(
            "seal_key_missing", f"there is no key file {path}: check the path. If it is lost: {where_lost}"
        ) from None
    except OSError as error:
        raise InputError("unreadable_file", f"cannot read {path}: {error.strerror}") from None
