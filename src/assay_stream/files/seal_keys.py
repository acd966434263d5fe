"""The key files of seals: the private one that a sealer signs with, and the public ones that a reader trusts."""

import stat
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TypeVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from assay_stream.errors import InputError
from assay_stream.files.failures import reading
from assay_stream.schemes import ed25519

_KEY_BYTES_MAX = 16_384
_SHARED = stat.S_IWGRP | stat.S_IRWXO
_Key = TypeVar("_Key")


def read_private_key(path: Path, password: str | None) -> Ed25519PrivateKey:
    """Return the private key in a PEM file that only its owner can write, and only its owner and group can read.

    Raises:
        InputError: ``seal_key_missing``, ``unreadable_file``, ``seal_key_exposed``; as ``ed25519.load_private_key``,
            with the path in the message.
    """
    pem = _read(path, "the public key of the old one with --also-trust continues its chain under a new one")
    if path.stat().st_mode & _SHARED:
        raise InputError(
            "seal_key_exposed", f"others can read or write {path}: chmod 600, and treat the key as known to them"
        )
    return _loaded(path, partial(ed25519.load_private_key, pem, password.encode() if password else None))


def read_public_keys(paths: Iterable[Path]) -> dict[str, Ed25519PublicKey]:
    """Load public keys from PEM files, by key id.

    Raises:
        InputError: ``seal_key_missing``, ``unreadable_file``; as ``ed25519.load_public_key``, with the path in the
            message.
    """
    keys = []
    for path in paths:
        pem = _read(path, "whoever holds the private key can derive it again")
        keys.append(_loaded(path, partial(ed25519.load_public_key, pem)))
    return ed25519.keys_of(keys)


def _loaded(path: Path, load: Callable[[], _Key]) -> _Key:
    try:
        return load()
    except InputError as error:
        raise InputError(error.code, f"{path}: {error.message}") from None


def _read(path: Path, if_lost: str) -> bytes:
    if not path.exists():
        raise InputError("seal_key_missing", f"there is no key file {path}: check the path. If it is lost: {if_lost}")
    with reading(path), path.open("rb") as file:
        return file.read(_KEY_BYTES_MAX)
