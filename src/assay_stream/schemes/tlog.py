"""Signed notes, checkpoints, inclusion proofs and Ed25519 keys of transparency logs.

tlog-proof), signed with Ed25519.

The id is ``sha256:`` and SHA-256 over the public key as DER SubjectPublicKeyInfo (RFC 8410), in hexadecimal.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from assay_stream.canonical.decode import decode_base64
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


NOTE_BYTES_MAX = 65_536
"""More than sixteen post-quantum signatures take, which a reader must accept (signed-note, Format)."""
PROOF_TAG = "c2sp.org/tlog-proof@v1"
_ED25519 = b"\x01"
_DASH = "\N{EM DASH}"
_HASH_BYTES = 32
_NAME = re.compile(r"[^\s+\x00-\x1f]{1,512}")
_DECIMAL = re.compile(r"0|[1-9][0-9]{0,18}")


class TlogCheckpoint(NamedTuple):
    """The body of a checkpoint (tlog-checkpoint, Note text).

    Args:
        origin: names the log.
        tree_size: leaves in the tree.
        root: its root hash, 32 bytes.
        extensions: further lines that the signature covers.
    """

    origin: str
    tree_size: int
    root: bytes
    extensions: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        lines = (self.origin, str(self.tree_size), base64.b64encode(self.root).decode(), *self.extensions)
        return "".join(f"{line}\n" for line in lines)


class TlogProof(NamedTuple):
    """An inclusion proof (tlog-proof, Format).

    Args:
        leaf_index: leaf index, from 0.
        path: from the leaf's sibling up to the root's child, 32 bytes each.
        note: the signed checkpoint, verbatim.
    """

    leaf_index: int
    path: tuple[bytes, ...]
    note: str


def is_key_name(name: str) -> bool:
    """Return True if a signature line may have this name: not empty, no white space or plus (signed-note, Format)."""
    return _NAME.fullmatch(name) is not None


def _key_id(name: str, key: Ed25519PublicKey) -> bytes:
    return hashlib.sha256(name.encode() + b"\n" + _ED25519 + key.public_bytes_raw()).digest()[:4]


def verifier_key(name: str, key: Ed25519PublicKey) -> str:
    """Encode a public key for third-party verifiers (signed-note, Verifier keys).

    Args:
        name: name of the key; for a log, its origin.
    """
    material = base64.b64encode(_ED25519 + key.public_bytes_raw()).decode()
    return f"{name}+{_key_id(name, key).hex()}+{material}"


def sign_note(text: str, name: str, key: Ed25519PrivateKey) -> str:
    """Sign a note.

    Args:
        text: one or more lines, each terminated by a newline.
    """
    signature = base64.b64encode(_key_id(name, key.public_key()) + key.sign(text.encode())).decode()
    return f"{text}\n{_DASH} {name} {signature}\n"


def open_checkpoint_note(note: str, keys: Keys) -> tuple[TlogCheckpoint, tuple[str, ...]]:
    """Verify the log's signature on a note, and return the checkpoint and the ids of the keys that signed it.

    Steps (signed-note, Signatures): signatures under other names or key ids are ignored; one by a known key must
    verify.

    Raises:
        InputError: ``bad_note``, ``seal_key_unknown`` or ``seal_signature_invalid``.
    """
    text, separator, lines = note.rpartition("\n\n")
    text += "\n"
    if not separator or len(note) > NOTE_BYTES_MAX or not lines.endswith("\n"):
        raise _bad_note()
    body = _body(text)
    wanted = {_key_id(body.origin, key): (key_id, key) for key_id, key in keys.items()}
    signers = []
    for line in lines.removesuffix("\n").split("\n"):
        name, raw = _signature(line)
        known = wanted.get(raw[:4]) if name == body.origin else None
        if known is None:
            continue
        try:
            known[1].verify(raw[4:], text.encode())
        except InvalidSignature:
            raise InputError("seal_signature_invalid", "the note's signature is invalid: it was altered") from None
        signers.append(known[0])
    if not signers:
        raise InputError("seal_key_unknown", "none of the given keys signed the note: pass its public key with --key")
    return body, tuple(signers)


def _body(text: str) -> TlogCheckpoint:
    lines = text.split("\n")
    if len(lines) < 4 or not all(lines[:-1]) or any(ord(letter) < 0x20 and letter != "\n" for letter in text):
        raise _bad_note()
    origin, size, root, *extensions, _ = lines
    if not is_key_name(origin) or not _DECIMAL.fullmatch(size):
        raise _bad_note()
    return TlogCheckpoint(origin, int(size), _hash(root, _bad_note()), tuple(extensions))


def _signature(line: str) -> tuple[str, bytes]:
    dash, name, text = line.split(" ") if line.count(" ") == 2 else ("", "", "")
    raw = decode_base64(text)
    if dash != _DASH or not is_key_name(name) or raw is None or len(raw) <= 4:
        raise _bad_note()
    return name, raw


def write_proof(index: int, path: Sequence[bytes], note: str) -> str:
    hashes = "".join(base64.b64encode(node).decode() + "\n" for node in path)
    return f"{PROOF_TAG}\nindex {index}\n{hashes}\n{note}"


def read_proof(raw: bytes) -> TlogProof:
    """Parse an inclusion proof; its note is not verified yet.

    Raises:
        InputError: ``bad_proof``.
    """
    try:
        text = raw.decode() if len(raw) <= NOTE_BYTES_MAX else ""
    except UnicodeDecodeError:
        text = ""
    head, separator, note = text.partition("\n\n")
    lines = head.split("\n")
    if len(lines) > 1 and lines[1].startswith("extra ") and decode_base64(lines[1][6:]) is not None:
        del lines[1]
    if not separator or lines[0] != PROOF_TAG or len(lines) < 2 or not lines[1].startswith("index "):
        raise _bad_proof()
    if not _DECIMAL.fullmatch(lines[1][6:]):
        raise _bad_proof()
    return TlogProof(int(lines[1][6:]), tuple(_hash(line, _bad_proof()) for line in lines[2:]), note)


def _hash(text: str, error: InputError) -> bytes:
    raw = decode_base64(text)
    if raw is None or len(raw) != _HASH_BYTES:
        raise error
    return raw


def _bad_note() -> InputError:
    return InputError("bad_note", "this is not a signed checkpoint (C2SP tlog-checkpoint)")


def _bad_proof() -> InputError:
    return InputError("bad_proof", "this is not an inclusion proof (C2SP tlog-proof)")
