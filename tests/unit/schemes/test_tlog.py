"""Signed notes, checkpoints and proofs as text, and what Merkle trees refuse.

Roots and proofs of trees are in the conformance and property tests.
"""

import base64

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from assay_stream.errors import InputError
from assay_stream.schemes.tlog import (
    Frontier,
    TlogCheckpoint,
    consistency_proof,
    inclusion_proof,
    is_key_name,
    leaf_hash,
    open_checkpoint_note,
    read_proof,
    sign_note,
    verifier_key,
    write_proof,
)

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER = Ed25519PrivateKey.from_private_bytes(bytes(32))
KEYS, OTHERS = {"ours": KEY.public_key()}, {"theirs": OTHER.public_key()}
BODY = TlogCheckpoint("example.com/log", 3, bytes(32))
NOTE = sign_note(BODY.text, BODY.origin, KEY)
PUBLISHED_VKEY = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k"
"""The example of the signed-note specification."""


def test_a_verifier_key_is_written_as_the_specification_shows() -> None:
    material = base64.b64decode(PUBLISHED_VKEY.split("+", 2)[2])
    key = Ed25519PublicKey.from_public_bytes(material[1:])
    assert verifier_key("example.com/foo", key) == PUBLISHED_VKEY


def test_a_signed_checkpoint_opens() -> None:
    assert open_checkpoint_note(NOTE, KEYS) == (BODY, tuple(KEYS))
    witness = sign_note(BODY.text, "witness.example", OTHER).split("\n\n")[1]
    assert open_checkpoint_note(NOTE + witness, OTHERS | KEYS) == (BODY, tuple(KEYS))


def test_a_signature_by_another_key_does_not_count() -> None:
    with pytest.raises(InputError, match="seal_key_unknown"):
        open_checkpoint_note(NOTE, OTHERS)
    with pytest.raises(InputError, match="seal_key_unknown"):
        open_checkpoint_note(sign_note(BODY.text, "other.example", KEY), KEYS)


def test_an_altered_checkpoint_is_refused() -> None:
    for old, new in (("\n3\n", "\n4\n"), ("AAA=\n\n", "AAA=\nmore\n\n")):
        with pytest.raises(InputError, match="seal_signature_invalid"):
            open_checkpoint_note(NOTE.replace(old, new, 1), KEYS)


@pytest.mark.parametrize(
    "note",
    [
        "",
        NOTE.replace("\n\n", "\n"),
        NOTE.removesuffix("\n"),
        NOTE.replace("\n3\n", "\n03\n"),
        NOTE.replace("\n3\n", "\n-3\n"),
        NOTE.replace("AAA=", "AAB="),
        NOTE.replace("\N{EM DASH}", "-"),
        NOTE.replace("example.com/log\n", "example.com/log +\n"),
        NOTE + "\N{EM DASH} short AAAA\n",
        NOTE + "x" * 65_536,
    ],
)
def test_what_is_not_a_checkpoint_is_refused(note: str) -> None:
    with pytest.raises(InputError, match="bad_note"):
        open_checkpoint_note(note, KEYS)


@pytest.mark.parametrize("name", ["", "a b", "a+b", "a\nb", "a\u2028b"])
def test_names_that_a_signature_line_cannot_hold(name: str) -> None:
    """They would be read as something else."""
    assert not is_key_name(name)


def test_a_proof_reads_back() -> None:
    """Index, path and note; extra data is passed over, since nothing authenticates it."""
    text = write_proof(2, [bytes(32), b"\1" * 32], NOTE)
    for raw in (text, text.replace("\nindex", "\nextra AAAA\nindex", 1)):
        assert read_proof(raw.encode()) == (2, (bytes(32), b"\1" * 32), NOTE)


@pytest.mark.parametrize(
    "text",
    [
        "",
        write_proof(2, [], NOTE).replace("@v1", "@v2"),
        write_proof(2, [], NOTE).replace("index 2", "index 02"),
        write_proof(2, [], NOTE).replace("index 2\n", ""),
        write_proof(2, [b"short"], NOTE),
        "c2sp.org/tlog-proof@v1\nindex 2\n",
    ],
)
def test_what_is_not_a_proof_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="bad_proof"):
        read_proof(text.encode())
    with pytest.raises(InputError, match="bad_proof"):
        read_proof(b"\xff")


LEAF = leaf_hash(b"")


@pytest.mark.parametrize(("size", "peaks"), [(-1, []), (0, [LEAF]), (1, []), (2, [LEAF, LEAF]), (1, [LEAF[:31]])])
def test_a_frontier_that_does_not_fit_its_size_is_refused(size: int, peaks: list[bytes]) -> None:
    with pytest.raises(InputError, match="bad_frontier"):
        Frontier(size, peaks)


@pytest.mark.parametrize(("index", "size"), [(-1, 1), (1, 1), (0, 0)])
def test_no_inclusion_proof_of_a_leaf_that_is_not_there(index: int, size: int) -> None:
    with pytest.raises(InputError, match="proof_out_of_range"):
        inclusion_proof([LEAF] * 2, index, size)


@pytest.mark.parametrize(("first", "second"), [(0, 1), (2, 1)])
def test_no_consistency_proof_from_nothing_or_backwards(first: int, second: int) -> None:
    """RFC 9162 defines it for 0 < m."""
    with pytest.raises(InputError, match="proof_out_of_range"):
        consistency_proof([LEAF] * 2, first, second)


def test_leaves_that_end_too_early_are_told() -> None:
    with pytest.raises(InputError, match="proof_leaves_missing"):
        inclusion_proof([LEAF] * 2, 0, 3)
