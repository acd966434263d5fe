"""Signatures of lockfiles: which bytes they cover, and what is refused."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from assay_stream.errors import InputError
from assay_stream.schemes.mcptrust.hashes import go_canonical
from assay_stream.schemes.mcptrust.signature import canonical_v2, verify_lockfile_signature

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PEM = b"-----BEGIN ED25519 PUBLIC KEY-----\n%s\n-----END ED25519 PUBLIC KEY-----\n" % base64.b64encode(
    KEY.public_key().public_bytes_raw()
)
# The two canonical forms differ in the escapes and in the great number.
DOCUMENT: dict[str, Any] = {"version": "2.0", "server_command": "<s>", "artifact": {"tarball_size": 2**53}, "tools": {}}
RAW = json.dumps(DOCUMENT, indent=2).encode()
V1 = KEY.sign(go_canonical(DOCUMENT)).hex().encode()
V2 = KEY.sign(canonical_v2(DOCUMENT)).hex().encode()


def _refused(raw: bytes, signature: bytes, key: bytes = PEM) -> str:
    with pytest.raises(InputError) as caught:
        verify_lockfile_signature(raw, signature, key)
    return caught.value.code


@pytest.mark.parametrize(
    ("signature", "form"),
    [
        (V1, "v1"),
        (V1 + b"\n", "v1"),
        (b'{"canon_version":"v1"}\n' + V1, "v1"),
        (b'{"canon_version":"v1","sig_type":"ed25519"}\n' + V1, "v1"),
        (b'{"canon_version":"v2"}\n' + V2 + b"\n", "v2"),
    ],
)
def test_a_sound_signature(signature: bytes, form: str) -> None:
    """With a header or without, over the canonical form that it names; white space in the lockfile is free."""
    assert verify_lockfile_signature(RAW, signature, PEM) == form
    assert verify_lockfile_signature(json.dumps(DOCUMENT).encode(), signature, PEM) == form


def test_a_changed_lockfile_is_refused() -> None:
    """One character is enough."""
    assert _refused(RAW.replace(b"<s>", b"<t>"), V1) == "signature_invalid"


def test_another_form_is_refused() -> None:
    """A header cannot make a signature cover the other form."""
    assert _refused(RAW, b'{"canon_version":"v2"}\n' + V1) == "signature_invalid"
    assert _refused(RAW, b'{"canon_version":"v1"}\n' + V2) == "signature_invalid"


def test_another_key_is_refused() -> None:
    """A sound signature by somebody else is none."""
    other = Ed25519PrivateKey.from_private_bytes(bytes(32)).sign(go_canonical(DOCUMENT)).hex().encode()
    assert _refused(RAW, other) == "signature_invalid"


@pytest.mark.parametrize("signature", [b"", b"00", V1[:-2], V1 + b"00"])
def test_a_signature_of_another_length_is_refused(signature: bytes) -> None:
    """Too short and too long alike."""
    assert _refused(RAW, signature) == "signature_invalid"


@pytest.mark.parametrize(
    "signature",
    [
        b"zz",
        V1[:-1],
        "ä".encode(),
        b'{"canon_version":"v3"}\n' + V1,
        b"{}\n" + V1,
        b'{"canon_version":["v1"]}\n' + V1,
        b'{"canon_version":"v1","sig_type":"sigstore_bundle"}\ne30=',
    ],
)
def test_a_signature_file_of_another_kind_is_refused(signature: bytes) -> None:
    """Not hexadecimal, of an unknown form, or a Sigstore bundle."""
    assert _refused(RAW, signature) == "bad_signature_file"


@pytest.mark.parametrize(
    "key",
    [
        b"",
        b"\xff",
        PEM.replace(b"ED25519 PUBLIC", b"PUBLIC"),
        PEM.replace(b"ED25519 PUBLIC", b"ED25519 PRIVATE"),
        b"-----BEGIN ED25519 PUBLIC KEY-----\nAAAA\n-----END ED25519 PUBLIC KEY-----\n",
        PEM.rstrip().removesuffix(b"-----END ED25519 PUBLIC KEY-----")
        + b" " * 1_000_000
        + b"-----END ED25519 PUBLIC KEY-----",
        b"-----BEGIN ED25519 PUBLIC KEY-----\nA\n-----END ED25519 PUBLIC KEY-----\n",
    ],
)
def test_a_key_of_another_kind_is_refused(key: bytes) -> None:
    """Only the block that MCPTrust writes, with 32 bytes in it, is a key."""
    assert _refused(RAW, V1, key) == "bad_public_key"


def test_the_lockfile_is_decoded_strictly() -> None:
    """A signature over one reading of an ambiguous file proves nothing."""
    assert _refused(b'{"a":1,"a":1}', V1) == "duplicate_key"


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ([123456.5, 1234567.5, 0.0001, 0.00001], b"[123456.5,1.2345675e+06,0.0001,1e-05]"),
        ([-2.5e-7, -1e300, 5e-324], b"[-2.5e-07,-1e+300,5e-324]"),
        ([1e6, 2**53 - 1, 2**53, -(2**53)], b"[1000000,9007199254740991,9.007199254740992e+15,-9.007199254740992e+15]"),
        ({"\uff3a": 0.5, "\U0001f600": "<\u2028"}, '{"\U0001f600":"<\u2028","\uff3a":0.5}'.encode()),
        ([0.5, [], {}, True, None], b"[0.5,[],{},true,null]"),
    ],
)
def test_the_canonical_form_v2(value: Any, written: bytes) -> None:
    """RFC 8785 but for numbers, which stand as Go's strconv prints them in format g."""
    assert canonical_v2(value) == written
