"""Verification, step by step."""

from __future__ import annotations

from typing import Any

import pytest

from assay_stream.schemes.schemapin.canonical import Mode, schema_digest, sign_digest
from assay_stream.schemes.schemapin.verification import (
    PinDecision,
    SchemaPinErrorCode,
    Verification,
    decide_pin,
    verify,
)
from tests.support.schemapin import KEY, OTHER_KEY, TOOL, public, well_known

DIGEST = schema_digest(TOOL)
SIGNATURE = sign_digest(bytes.fromhex(DIGEST.hex), KEY)
FINGERPRINT = public().fingerprint
OTHER = public(OTHER_KEY).fingerprint
MOCK = "-----BEGIN PUBLIC KEY-----\nMOCK\n-----END PUBLIC KEY-----"


def test_first_use() -> None:
    found = verify(DIGEST, SIGNATURE, well_known())
    assert found == Verification(
        valid=True, mode=Mode.DOUBLE_SHA256, fingerprint=FINGERPRINT, pin=PinDecision.FIRST_USE
    )
    assert found.pins_key


def test_the_single_mode_is_named() -> None:
    signature = sign_digest(bytes.fromhex(DIGEST.hex), KEY, mode=Mode.SINGLE_SHA256)
    assert verify(DIGEST, signature, well_known()).mode is Mode.SINGLE_SHA256


def test_the_pinned_key() -> None:
    found = verify(DIGEST, SIGNATURE, well_known(), pinned_fingerprint=FINGERPRINT)
    assert (found.valid, found.pin, found.pins_key) == (True, PinDecision.PINNED, False)


def test_a_changed_key_is_refused_though_its_signature_holds() -> None:
    """Another key than the pinned one is never accepted by itself (section 9)."""
    found = verify(DIGEST, SIGNATURE, well_known(), pinned_fingerprint=OTHER)
    assert (found.valid, found.error_code) == (False, SchemaPinErrorCode.KEY_PIN_MISMATCH)
    assert (found.fingerprint, found.pins_key) == (FINGERPRINT, False)


def test_a_bad_first_contact_pins_nothing() -> None:
    """A key whose signature did not hold is not to be pinned: the reference SDK would have pinned it."""
    found = verify(schema_digest(TOOL | {"description": "Else."}), SIGNATURE, well_known())
    assert (found.valid, found.error_code, found.mode) == (False, SchemaPinErrorCode.SIGNATURE_INVALID, None)
    assert (found.pin, found.pins_key) == (PinDecision.FIRST_USE, False)


@pytest.mark.parametrize(
    "revocation",
    [{"well_known": well_known(revoked_keys=[FINGERPRINT])}, {"operator_revoked": frozenset({FINGERPRINT})}],
)
def test_a_revoked_key(revocation: dict[str, Any]) -> None:
    document = revocation.pop("well_known", well_known())
    for pinned in (None, FINGERPRINT):
        found = verify(DIGEST, SIGNATURE, document, pinned_fingerprint=pinned, **revocation)
        assert found == Verification(valid=False, fingerprint=FINGERPRINT, error_code=SchemaPinErrorCode.KEY_REVOKED)


def test_the_revocation_of_another_key_changes_nothing() -> None:
    assert verify(DIGEST, SIGNATURE, well_known(revoked_keys=[OTHER]), operator_revoked={OTHER}).valid


@pytest.mark.parametrize(
    ("names", "matches"),
    [
        ({"domain": "example.com", "served_by": "example.com"}, True),
        ({"domain": "Example.COM.", "served_by": "example.com"}, True),
        ({"domain": "example.com"}, True),
        ({"served_by": "example.com"}, True),
        ({"domain": "example.com", "served_by": "example.org"}, False),
        ({"domain": "example.com", "served_by": "api.example.com"}, False),
    ],
)
def test_the_domain_of_the_document(names: dict[str, str], matches: bool) -> None:
    found = verify(DIGEST, SIGNATURE, well_known(), **names)  # type: ignore[arg-type]
    assert (found.error_code is SchemaPinErrorCode.DOMAIN_MISMATCH) is not matches
    assert found.valid is matches


def test_the_domain_that_a_document_names_itself() -> None:
    """A document out of a bundle names its domain, which must be the tool's (section 13.1)."""
    document = well_known(domain="example.org")
    assert verify(DIGEST, SIGNATURE, document, domain="example.org").valid
    found = verify(DIGEST, SIGNATURE, document, domain="example.com")
    assert found.error_code is SchemaPinErrorCode.DOMAIN_MISMATCH


def test_the_order_of_the_steps() -> None:
    """Of several reasons the first in the order of the steps is given; each step mended shows the next."""
    bad: dict[str, Any] = {"public_key_pem": MOCK, "domain": "example.org"}
    call: dict[str, Any] = {"domain": "example.com", "pinned_fingerprint": OTHER}
    steps: list[SchemaPinErrorCode | None] = [verify(None, "x", None, **call).error_code]
    steps.append(verify(None, "x", well_known(**bad), **call).error_code)
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
        SchemaPinErrorCode.DISCOVERY_FETCH_FAILED,
        SchemaPinErrorCode.DOMAIN_MISMATCH,
        SchemaPinErrorCode.KEY_NOT_FOUND,
        SchemaPinErrorCode.KEY_REVOKED,
        SchemaPinErrorCode.KEY_PIN_MISMATCH,
        SchemaPinErrorCode.SCHEMA_CANONICALIZATION_FAILED,
        SchemaPinErrorCode.SIGNATURE_INVALID,
        None,
    ]


def test_how_a_key_stands_to_the_pinned_one() -> None:
    assert decide_pin(None, FINGERPRINT) is PinDecision.FIRST_USE
    assert decide_pin(FINGERPRINT, FINGERPRINT) is PinDecision.PINNED
    assert decide_pin(OTHER, FINGERPRINT) is PinDecision.KEY_PIN_MISMATCH


def test_a_pin_that_is_no_fingerprint_matches_nothing() -> None:
    """An empty pin is a pin: absence is None alone."""
    assert (
        verify(DIGEST, SIGNATURE, well_known(), pinned_fingerprint="").error_code is SchemaPinErrorCode.KEY_PIN_MISMATCH
    )
