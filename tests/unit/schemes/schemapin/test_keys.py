"""Keys that are refused, and signatures that do not hold."""

from __future__ import annotations

import base64
from hashlib import sha256
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa, x25519
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

from assay_stream.errors import InputError
from assay_stream.schemes.schemapin.canonical import Mode, PublicKey, load_private_key, sign_digest, verify_digest
from tests.support.schemapin import KEY, OTHER_KEY, private_pem, public, public_pem

DIGEST = sha256(b"schema").digest()
SIGNATURE = sign_digest(DIGEST, KEY)
DER = base64.b64decode(SIGNATURE)
ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""Order of P-256 (SEC 2, section 2.4.2)."""

WRONG_KEYS = {
    "P-384": ec.generate_private_key(ec.SECP384R1()),
    "P-521": ec.generate_private_key(ec.SECP521R1()),
    "secp256k1": ec.generate_private_key(ec.SECP256K1()),
    "RSA": rsa.generate_private_key(65537, 2048),
    "DSA": dsa.generate_private_key(2048),
    "Ed25519": ed25519.Ed25519PrivateKey.generate(),
    "X25519": x25519.X25519PrivateKey.generate(),
}
BLOCK = public().pem


def b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


class TestKeys:
    @pytest.mark.parametrize("kind", WRONG_KEYS)
    def test_other_kinds_and_curves(self, kind: str) -> None:
        """Any other key is refused, public and private (specification, sections 3 and 10)."""
        key: Any = WRONG_KEYS[kind]
        with pytest.raises(InputError, match="wrong kind or curve") as caught:
            PublicKey.from_pem(public_pem(key.public_key()))
        assert caught.value.code == "key_not_found"
        with pytest.raises(InputError, match="wrong kind or curve") as caught:
            load_private_key(private_pem(key))
        assert caught.value.code == "bad_private_key"

    @pytest.mark.parametrize(
        "pem",
        [
            "",
            "no key",
            "-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----\n",
            "-----BEGIN PUBLIC KEY-----\nMOCK\n-----END PUBLIC KEY-----",
            BLOCK[:-30],
            BLOCK.replace("MFkw", "MFkx"),
            BLOCK.replace("PUBLIC", "PRIVATE"),
            "\ud800" + BLOCK,
            private_pem().decode(),
        ],
    )
    def test_malformed(self, pem: str) -> None:
        with pytest.raises(InputError, match="malformed") as caught:
            PublicKey.from_pem(pem)
        assert caught.value.code == "key_not_found"
        assert "MFkw" not in str(caught.value)

    def test_a_point_off_the_curve(self) -> None:
        der = bytearray(public().spki_der)
        der[-1] ^= 1
        pem = f"-----BEGIN PUBLIC KEY-----\n{b64(bytes(der))}\n-----END PUBLIC KEY-----\n"
        with pytest.raises(InputError) as caught:
            PublicKey.from_pem(pem)
        assert caught.value.code == "key_not_found"

    def test_a_key_survives_its_pem(self) -> None:
        assert PublicKey.from_pem(public().pem) == public()
        assert public().fingerprint == f"sha256:{sha256(public().spki_der).hexdigest()}"
        assert public() != public(OTHER_KEY)

    def test_an_encrypted_private_key(self) -> None:
        """It is refused: there is nobody to ask for its password."""
        pem = KEY.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"password"),
        )
        with pytest.raises(InputError) as caught:
            load_private_key(pem)
        assert caught.value.code == "bad_private_key"

    @pytest.mark.parametrize("pem", [b"", b"\xff", public().pem.encode()])
    def test_a_file_that_holds_no_private_key(self, pem: bytes) -> None:
        with pytest.raises(InputError) as caught:
            load_private_key(pem)
        assert caught.value.code == "bad_private_key"


class TestSignatures:
    @pytest.mark.parametrize("mode", Mode)
    def test_the_mode_is_found(self, mode: Mode) -> None:
        signature = sign_digest(DIGEST, load_private_key(private_pem()), mode=mode)
        assert verify_digest(DIGEST, signature, public()) is mode

    def test_another_digest_and_another_key(self) -> None:
        assert verify_digest(sha256(b"other").digest(), SIGNATURE, public()) is None
        assert verify_digest(DIGEST, SIGNATURE, public(OTHER_KEY)) is None

    def test_truncated_der(self) -> None:
        assert not any(verify_digest(DIGEST, b64(DER[:length]), public()) for length in range(len(DER)))

    def test_longer_der(self) -> None:
        assert verify_digest(DIGEST, b64(DER + b"\x00"), public()) is None

    @pytest.mark.parametrize("value", [0, ORDER, ORDER + 1, 2**256, 2**4000])
    def test_numbers_out_of_range(self, value: int) -> None:
        """r and s lie between 1 and the order less one (SEC 1, section 4.1.4)."""
        r, s = decode_dss_signature(DER)
        for pair in ((value, s), (r, value), (value, value)):
            assert verify_digest(DIGEST, b64(encode_dss_signature(*pair)), public()) is None

    @pytest.mark.parametrize("der", ["30060201ff020101", "3006020101020180", "30040200020101"])
    def test_numbers_that_are_negative_or_missing(self, der: str) -> None:
        """DER can write them; a signature cannot."""
        assert verify_digest(DIGEST, b64(bytes.fromhex(der)), public()) is None

    @pytest.mark.parametrize(
        "text",
        ["", "=", "!!!!", SIGNATURE[:-1] + "!", SIGNATURE + "AAAA=", "é", "\ud800", "A" * 5_000_000],
        ids=["none", "padding", "marks", "mark", "more", "é", "surrogate", "long"],
    )
    def test_malformed_base64(self, text: str) -> None:
        assert verify_digest(DIGEST, text, public()) is None

    def test_line_breaks(self) -> None:
        broken = f"{SIGNATURE[:40]}\r\n{SIGNATURE[40:]}\n"
        assert verify_digest(DIGEST, broken, public()) is Mode.DOUBLE_SHA256
