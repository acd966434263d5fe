"""Transparency logs: Merkle trees, the signed notes, checkpoints and proofs that state them as text, and Ed25519 keys.

Trees are those of Certificate Transparency version 2 (RFC 9162, section 2.1), over SHA-256. A tree is identified by its
size and root and never held in memory: roots and proofs take one pass over the leaf hashes and O(log n) memory.

Notes are those of C2SP (signed-note, tlog-checkpoint and tlog-proof), signed with Ed25519. The id of a key is
``sha256:`` and SHA-256 over the public key as DER SubjectPublicKeyInfo (RFC 8410), in hexadecimal.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from assay_stream.canonical.decode import decode_base64
from assay_stream.canonical.digest import sha256_of
from assay_stream.errors import InputError

HASH_BYTES = 32
EMPTY_ROOT = sha256(b"").digest()


def leaf_hash(entry: bytes) -> bytes:
    """Hash a leaf (2.1.1)."""
    return sha256(b"\x00" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Hash an inner node (2.1.1)."""
    return sha256(b"\x01" + left + right).digest()


class Frontier:
    """The right edge of a growing tree: the hashes of its largest complete subtrees, left to right.

    Args:
        size: leaves so far.
        peaks: one hash for each bit set in the size, the highest first.

    Raises:
        InputError: ``bad_frontier`` if the number of hashes does not fit the size.
    """

    __slots__ = ("peaks", "size")

    def __init__(self, size: int = 0, peaks: Iterable[bytes] = ()) -> None:
        self.size = size
        self.peaks = list(peaks)
        if size < 0 or len(self.peaks) != size.bit_count() or any(len(p) != HASH_BYTES for p in self.peaks):
            raise InputError("bad_frontier", "a frontier has one hash of 32 bytes for each bit set in its size")

    def append(self, leaf: bytes) -> None:
        size = self.size
        while size & 1:
            leaf = node_hash(self.peaks.pop(), leaf)
            size >>= 1
        self.peaks.append(leaf)
        self.size += 1

    def root(self) -> bytes:
        if not self.peaks:
            return EMPTY_ROOT
        found = self.peaks[-1]
        for peak in reversed(self.peaks[:-1]):
            found = node_hash(peak, found)
        return found


def inclusion_proof(leaves: Iterable[bytes], index: int, size: int) -> list[bytes]:
    """Return the audit path of a leaf, nearest node first (2.1.3.1).

    Args:
        leaves: leaf hashes of the tree, in order; more than ``size`` are not read.
        index: leaf index, from 0.

    Raises:
        InputError: ``proof_out_of_range``; ``proof_leaves_missing`` if there are fewer leaves than ``size``.
    """
    if not 0 <= index < size:
        raise InputError("proof_out_of_range", "the tree has no such leaf: give an index below its size")
    return _hashes(leaves, size, _path_ranges(index, size))


def consistency_proof(leaves: Iterable[bytes], first: int, second: int) -> list[bytes]:
    """Return the proof that the larger tree extends the smaller (2.1.4.1).

    Args:
        leaves: leaf hashes of the larger tree, in order; more than ``second`` are not read.
        first: leaves of the smaller tree, 1 or more.

    Raises:
        InputError: as ``inclusion_proof``.
    """
    if not 0 < first <= second:
        raise InputError("proof_out_of_range", "a consistency proof goes from 1 or more leaves to as many or more")
    if first == second:
        return []
    return _hashes(leaves, second, _consistency_ranges(first, second))


def inclusion_holds(*, leaf: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes) -> bool:
    """Return True if the proof shows that the leaf is at this index of the tree (2.1.3.2)."""
    if not 0 <= index < size or not _are_hashes([leaf, root, *proof]):
        return False
    number, last, found = index, size - 1, leaf
    for node in proof:
        if last == 0:
            return False
        if number & 1 or number == last:
            found = node_hash(node, found)
            while number and not number & 1:
                number, last = number >> 1, last >> 1
        else:
            found = node_hash(found, node)
        number, last = number >> 1, last >> 1
    return last == 0 and found == root


def consistency_holds(
    *, first: int, first_root: bytes, second: int, second_root: bytes, proof: Sequence[bytes]
) -> bool:
    """Return True if the proof shows that the second tree extends the first (2.1.4.2).

    Args:
        first: leaves of the smaller tree, 1 or more.
    """
    if first == second and first > 0:
        return not proof and first_root == second_root
    if not 0 < first < second or not _are_hashes([first_root, second_root, *proof]):
        return False
    path = list(proof)
    if first & (first - 1) == 0:
        path.insert(0, first_root)
    if not path:
        return False
    number, last = first - 1, second - 1
    while number & 1:
        number, last = number >> 1, last >> 1
    old = new = path[0]
    for node in path[1:]:
        if last == 0:
            return False
        if number & 1 or number == last:
            old, new = node_hash(node, old), node_hash(node, new)
            while number and not number & 1:
                number, last = number >> 1, last >> 1
        else:
            new = node_hash(new, node)
        number, last = number >> 1, last >> 1
    return last == 0 and old == first_root and new == second_root


def _are_hashes(hashes: Iterable[bytes]) -> bool:
    return all(len(found) == HASH_BYTES for found in hashes)


def _split(size: int) -> int:
    """Return the largest power of two smaller than ``size``, which is 2 or more (2.1.1)."""
    return 1 << ((size - 1).bit_length() - 1)


def _path_ranges(index: int, size: int) -> list[tuple[int, int]]:
    """Return the leaf range of each node of an audit path, nearest first."""
    ranges, start, end = [], 0, size
    while end - start > 1:
        middle = start + _split(end - start)
        if index < middle:
            ranges.append((middle, end))
            end = middle
        else:
            ranges.append((start, middle))
            start = middle
    return ranges[::-1]


def _consistency_ranges(first: int, second: int) -> list[tuple[int, int]]:
    """Return the leaf range of each node of a consistency proof: SUBPROOF of 2.1.4.1, unrolled."""
    ranges, start, end, is_whole = [], 0, second, True
    while first != end:
        middle = start + _split(end - start)
        if first <= middle:
            ranges.append((middle, end))
            end = middle
        else:
            ranges.append((start, middle))
            start, is_whole = middle, False
    if not is_whole:
        ranges.append((start, end))
    return ranges[::-1]


def _hashes(leaves: Iterable[bytes], size: int, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
    """Return the roots of non-overlapping ranges, in one pass."""
    ordered = sorted(ranges)
    roots: dict[tuple[int, int], Frontier] = {covered: Frontier() for covered in ordered}
    current, count = 0, 0
    for leaf in leaves:
        if count == size:
            break
        while current < len(ordered) and count >= ordered[current][1]:
            current += 1
        if current < len(ordered) and count >= ordered[current][0]:
            roots[ordered[current]].append(leaf)
        count += 1
    if count < size:
        raise InputError("proof_leaves_missing", f"the tree has {size} leaves, and only {count} were given")
    return [roots[covered].root() for covered in ranges]


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
        why = "this is a private key: give" if b"PRIVATE KEY" in pem else "the public key is malformed: give"
        raise InputError("bad_seal_key", f"{why} a PEM PUBLIC KEY block") from None
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
        why = "this is a public key: give" if b"BEGIN PUBLIC KEY" in pem else "the private key is malformed: give"
        raise InputError("bad_seal_key", f"{why} a PEM PRIVATE KEY block") from None
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
    return sha256(name.encode() + b"\n" + _ED25519 + key.public_bytes_raw()).digest()[:4]


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
    if raw is None or len(raw) != HASH_BYTES:
        raise error
    return raw


def _bad_note() -> InputError:
    return InputError("bad_note", "this is not a signed checkpoint (C2SP tlog-checkpoint)")


def _bad_proof() -> InputError:
    return InputError("bad_proof", "this is not an inclusion proof (C2SP tlog-proof)")
