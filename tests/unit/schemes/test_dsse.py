"""DSSE v1: encoding, signatures, key ids and what is refused."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from assay_stream.errors import InputError
from assay_stream.schemes.dsse import (
    key_id,
    keys_of,
    load_private_key,
    load_public_key,
    opened,
    pae,
    private_pem,
    public_pem,
    signed,
)

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER = Ed25519PrivateKey.from_private_bytes(bytes(32))
KEYS = keys_of([KEY.public_key()])
TYPE = "http://example.com/HelloWorld"


@pytest.mark.parametrize(
    ("payload_type", "payload", "expected"),
    [
        (TYPE, b"hello world", b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"),
        ("", b"", b"DSSEv1 0  0 "),
        (TYPE, "ಠ".encode(), b"DSSEv1 29 http://example.com/HelloWorld 3 \xe0\xb2\xa0"),
    ],
)
def test_the_encoding_is_that_of_the_specification(payload_type: str, payload: bytes, expected: bytes) -> None:
    """The example of the specification, and those of its reference implementation. Lengths count bytes."""
    assert pae(payload_type, payload) == expected


def test_what_was_signed_is_given_back() -> None:
    """With the ids of the keys whose signatures held."""
    found = opened(signed(TYPE, b"hello world", [KEY]), KEYS)
    assert (found.payload, found.payload_type, found.key_ids) == (b"hello world", TYPE, (key_id(KEY.public_key()),))


def test_the_signature_is_plain_ed25519_over_the_encoding() -> None:
    """Any library can check it."""
    [signature] = signed(TYPE, b"hello world", [KEY])["signatures"]
    covered = b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    KEY.public_key().verify(base64.b64decode(signature["sig"]), covered)


def test_one_key_that_was_given_is_enough_and_others_are_passed_over() -> None:
    """During a rotation two keys sign."""
    assert opened(signed(TYPE, b"x", [OTHER, KEY]), KEYS).key_ids == (key_id(KEY.public_key()),)


def test_an_unknown_key_alone_is_refused() -> None:
    """Its signature may be sound: nobody asked for it."""
    with pytest.raises(InputError, match="seal_key_unknown"):
        opened(signed(TYPE, b"x", [OTHER]), KEYS)


@pytest.mark.parametrize("part", ["payload", "payloadType", "sig"])
def test_an_altered_part_is_refused(part: str) -> None:
    """Payload, type and signature are covered."""
    envelope, other = signed(TYPE, b"x", [KEY]), signed(TYPE + "!", b"y", [KEY])
    if part == "sig":
        envelope["signatures"][0]["sig"] = other["signatures"][0]["sig"]
    else:
        envelope[part] = other[part]
    with pytest.raises(InputError, match="seal_signature_invalid"):
        opened(envelope, KEYS)


@pytest.mark.parametrize(
    "change",
    [
        {"payload": 1},
        {"payload": "%"},
        {"payloadType": None},
        {"signatures": []},
        {"signatures": {}},
        {"signatures": [1]},
        {"signatures": [{"keyid": "a"}]},
        {"signatures": [{"keyid": "a", "sig": "eA=="}] * 17},
    ],
)
def test_what_is_no_envelope_is_refused(change: dict[str, Any]) -> None:
    """By our error, whatever stands there."""
    with pytest.raises(InputError, match="bad_envelope"):
        opened(signed(TYPE, b"x", [KEY]) | change, KEYS)


def test_url_safe_base64_is_read() -> None:
    """The specification asks it of readers."""
    envelope = signed(TYPE, b"\xff\xfe\xfb", [KEY])
    envelope["payload"] = base64.urlsafe_b64encode(b"\xff\xfe\xfb").decode()
    assert "_" in envelope["payload"]
    assert opened(envelope, KEYS).payload == b"\xff\xfe\xfb"


def _pem(key: Any, password: bytes | None = None) -> bytes:
    protection: Any = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    return bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, protection))


def test_keys_are_read_with_and_without_a_password() -> None:
    """PKCS #8, and SubjectPublicKeyInfo."""
    for given, password in ((_pem(KEY), None), (_pem(KEY, b"secret"), b"secret")):
        assert key_id(load_private_key(given, password).public_key()) in KEYS
    public = KEY.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    assert key_id(load_public_key(public)) in KEYS


@pytest.mark.parametrize(
    ("pem", "password", "code"),
    [
        (b"no key", None, "bad_seal_key"),
        (b"no key", b"secret", "bad_seal_key"),
        (_pem(KEY), b"secret", "bad_seal_key_password"),
        (_pem(KEY, b"secret"), None, "bad_seal_key_password"),
        (_pem(KEY, b"secret"), b"other", "bad_seal_key_password"),
        (_pem(ec.generate_private_key(ec.SECP256R1())), None, "bad_seal_key"),
    ],
)
def test_a_private_key_that_is_of_no_use_is_refused(pem: bytes, password: bytes | None, code: str) -> None:
    """Malformed, of another kind, or with the wrong password; the message quotes none of it."""
    with pytest.raises(InputError) as caught:
        load_private_key(pem, password)
    assert caught.value.code == code
    assert "secret" not in str(caught.value)


def test_a_public_key_of_another_kind_is_refused() -> None:
    """Only ed25519 signs here."""
    spki = serialization.PublicFormat.SubjectPublicKeyInfo
    other = ec.generate_private_key(ec.SECP256R1()).public_key().public_bytes(serialization.Encoding.PEM, spki)
    for pem in (other, b"no key"):
        with pytest.raises(InputError, match="bad_seal_key"):
            load_public_key(pem)


@pytest.mark.parametrize("password", [None, b"secret"])
def test_written_keys_are_read_back(password: bytes | None) -> None:
    """A private key with and without a password, and the public one beside it."""
    raw = private_pem(KEY, password)
    assert load_private_key(raw, password).private_bytes_raw() == KEY.private_bytes_raw()
    assert (b"ENCRYPTED" in raw) == (password is not None)
    assert load_public_key(public_pem(KEY.public_key())).public_bytes_raw() == KEY.public_key().public_bytes_raw()
