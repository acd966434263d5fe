"""Verification, step by step."""

import base64
from hashlib import sha256
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa, x25519
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

from assay_stream.schemes.schemapin import (
    PublicKey,
    SchemaPinErrorCode,
    Verification,
    claims_of,
    expiry_warning,
    load_private_key,
    sign_digest,
    verify,
    verify_digest,
)
from assay_stream.schemes.schemapin_canonical import Mode, schema_digest
from tests.support.errors import raises_code
from tests.support.schemapin import KEY, OTHER_KEY, TOOL, private_pem, public, public_pem, well_known

DIGEST = schema_digest(TOOL)
SIGNATURE = sign_digest(bytes.fromhex(DIGEST.hex), KEY)
FINGERPRINT = public().fingerprint
OTHER = public(OTHER_KEY).fingerprint
MOCK = "-----BEGIN PUBLIC KEY-----\nMOCK\n-----END PUBLIC KEY-----"


@pytest.mark.parametrize(
    ("pinned", "error"),
    [
        (None, None),
        (FINGERPRINT, None),
        (OTHER, SchemaPinErrorCode.KEY_PIN_MISMATCH),
        # An empty pin is a pin: absence is None alone.
        ("", SchemaPinErrorCode.KEY_PIN_MISMATCH),
    ],
    ids=["none", "same", "other", "empty"],  # the keys are made anew by each process
)
def test_how_a_key_stands_to_the_pinned_one(pinned: str | None, error: Any) -> None:
    """Another key than the pinned one is never accepted by itself (section 9), though its signature holds."""
    found = verify(DIGEST, SIGNATURE, well_known(), pinned_fingerprint=pinned)
    assert (found.valid, found.error_code) == (error is None, error)
    assert found.fingerprint == FINGERPRINT


@pytest.mark.parametrize(
    "revocation",
    [{"well_known": well_known(revoked_keys=[FINGERPRINT])}, {"operator_revoked": frozenset({FINGERPRINT})}],
)
def test_a_revoked_key(revocation: dict[str, Any]) -> None:
    document = revocation.pop("well_known", well_known())
    for pinned in (None, FINGERPRINT):
        found = verify(DIGEST, SIGNATURE, document, pinned_fingerprint=pinned, **revocation)
        assert found == Verification(valid=False, fingerprint=FINGERPRINT, error_code=SchemaPinErrorCode.KEY_REVOKED)


@pytest.mark.parametrize(
    ("named", "domain", "matches"),
    [
        ("example.com", "example.com", True),
        ("example.com", "Example.COM.", True),
        ("example.com", None, True),
        (None, "example.com", True),
        ("example.org", "example.com", False),
        ("api.example.com", "example.com", False),
    ],
)
def test_the_domain_of_the_document(named: str | None, domain: str | None, matches: bool) -> None:
    """A document out of a bundle names its domain, which must be the tool's (section 13.1)."""
    found = verify(DIGEST, SIGNATURE, well_known(domain=named), domain=domain)
    assert (found.error_code is SchemaPinErrorCode.DOMAIN_MISMATCH) is not matches
    assert found.valid is matches


def test_the_order_of_the_steps() -> None:
    """Of several reasons the first in the order of the steps is given; each step mended shows the next."""
    bad: dict[str, Any] = {"public_key_pem": MOCK, "domain": "example.org"}
    call: dict[str, Any] = {"domain": "example.com", "pinned_fingerprint": OTHER}
    steps: list[SchemaPinErrorCode | None] = [verify(None, "x", well_known(**bad), **call).error_code]
    del bad["domain"]
    steps.append(verify(None, "x", well_known(**bad), **call).error_code)
    bad = {"revoked_keys": [FINGERPRINT]}
    steps.append(verify(None, "x", well_known(**bad), **call).error_code)
    steps.append(verify(None, "x", well_known(), **call).error_code)
    del call["pinned_fingerprint"]
    steps.append(verify(None, "x", well_known(), **call).error_code)
    steps.append(verify(DIGEST, "x", well_known(), **call).error_code)
    steps.append(verify(DIGEST, SIGNATURE, well_known(), **call).error_code)
    assert steps == [
        SchemaPinErrorCode.DOMAIN_MISMATCH,
        SchemaPinErrorCode.KEY_NOT_FOUND,
        SchemaPinErrorCode.KEY_REVOKED,
        SchemaPinErrorCode.KEY_PIN_MISMATCH,
        SchemaPinErrorCode.SCHEMA_CANONICALIZATION_FAILED,
        SchemaPinErrorCode.SIGNATURE_INVALID,
        None,
    ]


NOON_US = 1_772_366_400_000_000  # 2026-03-01T12:00:00Z


@pytest.mark.parametrize("value", [1, None, "", "x" * 129, "a\nb", "\u202e"])
def test_what_is_no_short_printable_text_is_left_out(value: object) -> None:
    assert claims_of({"expires_at": value}) == {}


@pytest.mark.parametrize(
    ("expires_at", "warning"),
    [
        (None, None),
        ("2026-03-01T12:00:00Z", None),
        ("2026-03-01T11:59:59.999999Z", "signature_expired"),
        ("2026-03-01T14:00:00+02:00", None),
        ("2026-03-01T13:59:59+02:00", "signature_expired"),
        ("soon", "signature_expires_at_unparseable"),
        ("2026-03-01T12:00:00", "signature_expires_at_unparseable"),
    ],
)
def test_a_signature_expires_behind_its_time_and_not_by_what_cannot_be_read(
    expires_at: str | None, warning: str | None
) -> None:
    """Specification, section 16.2: degraded rather than failed, and open where the time is no time."""
    claims = {} if expires_at is None else {"expires_at": expires_at}
    assert expiry_warning(claims, NOON_US) == warning


KEY_DIGEST = sha256(b"schema").digest()
KEY_SIGNATURE = sign_digest(KEY_DIGEST, KEY)
DER = base64.b64decode(KEY_SIGNATURE)
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
        with raises_code("key_not_found", match="wrong kind or curve"):
            PublicKey.from_pem(public_pem(key.public_key()))
        with raises_code("bad_private_key", match="wrong kind or curve"):
            load_private_key(private_pem(key))

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
        with raises_code("key_not_found", match="malformed") as caught:
            PublicKey.from_pem(pem)
        assert "MFkw" not in str(caught.value)

    def test_a_point_off_the_curve(self) -> None:
        der = bytearray(public().spki_der)
        der[-1] ^= 1
        pem = f"-----BEGIN PUBLIC KEY-----\n{b64(bytes(der))}\n-----END PUBLIC KEY-----\n"
        with raises_code("key_not_found"):
            PublicKey.from_pem(pem)

    def test_an_encrypted_private_key(self) -> None:
        """It is refused: there is nobody to ask for its password."""
        pem = KEY.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"password"),
        )
        with raises_code("bad_private_key"):
            load_private_key(pem)

    @pytest.mark.parametrize("pem", [b"", b"\xff", public().pem.encode()])
    def test_a_file_that_holds_no_private_key(self, pem: bytes) -> None:
        with raises_code("bad_private_key"):
            load_private_key(pem)


class TestSignatures:
    def test_truncated_der(self) -> None:
        assert not any(verify_digest(KEY_DIGEST, b64(DER[:length]), public()) for length in range(len(DER)))

    def test_longer_der(self) -> None:
        assert verify_digest(KEY_DIGEST, b64(DER + b"\x00"), public()) is None

    @pytest.mark.parametrize("value", [0, ORDER, ORDER + 1, 2**256, 2**4000])
    def test_numbers_out_of_range(self, value: int) -> None:
        """r and s lie between 1 and the order less one (SEC 1, section 4.1.4)."""
        r, s = decode_dss_signature(DER)
        for pair in ((value, s), (r, value), (value, value)):
            assert verify_digest(KEY_DIGEST, b64(encode_dss_signature(*pair)), public()) is None

    @pytest.mark.parametrize("der", ["30060201ff020101", "3006020101020180", "30040200020101"])
    def test_numbers_that_are_negative_or_missing(self, der: str) -> None:
        """DER can write them; a signature cannot."""
        assert verify_digest(KEY_DIGEST, b64(bytes.fromhex(der)), public()) is None

    def test_line_breaks(self) -> None:
        broken = f"{KEY_SIGNATURE[:40]}\r\n{KEY_SIGNATURE[40:]}\n"
        assert verify_digest(KEY_DIGEST, broken, public()) is Mode.DOUBLE_SHA256
